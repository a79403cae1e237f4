"""Task corpora of the embedded grammar: a separate corpus per task, sampled independently of the text."""

from pathlib import Path

from memtune.corpora.grammar import completion_questions, inference_pairs, labelled_phrases
from memtune.corpora.grammar.embedded_corpus import draw_items
from memtune.corpora.importing.importer import ImportResult, import_corpus
from memtune.corpora.store.corpus_store import CorpusStore
from memtune.corpora.store.manifest import ImportOptions
from memtune.errors import CorpusError, did_you_mean

_MODULES = {"completion": completion_questions, "sentiment": labelled_phrases, "inference": inference_pairs}
GRAMMAR_TASKS = tuple(_MODULES)
"""Tasks with a separate corpus; the text itself has the annotations for agreement and trees."""


def import_grammar_task(
    task: str, name: str, store: str | Path | CorpusStore | None = None, *, replace: bool = False
) -> ImportResult:
    """Imports the data of one of the GRAMMAR_TASKS as corpus `name`.

    The completion corpus has questions only and is joined with the grammar's text. Raises CorpusError for an
    unknown task, and the errors of import_corpus.
    """
    if task not in _MODULES:
        raise CorpusError(f'the grammar has no task "{task}"; {did_you_mean(task, GRAMMAR_TASKS)}')
    module = _MODULES[task]
    return import_corpus(
        name,
        {
            split: draw_items(module.SEEDS[split], size, module.make_example)
            for split, size in module.SPLIT_SIZES.items()
        },
        store,
        ImportOptions(vocabulary="all", unknown="refuse"),
        licence="drawn from memtune's own grammar",
        replace=replace,
    )
