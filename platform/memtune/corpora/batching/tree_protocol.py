"""The protocol `tree`: every word is predicted from its path in the sentence's dependency tree.

A text must have trees (format `conllu`). The end of a sentence is not predicted, so neither loss nor
perplexity compares with other protocols; probabilities of sentences compare with one another.

A batch holds whole sentences in order of levels, one node per word, below one common node, the boundary of
sentences. A node stands for every path through it and is computed and counted once, which is equivalent to
the discount of paths by 1 / (number of paths through the word) (Mirowski and Vlachos 2015, section 2).
"""

from functools import partial
from typing import ClassVar, Literal, NoReturn, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from memtune.corpora.batching.batches import BOUNDARY, Positions, TaskPlan, TreeBatch
from memtune.corpora.store.corpus import Corpus, Split
from memtune.errors import ConfigurationError, CorpusError
from memtune.number_format import format_count
from memtune.values import Value

MISSING = -1
"""The head of a root, and the label of an edge without a known relation."""
EVALUATION_BATCH_WORDS = 2048
"""Words in a batch of an evaluation: enough for matrix products at full speed."""


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
            words = format_count(self._offsets[-1], "word")
            raise CorpusError(f'"{split.name}" has {words}, but trees of {len(heads):,}; import it again')

    @classmethod
    def from_corpus(cls, corpus: Corpus, split: str) -> Self:
        """The trees of a corpus for one of its splits; a CorpusError when it has none."""
        heads, relations = _read_tree_columns(corpus, split)
        return cls(
            corpus[split], heads, relations, len(_get_relation_labels(corpus)), corpus.vocabulary.unknown_id
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
        ids, unknown = corpus.map_question_ids(refuse_missing=True), corpus.vocabulary.unknown_id
        return cls(questions[split], heads, labels[relations], len(places), unknown, ids)

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
        pieces = map(self._map_ids, self.split.iterate_tokens())
        return sum(int(np.count_nonzero(ids == self.unknown_id)) for ids in pieces)

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


class TreeProtocol(Value):
    """Every word of a sentence is predicted from its ancestors, its root from the boundary of sentences.

    Training batches hold `batch_size` sentences, in an order that changes with each epoch. Mirowski and
    Vlachos (2015) train on `<unk>` but do not count its predictions: `count_unknown = false`.
    """

    kind: Literal["tree"] = "tree"
    carries_state: ClassVar[bool] = False
    reads_trees: ClassVar[Literal[True]] = True
    reads_sentences: ClassVar[bool] = False
    unused_fields: ClassVar[frozenset[str]] = frozenset()
    batch_size: int = Field(20, ge=1, json_schema_extra={"unit": "sentences, or rows of a stream"})
    """Sentences of a training batch."""
    count_unknown: bool = True
    """Whether predictions of `<unk>` count in an evaluation; in training they always count."""

    @property
    def label(self) -> str:
        """The settings that a validation result depends on; results compare only under the same label."""
        return self.kind if self.count_unknown else f"{self.kind} count_unknown=False"

    def require_text(self, purpose: str) -> NoReturn:
        """Raises ConfigurationError: trees have no text in its order, which `purpose` needs."""
        raise ConfigurationError(
            f'{purpose} needs a text in its order, and protocol.kind = "tree" has none; use "sentence" or '
            '"stream"'
        )

    def count_longest_row(self, longest_sentence: int) -> int:
        """Tokens in the longest row of a training batch, which is the longest sentence."""
        return longest_sentence

    def training_plan(self, trees: Treebank, seed: int, epoch: int) -> TaskPlan[TreeBatch]:
        """One epoch of training, shuffled by (seed, epoch)."""
        sentences = np.random.default_rng((seed, epoch)).permutation(trees.nonempty_sentences)
        batches = -(-len(sentences) // self.batch_size)
        bounds = np.arange(batches + 1) * len(sentences) // max(1, batches)
        return _cut_sentences(trees, sentences, bounds, count_unknown=True)

    def evaluation_plan(
        self, trees: Treebank, batch_words: int = EVALUATION_BATCH_WORDS
    ) -> TaskPlan[TreeBatch]:
        """All sentences in their order, in batches of about `batch_words` words."""
        sentences = trees.nonempty_sentences
        batch = np.cumsum(trees.split.lengths[sentences], dtype=np.int64) // batch_words
        starts = np.flatnonzero(np.diff(batch, prepend=-1))
        return _cut_sentences(trees, sentences, np.append(starts, len(sentences)), self.count_unknown)


def _cut_sentences(
    trees: Treebank, sentences: Positions, bounds: Positions, count_unknown: bool
) -> TaskPlan[TreeBatch]:
    """Raises CorpusError when no word counts."""
    token_count = trees.word_count - (0 if count_unknown else trees.count_unknown_words())
    if not token_count:
        raise CorpusError(f'"{trees.split.name}" has no words to predict')
    return TaskPlan(bounds, token_count, partial(trees.batch, count_unknown=count_unknown), sentences)
