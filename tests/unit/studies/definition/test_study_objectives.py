"""A study with several objectives, and the limits within which its best value is its best configuration."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from memtune.errors import ConfigurationError, StudyError
from memtune.search import StoredTrial
from memtune.settings import Settings
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.studies.definition.study_terms import ChampionLimits
from memtune.training import TrialSizes, compute_sizes
from memtune.trial_state import TrialState
from memtune.usage import NodeSeconds, Usage
from tests.presence import require

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
        ({"max_memory": "50 words"}, None),
        ({"max_memory": "1MB", "max_multiply_adds": 900}, True),
        ({"min_tokens_per_second": 100}, True),
        ({"min_tokens_per_second": 101}, False),
    ],
)
def test_a_trial_is_within_the_limits_when_it_meets_all(limits: dict, are_met: bool | None) -> None:
    if are_met is None:
        with pytest.raises(ValueError, match="could not interpret byte unit: words"):
            ChampionLimits.model_validate(limits)
    else:
        assert ChampionLimits.model_validate(limits).are_met(SIZES, 100.0) == are_met


def test_an_unknown_throughput_is_not_within_a_limit() -> None:
    assert not ChampionLimits(min_tokens_per_second=1.0).are_met(SIZES, None)


def test_limits_are_printed_as_in_a_study() -> None:
    limits = ChampionLimits(max_parameters=2_000_000, max_state=64)
    assert str(limits) == "max_parameters = 2,000,000, max_state = 64"


def make_outcome(width: int, seconds: float, value: float = 2.0) -> StoredTrial:
    """A complete trial of 1,000 tokens, by the width of its LSTM and its core seconds."""
    configuration: dict[str, Any] = {
        "model": {"family": "lstm", "width": width, "layers": 1},
        "training": {"tokens": 900, "optimiser": {"kind": "sgd", "learning_rate": 0.5}},
    }
    usage = Usage(tokens=1000, nodes={"": NodeSeconds(cpu=seconds)})
    return StoredTrial(width, f"width {width}", configuration, TrialState.COMPLETE, value, usage=usage)


def test_the_best_are_chosen_among_the_trials_within_the_limits_of_the_champion(
    study_file: Path, settings: Settings
) -> None:
    limits = "[champion]\nmax_state = 8\nmin_tokens_per_second = 100.0"
    small, slow, large = make_outcome(4, 10), make_outcome(4, 11), make_outcome(8, 5)
    found = resolve(study_file, settings, "", limits).list_within_limits([large, slow, small])
    assert found == [small]


def test_an_incomplete_trial_within_the_limits_excludes_no_other(
    study_file: Path, settings: Settings
) -> None:
    stopped = dataclasses.replace(make_outcome(4, 10), state=TrialState.STOPPED)
    found = resolve(study_file, settings, "", "[champion]\nmax_state = 8").list_within_limits(
        [large := make_outcome(8, 5), stopped]
    )
    assert found == [large]


def test_limits_that_no_trial_meets_exclude_none(study_file: Path, settings: Settings) -> None:
    outcomes = [make_outcome(8, 5), make_outcome(4, 10)]
    assert (
        resolve(study_file, settings, "", "[champion]\nmax_state = 1").list_within_limits(outcomes)
        == outcomes
    )


def test_the_objectives_of_a_trial_have_the_order_of_the_study(study_file: Path, settings: Settings) -> None:
    named = 'objectives = ["parameters", "value", "tokens_per_second", "state"]'
    resolved, outcome = resolve(study_file, settings, named), make_outcome(4, 125.0, value=1.5)
    sizes = compute_sizes(outcome.config, resolved.corpus)
    assert resolved.compute_objectives(outcome) == [math.log2(sizes.parameters), 1.5, -3.0, 3.0]


def try_sizes(resolved: ResolvedStudy) -> list[int]:
    """The parameters of sixteen trials; the larger a model, the better its value."""
    proposals, sizes = resolved.open_proposals(), list[int]()
    for _ in range(16):
        proposal = require(proposals.ask())
        sizes.append(resolved.measure_size(proposal.configuration, "parameters"))
        proposals.report(proposal.number, 900, 1000 / sizes[-1])
        proposals.complete(proposal.number, 1000 / sizes[-1])
    return sizes


@pytest.mark.parametrize("kind", ["tpe", "nsga2"])
def test_a_sampler_proposes_smaller_models_where_the_size_is_an_objective(
    study_file: Path, settings: Settings, kind: str
) -> None:
    text, sampler = study_file.read_text(), f'[sampler]\nkind = "{kind}"\nstartup_trials = 4'
    by_value = try_sizes(resolve(study_file, settings, "", sampler))
    study_file.write_text(text)
    by_both = try_sizes(resolve(study_file, settings, 'objectives = ["value", "parameters"]', sampler))
    assert sum(by_both) < sum(by_value)
