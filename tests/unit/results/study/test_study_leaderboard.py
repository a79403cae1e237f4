"""A leaderboard says whether configurations compare at equal amounts, and joins studies of one length."""

from collections.abc import Sequence

import pytest

from memtune.results.study.study_leaderboard import (
    LeaderboardEntry,
    StudyLeaderboard,
    compare_quantities,
    join_leaderboards,
)
from memtune.seed_statistics import Estimate
from memtune.training import TrialSizes


def make_entry(
    number: int, cost: float, parameters: int, *, is_counted: bool = False, identity: str = ""
) -> LeaderboardEntry:
    return LeaderboardEntry(
        place=number + 1,
        number=number,
        name=f"lstm #{number}",
        family="lstm",
        alternative="lstm",
        model="",
        estimate=Estimate(cost=cost),
        figure=cost,
        cost_by_seed={0: cost},
        trainings=1,
        sizes=TrialSizes(parameters=parameters, multiply_adds=1, state=8, memory=None),
        tokens=1000,
        cpu_hours=0.5,
        gpu_hours=0.0,
        identity=identity or str(number),
        is_counted=is_counted,
    )


def make_leaderboard(entries: Sequence[LeaderboardEntry], tokens: int = 1000) -> StudyLeaderboard:
    return StudyLeaderboard(tokens=tokens, entries=tuple(entries), trade_offs=())


@pytest.mark.parametrize(
    ("sizes", "sentence", "is_equal"),
    [
        ((1000, 1090), "equal parameters: 1,000 to 1,090", True),
        ((1000, 1000), "equal parameters: 1,000", True),
        ((1000, 2000), "parameters from 1,000 to 2,000, a factor of 2", False),
    ],
)
def test_sizes_within_ten_per_cent_are_equal(sizes: tuple[int, int], sentence: str, is_equal: bool) -> None:
    found = compare_quantities([make_entry(n, 4.0 + n, size) for n, size in enumerate(sizes)], "tokens")
    trade_off = next(own for own in found if own.quantity == "parameters")
    assert trade_off.describe() == sentence
    assert trade_off.is_equal == is_equal


def test_the_front_has_what_no_other_beats_in_figure_and_size() -> None:
    entries = [make_entry(0, 4.0, 3000), make_entry(1, 4.1, 1000), make_entry(2, 4.2, 2000)]
    trade_off = next(own for own in compare_quantities(entries, "tokens") if own.quantity == "parameters")
    assert trade_off.front == (0, 1)


def test_a_model_that_counts_has_no_trade_off() -> None:
    entries = [make_entry(0, 4.0, 3000), make_entry(1, 3.9, 1000, is_counted=True)]
    assert list(compare_quantities(entries, "tokens")) == []


def test_studies_of_a_smaller_budget_are_listed_apart() -> None:
    long = make_leaderboard([make_entry(0, 4.0, 10), make_entry(1, 4.2, 10)])
    short = make_leaderboard(
        [make_entry(0, 3.0, 10, identity="a"), make_entry(1, 3.1, 10, identity="b")], 500
    )
    joined, apart = join_leaderboards([("short", short), ("long", long)], "tokens")
    assert [entry.name for entry in joined.entries] == ["lstm #0 (long)", "lstm #1 (long)"]
    assert [entry.name for entry in apart] == ["lstm #0 (short)"]
    assert joined.tokens == 1000


def test_joined_studies_keep_the_alternatives_that_they_compare_and_name_the_families_once() -> None:
    """A study that compares layers, once of one family and once of several, beside one of families."""
    two = {"name": "layers 2 #0", "alternative": "layers 2", "model": "width=8"}
    one = {"name": "layers 1 #1", "alternative": "layers 1", "model": "lstm width=4"}
    layers = make_entry(0, 4.0, 10).model_copy(update=two)
    both = make_entry(1, 4.5, 10).model_copy(update=one)
    families = make_entry(2, 5.0, 10).model_copy(update={"model": "width=2"})
    studies = {"layers": layers, "both": both, "families": families}
    joined, _ = join_leaderboards(
        [(name, make_leaderboard([own])) for name, own in studies.items()], "tokens"
    )
    assert [(entry.name, entry.model) for entry in joined.entries] == [
        ("layers 2 #0 (layers)", "lstm width=8"),
        ("layers 1 #1 (both)", "lstm width=4"),
        ("lstm #2 (families)", "width=2"),
    ]


def test_a_study_of_models_that_count_competes_with_studies_of_every_budget() -> None:
    trained = make_leaderboard([make_entry(0, 4.0, 10), make_entry(1, 5.0, 10)])
    counted = make_leaderboard([make_entry(0, 4.5, 10, is_counted=True, identity="counted")], 5000)
    joined, apart = join_leaderboards([("counts", counted), ("trains", trained)], "tokens")
    assert [entry.name for entry in joined.entries] == [
        "lstm #0 (trains)",
        "lstm #0 (counts)",
        "lstm #1 (trains)",
    ]
    assert (apart, joined.tokens) == ((), 1000)
    alone, _ = join_leaderboards([("counts", counted)], "tokens")
    assert alone.tokens == 5000


def test_a_trial_that_two_studies_share_is_that_of_the_study_that_trained_it() -> None:
    trained = make_entry(0, 4.0, 10)
    reused = trained.model_copy(update={"trainings": 0, "cpu_hours": None})
    leaderboards = [("reuses", make_leaderboard([reused])), ("trained", make_leaderboard([trained]))]
    for order in (leaderboards, leaderboards[::-1]):
        (entry,) = join_leaderboards(order, "tokens")[0].entries
        assert (entry.name, entry.cpu_hours) == ("lstm #0 (trained)", 0.5)


def test_a_trial_that_two_studies_share_is_listed_once() -> None:
    one, other = make_leaderboard([make_entry(0, 4.0, 10)]), make_leaderboard([make_entry(0, 4.0, 10)])
    joined, _ = join_leaderboards([("one", one), ("other", other)], "tokens")
    assert len(joined.entries) == 1
