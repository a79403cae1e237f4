import numpy as np
import pytest

from memtune.search.samplers.forest import _compute_expected_improvement


def test_the_expected_improvement_has_the_values_of_the_normal_distribution() -> None:
    """Jones et al. (1998), equation 15: z F(z) + f(z) for a deviation of 1, where 0 is the best value."""
    found = _compute_expected_improvement(np.array([0.0, -1.0, 1.0]), np.ones(3), 0.0)
    assert found == pytest.approx([0.398942, 1.083315, 0.083315], abs=1e-6)
