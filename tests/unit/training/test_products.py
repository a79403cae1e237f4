"""The route of matrix products is taken where it is exact and faster, and once for a node."""

import pytest
import torch

from memtune.training import Learner, products
from memtune.training.products import Route, probe, take_fastest_route

FAST = Route(kernels="onednn", error=3e-7, gain=1.8)
SLOW = Route(kernels="default", error=2e-3, gain=None)


@pytest.fixture(autouse=True)
def _route_of_its_own(tmp_path, monkeypatch):
    before = torch.backends.mkldnn.matmul.fp32_precision
    monkeypatch.setenv("MEMTUNE_CACHE", str(tmp_path))
    take_fastest_route.cache_clear()
    yield
    take_fastest_route.cache_clear()
    torch.backends.mkldnn.matmul.fp32_precision = before


def _rerouted() -> bool:
    return torch.backends.mkldnn.matmul.fp32_precision == "bf16"


def _exact(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """A product of single precision, on any processor."""
    return (left.double() @ right.double()).float()


def _faster_by_the_route(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    for _ in range(0 if _rerouted() else 4):
        _exact(left, right)
    return _exact(left, right)


def _rounded_by_the_route(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if _rerouted():
        return _exact(left.bfloat16(), right.bfloat16())
    return _faster_by_the_route(left, right)


def test_a_fast_route_of_single_precision_is_taken():
    found = probe(_faster_by_the_route)
    assert found.kernels == "onednn"
    assert found.error < 1e-6
    assert found.gain > 2


def test_a_route_that_rounds_to_bfloat16_is_refused_however_fast():
    found = probe(_rounded_by_the_route)
    assert found.kernels == "default"
    assert 1e-3 < found.error < 1e-2


def test_a_route_that_gives_no_numbers_is_refused():
    found = probe(lambda left, right: _exact(left, right) * (float("nan") if _rerouted() else 1.0))
    assert found.kernels == "default"


def test_a_route_that_is_no_faster_is_left():
    assert probe(_exact).kernels == "default"


def test_a_probe_leaves_the_route_as_it_was():
    before = torch.backends.mkldnn.matmul.fp32_precision
    probe(_rounded_by_the_route)
    assert torch.backends.mkldnn.matmul.fp32_precision == before


@pytest.mark.parametrize(("found", "rerouted"), [(FAST, True), (SLOW, False)])
def test_the_route_found_is_taken(monkeypatch, found, rerouted):
    monkeypatch.setattr(products, "probe", lambda: found)
    assert take_fastest_route() == found
    assert _rerouted() == rerouted


def test_what_a_node_has_decided_stays_for_its_other_processes(monkeypatch):
    for found in (SLOW, FAST):
        monkeypatch.setattr(products, "probe", lambda found=found: found)
        assert take_fastest_route() == SLOW
        take_fastest_route.cache_clear()


def test_a_damaged_or_missing_cache_is_no_obstacle(monkeypatch, tmp_path):
    monkeypatch.setenv("MEMTUNE_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(products, "probe", lambda: SLOW)
    assert take_fastest_route() == SLOW


@pytest.mark.parametrize("found", [FAST, SLOW], ids=lambda route: route.kernels)
def test_a_trial_reports_its_route_and_goes_on_by_the_route_of_another_node(
    corpus, make_trial, monkeypatch, tmp_path, found
):
    monkeypatch.setattr(products, "probe", lambda: SLOW)
    trial = Learner(make_trial(epochs=2), corpus)
    assert trial.advance().kernels == SLOW.kernels
    trial.save(tmp_path / "checkpoint")
    monkeypatch.setenv("MEMTUNE_CACHE", str(tmp_path / "other"))
    take_fastest_route.cache_clear()
    monkeypatch.setattr(products, "probe", lambda: found)
    resumed = Learner.restore(tmp_path / "checkpoint", corpus)
    assert resumed.advance().kernels == found.kernels
    assert resumed.finished


def test_the_route_of_this_machine_keeps_single_precision():
    take_fastest_route()
    generator = torch.Generator().manual_seed(3)
    left, right = (torch.randn(512, 512, generator=generator) for _ in range(2))
    assert ((left @ right).double() - left.double() @ right.double()).norm() < 1e-5 * 512**1.5
