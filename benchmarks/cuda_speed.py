"""Training steps of every network on a GPU against one with cuDNN's LSTM of equal width.

A step reads 32 x 64 words at width 256: embedding, one layer, softmax over 10,000 words, back-propagation,
clipping and SGD. Ours runs as a trial does, with its body as CUDA graphs ("graph"), without ("eager"), or
with torch.compile. A value is the ratio of the tokens per second to those of nn.Embedding, nn.LSTM, nn.Linear
and torch's SGD in the same process. The share of the roofline is the arithmetic of the step over that of the
GPU's float32 matrix products.

    python -m benchmarks.cuda_speed [--only NAME ...] [--modes eager graph] [--json FILE]
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from memtune.models import (
    MODELS,
    MixerBlocksConfig,
    NeuralLanguageModelConfig,
    build_model,
    list_families,
    negative_log_likelihood,
)
from memtune.models.mixers.mixer_registry import PRESETS
from memtune.training import open_device
from memtune.training.optimisation.training_config import TrainingConfig
from memtune.training.optimisation.update_step import ModelUpdater

ROWS, WORDS, WIDTH, VOCABULARY = 32, 64, 256, 10_000
RATE, CLIP = 0.1, 5.0
GOALS = {"recurrent_memory": 0.9}
GOAL = 0.5
"""Tokens per second relative to cuDNN's LSTM."""
ROUNDS, ROUND_SECONDS = 5, 0.1
MODES = ["eager", "graph", "compile"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--modes", nargs="*", default=MODES[:2], choices=MODES)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    device = open_device("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    peak = measure_peak(device)
    print(f"float32 products: {peak / 1e12:.1f} TFLOP/s", flush=True)
    found: dict[str, dict[str, Any]] = {}
    for name, config in list_models().items():
        if arguments.only and name not in arguments.only:
            continue
        plain = measure_seconds(make_plain_step(device))
        found[name] = {"plain": plain}
        for mode in arguments.modes:
            try:
                seconds = measure_seconds(make_step(config, device, mode))
            except Exception as error:  # the next network is measured all the same
                print(f"{name}, {mode}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            flops = 6 * ROWS * WORDS * config.multiply_adds(VOCABULARY) / seconds
            found[name][mode] = seconds
            goal = GOALS.get(name, GOAL)
            print(
                f"{name}, {mode}: {plain / seconds:.2f} (goal >= {goal:.2f})   {seconds * 1e3:.2f} ms / "
                f"{plain * 1e3:.2f} ms, {ROWS * WORDS / seconds:,.0f} tokens/s, roofline {flops / peak:.3f}",
                flush=True,
            )
            if arguments.json:
                arguments.json.write_text(json.dumps(found, indent=1))


def list_models() -> dict[str, NeuralLanguageModelConfig]:
    """Every family of one layer that reads plain text, and every published mixer, by name."""
    models: dict[str, NeuralLanguageModelConfig] = {}
    for family in list_families(trained_by_gradient=True):
        own = MODELS[family]
        if not own.reads_trees and family != "mixer_blocks":
            models[family] = own.model_validate({"width": WIDTH}).require_network("the benchmark")
    for name in PRESETS:
        data = {"width": WIDTH, "layers": 1, "mixer": name}
        models[f"mixer {name}"] = MixerBlocksConfig.model_validate(data)
    return models


def make_text(device: torch.device, rows: int = ROWS, words: int = WORDS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs_BT, targets_BT = torch.randint(VOCABULARY, (2, rows, words), generator=generator).to(device)
    return inputs_BT, targets_BT


def make_step(
    config: NeuralLanguageModelConfig, device: torch.device, mode: str, rows: int = ROWS, words: int = WORDS
) -> Callable[[], object]:
    """A training step as in a trial."""
    model = build_model(config, VOCABULARY, seed=0).to(device)
    training = TrainingConfig(epochs=1, clip_norm=CLIP, compile=mode == "compile")
    updater = ModelUpdater(training, model, device)
    if mode == "eager":
        model.wrap_body(lambda network: type(network).encode.__get__(network))
    batch = make_text(device, rows, words)

    def step() -> Tensor:
        nats, _ = negative_log_likelihood(model, *batch)
        updater.step([nats / (rows * words)], RATE)
        return nats.detach()

    if mode == "graph":
        step(), step()
        if not getattr(model.encode, "can_capture", True):
            raise RuntimeError("the body cannot be captured")
    return step


def make_plain_step(device: torch.device) -> Callable[[], object]:
    """A training step of an LSTM with modules and functions of torch."""
    embedding, lstm = nn.Embedding(VOCABULARY, WIDTH), nn.LSTM(WIDTH, WIDTH, batch_first=True)
    output = nn.Linear(WIDTH, VOCABULARY)
    model = nn.ModuleList([embedding, lstm, output]).to(device)
    optimiser = torch.optim.SGD(model.parameters(), RATE)
    inputs_BT, targets_BT = make_text(device)

    def step() -> None:
        optimiser.zero_grad()
        hidden_BTH, _ = lstm(embedding(inputs_BT))
        functional.cross_entropy(output(hidden_BTH).flatten(0, 1), targets_BT.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()

    return step


def measure_seconds(step: Callable[[], object]) -> float:
    """Median seconds of a step over rounds of repeated steps."""
    step()
    once = time_steps(step, 2) / 2
    count = max(2, round(ROUND_SECONDS / once))
    return statistics.median(time_steps(step, count) / count for _ in range(ROUNDS))


def time_steps(step: Callable[[], object], count: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(count):
        step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3


def measure_peak(device: torch.device) -> float:
    """Floating-point operations per second of a large float32 product."""
    left, right = torch.randn(2, 4096, 4096, device=device)
    return 2 * 4096**3 / measure_seconds(lambda: left @ right)


if __name__ == "__main__":
    main()
