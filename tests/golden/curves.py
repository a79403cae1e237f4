"""Short learning curves that a change must not move unless it means to.

`python -m tests.golden.curves` from the repository's root, with `platform` on PYTHONPATH, writes them anew.
"""

import json
import tempfile
from pathlib import Path

import torch

from memtune.corpora import Corpus
from memtune.training import Learner, TrialConfig
from memtune.values import parse
from tests.golden.tiny_corpus import tiny_corpus

STORED = Path(__file__).with_name("curves.json")

HALVED = {"kind": "step", "factor": 0.5, "hold_epochs": 4}
SENTENCE = {"kind": "sentence", "batch_size": 10}
STREAM = {"kind": "stream", "batch_size": 5, "length": 10}
LSTM = {"family": "lstm", "width": 16, "layers": 1}
MEMORY = {"family": "recurrent_memory", "width": 16, "memory_size": 5}
SGD = {"optimiser": {"kind": "sgd", "learning_rate": 0.3}, "schedule": HALVED}
ADAM = {"optimiser": {"kind": "adam", "learning_rate": 0.005}}

TRIALS = {
    f"{model['family']} {protocol['kind']} {training['optimiser']['kind']}": {
        "model": model | {"initial_range": 0.2},
        "protocol": protocol,
        "training": training | {"epochs": 6},
        "seed": 1,
    }
    for model in (LSTM, MEMORY)
    for protocol, training in ((SENTENCE, SGD), (STREAM, ADAM))
}


def curve(name: str, corpus: Corpus) -> dict[str, list[float]]:
    """Training and validation losses of a trial, in nats per token, one each epoch."""
    torch.set_num_threads(1)
    learner = Learner(parse(TrialConfig, TRIALS[name], name), corpus)
    while not learner.finished:
        learner.advance()
    return {
        "train_loss": [report.train_loss or float("nan") for report in learner.curve],
        "valid_loss": [report.valid_loss or float("nan") for report in learner.curve],
    }


def main() -> None:
    """Write the curves of all trials."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = tiny_corpus(Path(folder))
        curves = {name: curve(name, corpus) for name in TRIALS}
    STORED.write_text(json.dumps(curves, indent=1) + "\n")


if __name__ == "__main__":
    main()
