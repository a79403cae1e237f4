"""Small corpora with the annotations that the tables of papers need."""

from collections.abc import Iterator
from typing import Any

from memtune.corpora import Example, ImportOptions, import_corpus
from memtune.corpora.grammar.embedded_corpus import generate_sentences
from memtune.corpora.store.vocabulary import VectorFile
from memtune.experiments.published_tables import PublishedTable
from memtune.settings import Settings

__all__ = ["import_small_corpora"]

COUNTS = {"train": 120, "valid": 40, "test": 40}
WORDS_PER_LINE = 12
"""Within the lengths of the protocol of Tran et al.; one length fills their batches of 20."""


def import_small_corpora(settings: Settings, table: PublishedTable, vectors: VectorFile | None = None) -> str:
    """Import a corpus for the task of a table; returns its name."""
    task = table.make_trial(table.rows[-1], "paper").trial.task.kind
    make = {"language_modelling": _make_lines}.get(task, _make_annotated)
    import_corpus(
        "small",
        {split: list(make(split, count)) for split, count in COUNTS.items()},
        settings.corpus_store,
        ImportOptions(vocabulary="all"),
        vectors=vectors,
    )
    return "small"


def _make_lines(split: str, count: int) -> Iterator[Example]:
    """Lines of the grammar's text, all of one length."""
    words = [word for sentence in generate_sentences(split, 2 * count) for word in sentence.words]
    for place in range(min(count, len(words) // WORDS_PER_LINE)):
        yield Example([words[WORDS_PER_LINE * place : WORDS_PER_LINE * (place + 1)]], {})


def _make_annotated(split: str, count: int) -> Iterator[Example]:
    """Two sentences that differ in one word, with trees and the annotations of all other tasks."""
    for index, sentence in enumerate(generate_sentences(split, count)):
        words, last = list(sentence.words), len(sentence.words) - 1
        other = [*words[:last], "other"]
        tree = (sentence.heads, sentence.relations)
        rows: dict[str, list[tuple[Any, ...]]] = {
            "trees": [tree, tree],
            "sentiment": [(0, 0, len(words), index % 5, True)],
            "agreement": [(0, last, words[last], "other", index % 4)],
            "inference": [(0, 1, index % 3)],
            "completion": [(0, 2, last, 0, str(index))],
        }
        yield Example([words, other], rows)
