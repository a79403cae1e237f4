"""The protocol `tree`: every word is predicted from its path in the sentence's dependency tree.

A text must have trees (format `conllu`). The end of a sentence is not predicted, so neither loss nor
perplexity compares with other protocols; probabilities of sentences compare with one another.
"""

from typing import ClassVar, Literal, NoReturn

import numpy as np
from pydantic import Field

from memtune.corpora.batching.treebank import Positions, Treebank, TreeBatch
from memtune.errors import ConfigurationError, CorpusError
from memtune.values import Value

EVALUATION_BATCH_WORDS = 2048
"""Words in a batch of an evaluation: enough for matrix products at full speed."""


class TreeProtocol(Value):
    """Every word of a sentence is predicted from its ancestors, its root from the boundary of sentences.

    Training batches hold `batch_size` sentences, in an order that changes with each epoch. Mirowski and
    Vlachos (2015) train on `<unk>` but do not count its predictions: `count_unknown = false`.
    """

    kind: Literal["tree"] = "tree"
    carries_state: ClassVar[bool] = False
    """Whether the state after a sentence is the state before the next one."""
    reads_trees: ClassVar[Literal[True]] = True
    """Whether words are predicted along trees, not in the order of the text."""
    reads_sentences: ClassVar[bool] = False
    """Whether every sentence is read alone, in its order and from its first word to its `<eos>`."""
    drops_sentences: ClassVar[bool] = False
    """Whether some sentences of a split are never read."""
    unused_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields without an effect, which the record of a trial leaves out."""
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

    def training_plan(self, trees: Treebank, seed: int, epoch: int) -> "TreePlan":
        """One epoch of training, shuffled by (seed, epoch)."""
        sentences = np.random.default_rng((seed, epoch)).permutation(trees.nonempty_sentences)
        batches = -(-len(sentences) // self.batch_size)
        bounds = np.arange(batches + 1) * len(sentences) // max(1, batches)
        return TreePlan(trees, sentences, bounds, count_unknown=True)

    def evaluation_plan(self, trees: Treebank, batch_words: int = EVALUATION_BATCH_WORDS) -> "TreePlan":
        """All sentences in their order, in batches of about `batch_words` words."""
        sentences = trees.nonempty_sentences
        batch = np.cumsum(trees.split.lengths[sentences], dtype=np.int64) // batch_words
        starts = np.flatnonzero(np.diff(batch, prepend=-1))
        return TreePlan(trees, sentences, np.append(starts, len(sentences)), self.count_unknown)


class TreePlan:
    """The batches of one epoch of training, or of one evaluation, in their order.

    Raises CorpusError when no word counts.
    """

    def __init__(self, trees: Treebank, sentences: Positions, bounds: Positions, count_unknown: bool) -> None:
        self._trees = trees
        self._sentences = sentences
        self._bounds = bounds
        self._count_unknown = count_unknown
        self._token_count = trees.word_count - (0 if count_unknown else trees.count_unknown_words())
        if not self._token_count:
            raise CorpusError(f'"{trees.split.name}" has no words to predict')

    @property
    def token_count(self) -> int:
        """Predicted words of the whole plan."""
        return self._token_count

    def __len__(self) -> int:
        """Number of batches."""
        return len(self._bounds) - 1

    def get_sentences(self, index: int) -> Positions:
        """The sentences of the batch at an index."""
        return self._sentences[self._bounds[index] : self._bounds[index + 1]]

    def batch(self, index: int) -> TreeBatch:
        """The batch at an index from 0, made without making the previous ones."""
        return self._trees.batch(self.get_sentences(index), self._count_unknown)
