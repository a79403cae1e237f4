"""A small text, equal on every machine, in which a word largely determines the next one."""

from pathlib import Path

from memtune.corpora import Corpus, ImportOptions, import_corpus, open_corpus

WORDS = [f"w{index}" for index in range(24)]


def generate_sentences(count: int, seed: int, max_words: int = 12) -> list[list[str]]:
    """Sentences of 1 to `max_words` words from a linear congruential generator, independent of libraries."""
    state = seed

    def draw(limit: int) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % limit

    def draw_sentence() -> list[str]:
        word = draw(6)
        words = []
        for _ in range(1 + draw(max_words)):
            words.append(WORDS[word])
            word = (word * 5 + 1 + draw(3)) % len(WORDS)
        return words

    return [draw_sentence() for _ in range(count)]


def make_tiny_corpus(folder: Path, shard_tokens: int = 700, train: int = 300) -> Corpus:
    """A corpus of `train` training sentences and 40 sentences of each other split, in several shards."""
    splits = {
        "train": generate_sentences(train, 1),
        "valid": generate_sentences(40, 2),
        "test": generate_sentences(40, 3),
    }
    import_corpus("tiny", splits, folder / "store", ImportOptions(shard_tokens=shard_tokens))
    return open_corpus("tiny", folder / "store", folder / "cache")
