"""A small text that is the same everywhere, with something to learn: a word tells much of the next."""

from pathlib import Path

from memtune.corpora import Corpus, ImportOptions, import_corpus, open_corpus

WORDS = [f"w{index}" for index in range(24)]


def sentences(count: int, seed: int, longest: int = 12) -> list[list[str]]:
    """Sentences of 1 to `longest` words by a linear congruential generator, so no library decides them."""
    state = seed

    def draw(limit: int) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % limit

    def sentence() -> list[str]:
        word = draw(6)
        words = []
        for _ in range(1 + draw(longest)):
            words.append(WORDS[word])
            word = (word * 5 + 1 + draw(3)) % len(WORDS)
        return words

    return [sentence() for _ in range(count)]


def tiny_corpus(folder: Path, shard_tokens: int = 700, train: int = 300) -> Corpus:
    """The corpus of 300 training sentences and 40 of each other split, in several shards."""
    splits = {"train": sentences(train, 1), "valid": sentences(40, 2), "test": sentences(40, 3)}
    import_corpus("tiny", splits, folder / "store", ImportOptions(shard_tokens=shard_tokens))
    return open_corpus("tiny", folder / "store", folder / "cache")
