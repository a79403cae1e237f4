"""Import speed: words of a text file into shards, against a plain Python loop that writes ids.

Both read the same generated text, with words by Zipf's law, alternately in one process and thread. The figure
is the median of the ratios of their CPU times. Both must give the same ids before they are timed.

    python -m benchmarks.import_speed [--words 8000000] [--rounds 5]
"""

import argparse
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.side_by_side import format_measure
from memtune.corpora import ImportOptions, TextFile, import_corpus, open_corpus

VOCABULARY_SIZE = 50_000
GOAL = 1.0


def write_text(path: Path, words: int, seed: int) -> None:
    """Write sentences of 5 to 40 words, drawn by Zipf's law from letter strings, some of them not ASCII."""
    random = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyzéü"))
    lengths = random.integers(2, 10, VOCABULARY_SIZE)
    spelled = ["".join(letters[random.integers(0, len(letters), length)]) for length in lengths]
    frequencies = 1 / np.arange(1, VOCABULARY_SIZE + 1)
    drawn = random.choice(VOCABULARY_SIZE, size=words, p=frequencies / frequencies.sum())
    text = [spelled[word] for word in drawn]
    with path.open("w", encoding="utf-8") as file:
        start = 0
        while start < words:
            stop = start + int(random.integers(5, 41))
            file.write(" ".join(text[start:stop]) + "\n")
            start = stop


def run_plain_loop(source: Path, target: Path) -> dict[str, int]:
    """The usual loop: split, a dict, ids to a file; returns the dict for `check_ids`."""
    numbers: dict[str, int] = {}
    ids = array("i")
    with source.open(encoding="utf-8") as file:
        for line in file:
            for word in line.split():
                ids.append(numbers.setdefault(word, len(numbers)))
    with target.open("wb") as file:
        ids.tofile(file)
    return numbers


def import_text(source: Path, small: Path, folder: Path) -> None:
    sources = {"train": TextFile(source), "valid": TextFile(small), "test": TextFile(small)}
    options = ImportOptions(unknown="refuse")
    import_corpus("speed", sources, folder / "store", options, replace=True, cache=folder / "cache")


def check_ids(source: Path, folder: Path) -> None:
    """Check that both sides read the same words in the same order."""
    numbers = run_plain_loop(source, folder / "ids")
    plain = np.fromfile(folder / "ids", np.int32)
    corpus = open_corpus("speed", folder / "store", folder / "cache")
    ours = corpus["train"].read_tokens(0, corpus["train"].token_count)
    if not np.array_equal(ours[ours != 0], corpus.vocabulary.encode(numbers)[plain]):
        raise SystemExit("the import and the plain loop disagree about the words: no figure")


def measure_cpu_seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--words", type=int, default=8_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, small = folder / "text", folder / "small"
        write_text(source, arguments.words, seed=0)
        small.write_bytes(source.read_bytes()[:100_000].rpartition(b"\n")[0])
        import_text(source, small, folder)
        check_ids(source, folder)
        ratios, speeds = [], []
        for _ in range(arguments.rounds):
            plain = measure_cpu_seconds(lambda: run_plain_loop(source, folder / "ids"))
            ours = measure_cpu_seconds(lambda: import_text(source, small, folder))
            ratios.append(plain / ours)
            speeds.append(arguments.words / ours)
    detail = f"{min(ratios):.2f} to {max(ratios):.2f}, {median(speeds) / 1e6:.1f} M words/s"
    print(format_measure("import speed, ours / plain loop", median(ratios), GOAL, detail=detail))


if __name__ == "__main__":
    main()
