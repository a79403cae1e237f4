"""A verdict says whether the winner is really better, by the test over seeds alone."""

from pathlib import Path

import pytest

from memtune.objective import Objective
from memtune.results.ranking.selection import RankedTrial, Ranking, rank_trials
from memtune.results.reporting.verdicts import judge_winner
from memtune.trial_state import TrialState


def make_trial(family: str, number: int, seed: int, cost: float) -> RankedTrial:
    return RankedTrial(
        name=f"#{number}",
        identity=f"{family}{number}{seed}",
        configuration=f"{family}{number}",
        family=family,
        study="s",
        seed=seed,
        state=TrialState.COMPLETE,
        curve={1000: cost},
        planned_tokens=1000,
    )


def rank(costs: dict[str, list[float]]) -> Ranking:
    """The ranking of one configuration for each family, with these costs by seed."""
    found = rank_trials(
        make_trial(family, number, seed, cost)
        for number, (family, own) in enumerate(costs.items())
        for seed, cost in enumerate(own)
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("costs", "sentence", "advice"),
    [
        (
            {"lstm": [4.0, 4.01, 4.02], "rnn": [4.5, 4.52, 4.51]},
            "lstm #0 is best with a validation perplexity of 55.15 (95 % interval 53.79 to 56.53 over 3 "
            "seeds), 39.3 % better than rnn #1, and the difference is significant.",
            "",
        ),
        (
            {"lstm": [4.0, 4.5, 4.2], "rnn": [4.4, 4.1, 4.3]},
            "but the difference is not significant: seeds alone can explain it.",
            "raise seeds under [repeats] to 6",
        ),
        (
            {"lstm": [4.0], "rnn": [4.5]},
            "lstm #0 is best with a validation perplexity of 54.60, 39.3 % better than rnn #1; too few seeds "
            "tell whether the difference is real.",
            "add [repeats] with best = 2 and seeds = 3 or more",
        ),
        (
            {"lstm": [4.0, 4.01, 4.02], "rnn": [4.5, 4.52]},
            "the other configurations of full length have fewer seeds, so none ranks with it.",
            "add [repeats] with best = 2 and seeds = 3 or more",
        ),
        (
            {"lstm": [4.0]},
            "no other configuration has full length, so nothing compares with it.",
            "",
        ),
    ],
)
def test_the_headline_names_the_margin_and_whether_it_is_real(
    costs: dict[str, list[float]], sentence: str, advice: str, tmp_path: Path
) -> None:
    verdict = judge_winner(rank(costs), Objective.PERPLEXITY, str(tmp_path))
    assert sentence in verdict.headline
    assert advice in verdict.advice
    assert bool(verdict.advice) == bool(advice)
    assert verdict.is_settled == ("is significant" in verdict.headline)


def test_the_winner_is_compared_with_the_runner_up_and_the_best_of_each_other_family(tmp_path: Path) -> None:
    trials = [
        make_trial("lstm", 0, 0, 4.0),
        make_trial("lstm", 1, 0, 4.1),
        make_trial("rnn", 2, 0, 4.2),
        make_trial("rnn", 3, 0, 4.3),
    ]
    ranking = rank_trials(trials)
    assert ranking is not None
    comparisons = judge_winner(ranking, Objective.PERPLEXITY, str(tmp_path)).comparisons
    assert [(other.role, other.name) for other in comparisons] == [
        ("runner-up", "lstm #1"),
        ("best of its family", "rnn #2"),
    ]
    assert comparisons[0].describe_test(Objective.PERPLEXITY) == "not tested: 1 equal seed of 3 needed"


def test_an_accuracy_has_a_margin_in_points(tmp_path: Path) -> None:
    verdict = judge_winner(rank({"lstm": [0.2], "rnn": [0.25]}), Objective.ACCURACY, str(tmp_path))
    assert "validation accuracy of 80.00 %, 5 percentage points better" in verdict.headline
