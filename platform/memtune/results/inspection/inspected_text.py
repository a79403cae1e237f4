"""The text that an inspected model reads: a split of its corpus or of another one, or a given sentence."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from memtune.corpora import Corpus, open_corpus
from memtune.corpora.store.vocabulary import UNK
from memtune.errors import ConfigurationError, CorpusError
from memtune.results.inspection.inspected_model import InspectedModel
from memtune.results.other_texts import make_reader, read_other_text
from memtune.values import Value

MISSING = -1


class TextChoice(Value):
    """Which text a model reads; without any field its own validation split."""

    split: Literal["train", "valid", "test"] = "valid"
    corpus: str | None = None
    """Another corpus of the store, whose words are looked up in the model's vocabulary; None is its own."""
    sentences: int | None = Field(None, ge=1)
    """The number of sentences from the start of the split; None is all."""
    text: str | None = None
    """Words separated by blanks, in place of a split."""


@dataclass(frozen=True)
class WordTree:
    """The dependency tree of a sentence."""

    heads: tuple[int, ...]
    """The position of each word's head; -1 for a root."""
    relations: tuple[str, ...]
    """Each word's relation to its head."""


@dataclass(frozen=True)
class InspectedSentence:
    """A sentence in the words of the model's vocabulary."""

    number: int
    """Counted from 0 within its split; 0 for a given text."""
    ids_W: NDArray[np.int64]
    """Its words, without `<eos>`."""
    tree: WordTree | None = None


def read_sentences(model: InspectedModel, choice: TextChoice) -> Iterator[InspectedSentence]:
    """The sentences of a text in their order, empty ones left out; trees where the corpus has them.

    Raises CorpusError for a missing corpus or split and for a word that the model's vocabulary lacks where it
    has no `<unk>`, ConfigurationError for a text without words or together with a corpus.
    """
    if choice.text is not None:
        return iter([_encode_text(model, choice)])
    corpus, ids = _open_corpus(model, choice.corpus, choice.split)
    model.record_access(choice.split)
    return islice(_iterate_split(corpus, choice.split, ids), choice.sentences)


def _encode_text(model: InspectedModel, choice: TextChoice) -> InspectedSentence:
    words = (choice.text or "").split()
    if not words:
        raise ConfigurationError("the text has no words; give words separated by blanks")
    if choice.corpus is not None:
        raise ConfigurationError(
            f'a text is read in place of corpus "{choice.corpus}"; leave one of them out'
        )
    if model.corpus.manifest.tokeniser is not None:
        return InspectedSentence(0, np.array(make_reader(model.corpus).read(choice.text or "").ids, np.int64))
    return InspectedSentence(0, model.corpus.vocabulary.encode(words))


def _open_corpus(
    model: InspectedModel, name: str | None, split: str
) -> tuple[Corpus, NDArray[np.int64] | None]:
    """The corpus that is read, and the model's id of each word of its vocabulary; None for its own corpus."""
    if name is None or name == model.corpus.name:
        return model.corpus, None
    if model.corpus.manifest.tokeniser is not None:
        return read_other_text(model.corpus, name, split, model.store).corpus, None
    other = open_corpus(name, model.store)
    ids = replace(model.corpus, joined=other).map_question_ids()
    if UNK in model.corpus.vocabulary:
        ids = np.where(ids < 0, model.corpus.vocabulary.get_id(UNK), ids)
    return other, ids


def _iterate_split(corpus: Corpus, name: str, ids: NDArray[np.int64] | None) -> Iterator[InspectedSentence]:
    split, trees = corpus[name], _read_trees(corpus, name)
    for number, (start, length) in enumerate(zip(split.starts, split.lengths, strict=True)):
        words_W = split.read_tokens(int(start), int(start + length - 1))
        read_W = words_W if ids is None else ids[words_W]
        if (read_W == MISSING).any():
            missing = corpus.vocabulary.tokens[int(words_W[np.argmax(read_W == MISSING)])]
            raise CorpusError(
                f'"{missing}" of corpus "{corpus.name}" is not in the vocabulary of the model, which has no '
                f"{UNK}; inspect another text"
            )
        tree = next(trees, None)
        if length > 1:
            yield InspectedSentence(number, read_W, tree)


def _read_trees(corpus: Corpus, split: str) -> Iterator[WordTree]:
    """The trees of a split, one per sentence; none where the corpus has none."""
    table, record = corpus.annotations.get("trees", {}).get(split), corpus.manifest.annotations.get("trees")
    if table is None or record is None:
        return
    for batch in table.to_batches():
        for heads, relations in zip(batch.column("heads"), batch.column("relations"), strict=True):
            yield WordTree(tuple(heads.as_py()), tuple(record.labels[label] for label in relations.as_py()))
