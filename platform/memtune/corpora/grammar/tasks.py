"""The embedded grammar's data for tasks: each a corpus of its own, drawn apart from the text."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from memtune.corpora.examples import Example
from memtune.corpora.grammar import completion, inference, sentiment
from memtune.corpora.importing import Imported, import_corpus
from memtune.corpora.location import Store
from memtune.corpora.manifest import ImportOptions
from memtune.errors import CorpusError, did_you_mean

__all__ = ["TASKS", "import_grammar_task"]

_Source = tuple[Mapping[str, int], Callable[[str], Iterable[Example]]]
_SOURCES: Mapping[str, _Source] = {
    "completion": (completion.SPLIT_SIZES, completion.questions),
    "sentiment": (sentiment.SPLIT_SIZES, sentiment.labelled),
    "inference": (inference.SPLIT_SIZES, inference.examples),
}
TASKS = tuple(_SOURCES)
"""What the grammar has data for, beside agreement and trees, which its text carries itself."""


def import_grammar_task(
    task: str, name: str, store: str | Path | Store, *, replace: bool = False, cache: Path | None = None
) -> Imported:
    """Imports the data of one of the TASKS as corpus `name`; raises what import_corpus does.

    Those of completion are questions alone, to be joined with the grammar's text.
    """
    if task not in _SOURCES:
        raise CorpusError(f'the grammar has no task "{task}"; {did_you_mean(task, TASKS)}')
    sizes, examples = _SOURCES[task]
    return import_corpus(
        name,
        {split: examples(split) for split in sizes},
        store,
        ImportOptions(vocabulary="all", unknown="refuse"),
        licence="drawn from memtune's own grammar",
        replace=replace,
        cache=cache,
    )
