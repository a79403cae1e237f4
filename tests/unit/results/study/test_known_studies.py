"""Studies whose truth is known get the right verdict, or the caveat that says why it may be wrong."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from memtune.results.study.verdicts import judge_study
from memtune.search import Outcome
from memtune.studies.definition.study_terms import Repeats, StoredTerms
from memtune.trial_state import StopReason, TrialEnd, TrialState
from tests.presence import require
from tests.unit.results.made_trials import make_config, make_view

LENGTH = 900
DIVERGED = math.inf
"""The cost of a seed that diverged."""


@dataclass(frozen=True)
class Known:
    """A study: the trials that the search had, the repeats of some, and what the verdict has to say."""

    searched: Sequence[tuple[str, float]]
    """(family, cost) of each trial, by number."""
    repeats: dict[int, Sequence[float]]
    """Costs of seeds from 1 on, by the number of the trial."""
    verdict: Sequence[str]
    """Parts of its text."""
    open_trial: tuple[str, float] | None = None
    """(family, cost at a third of the tokens) of a trial that the clock ended; others had 5.0 there."""
    terms: StoredTerms = field(default_factory=StoredTerms)


STUDIES = {
    "a clear winner": Known(
        [("lstm", 4.0), ("rnn", 4.5)],
        {0: [4.01, 4.02, 4.0, 4.01], 1: [4.51, 4.5, 4.52, 4.5]},
        ["lstm #0 is best", "the difference is significant"],
    ),
    "a tie": Known(
        [("lstm", 4.0), ("rnn", 4.0)],
        {0: [4.01, 4.03, 3.98], 1: [4.02, 3.99, 4.02]},
        ["the difference is not significant", "To find out, add [repeats] with until"],
    ),
    "a tie that rounds of seeds end": Known(
        [("lstm", 4.0), ("rnn", 4.0)],
        {0: [4.0, 4.0001, 4.0], 1: [4.0001, 4.0, 4.0]},
        ["is equal within 0.5 %"],
        terms=StoredTerms(repeats=Repeats(until="decided")),
    ),
    "rounds of seeds that a budget ends": Known(
        [("lstm", 4.0), ("rnn", 4.0)],
        {0: [4.01, 4.03, 3.98], 1: [4.02, 3.99, 4.02]},
        ["ended before its seeds decided: lstm #0 and rnn #1 may be best", "raise the budget"],
        terms=StoredTerms(repeats=Repeats(until="decided")),
    ),
    "a late bloomer that the clock cut": Known(
        [("lstm", 4.0), ("lstm", 4.1)],
        {},
        ["Undecided: rnn #2 led", "Without a trial of full length: rnn."],
        open_trial=("rnn", 4.8),
    ),
    "a lucky seed": Known(
        [("lstm", 3.5), ("rnn", 4.0)],
        {0: [4.21, 4.2, 4.22, 4.21, 4.2], 1: [4.0, 4.01, 4.0, 4.01, 4.0]},
        ["rnn #1 is best", "the difference is significant"],
    ),
    "a family that diverges": Known(
        [("lstm", 4.0), ("rnn", 3.9)],
        {0: [4.0, 4.01, 4.02], 1: [3.9, DIVERGED, DIVERGED]},
        ["lstm #0 is best", "Unstable: rnn #1 (2 of 3 seeds diverged)."],
    ),
    "a family that was never tried": Known(
        [("lstm", 4.0)],
        {},
        ["nothing compares with it", "Not tried: rnn."],
        terms=StoredTerms(alternatives=("lstm", "rnn")),
    ),
    "a family known by one configuration": Known(
        [("lstm", 4.0 + number / 10) for number in range(7)] + [("rnn", 4.9)],
        {},
        ["too few seeds tell", "Far fewer configurations than the 7 of others: rnn (1)."],
    ),
    "a network against a model that counts": Known(
        [("lstm", 4.0), ("kneser_ney", 4.5)],
        {0: [4.01, 4.02, 4.0]},
        ["lstm #0 is best", "the difference is significant"],
    ),
    "a model that counts against a worse network": Known(
        [("lstm", 4.6), ("kneser_ney", 4.5)],
        {0: [4.61, 4.62, 4.6, 4.61, 4.61, 4.6]},
        ["kneser_ney #1 is best", "the difference is significant"],
    ),
    "two models that count": Known(
        [("kneser_ney", 4.6), ("kneser_ney", 4.5)],
        {},
        ["both learn by counting", "a seed changes nothing"],
    ),
}


def make_outcome(number: int, family: str, original: int, cost: float, seed: int = 0) -> Outcome:
    config = make_config(family, original, seed)
    has_diverged = math.isinf(cost)
    return Outcome(
        number,
        config.identity("corpus"),
        config.model_dump(mode="json"),
        TrialState.FAILED if has_diverged else TrialState.COMPLETE,
        None if has_diverged else cost,
        {LENGTH // 3: 5.0} if has_diverged else {LENGTH // 3: max(5.0, cost), LENGTH: cost},
        TrialEnd(reason=StopReason.DIVERGED, detail="the loss is nan") if has_diverged else None,
    )


@pytest.mark.parametrize("known", STUDIES.values(), ids=STUDIES.keys())
def test_a_study_of_known_truth_gets_its_verdict_or_its_caveat(known: Known) -> None:
    searched = [
        make_outcome(number, family, number, cost) for number, (family, cost) in enumerate(known.searched)
    ]
    if known.open_trial is not None:
        family, cost = known.open_trial
        config, number = make_config(family, len(searched)), len(searched)
        curve = {LENGTH // 3: cost}
        configuration = config.model_dump(mode="json")
        searched.append(Outcome(number, config.identity("c"), configuration, TrialState.RUNNING, curve=curve))
    repeats = [
        make_outcome(100 * original + seed, known.searched[original][0], original, cost, seed)
        for original, costs in known.repeats.items()
        for seed, cost in enumerate(costs, start=1)
    ]
    view = make_view(searched, repeats)
    view.terms = known.terms
    verdict = require(judge_study(view))
    for part in known.verdict:
        assert part in verdict.text
