"""Short learning curves that detect unintended changes of training.

`python -m tests.golden.curves` in the repository's root, with `platform` on PYTHONPATH, rewrites the stored
curves.
"""

import json
import tempfile
from pathlib import Path

import torch

from memtune.corpora import Corpus
from memtune.training import GradientTrainer, TrialConfig
from memtune.values import parse
from tests.golden.tiny_corpus import make_tiny_corpus

STORED_CURVES_PATH = Path(__file__).with_name("curves.json")

HALVING_SCHEDULE = {"kind": "step", "factor": 0.5, "hold_epochs": 4}
SENTENCE = {"kind": "sentence", "batch_size": 10}
STREAM = {"kind": "stream", "batch_size": 5, "length": 10}
LSTM = {"family": "lstm", "width": 16, "layers": 1}
MEMORY = {"family": "recurrent_memory", "width": 16, "memory_size": 5}
SGD = {"optimiser": {"kind": "sgd", "learning_rate": 0.3}, "schedule": HALVING_SCHEDULE}
ADAM = {"optimiser": {"kind": "adam", "learning_rate": 0.005}}

TRIAL_CONFIGS = {
    f"{model['family']} {protocol['kind']} {training['optimiser']['kind']}": {
        "model": model | {"initial_range": 0.2},
        "protocol": protocol,
        "training": training | {"epochs": 6},
        "seed": 1,
    }
    for model in (LSTM, MEMORY)
    for protocol, training in ((SENTENCE, SGD), (STREAM, ADAM))
}


def compute_curve(name: str, corpus: Corpus, device: str = "cpu") -> dict[str, list[float]]:
    """Training and validation losses of a trial, in nats per token, one value per epoch."""
    torch.set_num_threads(1)
    trainer = GradientTrainer(parse(TrialConfig, TRIAL_CONFIGS[name], name), corpus, device)
    while not trainer.is_finished:
        trainer.advance()
    return {
        "train_loss": [report.train_loss or float("nan") for report in trainer.curve],
        "valid_loss": [report.valid_loss or float("nan") for report in trainer.curve],
    }


def main() -> None:
    """Write the curves of all trials."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = make_tiny_corpus(Path(folder))
        curves = {name: compute_curve(name, corpus) for name in TRIAL_CONFIGS}
    STORED_CURVES_PATH.write_text(json.dumps(curves, indent=1) + "\n")


if __name__ == "__main__":
    main()
