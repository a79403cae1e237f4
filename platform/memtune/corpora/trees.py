"""The dependency trees of a split, and batches of them: level after level, one node a word.

A batch holds whole sentences side by side under one node, the boundary of sentences. A node stands for every
path through it: what is computed and counted at it is computed and counted once, which is what the paths'
discount of 1 / (number of paths through the word) comes to (Mirowski and Vlachos 2015, section 2).

Shapes: N nodes, the boundary first; W = N - 1 words.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memtune.corpora.store import Corpus, Split
from memtune.corpora.vocabulary import UNK
from memtune.errors import CorpusError

__all__ = ["BOUNDARY", "TreeBatch", "Treebank", "sent"]

BOUNDARY = 0
"""The id of `<eos>`: it ends every sentence, and stands before the first word and above each root."""
NONE = -1
"""The head of a root, and the label of an edge that has none."""

READ_TOKENS = 2**20
"""Tokens looked through at once."""

Positions = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class TreeBatch:
    """Trees of words, level after level; in each level those with children come first."""

    words_N: Tensor
    """int64 ids; the first is the boundary, each other is to be predicted from the path down to it."""
    parents_N: Tensor
    """int64: the node above each; the boundary is its own and that of every root."""
    labels_N: Tensor
    """int64: the relation of each word to its head; -1 for the boundary, roots and relations not known."""
    sentences_W: Tensor
    """int64: the sentence of each word, counted within the batch."""
    mask_W: Tensor | None
    """bool, True where a word counts; None when all do."""
    bounds: tuple[int, ...]
    """The first node of each level, and N; level 0 is the boundary, level 1 are the roots."""
    branching: tuple[int, ...]
    """Nodes of each level that have children."""
    rows: int
    """Sentences."""
    token_count: int
    """Predicted words that count."""
    learning_rate_scale: float = 1.0
    """What the learning rate is multiplied by for this batch."""
    carried: bool = False
    """Nothing is carried from one batch of trees to the next."""

    def to(self, device: torch.device) -> "TreeBatch":
        """The same batch on a device; to a GPU without making the host wait."""
        if device.type == "cpu":
            return self
        return replace(
            self,
            words_N=sent(self.words_N, device),
            parents_N=sent(self.parents_N, device),
            labels_N=sent(self.labels_N, device),
            sentences_W=sent(self.sentences_W, device),
            mask_W=None if self.mask_W is None else sent(self.mask_W, device),
        )


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a GPU, without making the host wait."""
    return tensor.pin_memory().to(device, non_blocking=True)


class Treebank:
    """The trees of a split.

    `heads` and `relations` are those of all its words, sentence after sentence: a head is a position within
    its sentence, -1 for a root's; a relation is an index into the corpus' labels, of which there are
    `label_count`, or -1 for none. `unknown` is the id of `<unk>`, where the vocabulary has one. Words of
    another vocabulary are read as `ids` says. Raises CorpusError when the trees do not fit the split.
    """

    def __init__(
        self,
        split: Split,
        heads: Positions,
        relations: Positions,
        label_count: int,
        unknown: int | None,
        ids: Positions | None = None,
    ) -> None:
        self.split = split
        self.label_count = label_count
        self.unknown = unknown
        self._ids = ids
        self._heads = heads
        self._relations = relations
        self._offsets = np.concatenate(([0], np.cumsum(split.lengths - 1, dtype=np.int64)))
        if not len(heads) == len(relations) == self._offsets[-1]:
            raise CorpusError(
                f'"{split.name}" has {self._offsets[-1]} words, but trees of {len(heads)}; import it again'
            )

    @classmethod
    def of(cls, corpus: Corpus, split: str) -> Self:
        """The trees of a corpus for one of its splits; a CorpusError when it has none."""
        heads, relations = _columns(corpus, split)
        return cls(corpus[split], heads, relations, len(_labels(corpus)), _unknown(corpus))

    @classmethod
    def asked(cls, corpus: Corpus, split: str) -> Self:
        """The trees of a split of the corpus' questions, in the words and labels of the corpus itself.

        A word that the corpus does not have is `<unk>`, a label that it does not have is none. Raises
        CorpusError when one of the two has no trees, or the corpus no `<unk>` for a word.
        """
        questions = corpus.questions or corpus
        heads, relations = _columns(questions, split)
        places = {label: index for index, label in enumerate(_labels(corpus))}
        labels = np.array([places.get(label, NONE) for label in _labels(questions)], np.int64)
        ids, unknown = corpus.asked_ids(), _unknown(corpus)
        strange = (ids < 0) & (np.array(questions.vocabulary.counts) > 0)
        if unknown is None and strange.any():
            missing = questions.vocabulary.tokens[int(np.argmax(strange))]
            raise CorpusError(
                f'corpus "{corpus.name}" has neither {UNK} nor "{missing}", which its questions have; import '
                "its text with min_count = 2 or more"
            )
        known = np.where(ids < 0, unknown or 0, ids)
        return cls(questions[split], heads, labels[relations], len(places), unknown, known)

    @property
    def sentences(self) -> Positions:
        """The sentences that have words."""
        return np.flatnonzero(self.split.lengths > 1)

    @property
    def word_count(self) -> int:
        """Words of all sentences."""
        return int(self._offsets[-1])

    def unknown_count(self) -> int:
        """How many of the words are `<unk>`."""
        if self.unknown is None:
            return 0
        starts = range(0, self.split.token_count, READ_TOKENS)
        pieces = (
            self.split.tokens(start, min(start + READ_TOKENS, self.split.token_count)) for start in starts
        )
        return sum(int(np.count_nonzero(self._read(tokens) == self.unknown)) for tokens in pieces)

    def batch(self, sentences: Positions, count_unknown: bool = True) -> TreeBatch:
        """The trees of these sentences. Without `count_unknown` no `<unk>` counts.

        Raises CorpusError for heads that go round in a circle.
        """
        lengths = self.split.lengths[sentences].astype(np.int64) - 1
        starts = np.cumsum(lengths) - lengths
        within = np.arange(lengths.sum()) - np.repeat(starts, lengths)
        source = np.repeat(self._offsets[sentences], lengths) + within
        words = self._read(self.split.gather(np.repeat(self.split.starts[sentences], lengths) + within))
        heads = self._heads[source]
        above = np.where(heads < 0, NONE, heads + np.repeat(starts, lengths))
        labels = np.where(heads < 0, NONE, self._relations[source])
        order, parents, bounds, branching = self._levels(above)
        counted = None if count_unknown or self.unknown is None else words[order] != self.unknown
        return TreeBatch(
            words_N=_with_boundary(words[order], BOUNDARY),
            parents_N=_with_boundary(parents, 0),
            labels_N=_with_boundary(labels[order], NONE),
            sentences_W=torch.from_numpy(np.repeat(np.arange(len(sentences)), lengths)[order]),
            mask_W=None if counted is None else torch.from_numpy(counted),
            bounds=bounds,
            branching=branching,
            rows=len(sentences),
            token_count=len(words) if counted is None else int(counted.sum()),
        )

    def _read(self, tokens: Positions) -> Positions:
        return tokens if self._ids is None else self._ids[tokens]

    def _levels(self, above: Positions) -> tuple[Positions, Positions, tuple[int, ...], tuple[int, ...]]:
        """The words in the order of their nodes, the parent of each, and bounds and branching."""
        depth = np.zeros(len(above), np.int64)
        ancestor = above
        while (going := ancestor >= 0).any():
            if depth.max() == len(above):
                raise CorpusError(f'"{self.split.name}" has a tree whose heads go round in a circle')
            depth += going
            ancestor = np.where(going, above[ancestor], NONE)
        inner = np.zeros(len(above), bool)
        inner[above[above >= 0]] = True
        order = np.lexsort((~inner, depth))
        node = np.empty(len(above), np.int64)
        node[order] = np.arange(1, len(above) + 1)
        parents = np.where(above[order] < 0, 0, node[above[order]])
        bounds = (0, 1, *(1 + np.cumsum(np.bincount(depth))).tolist())
        branching = (1, *np.bincount(depth[inner], minlength=len(bounds) - 2).tolist())
        return order, parents, bounds, branching


def _with_boundary(values: Positions, first: int) -> Tensor:
    return torch.from_numpy(np.concatenate(([first], values)).astype(np.int64, copy=False))


def _columns(corpus: Corpus, split: str) -> tuple[Positions, Positions]:
    """Heads and relations of all words of a split."""
    tables = corpus.annotations.get("trees", {})
    if split not in tables:
        raise CorpusError(
            f'corpus "{corpus.name}" has no dependency trees for "{split}"; import parsed text with '
            "--format conllu"
        )
    heads, relations = (tables[split].column(name).combine_chunks() for name in ("heads", "relations"))
    return heads.flatten().to_numpy(), relations.flatten().to_numpy()


def _labels(corpus: Corpus) -> tuple[str, ...]:
    trees = corpus.manifest.annotations.get("trees")
    return trees.labels if trees else ()


def _unknown(corpus: Corpus) -> int | None:
    return corpus.vocabulary.id_of(UNK) if UNK in corpus.vocabulary else None
