"""Small labelled corpora that are the same everywhere, with something to learn."""

from pathlib import Path

import numpy as np

from memtune.corpora import Corpus, Example, import_corpus, open_corpus

GOOD, BAD, PLAIN = ["good", "fine", "great"], ["bad", "poor", "awful"], ["a", "film", "plot", "is", "the"]


def sentiment_corpus(folder: Path, train: int = 60) -> Corpus:
    """Sentences of 1 to 9 words with every word and the whole labelled; the whole is the sum of its words."""
    splits = {
        split: [_sentence(np.random.default_rng((seed, index))) for index in range(count)]
        for seed, (split, count) in enumerate({"train": train, "valid": 20, "test": 20}.items())
    }
    import_corpus("mood", splits, folder / "store", cache=folder / "cache")
    return open_corpus("mood", folder / "store", folder / "cache")


def _sentence(random: np.random.Generator) -> Example:
    words = random.choice(GOOD + BAD + PLAIN, size=random.integers(1, 10)).tolist()
    value = [(word in GOOD) - (word in BAD) for word in words]
    rows = [(0, 0, len(words), int(np.clip(2 + sum(value), 0, 4)), True)]
    if len(words) > 1:
        rows += [(0, place, place + 1, 2 + sign, False) for place, sign in enumerate(value)]
    return Example([words], {"sentiment": rows})


def inference_corpus(folder: Path, train: int = 60) -> Corpus:
    """Pairs of 1 to 8 words: a word of the premise, "not" and one, or a word of another premise."""
    splits = {
        split: [_pair(np.random.default_rng((seed, index))) for index in range(count)]
        for seed, (split, count) in enumerate({"train": train, "valid": 20, "test": 20}.items())
    }
    import_corpus("pairs", splits, folder / "store", cache=folder / "cache")
    return open_corpus("pairs", folder / "store", folder / "cache")


def _pair(random: np.random.Generator) -> Example:
    words = [f"w{index}" for index in random.permutation(12)]
    premise, label = words[: random.integers(1, 9)], int(random.integers(3))
    named = words[-1] if label == 1 else premise[0]
    return Example([premise, ["not", named] if label == 2 else [named]], {"inference": [(0, 1, label)]})
