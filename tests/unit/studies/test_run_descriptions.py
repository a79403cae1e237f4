"""What the runs of studies and trials say of themselves in MLflow."""

import json
from pathlib import Path

import pytest

from memtune.settings import Settings
from memtune.studies.trial_records import (
    collect_trial_parameters,
    describe_open_study,
    describe_trial_run,
    format_value,
)
from memtune.training import TrialConfig
from tests.unit.studies.study_files import resolve

CONFIG = TrialConfig.model_validate(
    {
        "model": {"family": "lstm", "width": 4},
        "training": {"tokens": 900, "optimiser": {"kind": "sgd", "learning_rate": 0.123456}},
        "seed": 3,
    }
)


def test_an_open_study_is_described_by_its_question_its_size_and_its_command(
    study_file: Path, settings: Settings
) -> None:
    resolved = resolve(study_file, settings)
    assert describe_open_study(resolved) == (
        "**Question.** Does a second layer help?\n\n"
        "**Answer.** The study is open: its answer and the best trial of each family are written here when "
        "it ends. The metrics follow its progress.\n\n"
        f"4 trials over space.toml on the corpus tiny; `memtune study show {resolved.id}` shows each."
    )


def test_a_run_is_described_by_its_model_its_size_its_searched_fields_and_its_command() -> None:
    fields = ("model.family", "model.width", "training.optimiser.learning_rate", "model.order")
    described = describe_trial_run(CONFIG, 12, "layers#3", fields).splitlines()
    assert described == [
        "| | |",
        "|---|---|",
        "| family | lstm |",
        "| width | 4 |",
        "| layers | 1 |",
        "| dropout | 0 |",
        "| parameters | 268 |",
        "| carried state | 8 |",
        "| `model.width` (searched) | 4 |",
        "| `training.optimiser.learning_rate` (searched) | 0.1235 |",
        "| protocol | sentence |",
        "| seed | 3 |",
        "| evaluate | `memtune evaluate 'layers#3'` |",
    ]


def test_a_run_without_a_name_is_evaluated_by_its_id() -> None:
    last = describe_trial_run(CONFIG, 12, "").splitlines()[-1]
    assert last == "| evaluate | `memtune evaluate` with this run's id |"


@pytest.mark.parametrize(
    ("value", "text"), [(0.123456, "0.1235"), (1e-6, "1e-06"), (20_000, "20000"), (True, "True"), ("a", "a")]
)
def test_fractions_in_a_description_have_four_digits(value: object, text: str) -> None:
    assert format_value(value) == text


def test_the_parameters_of_a_run_are_those_of_json() -> None:
    """MLflow holds them as JSON: a list of cutoffs, not a tuple."""
    model = {"family": "lstm", "width": 4, "output": {"kind": "adaptive", "cutoffs": [4, 8]}}
    parameters = collect_trial_parameters(
        TrialConfig.model_validate({**CONFIG.model_dump(), "model": model}), 12
    )
    assert parameters["model.output.cutoffs"] == [4, 8]
    assert parameters == json.loads(json.dumps(parameters))


@pytest.mark.parametrize(
    ("protocol", "lengths"),
    [({}, {}), ({"variant": "tran2016"}, {"protocol.min_length": 10, "protocol.max_length": 80})],
)
def test_a_run_has_the_lengths_of_sentences_only_where_its_protocol_uses_them(
    protocol: dict[str, str], lengths: dict[str, int]
) -> None:
    config = TrialConfig.model_validate({**CONFIG.model_dump(), "protocol": {"kind": "sentence", **protocol}})
    parameters = collect_trial_parameters(config, 12)
    assert {name: value for name, value in parameters.items() if name.endswith("_length")} == lengths
