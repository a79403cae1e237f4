"""The device of a name."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from memtune.errors import ConfigurationError
from memtune.training import open_device

BACKENDS: list[Any] = [torch.backends.cudnn.rnn, torch.backends.cuda.matmul]


@pytest.fixture
def _default_precision() -> Iterator[None]:
    before = [backend.fp32_precision for backend in BACKENDS]
    yield
    for backend, precision in zip(BACKENDS, before, strict=True):
        backend.fp32_precision = precision


@pytest.mark.usefixtures("_default_precision")
def test_a_gpu_computes_float32_without_tensorfloat32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert open_device("cuda:1") == torch.device("cuda:1")
    assert {backend.fp32_precision for backend in BACKENDS} == {"ieee"}


@pytest.mark.parametrize("name", ["mps", "meta", "cuda:01", "cuda:99999999999", "cuda:\u0663", "cuda:-1"])
def test_a_name_that_is_no_device_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match='device must be "cpu", "cuda" or one GPU'):
        open_device(name)


def test_a_gpu_that_the_machine_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigurationError, match='"cuda:2" is not available: torch finds 2 GPUs'):
        open_device("cuda:2")
