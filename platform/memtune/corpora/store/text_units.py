"""Words and bytes of a text: the units in which models of different tokens compare."""

import math
from dataclasses import dataclass

import numpy as np

from memtune.corpora.store.corpus import Corpus

__all__ = ["TextUnits", "count_text_units"]


@dataclass(frozen=True)
class TextUnits:
    """The size of a text in tokens, `<eos>` included, words, UTF-8 bytes and sentences.

    `lost` counts the words or other tokens that became `<unk>`, whose bytes a model does not predict.
    """

    tokens: int
    words: int
    bytes: int
    sentences: int
    lost: int = 0

    def compute_bits_per_byte(self, loss: float) -> float:
        """Bits per byte of a loss in nats per token, lower is better; a lower bound where words are lost."""
        return loss * self.tokens / self.bytes / math.log(2)

    def compute_word_perplexity(self, loss: float) -> float:
        """Perplexity per word of a loss in nats per token.

        The end of a sentence counts as a word, so that a model of words has its perplexity per token.
        """
        return _exponentiate(loss * self.tokens / (self.words + self.sentences))

    def compute_byte_perplexity(self, loss: float) -> float:
        """Perplexity per byte of a loss in nats per token."""
        return _exponentiate(loss * self.tokens / self.bytes)


def _exponentiate(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf  # exp overflows float64 above 709


def count_text_units(corpus: Corpus, split: str) -> TextUnits:
    """The units of a split.

    For corpora of earlier versions they are counted from its words, `<unk>` as it is written.
    """
    summary = corpus.manifest.splits[split]
    if summary.words is not None and summary.bytes is not None:
        return TextUnits(summary.tokens, summary.words, summary.bytes, summary.sentences, summary.oov_tokens)
    text = corpus[split]
    ids = text.read_tokens(0, text.token_count)
    sizes = np.array([len(token.encode()) for token in corpus.vocabulary.tokens])
    sizes[0] = 0
    full = int(np.count_nonzero(text.lengths > 1))
    words = text.token_count - text.sentence_count
    content = int(sizes[ids].sum()) + words - full + text.sentence_count
    return TextUnits(text.token_count, words, content, text.sentence_count, summary.oov_tokens)
