"""The terms of a study: durations, sizes, shares of GPUs, and names of alternatives."""

from pathlib import Path

import pytest

from memtune.errors import ConfigurationError
from memtune.studies.definition.study import Study
from memtune.studies.definition.study_loader import load_study, open_study
from memtune.studies.definition.study_terms import Budget, name_alternative
from memtune.training import TrialConfig


def test_durations_are_read_with_their_units(study_file: Path) -> None:
    assert load_study(study_file, {"budget.time": "1.5h"}).budget.time == 5400


@pytest.mark.parametrize(("text", "size"), [("24GB", 24 * 10**9), ("1.5 GiB", 1.5 * 2**30)])
def test_sizes_are_read_with_their_units(study_file: Path, text: str, size: float) -> None:
    assert load_study(study_file, {"resources.gpu_memory": text}).resources.gpu_memory == size


def test_a_study_that_an_amount_ends_has_many_trials_unless_it_names_their_number() -> None:
    assert Budget().trials == Budget(target=80.0, time=None).trials == 12
    assert Budget.model_validate({"time": "1h"}).trials == 1000
    assert Budget.model_validate({"time": "1h", "trials": 12}).trials == 12
    for budget, trials in [({}, 1000), ({"target": 80.0}, 1000), ({"trials": 12}, 12)]:
        study = Study.model_validate(
            {"question": "?", "name": "a", "corpus": "b", "spaces": ["c"], "budget": budget}
        )
        assert open_study(study, {"budget.time": "1h"})[1].budget.trials == trials


def test_an_invalid_share_of_a_gpu_is_refused(study_file: Path) -> None:
    with pytest.raises(ConfigurationError, match="gpus_per_trial"):
        load_study(study_file, {"resources.gpus_per_trial": "some"})
    with pytest.raises(ConfigurationError, match='such as "24GB"'):
        load_study(study_file, {"resources.gpu_memory": "24 parsecs"})


@pytest.mark.parametrize(
    ("compared", "mixer", "alternative"),
    [
        ("model.mixer", "kda", "mixer kda"),
        ("model.mixer", {"kind": "attention", "heads": 2}, "mixer attention heads=2"),
        ("model.mixer.kind", "kda", "mixer matrix_memory"),
        ("model.memory_size", "kda", "mixer_blocks"),
    ],
)
def test_an_alternative_is_named_by_its_value_or_as_the_model_describes_it(compared, mixer, alternative):
    model = {"family": "mixer_blocks", "mixer": mixer}
    config = TrialConfig.model_validate({"model": model, "training": {"epochs": 1}})
    assert name_alternative(config, compared) == alternative
