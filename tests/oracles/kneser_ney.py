"""Interpolated modified Kneser-Ney with dictionaries, one word at a time, from its definition."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from math import log

IDENTITY = "7143a60169bbf19d"
START_SYMBOL = "start"
NGram = tuple[object, ...]


class ReferenceKneserNey:
    """A model of sentences: lists of token ids, each with its end; a stream is one long sentence."""

    def __init__(self, sentences: list[list[int]], order: int, vocabulary_size: int) -> None:
        self.order, self.vocabulary_size = order, vocabulary_size
        self.counts: list[Counter[NGram]] = [Counter() for _ in range(order)]
        for sentence in sentences:
            for gram in iterate_ngrams(sentence, order):
                self.counts[len(gram) - 1][gram] += 1
        self.counts = [self.adjust_counts(n) for n in range(order)]
        self.discounts = [compute_discounts(counts) for counts in self.counts]
        self.totals: list[dict[NGram, int]] = [defaultdict(int) for _ in range(order)]
        self.discounted_mass: list[dict[NGram, float]] = [defaultdict(float) for _ in range(order)]
        for n, counts in enumerate(self.counts):
            for gram, count in counts.items():
                self.totals[n][gram[:-1]] += count
                self.discounted_mass[n][gram[:-1]] += self.discounts[n][min(count, 3)]

    def adjust_counts(self, n: int) -> Counter[NGram]:
        """Different words before each n-gram; its occurrences at the highest order and after a start sign."""
        if n == self.order - 1:
            return self.counts[n]
        preceded = Counter(gram[1:] for gram in self.counts[n + 1])
        started = {gram: count for gram, count in self.counts[n].items() if gram[0] == START_SYMBOL}
        return preceded + Counter(started)

    def compute_probability(self, context: NGram, word: int) -> float:
        """Probability of the word after at most order - 1 words of context."""
        lower = self.compute_probability(context[1:], word) if context else 1 / self.vocabulary_size
        n = len(context)
        total = self.totals[n].get(context, 0)
        if not total:
            return lower
        count = self.counts[n].get((*context, word), 0)
        gain = count - self.discounts[n][min(count, 3)]
        return gain / total + self.discounted_mass[n][context] / total * lower

    def compute_log_probabilities(self, sentences: list[list[int]]) -> list[float]:
        """Log probability of every token of every sentence, in order."""
        found = []
        for sentence in sentences:
            started = [START_SYMBOL, *sentence]
            for position, word in enumerate(sentence, start=1):
                context = (
                    tuple(started[max(0, position - self.order + 1) : position]) if self.order > 1 else ()
                )
                found.append(log(self.compute_probability(context, word)))
        return found


def iterate_ngrams(sentence: list[int], order: int) -> Iterator[NGram]:
    """Every n-gram up to the order that ends in a token of the sentence and begins no earlier than it."""
    padded = (START_SYMBOL, *sentence)
    for position in range(1, len(padded)):
        for n in range(1, min(order, position + 1) + 1):
            yield padded[position - n + 1 : position + 1]


def compute_discounts(counts: Counter) -> tuple[float, float, float, float]:
    """D(0) to D(3+) of one order."""
    n1, n2, n3, n4 = (sum(count == wanted for count in counts.values()) for wanted in (1, 2, 3, 4))
    sparse = (0.0, 0.5, 1.0, 1.5)
    if 0 in (n1, n2, n3):  # n4 = 0 gives D(3+) = 3, as in lmplz (KenLM, lm/builder/adjust_counts.cc)
        return sparse
    y = n1 / (n1 + 2 * n2)
    found = (0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return found if all(0 <= d <= count for count, d in enumerate(found)) else sparse
