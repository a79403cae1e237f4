import math
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState as OptunaState

from memtune.errors import ConfigurationError, StudyError
from memtune.search import SAMPLERS, StudyReader
from memtune.search.trial_store import DUPLICATE_OF_KEY, read_outcome
from memtune.spaces import combine_spaces, read_space
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.values import flatten
from tests.unit.search.conftest import FAMILIES, make_space

STOPPED_EARLY = TrialEnd(reason=StopReason.EARLY_STOPPING, detail="not among the best third")
OUT_OF_MEMORY = TrialEnd(reason=StopReason.ERROR, detail="out of memory")

ALL = pytest.mark.parametrize(
    "kind", [kind for kind, config in SAMPLERS.items() if not config.tries_every_point]
)


def exhaust(proposals) -> list[dict]:
    """Complete every proposal until the space is exhausted."""
    found = []
    while proposal := proposals.ask():
        found.append(proposal.configuration)
        proposals.complete(proposal.number, float(len(found)))
    return found


def test_a_proposal_holds_what_was_sampled_and_the_whole_configuration(open_study):
    proposal = open_study().ask()
    kind = proposal.configuration["optimiser"]["kind"]
    assert proposal.parameters == {
        "model.memory_size": proposal.configuration["model"]["memory_size"],
        "optimiser.kind": kind,
        f"optimiser.{kind}.learning_rate": proposal.configuration["optimiser"]["learning_rate"],
    }


def test_a_completed_trial_keeps_its_curve_and_value(open_study, read_optuna_trials):
    proposals = open_study()
    number = proposals.ask().number
    proposals.report(number, 200, 4.0)
    proposals.report(number, 100, 5.0)
    proposals.complete(number, 3.5)
    (outcome,) = proposals.list_finished()
    assert (outcome.state, outcome.value, outcome.end) == (TrialState.COMPLETE, 3.5, None)
    assert list(outcome.curve.items()) == [(100, 5.0), (200, 4.0)]
    assert read_optuna_trials()[0].state is OptunaState.COMPLETE


def test_a_stopped_trial_is_pruned_with_its_last_value(open_study, read_optuna_trials):
    proposals = open_study()
    number = proposals.ask().number
    proposals.report(number, 100, 5.0)
    proposals.stop(number, STOPPED_EARLY)
    (outcome,) = proposals.list_finished()
    assert (outcome.state, outcome.value, outcome.end) == (TrialState.STOPPED, 5.0, STOPPED_EARLY)
    assert read_optuna_trials()[0].state is OptunaState.PRUNED
    assert read_optuna_trials()[0].intermediate_values == {100: 5.0}


def test_a_trial_is_pruned_together_with_the_report_that_stopped_it(open_study):
    proposals = open_study()
    number = proposals.ask().number
    proposals.report(number, 100, 5.0)
    proposals.stop(number, STOPPED_EARLY, 200, 4.0)
    (outcome,) = proposals.list_finished()
    assert (outcome.value, outcome.curve) == (4.0, {100: 5.0, 200: 4.0})


def test_a_failed_trial_keeps_its_reason(open_study, read_optuna_trials):
    proposals = open_study()
    proposals.fail(proposals.ask().number, OUT_OF_MEMORY)
    (outcome,) = proposals.list_finished()
    assert (outcome.state, outcome.value, outcome.end) == (TrialState.FAILED, None, OUT_OF_MEMORY)
    assert read_optuna_trials()[0].state is OptunaState.FAIL


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_a_failure(open_study, read_optuna_trials, value):
    proposals = open_study()
    proposals.complete(proposals.ask().number, value)
    assert proposals.list_finished()[0].end.detail == f"the objective is {value}"
    assert read_optuna_trials()[0].state is OptunaState.FAIL


def test_a_curve_may_contain_values_that_are_not_finite(open_study):
    proposals = open_study()
    number = proposals.ask().number
    proposals.report(number, 100, math.nan)
    proposals.stop(number, STOPPED_EARLY)
    (outcome,) = open_study().list_finished()
    assert outcome.value is None
    assert math.isnan(outcome.curve[100])


def test_the_first_report_at_a_number_of_tokens_is_kept(open_study):
    proposals = open_study()
    number = proposals.ask().number
    proposals.report(number, 100, 5.0)
    proposals.report(number, 100, 6.0)
    assert proposals.list_outcomes()[0].curve == {100: 5.0}


def test_only_running_trials_are_unfinished(open_study):
    proposals = open_study()
    first, second, third = (proposals.ask() for _ in range(3))
    proposals.complete(first.number, 1.0)
    proposals.fail(third.number, OUT_OF_MEMORY)
    assert proposals.list_unfinished() == [second]
    assert [outcome.state for outcome in proposals.list_outcomes()] == [
        TrialState.COMPLETE,
        TrialState.RUNNING,
        TrialState.FAILED,
    ]


def test_an_ended_trial_accepts_no_report(open_study):
    proposals = open_study()
    number = proposals.ask().number
    proposals.complete(number, 1.0)
    with pytest.raises(StudyError, match=r"trial 0 has ended \(complete\)"):
        proposals.report(number, 100, 1.0)
    with pytest.raises(StudyError, match="trial 0 has ended"):
        proposals.stop(number, STOPPED_EARLY)


def test_an_unknown_trial_is_an_error(open_study):
    with pytest.raises(StudyError, match="the study has no trial 7"):
        open_study().complete(7, 1.0)


def test_a_driver_that_loses_its_study_during_sampling_proposes_nothing(open_study):
    lost: list[bool] = []

    def lose_study(configuration: object) -> str:
        lost.append(True)
        return "drawn"

    def guard() -> None:
        if lost:
            raise StudyError("another driver has the study")

    proposals = open_study(identify=lose_study, guard=guard)
    with pytest.raises(StudyError, match="another driver"):
        proposals.ask()
    assert open_study().list_outcomes() == []


@pytest.mark.parametrize("kind", ["random", "qmc", "tpe", "gp"])  # NSGA-II also copies parents
def test_every_ask_draws_a_new_sample(open_study, read_optuna_trials, kind):
    proposals = open_study(kind=kind)
    for _ in range(10):
        proposals.complete(proposals.ask().number, 1.0)
    assert len(read_optuna_trials()) == 10


@ALL
def test_each_point_of_a_finite_space_is_proposed_once(open_study, read_optuna_trials, kind):
    found = exhaust(open_study("four points", kind))
    assert len(found) == len({repr(configuration) for configuration in found}) == 4
    assert not [trial for trial in read_optuna_trials() if trial.state is OptunaState.RUNNING]


@ALL
def test_running_trials_are_not_proposed_again(open_study, kind):
    proposals = open_study("four points", kind)
    found = [proposals.ask() for _ in range(5)]
    assert len({proposal.identity for proposal in found[:4]}) == 4
    assert found[4] is None


def test_an_exhausted_space_stays_exhausted(open_study, read_optuna_trials):
    proposals = open_study("four points")
    exhaust(proposals)
    trials = len(read_optuna_trials())
    assert proposals.ask() is None
    assert open_study("four points").ask() is None
    assert len(read_optuna_trials()) == trials


def test_a_space_without_a_new_configuration_is_exhausted(open_study):
    proposals = open_study("continuous", identify=lambda configuration: "the same for all")
    assert len(exhaust(proposals)) == 1


def test_a_duplicate_has_the_known_value_and_names_its_trial(open_study, read_optuna_trials):
    proposals = open_study("continuous", identify=lambda found: str(found["model"]["memory_size"] % 2))
    exhaust(proposals)
    known = {outcome.identity: outcome for outcome in proposals.list_finished()}
    duplicates = [trial for trial in read_optuna_trials() if DUPLICATE_OF_KEY in trial.user_attrs]
    assert len(known) == 2
    assert duplicates
    for trial in duplicates:
        duplicate = read_outcome(trial)
        original = known[duplicate.identity]
        assert duplicate.state == "duplicate"
        assert duplicate.remark == f"the same configuration as trial {original.number}"
        assert trial.state is OptunaState.COMPLETE
        assert duplicate.value == original.value


def test_a_duplicate_of_a_stopped_trial_is_stopped_at_the_same_point(open_study, read_optuna_trials):
    proposals = open_study("continuous", identify=lambda configuration: "the same for all")
    number = proposals.ask().number
    proposals.report(number, 100, 5.0)
    proposals.report(number, 200, 4.0)
    proposals.stop(number, STOPPED_EARLY)
    assert proposals.ask() is None
    duplicate = read_optuna_trials()[1]
    assert (duplicate.state, duplicate.intermediate_values) == (OptunaState.PRUNED, {200: 4.0})


def test_a_duplicate_of_a_running_or_failed_trial_is_failed(open_study, read_optuna_trials):
    proposals = open_study("continuous", identify=lambda configuration: "the same for all")
    number = proposals.ask().number
    assert proposals.ask() is None
    proposals.fail(number, OUT_OF_MEMORY)
    assert {trial.state for trial in read_optuna_trials()} == {OptunaState.FAIL}


def test_a_refused_configuration_is_recorded_with_its_reason_and_never_returned(
    open_study, storage, read_optuna_trials
):
    def refuse(configuration):
        size = configuration["model"]["memory_size"]
        return f"{size} slots are too many" if size > 10 else None

    proposals = open_study(refuse=refuse)
    assert all(proposals.ask().configuration["model"]["memory_size"] <= 10 for _ in range(10))
    refused = StudyReader(storage).read("s").refused
    assert refused
    for outcome in refused:
        assert outcome.state == "refused"
        assert outcome.remark == f"{outcome.configuration['model']['memory_size']} slots are too many"
    trial = read_optuna_trials()[refused[0].number]
    assert trial.state is OptunaState.PRUNED
    assert trial.constraints == {"refused": 1.0}


def test_refused_points_of_a_finite_space_leave_the_others(open_study):
    proposals = open_study(
        "four points", refuse=lambda found: "too deep" if found["model"]["layers"] == 2 else None
    )
    assert len(exhaust(proposals)) == 2


def test_an_invalid_configuration_is_refused_with_the_message(open_study, storage):
    def identify(configuration):
        if configuration["optimiser"]["kind"] == "adam":
            raise ConfigurationError("adam goes with no memory")
        return repr(configuration)

    proposals = open_study(identify=identify)
    assert all(proposals.ask().configuration["optimiser"]["kind"] == "sgd" for _ in range(6))
    refused = StudyReader(storage).read("s").refused
    assert {outcome.remark for outcome in refused} == {"adam goes with no memory"}


def test_a_rare_configuration_is_found_although_the_sampler_misses_it(open_study, storage):
    """One in thousands of configurations: the sampler has 20 attempts, the random search after it 4,000."""

    def refuse(configuration):
        rate = configuration["optimiser"]["learning_rate"]
        return None if 0.5 < rate < 0.505 else "refused"

    proposals = open_study(refuse=refuse)
    assert 0.5 < proposals.ask().configuration["optimiser"]["learning_rate"] < 0.505
    assert len(StudyReader(storage).read("s").refused) == 20


def test_two_studies_of_one_storage_are_separate(open_study):
    first, second = open_study(name="a"), open_study(name="b")
    exhausted = first.ask()
    assert second.list_outcomes() == []
    assert second.ask().configuration == exhausted.configuration


def test_tpe_learns_the_best_region(open_study):
    proposals = open_study(kind="tpe")
    for _ in range(40):
        proposal = proposals.ask()
        proposals.complete(proposal.number, abs(proposal.configuration["model"]["memory_size"] - 7.0))
    late = [outcome.configuration["model"]["memory_size"] for outcome in proposals.list_finished()[20:]]
    assert sum(abs(size - 7) <= 3 for size in late) > 12


def test_optuna_keeps_its_verbosity(open_study):
    before = optuna.logging.get_verbosity()
    open_study().ask()
    assert optuna.logging.get_verbosity() == before


def test_nothing_is_printed(open_study, capfd):
    proposals = open_study("four points", "gp")
    exhaust(proposals)
    assert capfd.readouterr() == ("", "")


@ALL
def test_every_family_has_a_trial_before_any_has_a_second(open_study, kind):
    first = open_study("families", kind=kind)
    drawn = [first.ask().configuration["model"]["family"] for _ in range(2)]
    resumed = open_study("families", kind=kind)
    drawn += [resumed.ask().configuration["model"]["family"] for _ in range(2)]
    assert set(drawn) == set(FAMILIES)


@pytest.mark.parametrize("kind", ["random", "gp"])
def test_every_family_has_two_trials_before_the_sampler_chooses_families(open_study, kind):
    proposals = open_study("families", kind=kind)
    drawn = []
    for _ in range(8):
        proposal = proposals.ask()
        drawn.append(proposal.configuration["model"]["family"])
        proposals.complete(proposal.number, 1.0)
    assert sorted(drawn) == sorted([*FAMILIES, *FAMILIES])


@pytest.mark.parametrize(
    ("space", "field", "values"),
    [("continuous", "optimiser.kind", ["adam", "sgd"]), ("four points", "model.layers", [1, 2])],
)
@pytest.mark.parametrize("seed", range(5))
def test_the_values_of_a_compared_field_are_tried_in_turn(open_study, space, field, values, seed):
    proposals = open_study(space, seed=seed, compared=field)
    drawn = [dict(flatten(proposals.ask().configuration))[field] for _ in range(4)]
    assert sorted(drawn) == sorted(values * 2)


def test_every_alternative_is_tried_once_before_one_is_tried_in_another_family():
    layers = "layers = { choice = [1, 2] }\n"
    texts = {"rnn": layers, "lstm": layers, "feed_forward": ""}
    spaces = (read_space(f'[model]\nfamily = "{name}"\n{text}', name) for name, text in texts.items())
    choices = combine_spaces(spaces).list_alternatives("model.layers")
    assert [choice.get("rnn.model.layers") for choice in choices] == [1, 2, None, None, None]
    assert [choice.get("lstm.model.layers") for choice in choices] == [None, None, None, 1, 2]


def test_a_range_of_many_numbers_is_not_tried_value_by_value():
    assert make_space("continuous").list_alternatives("model.memory_size") == []


def test_an_alternative_of_which_few_points_may_start_is_tried_with_these(open_study):
    def refuse(configuration):
        family, width = configuration["model"].values()
        return "too large" if family == "rnn" and width > 2 else None

    first = open_study("families", refuse=refuse)
    drawn = [first.ask().configuration["model"] for _ in range(4)]
    resumed = open_study("families", refuse=refuse)
    drawn += [resumed.ask().configuration["model"] for _ in range(4)]
    assert sorted(model["width"] for model in drawn if model["family"] == "rnn") == [1, 2]


def test_a_sampler_that_ignores_priors_proposes_the_same_with_one(open_study):
    """Its first trials are of the families in turn, which this prior would choose."""
    proposed = [
        [proposals.ask().configuration for _ in range(4)]
        for points in ([], [{"family": "rnn"}] * 20)
        for proposals in [open_study("families", "random", name=f"s{len(points)}", prior_points=points)]
    ]
    assert proposed[0] == proposed[1]


def test_what_a_prior_leads_is_a_turn_of_an_alternative_unless_it_says_which_is_good(open_study):
    widths = {f"{family}.model.width": 3 for family in FAMILIES}
    proposals = open_study("families", "tpe", prior_points=[widths] * 20)
    drawn = [proposals.ask().configuration["model"] for _ in range(8)]
    for turns in (drawn[::2], drawn[1::2]):
        assert {model["family"] for model in turns} == set(FAMILIES)
    assert [model["width"] for model in drawn[:6:2]] == [3, 3, 3]
    chosen = open_study("families", "tpe", name="t", prior_points=[{"family": "rnn"}] * 20)
    drawn = [chosen.ask().configuration["model"] for _ in range(8)]
    assert [model["family"] for model in drawn[:6:2]] == ["rnn"] * 3
    assert {model["family"] for model in drawn[1::2]} == set(FAMILIES)


def test_points_wait_while_a_program_gives_configurations(open_study):
    """Each call is a new driver."""
    initial, prior = ([{"model.memory_size": size}] for size in (7, 8))
    for given, expected in ((1, 7), (2, 8)):
        open_study(kind="tpe", initial_points=initial, prior_points=prior).propose(
            {"model.memory_size": given}
        )
        proposals = open_study(kind="tpe", initial_points=initial, prior_points=prior)
        assert proposals.ask().configuration["model"]["memory_size"] == expected


POINTS: list[dict[str, Any]] = [
    {"optimiser.kind": "adam", "optimiser.adam.learning_rate": 2e-3, "model.memory_size": 7},
    {"optimiser.kind": "sgd"},
]


def test_initial_points_are_tried_first_and_in_order(open_study):
    first = open_study(initial_points=POINTS).ask()
    second = open_study(initial_points=POINTS).ask()
    assert first.parameters == POINTS[0]
    assert second.configuration["optimiser"]["kind"] == "sgd"


def test_a_repeated_initial_point_is_a_duplicate_and_the_next_one_follows(open_study, read_optuna_trials):
    proposals = open_study(initial_points=[POINTS[0], POINTS[0], {**POINTS[0], "model.memory_size": 8}])
    assert [proposals.ask().configuration["model"]["memory_size"] for _ in range(2)] == [7, 8]
    assert [DUPLICATE_OF_KEY in trial.user_attrs for trial in read_optuna_trials()] == [False, True, False]


def test_a_family_that_is_refused_is_tried_again_a_few_times(open_study, storage):
    def refuse(configuration):
        family, width = configuration["model"].values()
        return "too large" if family == "scrn" or (family == "rnn" and width > 60) else None

    proposals = open_study("families", refuse=refuse)
    assert {proposals.ask().configuration["model"]["family"] for _ in range(3)} == {*FAMILIES} - {"scrn"}
    refused = [outcome.family for outcome in StudyReader(storage).read("s").refused]
    assert refused.count("scrn") == 5


def test_given_parameters_are_proposed_and_a_repetition_is_refused(open_study):
    proposals = open_study("four points")
    given = {"model.layers": 2, "model.composition": "sum"}
    proposal = proposals.propose(given)
    assert proposal.parameters == given
    assert proposals.list_unfinished() == [proposal]
    with pytest.raises(StudyError, match="the configuration is not started: "):
        proposals.propose(given)


def test_given_parameters_replace_those_that_a_killed_driver_left_enqueued(storage, open_study):
    proposals = open_study("four points")
    journal = optuna.storages.JournalStorage(JournalFileBackend(storage.removeprefix("journal://")))
    optuna.load_study(study_name="s", storage=journal).enqueue_trial({"model.layers": 1})
    given = {"model.layers": 2, "model.composition": "sum"}
    assert proposals.propose(given).parameters == given
    assert [proposal.parameters for proposal in proposals.list_unfinished()] == [given]


def test_a_proposal_of_given_parameters_is_not_issued_twice(open_study):
    """`ask` returns stored proposals that no caller has, such as those of an interrupted answer."""
    proposals = open_study("four points")
    given = proposals.propose({"model.layers": 1, "model.composition": "gate"})
    assert proposals.ask().number != given.number
