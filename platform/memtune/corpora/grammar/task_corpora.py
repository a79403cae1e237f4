"""Task corpora of the embedded grammar: a separate corpus per task, sampled independently of the text."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from memtune.corpora.grammar import completion_questions, inference_pairs, labelled_phrases
from memtune.corpora.importing.importer import ImportResult, import_corpus
from memtune.corpora.store.corpus_store import CorpusStore
from memtune.corpora.store.manifest import ImportOptions
from memtune.corpora.text_blocks import Example
from memtune.errors import CorpusError, did_you_mean

_TASK_GENERATORS: Mapping[str, tuple[Mapping[str, int], Callable[[str], Iterable[Example]]]] = {
    "completion": (completion_questions.SPLIT_SIZES, completion_questions.generate_questions),
    "sentiment": (labelled_phrases.SPLIT_SIZES, labelled_phrases.generate_examples),
    "inference": (inference_pairs.SPLIT_SIZES, inference_pairs.generate_examples),
}
GRAMMAR_TASKS = tuple(_TASK_GENERATORS)
"""Tasks with a separate corpus; the text itself has the annotations for agreement and trees."""


def import_grammar_task(
    task: str, name: str, store: str | Path | CorpusStore | None = None, *, replace: bool = False
) -> ImportResult:
    """Imports the data of one of the GRAMMAR_TASKS as corpus `name`.

    The completion corpus has questions only and is joined with the grammar's text. Raises CorpusError for an
    unknown task, and the errors of import_corpus.
    """
    if task not in _TASK_GENERATORS:
        raise CorpusError(f'the grammar has no task "{task}"; {did_you_mean(task, GRAMMAR_TASKS)}')
    sizes, examples = _TASK_GENERATORS[task]
    return import_corpus(
        name,
        {split: examples(split) for split in sizes},
        store,
        ImportOptions(vocabulary="all", unknown="refuse"),
        licence="drawn from memtune's own grammar",
        replace=replace,
    )
