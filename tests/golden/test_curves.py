"""Learning curves against the stored ones."""

import json

import pytest
import torch

from tests.golden.curves import STORED, TRIALS, curve
from tests.golden.tiny_corpus import tiny_corpus

# Other kernels sum in another order: with SSE instead of AVX-512, or without oneDNN, these curves moved by
# 2e-7 at most. A change of an equation, of the order of the data or of a schedule moves them beyond 1e-3.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("name", TRIALS)
def test_a_curve_is_as_it_was(corpus, name):
    threads = torch.get_num_threads()
    try:
        found = curve(name, corpus)
    finally:
        torch.set_num_threads(threads)
    stored = json.loads(STORED.read_text())[name]
    for quantity, losses in stored.items():
        assert found[quantity] == pytest.approx(losses, abs=TOLERANCE)


@pytest.mark.parametrize("name", TRIALS)
def test_a_stored_curve_falls(name):
    stored = json.loads(STORED.read_text())[name]
    assert stored["valid_loss"][-1] < stored["valid_loss"][0] - 0.1
