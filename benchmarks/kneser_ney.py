"""Kneser-Ney: fitting 5-grams and scoring a text, against the same model in plain Python dictionaries.

Both read the same generated text, with words by Zipf's law, alternately in one process and thread. The figure
is the median of the ratios of their CPU times. Both must give the same log probabilities before they are
timed. Memory is the peak of fitting and scoring in bytes per training token.

    python -m benchmarks.kneser_ney [--tokens 930000] [--rounds 3]
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from benchmarks.side_by_side import format_measure
from memtune.models.families.kneser_ney import KneserNey, KneserNeyConfig
from tests.oracles.kneser_ney import ReferenceKneserNey

ORDER = 5
VOCABULARY_SIZE = 10_000
END = 0
RATIO_MUST, RATIO_GOAL = 20, 50
BYTES_MUST, BYTES_GOAL = 400, 200


def generate_sentences(tokens: int, seed: int) -> list[list[int]]:
    """Sentences of 5 to 40 words, each drawn by Zipf's law from a list rotated by the previous word."""
    random = np.random.default_rng(seed)
    frequencies = 1 / np.arange(1, VOCABULARY_SIZE)
    ranks = random.choice(VOCABULARY_SIZE - 1, size=tokens, p=frequencies / frequencies.sum()).tolist()
    sentences, made = [], 0
    while made < tokens:
        sentence, before = [], 0
        for rank in ranks[made : made + int(random.integers(5, 41))]:
            before = 1 + (rank + before % 7 * 31) % (VOCABULARY_SIZE - 1)
            sentence.append(before)
        made += len(sentence) + 1
        sentences.append([*sentence, END])
    return sentences


def flatten(sentences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.concatenate([np.array(sentence) for sentence in sentences])
    return tokens, np.cumsum([0, *(len(sentence) for sentence in sentences[:-1])])


def compute_log_probabilities(model: KneserNey, tokens: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Log probability of every token in order; sentences are padded to one batch."""
    sentences = [torch.from_numpy(sentence) for sentence in np.split(tokens, starts[1:])]
    targets_BT = pad_sequence(sentences, batch_first=True, padding_value=END)
    is_token_BT = torch.arange(targets_BT.shape[1]) < torch.tensor([len(s) for s in sentences]).unsqueeze(1)
    inputs_BT = functional.pad(targets_BT[:, :-1], (1, 0), value=END)
    log_BT, _ = model.log_probabilities(inputs_BT, targets_BT, model.initial_state(len(sentences)))
    return log_BT[is_token_BT].numpy()


def measure_cpu_seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def measure_peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    action()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=930_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    train, test = (
        generate_sentences(arguments.tokens, seed=0),
        generate_sentences(arguments.tokens // 11, seed=1),
    )
    train_text, test_text = flatten(train), flatten(test)

    def run_ours() -> np.ndarray:
        model = KneserNeyConfig(order=ORDER).fit(*train_text, VOCABULARY_SIZE)
        return compute_log_probabilities(model, *test_text)

    def run_plain() -> list[float]:
        return ReferenceKneserNey(train, ORDER, VOCABULARY_SIZE).compute_log_probabilities(test)

    difference = np.abs(run_ours() / np.array(run_plain()) - 1).max()
    if difference > 1e-12:
        raise SystemExit(f"the log probabilities differ by {difference:.1e}: no ratio is reported")
    ratio = median(
        measure_cpu_seconds(run_plain) / measure_cpu_seconds(run_ours) for _ in range(arguments.rounds)
    )
    per_token = measure_peak_bytes(run_ours) / len(train_text[0])
    print(
        format_measure(
            "kneser_ney, plain Python dictionaries' time / our time", ratio, RATIO_GOAL, RATIO_MUST
        )
    )
    print(
        format_measure(
            "kneser_ney, peak bytes per training token", per_token, BYTES_GOAL, BYTES_MUST, at_most=True
        )
    )


if __name__ == "__main__":
    main()
