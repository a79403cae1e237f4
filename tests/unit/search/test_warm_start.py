"""The best configurations of another study, as points of this study's space."""

from dataclasses import replace
from pathlib import Path

import pytest

from memtune.errors import StudyError
from memtune.search import Proposals, StoredTrial, StudyReader
from memtune.search.study_reader import StoredStudy
from memtune.search.warm_start import make_prior_points, select_best_points
from memtune.settings import Settings
from memtune.spaces import combine_spaces, read_space
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.trial_state import StopReason, TrialEnd, TrialState
from tests.presence import require

RATE = "training.optimiser.learning_rate"
SPACE = """[model]
family = "{}"
width = {{ int = [1, 8] }}
"""


def make_space(*families: str):
    return combine_spaces(read_space(SPACE.format(family), family) for family in families)


def make_outcome(
    number: int, family: str, width: int, curve: dict[int, float], state: TrialState = TrialState.COMPLETE
) -> StoredTrial:
    configuration = {"model": {"family": family, "width": width}, "seed": 1}
    value = min(curve.values()) if state is TrialState.COMPLETE else None
    return StoredTrial(number, str(number), configuration, state, value, curve)


def select_points(outcomes: list[StoredTrial], *families: str, repeats: tuple[StoredTrial, ...] = ()):
    study = StoredStudy("first", outcomes, [*repeats], 0.0, None)
    return select_best_points(study, make_space(*families))


def test_the_best_of_each_family_come_first_and_complete_trials_before_stopped_ones():
    outcomes = [
        make_outcome(0, "lstm", 1, {10: 3.0, 20: 2.5}),
        make_outcome(1, "lstm", 2, {10: 3.0, 20: 2.0}),
        make_outcome(2, "lstm", 3, {10: 1.0}, TrialState.STOPPED),
        make_outcome(3, "lstm", 4, {10: 5.0, 15: 4.0}, TrialState.STOPPED),
        make_outcome(4, "rnn", 5, {10: 9.0}, TrialState.STOPPED),
        make_outcome(5, "scrn", 6, {10: 0.1}),
        make_outcome(6, "rnn", 7, {}, TrialState.FAILED),
    ]
    assert select_points(outcomes, "lstm", "rnn") == [
        {"family": "lstm", "lstm.model.width": 2},
        {"family": "rnn", "rnn.model.width": 5},
        {"family": "lstm", "lstm.model.width": 1},
        {"family": "lstm", "lstm.model.width": 4},
    ]
    assert select_points(outcomes, "rnn") == [{"model.width": 5}]


def test_a_configuration_that_diverged_or_whose_repeat_did_comes_after_the_others():
    diverged = TrialEnd(reason=StopReason.DIVERGED)
    outcomes = [make_outcome(number, "lstm", number + 1, {10: 1.0 + number}) for number in range(3)]
    outcomes[1] = replace(outcomes[1], end=diverged)
    repeated = {**outcomes[0].configuration, "seed": 2, "training": {"precision": "bfloat16"}}
    repeat = replace(outcomes[0], configuration=repeated, end=diverged)
    widths = [point["model.width"] for point in select_points(outcomes, "lstm", repeats=(repeat,))]
    assert widths == [3, 1, 2]


def test_configurations_that_become_equal_are_tried_once():
    outcomes = [make_outcome(number, "lstm", 90 + number, {10: 1.0}) for number in range(2)]
    assert select_points(outcomes, "lstm") == [{"model.width": 8}]


def test_a_prior_passes_family_and_training_and_lends_the_training_to_families_that_were_not_tried():
    spaces = [
        read_space(SPACE.format(family) + "[training]\nclip_norm = { int = [1, 9] }", family)
        for family in ("lstm", "rnn")
    ]
    good = make_outcome(0, "lstm", 3, {10: 1.0})
    good.configuration["training"] = {"clip_norm": 4}
    own = {"family": "lstm", "lstm.training.clip_norm": 4}
    lent = {"rnn.training.clip_norm": 4}
    assert make_prior_points(good, combine_spaces(spaces), {"lstm"}) == [own, lent]
    assert make_prior_points(good, combine_spaces(spaces), {"lstm", "rnn"}) == [own]
    assert make_prior_points(good, spaces[1], {"lstm"}) == [{"training.clip_norm": 4}]


def test_a_prior_is_the_training_of_the_best_tenth_of_each_earlier_study(
    study_file: Path, settings: Settings
) -> None:
    first = resolve(study_file, settings, budget={"trials": 12})
    other = first.open_proposals()
    asked = [require(other.ask()) for _ in range(12)]
    for proposal, cost in zip(asked, (3.0, 1.0, 2.0, *range(4, 13)), strict=True):
        other.report(proposal.number, 300, cost)
        other.complete(proposal.number, cost)
    later = resolve(study_file, settings, seed=7, sampler={"prior": "studies"})
    assert later.list_sourced_points() == [
        ({RATE: asked[place].parameters[RATE]}, f"{first.id} (the best 2 of 12 complete trials)")
        for place in (1, 2)
    ]
    assert resolve(study_file, settings, seed=7).list_prior_points() == []


def test_a_prior_takes_the_best_trials_of_the_newest_studies_first(
    study_file: Path, settings: Settings
) -> None:
    studies = [resolve(study_file, settings, seed=seed) for seed in (0, 1, 2)]
    for study in studies:
        proposals = study.open_proposals()
        proposal = require(proposals.ask())
        proposals.report(proposal.number, 300, 1.0)
        proposals.complete(proposal.number, 1.0)
    later = resolve(study_file, settings, seed=7, sampler={"prior": "studies"})
    sources = [source.partition(" ")[0] for _, source in later.list_sourced_points()]
    assert sources == [study.id for study in reversed(studies)]


def test_a_training_that_studies_share_is_one_point_and_the_compared_field_none(
    study_file: Path, settings: Settings
) -> None:
    for name in ("one", "two"):
        proposals = resolve(study_file, settings, name=name).open_proposals()
        trial = require(proposals.ask())
        proposals.report(trial.number, 300, 1.0)
        proposals.complete(trial.number, 1.0)
    later = resolve(study_file, settings, seed=7, sampler={"prior": "studies"})
    ((_, source),) = later.list_sourced_points()
    assert source.startswith("two-")
    text = study_file.read_text() + "\n[training.optimiser]\nlearning_rate = { choice = [0.1, 0.2] }\n"
    study_file.write_text(f'compare = "{RATE}"\n{text}')
    assert resolve(study_file, settings, seed=7, sampler={"prior": "studies"}).list_sourced_points() == []


def test_a_study_with_trials_lists_no_earlier_study_again(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first driver found none: a resumed study keeps the prior that it began with."""

    def resume() -> Proposals:
        return resolve(study_file, settings, seed=7, sampler={"prior": "studies"}).open_proposals()

    require(resume().ask())
    other = resolve(study_file, settings).open_proposals()
    known = require(other.ask())
    other.report(known.number, 300, 1.0)
    other.complete(known.number, 1.0)
    fresh = resolve(study_file, settings, seed=8, sampler={"prior": "studies"})
    assert fresh.list_prior_points() == [{RATE: known.parameters[RATE]}]
    monkeypatch.setattr(StudyReader, "read", lambda *_: pytest.fail("an earlier study is read"))
    require(resume().ask())


def test_an_unreadable_study_is_left_out_of_a_prior_with_a_warning(
    study_file: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    studies = [resolve(study_file, settings, seed=seed) for seed in (0, 1)]
    for study in studies:
        proposals = study.open_proposals()
        proposal = require(proposals.ask())
        proposals.report(proposal.number, 300, 1.0)
        proposals.complete(proposal.number, 1.0, TrialEnd(reason=StopReason.BUDGET))
    journal = Path(settings.study_database.removeprefix("journal://"))
    lines = journal.read_text().splitlines(keepends=True)
    damaged = next(index for index, line in enumerate(lines) if '"budget"' in line)
    lines[damaged] = lines[damaged].replace('"budget"', '"no_such_reason"')
    journal.write_text("".join(lines))
    later = resolve(study_file, settings, seed=7, sampler={"prior": "studies"})
    assert len(later.list_prior_points()) == 1
    assert [message.partition(":")[0] for message in caplog.messages] == [
        f"study {studies[0].id} is left out of the prior"
    ]


def test_a_study_resumes_without_the_study_that_it_started_from(study_file: Path, settings: Settings) -> None:
    first = resolve(study_file, settings)
    other = first.open_proposals()
    known = require(other.ask())
    other.report(known.number, 300, 5.0)
    other.complete(known.number, 5.0)
    require(resolve(study_file, settings, seed=7, warm_start=first.id).open_proposals().ask())
    StudyReader(settings.study_database).delete(first.id)
    assert resolve(study_file, settings, seed=7, warm_start=first.id).open_proposals().list_unfinished()
    with pytest.raises(StudyError, match="no study"):
        resolve(study_file, settings, seed=8, warm_start=first.id)


def resolve(path: Path, settings: Settings, **overrides: object) -> ResolvedStudy:
    return resolve_study(path, load_study(path, overrides), settings)


def test_a_study_keeps_the_points_that_its_first_driver_found(study_file: Path, settings: Settings) -> None:
    """Meanwhile the other study continues and finds a better one."""
    first = resolve(study_file, settings)
    other = first.open_proposals()
    known = require(other.ask())
    other.report(known.number, 300, 5.0)
    other.complete(known.number, 5.0)
    warm = resolve(study_file, settings, seed=7, warm_start=first.id)
    assert warm.list_initial_points() == [known.parameters]
    warm.open_proposals()
    better = require(other.ask())
    other.report(better.number, 300, 4.0)
    other.complete(better.number, 4.0)
    assert warm.list_initial_points() == [better.parameters, known.parameters]
    proposal = resolve(study_file, settings, seed=7, warm_start=first.id).open_proposals().ask()
    assert require(proposal).parameters == known.parameters


def test_an_unknown_study_and_one_without_trials_are_refused(study_file: Path, settings: Settings) -> None:
    empty = resolve(study_file, settings)
    empty.open_proposals()
    with pytest.raises(StudyError, match='no study "lst"'):
        resolve(study_file, settings, warm_start="lst")
    with pytest.raises(StudyError, match=r"no trial of study layers-.* with a validation"):
        resolve(study_file, settings, warm_start=empty.id)
