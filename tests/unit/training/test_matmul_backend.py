"""oneDNN is selected if it is exact and faster, and a node decides once."""

from typing import Any

import pytest
import torch

from memtune.training import GradientTrainer, read_checkpoint, restore_trainer
from memtune.training.optimisation import matmul_backend
from memtune.training.optimisation.matmul_backend import MatmulBackend, probe_backends, select_backend
from tests.presence import require

MKLDNN: Any = torch.backends.mkldnn  # torch declares no `matmul` in it
FAST = MatmulBackend(kernels="onednn", error=3e-7, gain=1.8)
SLOW = MatmulBackend(kernels="default", error=2e-3, gain=None)


@pytest.fixture(autouse=True)
def _isolate_backend(tmp_path, monkeypatch):
    before = MKLDNN.matmul.fp32_precision
    MKLDNN.matmul.fp32_precision = "none"
    monkeypatch.setenv("MEMTUNE_CACHE", str(tmp_path))
    select_backend.cache_clear()
    yield
    select_backend.cache_clear()
    MKLDNN.matmul.fp32_precision = before


def _uses_onednn() -> bool:
    return MKLDNN.matmul.fp32_precision == "bf16"


def _multiply_exactly(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """A product of single precision, on any processor."""
    return (left.double() @ right.double()).float()


class _Clock:
    """Seconds that only products advance, so that no other program of the machine changes a measurement."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = _Clock()
    monkeypatch.setattr(matmul_backend, "time", clock)
    return clock


def _take_seconds(clock, default: float, onednn: float) -> matmul_backend.Matmul:
    def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        clock.now += onednn if _uses_onednn() else default
        return _multiply_exactly(left, right)

    return multiply


def _multiply_rounded_with_onednn(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if _uses_onednn():
        return _multiply_exactly(left.bfloat16(), right.bfloat16())
    return _multiply_exactly(left, right)


def test_onednn_is_selected_if_exact_and_faster(clock):
    found = probe_backends(_take_seconds(clock, default=3.0, onednn=1.0))
    assert found.kernels == "onednn"
    assert require(found.error) < 1e-6
    assert require(found.gain) == pytest.approx(3)


def test_onednn_is_refused_if_it_rounds_to_bfloat16():
    found = probe_backends(_multiply_rounded_with_onednn)
    assert found.kernels == "default"
    assert 1e-3 < found.error < 1e-2


def test_onednn_is_refused_if_it_returns_nan():
    found = probe_backends(
        lambda left, right: _multiply_exactly(left, right) * (float("nan") if _uses_onednn() else 1.0)
    )
    assert found.kernels == "default"


def test_onednn_is_not_selected_if_not_clearly_faster(clock):
    found = probe_backends(_take_seconds(clock, default=1.1, onednn=1.0))
    assert found.kernels == "default"
    assert require(found.gain) == pytest.approx(1.1)


def test_a_probe_restores_the_setting():
    before = MKLDNN.matmul.fp32_precision
    probe_backends(_multiply_rounded_with_onednn)
    assert MKLDNN.matmul.fp32_precision == before


@pytest.mark.parametrize("before", ["none", "bf16"])
@pytest.mark.parametrize(("found", "uses_onednn"), [(FAST, True), (SLOW, False)])
def test_the_measured_backend_is_selected_whatever_the_process_used_before(
    monkeypatch, found, uses_onednn, before
):
    MKLDNN.matmul.fp32_precision = before
    monkeypatch.setattr(matmul_backend, "probe_backends", lambda: found)
    assert select_backend() == found
    assert _uses_onednn() == uses_onednn


def test_other_processes_of_a_node_use_the_stored_backend(monkeypatch):
    for found in (SLOW, FAST):
        monkeypatch.setattr(matmul_backend, "probe_backends", lambda found=found: found)
        assert select_backend() == SLOW
        select_backend.cache_clear()


def test_without_a_readable_cache_the_backend_is_measured(monkeypatch, tmp_path):
    monkeypatch.setenv("MEMTUNE_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(matmul_backend, "probe_backends", lambda: SLOW)
    assert select_backend() == SLOW


@pytest.mark.parametrize("found", [FAST, SLOW], ids=lambda route: route.kernels)
def test_a_trial_reports_its_backend_and_resumes_with_the_backend_of_another_node(
    corpus, make_trial, monkeypatch, tmp_path, found
):
    monkeypatch.setattr(matmul_backend, "probe_backends", lambda: SLOW)
    trial = GradientTrainer(make_trial(epochs=2), corpus)
    assert trial.advance().kernels == SLOW.kernels
    trial.save(tmp_path / "checkpoint")
    monkeypatch.setenv("MEMTUNE_CACHE", str(tmp_path / "other"))
    select_backend.cache_clear()
    monkeypatch.setattr(matmul_backend, "probe_backends", lambda: found)
    resumed = restore_trainer(read_checkpoint(tmp_path / "checkpoint"), corpus)
    assert resumed.advance().kernels == found.kernels
    assert resumed.is_finished


def test_the_backend_of_this_machine_keeps_single_precision():
    select_backend()
    generator = torch.Generator().manual_seed(3)
    left, right = (torch.randn(512, 512, generator=generator) for _ in range(2))
    assert ((left @ right).double() - left.double() @ right.double()).norm() < 1e-5 * 512**1.5


def test_a_cache_without_hard_links_keeps_no_temporary_file(monkeypatch, tmp_path):
    def refuse(*paths: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.link", refuse)
    assert matmul_backend.store_backend(SLOW, tmp_path) == SLOW
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
