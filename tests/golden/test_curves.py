"""Learning curves against the stored ones."""

import json

import pytest
import torch

from tests.golden.curves import STORED_CURVES_PATH, TRIAL_CONFIGS, compute_curve
from tests.golden.tiny_corpus import make_tiny_corpus

# Other kernels sum in another order: with SSE instead of AVX-512, or without oneDNN, these curves change by
# 2e-7 at most. A change of an equation, of the order of the data or of a schedule changes them by over 1e-3.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_tiny_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("name", TRIAL_CONFIGS)
def test_a_curve_matches_the_stored_one(corpus, name):
    threads = torch.get_num_threads()
    try:
        curve = compute_curve(name, corpus)
    finally:
        torch.set_num_threads(threads)
    stored = json.loads(STORED_CURVES_PATH.read_text())[name]
    for quantity, losses in stored.items():
        assert curve[quantity] == pytest.approx(losses, abs=TOLERANCE)


@pytest.mark.parametrize("name", TRIAL_CONFIGS)
def test_a_stored_validation_loss_falls(name):
    stored = json.loads(STORED_CURVES_PATH.read_text())[name]
    assert stored["valid_loss"][-1] < stored["valid_loss"][0] - 0.1
