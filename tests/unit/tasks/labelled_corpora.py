"""Small labelled corpora, equal on every machine, whose labels can be learned."""

from pathlib import Path

import numpy as np

from memtune.corpora import Corpus, Example, import_corpus, open_corpus

GOOD, BAD, NEUTRAL = ["good", "fine", "great"], ["bad", "poor", "awful"], ["a", "film", "plot", "is", "the"]


def make_sentiment_corpus(folder: Path, train: int = 60) -> Corpus:
    """Sentences of 1 to 9 words with a label for each word and the sentence: the sum of its words."""
    splits = {
        split: [_make_sentence(np.random.default_rng((seed, index))) for index in range(count)]
        for seed, (split, count) in enumerate({"train": train, "valid": 20, "test": 20}.items())
    }
    import_corpus("sentiment", splits, folder / "store", cache=folder / "cache")
    return open_corpus("sentiment", folder / "store", folder / "cache")


def _make_sentence(random: np.random.Generator) -> Example:
    words = random.choice(GOOD + BAD + NEUTRAL, size=random.integers(1, 10)).tolist()
    value = [(word in GOOD) - (word in BAD) for word in words]
    rows = [(0, 0, len(words), int(np.clip(2 + sum(value), 0, 4)), True)]
    if len(words) > 1:
        rows += [(0, place, place + 1, 2 + sign, False) for place, sign in enumerate(value)]
    return Example([words], {"sentiment": rows})


def make_inference_corpus(folder: Path, train: int = 60) -> Corpus:
    """Premises of 1 to 8 words; a hypothesis is a word of it, "not" and such a word, or another word."""
    splits = {
        split: [_make_pair(np.random.default_rng((seed, index))) for index in range(count)]
        for seed, (split, count) in enumerate({"train": train, "valid": 20, "test": 20}.items())
    }
    import_corpus("pairs", splits, folder / "store", cache=folder / "cache")
    return open_corpus("pairs", folder / "store", folder / "cache")


def _make_pair(random: np.random.Generator) -> Example:
    words = [f"w{index}" for index in random.permutation(12)]
    premise, label = words[: random.integers(1, 9)], int(random.integers(3))
    named = words[-1] if label == 1 else premise[0]
    return Example([premise, ["not", named] if label == 2 else [named]], {"inference": [(0, 1, label)]})
