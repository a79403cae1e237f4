"""The dependency trees of a split, and batches of them, in order of levels, one node per word.

A batch holds whole sentences below one common node, the boundary of sentences. A node stands for every path
through it and is computed and counted once, which is equivalent to the discount of paths by
1 / (number of paths through the word) (Mirowski and Vlachos 2015, section 2).

Shapes: N nodes, the boundary first; W = N - 1 words.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memtune.corpora.store.corpus import Corpus, Split
from memtune.corpora.store.vocabulary import UNK
from memtune.errors import CorpusError

BOUNDARY = 0
"""The id of `<eos>`: it ends every sentence, precedes the first word and is the parent of each root."""
MISSING = -1
"""The head of a root, and the label of an edge without a known relation."""

TOKENS_PER_READ = 2**20
"""Tokens read per step when counting."""

Positions = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class TreeBatch:
    """Trees of words in order of levels; within a level, words with children come first."""

    words_N: Tensor
    """int64 ids; the first is the boundary; each other is predicted from the path down to it."""
    parents_N: Tensor
    """int64: the parent of each node; the boundary is the parent of itself and of every root."""
    labels_N: Tensor
    """int64: the relation of each word to its head; -1 for the boundary, roots and unknown relations."""
    sentences_W: Tensor
    """int64: the sentence of each word, counted within the batch."""
    mask_W: Tensor | None
    """bool, True where a word counts; None when all do."""
    bounds: tuple[int, ...]
    """The first node of each level, and N; level 0 is the boundary, level 1 are the roots."""
    branching_counts: tuple[int, ...]
    """Nodes of each level that have children."""
    rows: int
    """Sentences."""
    token_count: int
    """Predicted words that count."""
    learning_rate_scale: float = 1.0
    """Factor of the learning rate for this batch."""
    carries_state: bool = False
    """Batches of trees do not share state."""

    def to(self, device: torch.device) -> "TreeBatch":
        """The same batch on a device; copies to a GPU are asynchronous."""
        if device.type == "cpu":
            return self
        return replace(
            self,
            words_N=send_to_device(self.words_N, device),
            parents_N=send_to_device(self.parents_N, device),
            labels_N=send_to_device(self.labels_N, device),
            sentences_W=send_to_device(self.sentences_W, device),
            mask_W=None if self.mask_W is None else send_to_device(self.mask_W, device),
        )


def send_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """An asynchronous copy of a host tensor on a GPU."""
    return tensor.pin_memory().to(device, non_blocking=True)


class Treebank:
    """The trees of a split.

    `heads` and `relations` cover all its words in order: a head is a position within its sentence, -1 for a
    root; a relation is an index into the `label_count` labels of the corpus, or -1 for none. `unknown_id` is
    the id of `<unk>`, where the vocabulary has one. `ids` maps words of another vocabulary.

    Raises CorpusError when the trees do not fit the split.
    """

    def __init__(
        self,
        split: Split,
        heads: Positions,
        relations: Positions,
        label_count: int,
        unknown_id: int | None,
        ids: Positions | None = None,
    ) -> None:
        self.split = split
        self.label_count = label_count
        self.unknown_id = unknown_id
        self._ids = ids
        self._heads = heads
        self._relations = relations
        self._offsets = np.concatenate(([0], np.cumsum(split.lengths - 1, dtype=np.int64)))
        if not len(heads) == len(relations) == self._offsets[-1]:
            raise CorpusError(
                f'"{split.name}" has {self._offsets[-1]} words, but trees of {len(heads)}; import it again'
            )

    @classmethod
    def from_corpus(cls, corpus: Corpus, split: str) -> Self:
        """The trees of a corpus for one of its splits; a CorpusError when it has none."""
        heads, relations = _read_tree_columns(corpus, split)
        return cls(
            corpus[split], heads, relations, len(_get_relation_labels(corpus)), _find_unknown_id(corpus)
        )

    @classmethod
    def from_questions(cls, corpus: Corpus, split: str) -> Self:
        """The trees of a split of the corpus' questions, in the words and labels of the corpus itself.

        A word that the corpus does not have becomes `<unk>`, an unknown label becomes none. Raises
        CorpusError when one of the two has no trees, or the corpus no `<unk>` for a word.
        """
        questions = corpus.questions or corpus
        heads, relations = _read_tree_columns(questions, split)
        places = {label: index for index, label in enumerate(_get_relation_labels(corpus))}
        labels = np.array([places.get(label, MISSING) for label in _get_relation_labels(questions)], np.int64)
        ids, unknown = corpus.map_question_ids(), _find_unknown_id(corpus)
        unmapped = (ids < 0) & (np.array(questions.vocabulary.counts) > 0)
        if unknown is None and unmapped.any():
            missing = questions.vocabulary.tokens[int(np.argmax(unmapped))]
            raise CorpusError(
                f'corpus "{corpus.name}" has neither {UNK} nor "{missing}", which its questions have; import '
                "its text with min_count = 2 or more"
            )
        known = np.where(ids < 0, unknown or 0, ids)
        return cls(questions[split], heads, labels[relations], len(places), unknown, known)

    @property
    def nonempty_sentences(self) -> Positions:
        """The sentences that have words."""
        return np.flatnonzero(self.split.lengths > 1)

    @property
    def word_count(self) -> int:
        """Words of all sentences."""
        return int(self._offsets[-1])

    def count_unknown_words(self) -> int:
        """How many of the words are `<unk>`."""
        if self.unknown_id is None:
            return 0
        starts = range(0, self.split.token_count, TOKENS_PER_READ)
        pieces = (
            self.split.read_tokens(start, min(start + TOKENS_PER_READ, self.split.token_count))
            for start in starts
        )
        return sum(int(np.count_nonzero(self._map_ids(tokens) == self.unknown_id)) for tokens in pieces)

    def batch(self, sentences: Positions, count_unknown: bool = True) -> TreeBatch:
        """The trees of these sentences. Without `count_unknown` no `<unk>` counts.

        Raises CorpusError for heads that form a cycle.
        """
        lengths = self.split.lengths[sentences].astype(np.int64) - 1
        starts = np.cumsum(lengths) - lengths
        within = np.arange(lengths.sum()) - np.repeat(starts, lengths)
        source = np.repeat(self._offsets[sentences], lengths) + within
        words = self._map_ids(self.split.gather(np.repeat(self.split.starts[sentences], lengths) + within))
        heads = self._heads[source]
        above = np.where(heads < 0, MISSING, heads + np.repeat(starts, lengths))
        labels = np.where(heads < 0, MISSING, self._relations[source])
        order, parents, bounds, branching = self._order_by_level(above)
        counted = None if count_unknown or self.unknown_id is None else words[order] != self.unknown_id
        return TreeBatch(
            words_N=_prepend_boundary(words[order], BOUNDARY),
            parents_N=_prepend_boundary(parents, 0),
            labels_N=_prepend_boundary(labels[order], MISSING),
            sentences_W=torch.from_numpy(np.repeat(np.arange(len(sentences)), lengths)[order]),
            mask_W=None if counted is None else torch.from_numpy(counted),
            bounds=bounds,
            branching_counts=branching,
            rows=len(sentences),
            token_count=len(words) if counted is None else int(counted.sum()),
        )

    def _map_ids(self, tokens: Positions) -> Positions:
        return tokens if self._ids is None else self._ids[tokens]

    def _order_by_level(
        self, heads: Positions
    ) -> tuple[Positions, Positions, tuple[int, ...], tuple[int, ...]]:
        """The order of the words by level, the parent of each, the bounds of levels and branching counts."""
        depth = np.zeros(len(heads), np.int64)
        ancestor = heads
        while (unfinished := ancestor >= 0).any():
            if depth.max() == len(heads):
                raise CorpusError(f'"{self.split.name}" has a tree whose heads form a cycle')
            depth += unfinished
            ancestor = np.where(unfinished, heads[ancestor], MISSING)
        inner = np.zeros(len(heads), bool)
        inner[heads[heads >= 0]] = True
        order = np.lexsort((~inner, depth))
        node = np.empty(len(heads), np.int64)
        node[order] = np.arange(1, len(heads) + 1)
        parents = np.where(heads[order] < 0, 0, node[heads[order]])
        bounds = (0, 1, *(1 + np.cumsum(np.bincount(depth))).tolist())
        branching = (1, *np.bincount(depth[inner], minlength=len(bounds) - 2).tolist())
        return order, parents, bounds, branching


def _prepend_boundary(values: Positions, first: int) -> Tensor:
    return torch.from_numpy(np.concatenate(([first], values)).astype(np.int64, copy=False))


def _read_tree_columns(corpus: Corpus, split: str) -> tuple[Positions, Positions]:
    """Heads and relations of all words of a split."""
    tables = corpus.annotations.get("trees", {})
    if split not in tables:
        raise CorpusError(
            f'corpus "{corpus.name}" has no dependency trees for "{split}"; import parsed text with '
            "--format conllu"
        )
    heads, relations = (tables[split].column(name).combine_chunks() for name in ("heads", "relations"))
    return heads.flatten().to_numpy(), relations.flatten().to_numpy()


def _get_relation_labels(corpus: Corpus) -> tuple[str, ...]:
    trees = corpus.manifest.annotations.get("trees")
    return trees.labels if trees else ()


def _find_unknown_id(corpus: Corpus) -> int | None:
    return corpus.vocabulary.get_id(UNK) if UNK in corpus.vocabulary else None
