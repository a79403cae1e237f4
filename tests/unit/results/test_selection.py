"""Configurations are ranked by the mean of their seeds, at equal numbers of tokens."""

import math
from collections import UserDict
from collections.abc import ItemsView, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from memtune.objective import Objective, PredictionUnit
from memtune.results.study.ranking import Ranking, find_cost_at, rank_trials
from memtune.tracking import NO_STUDY
from memtune.trial_state import TrialState


@dataclass(frozen=True)
class RankedTrial:
    """What the ranking needs of a trial."""

    name: str
    configuration: str
    family: str
    study: str
    seed: int
    state: TrialState
    curve: Mapping[int, float]
    planned_tokens: float | None
    is_counted: bool = False
    is_repeat: bool = False
    has_diverged: bool = False
    unit: PredictionUnit = "tokens"
    objective: Objective = Objective.PERPLEXITY


def make_trial(
    name: str,
    curve: Mapping[int, float],
    *,
    configuration: str | None = None,
    seed: int = 0,
    state: TrialState = TrialState.COMPLETE,
    planned: float | None = 900,
    study: str = "s",
) -> RankedTrial:
    return RankedTrial(
        name, configuration or name, name.partition(" ")[0], study, seed, state, curve, planned
    )


def rank(*trials: RankedTrial) -> Ranking[Any]:
    ranking = rank_trials(cast(Any, trials))
    assert ranking is not None
    return ranking


def list_names(ranking: Ranking[Any]) -> list[str]:
    return [found.best.name for found in ranking.ranked]


def test_the_mean_over_seeds_decides_and_not_the_luckiest_seed() -> None:
    lucky = [
        make_trial(f"lucky {s}", {900: c}, configuration="a", seed=s) for s, c in enumerate((3.0, 5.0, 5.2))
    ]
    steady = [
        make_trial(f"steady {s}", {900: c}, configuration="b", seed=s) for s, c in enumerate((4.0, 4.1, 3.9))
    ]
    ranking = rank(*lucky, *steady)
    assert list_names(ranking) == ["steady 2", "lucky 0"]
    assert ranking.winner.estimate.cost == pytest.approx(4.0)
    assert ranking.winner.cost_by_seed == {2: 3.9, 0: 4.0, 1: 4.1}


def test_where_a_study_repeats_configurations_only_those_with_all_seeds_compete() -> None:
    repeated = [make_trial(f"a {seed}", {900: 4.0}, configuration="a", seed=seed) for seed in range(3)]
    failed = [
        make_trial("b 0", {900: 3.0}, configuration="b"),
        make_trial("b 1", {900: 3.0}, configuration="b", seed=1),
        make_trial("b 2", {300: 9.0}, configuration="b", seed=2, state=TrialState.FAILED),
    ]
    single = make_trial("c 0", {900: 2.0})
    ranking = rank(*repeated, *failed, single)
    assert list_names(ranking) == ["a 0"]
    assert [found.best.name for found in ranking.configurations if not found.place] == ["b 0", "c 0"]


def test_in_a_round_of_seeds_that_has_not_ended_a_mean_competes_and_a_lucky_single_seed_does_not() -> None:
    best = [make_trial(f"rnn {seed}", {900: 4.0}, configuration="a", seed=seed) for seed in range(4)]
    repeated = [make_trial(f"lstm {seed}", {900: 4.4}, configuration="b", seed=seed) for seed in range(3)]
    ranking = rank(*best, *repeated, make_trial("lstm 3", {900: 4.1}, configuration="c"))
    assert list_names(ranking) == ["rnn 0", "lstm 0"]
    assert ranking.find_bests(lambda trial: trial.family)["lstm"].estimate.seeds == 3


def test_an_alternative_that_left_the_rounds_of_seeds_competes_with_its_three_repeats() -> None:
    best = [make_trial(f"a {seed}", {900: 4.0}, configuration="a", seed=seed) for seed in range(9)]
    left = [make_trial(f"b {seed}", {900: 5.0}, configuration="b", seed=seed) for seed in range(4)]
    assert list_names(rank(*best, *left)) == ["a 0", "b 0"]


def test_shorter_trials_of_equal_lengths_are_in_the_order_of_their_costs_with_seeds_together() -> None:
    short = [
        make_trial("worst", {402: 5.0}, planned=400),
        make_trial("good 0", {400: 4.0}, configuration="a", planned=400),
        make_trial("fair", {401: 4.1}, planned=400),
        make_trial("good 1", {400: 4.2}, configuration="a", seed=1, planned=400),
    ]
    ranking = rank(make_trial("long", {900: 3.0}), *short)
    assert [found.best.name for found in ranking.short] == ["good 0", "good 1", "fair", "worst"]


def test_repeats_of_one_study_do_not_exclude_the_single_seeds_of_another() -> None:
    repeated = [make_trial(f"a {seed}", {900: 4.0}, configuration="a", seed=seed) for seed in range(3)]
    assert list_names(rank(*repeated, make_trial("b 0", {900: 3.0}, study="other"))) == [
        "b 0",
        "a 0",
    ]


def test_a_trial_stopped_early_does_not_compete_with_complete_ones() -> None:
    stopped = make_trial("slow", {300: 3.0}, state=TrialState.STOPPED)
    ranking = rank(stopped, make_trial("a", {300: 5.0, 600: 4.5, 900: 4.0}))
    assert list_names(ranking) == ["a"]
    (short,) = ranking.short
    assert (short.tokens, short.estimate.cost, short.leader_cost) == (300, 3.0, 5.0)


def test_a_stopped_trial_is_next_to_trained_ones_and_not_to_a_model_that_counts() -> None:
    """The counting model has one value, at the end of the text, and none where the trial was stopped."""
    stopped = make_trial("slow", {300: 3.0}, state=TrialState.STOPPED)
    counting = make_trial("ngrams", {1200: 2.0}, planned=None)
    (short,) = rank(stopped, counting, make_trial("a", {300: 5.0, 900: 4.0})).short
    assert short.leader_cost == 5.0


def test_a_trial_that_diverged_before_its_first_validation_has_no_rank() -> None:
    diverged = replace(make_trial("diverged", {}), has_diverged=True)
    later = replace(make_trial("later", {300: 4.5}), has_diverged=True)
    ranking = rank(diverged, later, make_trial("a", {900: 4.0}))
    assert list_names(ranking) == ["a", "later"]
    assert ranking.winner.estimate.cost == 4.0
    assert ranking.short == ()
    assert rank_trials(cast(Any, [diverged])) is None


def test_a_repeat_that_diverged_has_no_result_and_its_configuration_needs_the_seeds_of_others() -> None:
    def repeat(configuration: str, seed: int, cost: float, *, has_diverged: bool = False) -> RankedTrial:
        trial = make_trial(f"{configuration} {seed}", {900: cost}, configuration=configuration, seed=seed)
        return replace(trial, is_repeat=True, has_diverged=has_diverged)

    steady = [repeat("a", seed, 4.0) for seed in (1, 2, 3)]
    unstable = [repeat("b", 1, 3.0), *(repeat("b", seed, 12.0, has_diverged=True) for seed in (2, 3))]
    ranking = rank(*steady, *unstable)
    assert list_names(ranking) == ["a 1"]
    assert ranking.configurations[1].results == {1: 3.0}
    assert ranking.configurations[1].explain() == "1 seed with a result, too few"
    selected = replace(make_trial("b 0", {900: 2.0}, configuration="b"), state=TrialState.COMPLETE)
    once = make_trial("c", {900: 5.0})
    assert list_names(rank(selected, *unstable, once)) == ["c"]
    alone = rank(selected, *unstable[1:], once)
    assert list_names(alone) == ["c"]
    assert alone.configurations[1].explain() == "no result of a repeat"
    assert rank(*unstable[1:]).winner.best == unstable[1]


def test_of_several_trainings_without_a_study_one_that_diverged_has_no_result() -> None:
    def train(seed: int, cost: float, *, has_diverged: bool = False) -> RankedTrial:
        trial = make_trial(f"a {seed}", {900: cost}, configuration="a", seed=seed, study=NO_STUDY)
        return replace(trial, has_diverged=has_diverged)

    several = rank(train(0, 4.0), train(1, 3.0, has_diverged=True), train(2, 4.2))
    assert several.winner.results == {0: 4.0, 2: 4.2}
    assert rank(train(0, 4.0, has_diverged=True)).winner.results == {0: 4.0}


def test_a_trial_of_a_longer_study_sets_full_length() -> None:
    """A good value after 2,400 tokens does not rank next to one after 200."""
    ranking = rank(
        make_trial("short", {200: 3.0}, planned=200),
        make_trial("long", {200: 5.0, 2400: 4.0}, planned=2400),
    )
    assert (list_names(ranking), ranking.tokens) == (["long"], 2400)
    (short,) = ranking.short
    assert (short.tokens, short.leader_cost) == (200, 5.0)


def test_a_trial_that_ends_by_itself_competes_at_full_length() -> None:
    patient = make_trial("patient", {300: 4.0, 600: 4.2})
    counting = make_trial("ngrams", {1200: 4.5}, planned=None)
    assert list_names(rank(counting, patient, make_trial("a", {900: 5.0}))) == [
        "patient",
        "ngrams",
        "a",
    ]


def test_the_batch_in_which_a_budget_ends_makes_no_difference() -> None:
    ranking = rank(make_trial("a", {1004: 4.0}), make_trial("b", {912: 4.1}))
    assert list_names(ranking) == ["a", "b"]
    assert ranking.tokens == 900


def test_an_open_trial_of_full_length_competes_with_its_value_at_that_length() -> None:
    running = make_trial("longer", {900: 4.5, 1800: 3.0}, state=TrialState.RUNNING, planned=2700)
    ranking = rank(running, make_trial("a", {900: 4.0}))
    assert list_names(ranking) == ["a", "longer"]
    assert ranking.ranked[1].estimate.cost == 4.5


def test_without_a_complete_trial_the_furthest_ones_compete() -> None:
    trials = [
        make_trial("a", {300: 2.0}, state=TrialState.STOPPED),
        make_trial("b", {300: 4.0, 600: 3.5}, state=TrialState.STOPPED),
        make_trial("c", {600: 3.4}, state=TrialState.INTERRUPTED),
    ]
    assert list_names(rank(*trials)) == ["c", "b"]


def test_nothing_is_ranked_before_the_first_validation() -> None:
    assert rank_trials(cast(Any, [make_trial("a", {})])) is None


def test_of_equal_configurations_the_first_one_wins() -> None:
    assert list_names(rank(make_trial("a", {900: 4.0}), make_trial("b", {900: 4.0}))) == [
        "a",
        "b",
    ]


def test_one_training_that_two_studies_recorded_counts_once() -> None:
    twice = [make_trial("a", {900: 4.0}, study=study) for study in ("s", "other")]
    (found,) = rank(*twice).ranked
    assert found.estimate.seeds == 1


def test_seeds_that_a_study_did_not_train_change_no_place_and_no_figure_of_it() -> None:
    """As those of `memtune judge` and `memtune train`, which start no study."""
    own = [make_trial("a #0", {900: 4.0}), make_trial("b #1", {900: 5.0})]
    judged = [
        make_trial(f"b {s}", {900: 3.0}, configuration="b #1", seed=s, study=NO_STUDY) for s in (1, 2, 3)
    ]
    assert [
        (found.best.study, found.best.name, found.estimate.cost, found.place)
        for found in rank(*own, *judged).configurations
    ] == [(NO_STUDY, "b 1", 3.0, 1), ("s", "a #0", 4.0, 2), ("s", "b #1", 5.0, 3)]
    again = make_trial("b", {900: 5.0}, configuration="b #1", study=NO_STUDY)
    assert [found.best for found in rank(*own, again).ranked] == own


def test_configurations_that_a_study_has_from_another_one_still_set_the_seeds_that_its_others_need() -> None:
    repeated = [
        make_trial("a #0", {900: 4.0}, configuration="a", seed=seed, study=study)
        for study in ("first", "second")
        for seed in range(3)
    ]
    ranking = rank(*repeated, make_trial("b #1", {900: 3.0}, study="second"))
    assert [(found.best.name, found.best.study) for found in ranking.ranked] == [("a #0", "first")]


def test_the_best_of_a_family_may_lack_seeds() -> None:
    repeated = [make_trial(f"lstm {seed}", {900: 4.0}, configuration="a", seed=seed) for seed in range(3)]
    ranking = rank(*repeated, make_trial("rnn 0", {900: 5.0}), make_trial("rnn 1", {900: 4.5}))
    assert ranking.find_bests(lambda trial: trial.family)["rnn"].best.name == "rnn 1"
    assert "scrn" not in ranking.find_bests(lambda trial: trial.family)


@pytest.mark.parametrize(
    ("tokens", "cost"),
    [(100, None), (290, 5.0), (331, None), (580, 4.0), (600, 4.0), (1000, None), (1195, 3.0), (9000, None)],
)
def test_the_cost_at_a_number_of_tokens_is_the_lowest_up_to_the_report_there(
    tokens: int, cost: float | None
) -> None:
    """Never that of a report far from it, which has trained longer or shorter."""
    curve = {300: 5.0, 600: 4.0, 900: 4.5, 1200: 3.0}
    longer = make_trial("a", curve, planned=9000, state=TrialState.INTERRUPTED)
    assert find_cost_at(cast(Any, longer), tokens) == cost
    complete = make_trial("a", curve, planned=9000)
    assert find_cost_at(cast(Any, complete), 9000) == 3.0


def test_a_trial_without_a_report_at_full_length_does_not_compete() -> None:
    failed = make_trial("lstm 0", {60_000: 3.0}, planned=200_000, state=TrialState.FAILED)
    complete = make_trial("lstm 1", {30_200: 7.0}, planned=30_000)
    early = make_trial("lstm 2", {10_000: 9.0}, planned=30_000, state=TrialState.STOPPED)
    ranking = rank(failed, complete, early)
    assert list_names(ranking) == ["lstm 1"]
    assert [short.explain() for short in ranking.short] == [
        "has no report where ranked trials have one: 20.086 at 60,000 tokens",
        "has no report where ranked trials have one: 8103.084 at 10,000 tokens",
    ]


def test_reports_of_equal_number_are_at_equal_tokens_though_batches_differ() -> None:
    leader = make_trial("lstm 0", {20_053: 6.0, 40_351: 5.0, 80_131: 4.0}, planned=80_000)
    stopped = make_trial("rnn 1", {20_128: 5.9}, planned=80_000, state=TrialState.STOPPED)
    (short,) = rank(leader, stopped).short
    assert (short.tokens, short.estimate.cost, short.leader_cost) == (20_128, 5.9, 6.0)


def test_a_diverged_report_does_not_hide_an_earlier_one() -> None:
    diverged = make_trial("a", {300: 5.0, 600: math.inf}, planned=600)
    assert find_cost_at(cast(Any, diverged), 600) == 5.0


def test_of_the_kept_configurations_those_with_all_seeds_compete_first() -> None:
    repeated = [make_trial(f"a {seed}", {900: 4.0}, configuration="a", seed=seed) for seed in range(3)]
    ranking = rank(
        *repeated,
        make_trial("b 0", {900: 3.0}),
        make_trial("c 0", {300: 2.0}, state=TrialState.STOPPED),
    )
    kept = ranking.filter(lambda found: found.family != "c")
    assert kept is not None
    assert (list_names(kept), len(kept.configurations), kept.short) == (["a 0"], 2, ())
    without_repeats = ranking.filter(lambda found: found.family == "b")
    assert without_repeats is not None
    assert (list_names(without_repeats), len(without_repeats.configurations)) == (["b 0"], 1)
    assert ranking.filter(lambda found: found.family == "c") is None


def test_where_only_configurations_that_lack_seeds_are_kept_they_compete_by_cost() -> None:
    best = [make_trial(f"a {seed}", {900: 4.0}, configuration="a", seed=seed) for seed in range(4)]
    single = [make_trial("b 2", {900: 4.4}), make_trial("b 3", {900: 4.1})]
    kept = rank(*best, *single).filter(lambda found: found.family == "b")
    assert kept is not None
    assert list_names(kept) == ["b 3", "b 2"]


def test_the_leader_of_a_rung_is_found_once_for_all_trials_that_ended_there() -> None:
    read: list[int] = []

    class CountedCurve(UserDict[int, float]):
        def items(self) -> ItemsView[int, float]:
            read.append(len(self))
            return super().items()

    full = [make_trial(f"lstm #{number}", CountedCurve({300: 5.0, 900: 4.0})) for number in range(3)]
    short = [make_trial(f"rnn #{number}", {300: 6.0}, state=TrialState.STOPPED) for number in range(100)]
    assert {found.leader_cost for found in rank(*full, *short).short} == {5.0}
    assert len(read) <= 4 * len(full)
