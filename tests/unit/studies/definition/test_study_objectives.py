"""A study with several objectives, and the limits within which its best value is its best configuration."""

from pathlib import Path

import pytest

from memtune.errors import ConfigurationError, StudyError
from memtune.settings import Settings
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.studies.definition.study_terms import ChampionLimits
from memtune.training import TrialSizes

SIZES = TrialSizes(parameters=1000, multiply_adds=900, state=16, memory=50_000)
COUNTING = '[model]\nfamily = "kneser_ney"\norder = 2\n'


def resolve(study_file: Path, settings: Settings, text: str, sections: str = "") -> ResolvedStudy:
    """The study with `text` before its tables and `sections` behind them."""
    head, _, rest = study_file.read_text().partition("[training]")
    study_file.write_text(f"{head}{text}\n[training]{rest}\n{sections}")
    return resolve_study(study_file, load_study(study_file), settings)


def test_a_study_without_objectives_keeps_its_id(study_file: Path, settings: Settings) -> None:
    before = resolve_study(study_file, load_study(study_file), settings).id
    assert resolve(study_file, settings, 'objectives = ["value"]', "[champion]\nmax_state = 9").id == before


def test_other_objectives_are_another_study(study_file: Path, settings: Settings) -> None:
    before = resolve_study(study_file, load_study(study_file), settings).id
    assert resolve(study_file, settings, 'objectives = ["value", "state"]').id != before


@pytest.mark.parametrize(
    ("text", "sections", "message"),
    [
        ('objectives = ["parameters"]', "", r'must name "value" and each objective once'),
        ('objectives = ["value", "value"]', "", r'must name "value" and each objective once'),
        ('objectives = ["value", "speed"]', "", r"objectives.*Input should be 'value'"),
        (
            'objectives = ["value", "parameters"]',
            '[sampler]\nkind = "gp"',
            r'sampler.kind = "gp" has one objective; .* choose one of "tpe", "nsga2"',
        ),
        (
            'objectives = ["value", "parameters"]',
            '[early_stopping]\nkind = "successive_halving"\ngrace = 300',
            r'early_stopping.kind = "successive_halving" compares .* leave \[early_stopping\] out',
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_fix(
    study_file: Path, settings: Settings, text: str, sections: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        resolve(study_file, settings, text, sections)


def test_an_objective_that_is_equal_for_all_models_is_refused(study_file: Path, settings: Settings) -> None:
    fitted = "[model]\nwidth = { fit_parameters = 900 }\n"
    with pytest.raises(StudyError, match=r'makes the objective "parameters" equal for all models'):
        resolve(study_file, settings, 'objectives = ["value", "parameters"]', fitted)


def test_a_family_that_counts_has_no_second_objective(study_file: Path, settings: Settings) -> None:
    study_file.with_name("counting.toml").write_text(COUNTING)
    study_file.write_text(study_file.read_text().replace('["space.toml"]', '["space.toml", "counting.toml"]'))
    with pytest.raises(StudyError, match=r"kneser_ney learns by counting .* take it out of the spaces"):
        resolve(study_file, settings, 'objectives = ["value", "parameters"]')


@pytest.mark.parametrize(
    ("limits", "are_met"),
    [
        ({}, True),
        ({"max_parameters": 1000}, True),
        ({"max_parameters": 999}, False),
        ({"max_parameters": 1000, "max_state": 15}, False),
        ({"max_memory": "50kB"}, None),
        ({"max_memory": "1MB", "max_multiply_adds": 900}, True),
        ({"min_tokens_per_second": 100}, True),
        ({"min_tokens_per_second": 101}, False),
    ],
)
def test_a_trial_is_within_the_limits_when_it_meets_all(limits: dict, are_met: bool | None) -> None:
    if are_met is None:
        with pytest.raises(ValueError, match="a size is a number and a unit"):
            ChampionLimits.model_validate(limits)
    else:
        assert ChampionLimits.model_validate(limits).are_met(SIZES, 100.0) == are_met


def test_an_unknown_throughput_is_not_within_a_limit() -> None:
    assert not ChampionLimits(min_tokens_per_second=1.0).are_met(SIZES, None)


def test_limits_are_printed_as_in_a_study() -> None:
    limits = ChampionLimits(max_parameters=2_000_000, max_state=64)
    assert str(limits) == "max_parameters = 2,000,000, max_state = 64"
