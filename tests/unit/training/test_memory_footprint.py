"""The estimate of a trial's memory, and the error of a trial without enough memory."""

import re
import resource
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

import memtune
from memtune.corpora.batching.protocols import SentenceProtocol, StreamProtocol
from memtune.errors import TrialError, WorkerError
from memtune.models import build_model, negative_log_likelihood
from memtune.models.mixers import matrix_recurrence
from memtune.training import (
    GradientTrainer,
    estimate_memory,
    find_largest_batch,
    find_longest_row,
    memory_footprint,
)
from memtune.training.memory_footprint import explain_memory_errors, measure_resident_bytes
from memtune.training.optimisation.update_step import ModelUpdater
from tests.unit.training.conftest import STREAM

VOCABULARY = 2000
MODELS = [
    {"family": "lstm", "width": 64},
    {"family": "lstm", "width": 128, "layers": 3, "dropout": 0.5},
    {"family": "lstm", "width": 512, "layers": 2},
    {"family": "recurrent_memory", "width": 128, "memory_size": 15},
    {"family": "recurrent_memory", "width": 64, "layers": 2, "layers_above": 1, "composition": "sum"},
    {"family": "recurrent_memory", "width": 256, "temporal": "both", "composition": "gate_biased"},
]


def _make_config(make_trial, model, rows=20, length=35, **training):
    protocol = {"kind": "stream", "batch_size": rows, "length": length}
    return make_trial(model, protocol, **training)


def _measure_saved_bytes(config) -> int:
    """Bytes that autograd keeps for the backward pass of one batch: each storage once, without parameters."""
    model = build_model(config.model, VOCABULARY, seed=0)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    tokens_BT = torch.zeros(config.protocol.batch_size, config.protocol.length, dtype=torch.int64)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        loss, _ = negative_log_likelihood(model, tokens_BT, tokens_BT)
        total = sum(kept.values())
        loss.backward()
    return total


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model['family']}-{model['width']}")
@pytest.mark.parametrize("length", [10, 35, 100])
def test_activations_are_estimated_within_a_factor_of_two(make_trial, model, length):
    config = _make_config(make_trial, model, length=length)
    logits = 4 * 2 * 256 * VOCABULARY
    measured = _measure_saved_bytes(config) + logits
    assert 0.5 < estimate_memory(config, VOCABULARY, length).activations / measured < 2


@pytest.mark.parametrize(
    "mixer",
    [
        {"kind": "mesa", "heads": 1, "key_ratio": 1.0},
        {"kind": "matrix_memory", "heads": 1, "key_ratio": 2.0, "decay": "vector"},
        {"kind": "matrix_memory", "heads": 4, "key_ratio": 4.0, "decay": "vector", "steps": 3},
    ],
)
def test_wide_keys_of_mixers_are_estimated_as_a_gpu_keeps_them(make_trial, mixer, monkeypatch):
    """There the differences of decays are always kept."""
    monkeypatch.setattr(matrix_recurrence, "MOST_FACTORED_DECAY", -1.0)
    config = _make_config(
        make_trial,
        {"family": "mixer_blocks", "width": 64, "layers": 1, "mixer": mixer, "pattern": "m"},
        rows=2,
    )
    estimate = estimate_memory(config, VOCABULARY, 35).activations
    assert 0.9 <= estimate / _measure_saved_bytes(config) <= 2.0


@pytest.mark.parametrize(
    ("output", "fewest", "most"),
    [
        ({"kind": "class_factored", "classes": 50}, 700 * VOCABULARY // 50, 700 * (VOCABULARY // 50 + 50)),
        ({"kind": "adaptive", "cutoffs": [300, 900]}, 256 * 1100, 256 * 1100),  # one cluster after the other
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_a_smaller_output_layer_holds_fewer_logits_over_the_same_body(make_trial, output, fewest, most):
    full, smaller = (_make_config(make_trial, {**MODELS[0], **fields}) for fields in ({}, {"output": output}))
    saved = (
        estimate_memory(full, VOCABULARY, 35).activations
        - estimate_memory(smaller, VOCABULARY, 35).activations
    )
    logits = 256 * VOCABULARY - saved / 8  # a float each, and one of its gradient
    assert fewest <= logits <= most


def _measure_peak_of_step(config) -> int:
    """Peak bytes of tensors during a step, minus those before it."""
    model = build_model(config.model, VOCABULARY, seed=0)
    updates = ModelUpdater(config.training, model, torch.device("cpu"))
    shape = (2, config.protocol.batch_size, config.protocol.length)
    inputs_BT, targets_BT = torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(0))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        loss, _ = negative_log_likelihood(model, inputs_BT, targets_BT)
        updates.step([loss], learning_rate=0.1)
    events = profiled.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(accumulate(change for _, change in changes))


# One formula serves every family: too high where tables give their gradients as rows, chunks of the loss
# are small, and a family computes again what it could keep; too low for what a stack's cells hold.
PEAKED = [
    ({"family": "lstm", "width": 128}, 1.2, 2.0),
    ({"family": "lstm", "width": 128, "layers": 3, "dropout": 0.5}, 1.1, 1.8),
    ({"family": "recurrent_memory", "width": 128}, 1.4, 2.4),
    ({"family": "lstmn", "width": 64}, 1.4, 2.6),
    ({"family": "lstmn", "width": 64, "layers": 3}, 1.6, 2.8),
    ({"family": "lstmn", "width": 8, "layers": 6}, 1.4, 2.4),
    ({"family": "stack_lstm", "width": 128}, 0.7, 1.3),
]


@pytest.mark.parametrize(
    ("model", "low", "high"), PEAKED, ids=[f"{i}-{peaked[0]['family']}" for i, peaked in enumerate(PEAKED)]
)
@pytest.mark.parametrize("length", [20, 150])
def test_the_estimate_holds_for_the_measured_peak_of_a_step(make_trial, model, low, high, length):
    config = _make_config(make_trial, model, rows=10, length=length)
    found = estimate_memory(config, VOCABULARY, length)
    assert low < (found.activations + found.gradients) / _measure_peak_of_step(config) < high


@pytest.mark.parametrize("mixer", ["attention", "gated_deltanet", "kda", "mesanet"])
def test_what_a_mixer_keeps_of_a_long_row_does_not_grow_with_its_square(make_trial, mixer):
    """Attention's kernels keep no weights, and the scores of the others are those of a chunk."""
    model = {"family": "mixer_blocks", "width": 32, "layers": 1, "pattern": "m", "mixer": mixer}
    config = _make_config(make_trial, model, rows=4, length=400)
    found = estimate_memory(config, VOCABULARY, 400)
    assert 0.8 < (found.activations + found.gradients) / _measure_peak_of_step(config) < 2.8


@pytest.mark.parametrize(
    ("optimiser", "copies"),
    [({"kind": "sgd"}, 0), ({"kind": "sgd", "momentum": 0.9}, 1), ({"kind": "adam"}, 2)],
)
def test_the_state_of_the_optimiser_is_counted(make_trial, optimiser, copies):
    config = _make_config(make_trial, MODELS[0], optimiser=optimiser)
    found = estimate_memory(config, VOCABULARY, 35)
    assert found.parameters == found.gradients == 4 * config.model.parameter_count(VOCABULARY)
    assert found.optimiser == copies * found.parameters


def test_the_largest_batch_fits_and_the_next_larger_does_not(make_trial):
    limit = 50 * 2**20
    config = _make_config(make_trial, MODELS[1])
    rows = find_largest_batch(config, VOCABULARY, 35, limit)
    fitting, over = (_make_config(make_trial, MODELS[1], rows=count) for count in (rows, rows + 1))
    assert (
        estimate_memory(fitting, VOCABULARY, 35).total <= limit < estimate_memory(over, VOCABULARY, 35).total
    )


def test_the_largest_batch_of_a_too_large_model_is_zero(make_trial):
    assert find_largest_batch(_make_config(make_trial, MODELS[2]), VOCABULARY, 35, 2**20) == 0


def test_the_longest_row_depends_on_the_protocol(corpus):
    longest = int(corpus["train"].lengths.max())
    assert find_longest_row(SentenceProtocol(), corpus["train"]) == longest
    assert find_longest_row(StreamProtocol(length=9), corpus["train"]) == 9
    bounded = SentenceProtocol(variant="tran2016", min_length=2, max_length=5)
    assert find_longest_row(bounded, corpus["train"]) == 5


def test_a_model_too_large_for_the_machine_is_a_trial_error(corpus, make_trial):
    config = make_trial({"family": "lstm", "width": 3_000_000}, STREAM)
    with pytest.raises(
        TrialError, match=r"out of memory on cpu with batch size 8.*use a smaller model"
    ) as message:
        GradientTrainer(config, corpus)
    assert '"width":3000000' in str(message.value)


def _step_within_limits(batch_size: int, corpus_folder: Path, folder: Path) -> str:
    """The output of a process that trains one step with 128 MiB of free address space."""
    script = folder / "step.py"
    script.write_text(STEP)
    root = Path(memtune.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, script, corpus_folder / "store", corpus_folder / "cache", str(batch_size)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{root / 'platform'}:{root}", "OMP_NUM_THREADS": "1"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


STEP = """
import resource, sys
from pathlib import Path
from memtune.corpora import open_corpus
from memtune.errors import TrialError
from memtune.training import GradientTrainer, TrialConfig
from memtune.values import parse

corpus = open_corpus("tiny", sys.argv[1], Path(sys.argv[2]))
trainer = GradientTrainer(parse(TrialConfig, {
    "model": {"family": "lstm", "width": 128, "layers": 2},
    "protocol": {"kind": "stream", "batch_size": int(sys.argv[3]), "length": 10},
    "training": {"tokens": 1},
}, "trial"), corpus)
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**27, resource.RLIM_INFINITY))
try:
    print(trainer.advance().end)
except TrialError as error:
    print(error)
"""


@pytest.mark.cluster
@pytest.mark.usefixtures("corpus")
def test_the_error_for_a_too_large_batch_names_a_batch_size_that_fits(tmp_path, corpus_folder):
    message = _step_within_limits(200_000, corpus_folder, tmp_path)
    assert "out of memory on cpu with batch size 200000" in message
    fitting = re.search(r"a batch size of (\d+) would fit", message)
    assert fitting
    assert int(fitting[1]) > 100
    assert _step_within_limits(int(fitting[1]), corpus_folder, tmp_path) == "budget\n"


def test_the_batch_size_that_failed_is_not_recommended(corpus, make_trial):
    """The estimate is below the limit, but the allocation has failed."""
    config = _make_config(make_trial, MODELS[0], rows=6)
    with (
        pytest.raises(TrialError, match="a batch size of 3 would fit"),
        explain_memory_errors(config, corpus, torch.device("cpu")),
    ):
        raise MemoryError


@pytest.mark.parametrize(("free_bytes", "error"), [(1, WorkerError), (2**60, TrialError)])
def test_memory_that_other_processes_hold_is_no_fault_of_the_trial(
    corpus, make_trial, monkeypatch, free_bytes, error
):
    monkeypatch.setattr(memory_footprint, "measure_free_bytes", lambda: free_bytes)
    config = _make_config(make_trial, MODELS[0])
    with (
        pytest.raises(error, match="out of memory"),
        explain_memory_errors(config, corpus, torch.device("cpu")),
    ):
        raise MemoryError


def test_the_free_memory_is_at_most_that_of_the_machine():
    assert 0 < memory_footprint.measure_free_bytes() <= 2**10 * _read_total_kilobytes()


def _read_total_kilobytes() -> int:
    (line,) = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")]
    return int(line.split()[1])


def test_the_memory_of_a_process_is_near_the_most_that_it_has_held() -> None:
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert largest / 4 < measure_resident_bytes() < largest * 1.01, "the kernel counts some pages later"
