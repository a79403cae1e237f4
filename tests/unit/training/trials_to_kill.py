"""A process that trains trials in turn, with a checkpoint after each report, until it is killed.

python trials_to_kill.py STORE CACHE THREADS CHECKPOINTS < a line of JSON per trial

It prints `saved NAME` after each checkpoint and `training` at each step between two reports. At the first
step after two checkpoints of each trial it waits for the kill.
"""

import signal
import sys
from pathlib import Path

import torch

from memtune.corpora import open_corpus
from memtune.training import GradientTrainer, TrialConfig, training_loop

if __name__ == "__main__":
    store, cache, threads, checkpoints = sys.argv[1:]
    torch.set_num_threads(int(threads))
    training_loop.PROGRESS_SECONDS = 0.0
    corpus = open_corpus("tiny", store, Path(cache))
    trials = [GradientTrainer(TrialConfig.model_validate_json(line), corpus) for line in sys.stdin]
    saved: list[str] = []

    def print_step(glance: object) -> None:
        print("training", flush=True)
        if len(saved) == 2 * len(trials):
            signal.pause()

    while True:
        for trial in trials:
            trial.advance(print_step)
            trial.save(Path(checkpoints) / trial.identity)
            saved.append(trial.identity)
            print("saved", trial.identity, flush=True)
