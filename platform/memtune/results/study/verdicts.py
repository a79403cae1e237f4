"""The answer of a study: its best alternative, by how much, whether that is real, and what would decide it.

The alternatives of a study are its families, or the values of the field that `compare` names. Each is
represented by its best configuration of full length. The best is tested against each other one, and the
p-values are corrected for its choice. Where an alternative leads before full length, there is no winner.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from memtune.library import FileKind, list_packaged
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.results.study.alternative_comparison import (
    AlternativeEffort,
    Certainty,
    WinnerComparison,
    compare_all,
    measure_efforts,
    select_compared,
)
from memtune.results.study.caveats import find_untried, list_caveats
from memtune.results.study.ranking import DIGITS, Ranking, ShortTrial
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView
from memtune.seed_statistics import (
    LOOKS,
    MAX_SEEDS,
    MIN_PAIRED_SEEDS,
    SeedCosts,
    SeedDecision,
    choose_compared,
    decide_seeds,
)
from memtune.studies.definition.study_terms import Repeats
from memtune.trial_state import TrialState
from memtune.values import Value

USUAL_SEEDS = 12
"""The look that has most of the tests' level: those before are for large differences."""
TIED_MARGIN = 1e-9
"""Per cent or points: the rounding of means over seeds is below it."""
_CERTAINTY = {
    "significant": ", and the difference is significant",
    "not significant": ", but the difference is not significant: these seeds do not show that it is real",
    "not tested": "; with so few seeds nothing tells whether the difference is real",
}
_COUNTED = "both learn by counting, so a seed changes nothing"
_CERTAINTY_OF_COUNTED = {
    "significant": f", and the difference is significant on such text; {_COUNTED}",
    "not significant": f", but the difference is not significant on such text; {_COUNTED}",
    "not tested": f"; {_COUNTED}, and their validation items are not compared yet",
}
_ADVICE_FOR_COUNTED: dict[Certainty, str] = {
    "not significant": "To find out, compare them on more validation text.",
    "not tested": "To find out, run the study with --resume, which compares their validation items.",
}
_ADVICE_TO_GO_ON = "To find out, raise the budget and run the study with --resume."
_ADVICE_TO_END_REPEATS = (
    "To find out, let all repeats end: run the study with --resume, with a larger budget where one is spent."
)
_CHANGE_FOR_SEVERAL = 'add [repeats] with until = "decided" to'
_CHANGE_FOR_REPEATED = 'write until = "decided" in place of best and seeds under [repeats] in'
_CHANGE_FOR_ONE = f"add [repeats] with best = 2 and seeds = {MIN_PAIRED_SEEDS + 1} or more to"


class Verdict(Value):
    """The answer to a study's question."""

    winner: str
    """The best configuration of full length; where `is_undecided`, it may not be the best one."""
    headline: str
    """The best alternative, by how much, and whether the difference is real, in one sentence."""
    is_settled: bool
    """Whether the winner is significantly better than every alternative, by the tests that decide, and all
    were tried."""
    is_undecided: bool = False
    """Whether an alternative leads at equal tokens and has not reached full length: there is no winner."""
    caveats: tuple[str, ...] = ()
    """What the study does not know, a sentence each."""
    decision: str = ""
    """What ended the seeds of a study that repeats until decided."""
    advice: str
    """What would settle an open question; empty where it is settled."""
    comparisons: tuple[WinnerComparison, ...]
    """With the other alternatives, the best first."""
    efforts: tuple[AlternativeEffort, ...] = ()
    """What each alternative has had."""

    @property
    def state(self) -> str:
        """The answer in a word: undecided, without comparison, or how sure the least sure difference is."""
        if self.is_undecided or not self.comparisons:
            return "undecided" if self.is_undecided else "not compared"
        open_ones = (other.certainty for other in self.comparisons if other.certainty != "significant")
        return next(open_ones, "significant")

    @property
    def text(self) -> str:
        """Headline, decision, caveats and advice."""
        return " ".join(filter(None, [self.headline, self.decision, *self.caveats, self.advice]))


def judge_study(view: StudyView) -> Verdict | None:
    """The verdict on a study within the limits of its rule; None before the first validation."""
    ranking, objective, repeats = view.eligible, view.objective, view.terms.repeats
    if ranking is None:
        return None
    compared = select_compared(ranking)
    decided = _decide(ranking, view.trials, repeats) if repeats.until else None
    equal = decided.remaining if decided is not None and decided.end == "equal" else ()
    comparisons = compare_all(compared, objective, view.checkpoint_root, equal)
    leaders = find_leaders(ranking)
    are_significant = all(other.certainty == "significant" for other in comparisons)
    return Verdict(
        winner=ranking.winner.title,
        headline=_write_headline(view, ranking, comparisons, leaders),
        is_settled=bool(comparisons and ranking.winner.place and are_significant)
        and not (leaders or _has_untried(view)),
        is_undecided=bool(leaders),
        caveats=tuple(list_caveats(view, ranking, comparisons)),
        decision="" if decided is None else _describe_decision(decided, objective, repeats),
        advice=_advise(view, ranking, comparisons, leaders, decided),
        comparisons=comparisons,
        efforts=measure_efforts(view.trials, objective),
    )


def find_leaders(ranking: Ranking[StudyTrial]) -> list[ShortTrial[StudyTrial]]:
    """The open and paused trials that lead those of full length at equal tokens: with one there is no winner.

    Among several alternatives those of the winner's own are left out: they do not change which is best.
    """
    own, has_several = ranking.winner.best.alternative, _has_several(ranking)
    return [
        found
        for found in ranking.short
        if (found.best.state.is_open or found.best.state is TrialState.PAUSED)
        and found.leader_cost is not None
        and found.estimate.cost < found.leader_cost
        and not found.best.is_repeat
        and not (has_several and found.best.alternative == own)
    ]


def _has_several(ranking: Ranking[StudyTrial]) -> bool:
    """Whether more than one alternative has a trial that can be ranked."""
    return len(ranking.find_bests(lambda trial: trial.alternative)) > 1


def _write_headline(
    view: StudyView,
    ranking: Ranking[StudyTrial],
    comparisons: Sequence[WinnerComparison],
    leaders: Sequence[ShortTrial[StudyTrial]],
) -> str:
    winner, objective = ranking.winner, view.objective
    figure = objective.format_cost(winner.estimate.cost, DIGITS)
    text = f"{winner.title} is best with a validation {objective} of {figure}"
    if bounds := winner.estimate.compute_interval(objective):
        low, high = (objective.format_figure(bound, DIGITS) for bound in bounds)
        at_once = f", all {intervals} at once" if (intervals := winner.estimate.intervals) > 1 else ""
        text += f" (95 % interval {low} to {high} over {winner.estimate.seeds} seeds{at_once})"
    if leaders:
        led = leaders[0]
        assert led.leader_cost is not None, "it leads another trial"
        own, best = (objective.format_cost(cost, DIGITS) for cost in (led.estimate.cost, led.leader_cost))
        return (
            f"Undecided: {led.best.name} leads with {own} at {led.tokens:,} {led.best.unit}, where the best "
            f"has {best}, and has not reached full length; of full length, {text}."
        )
    if not winner.place:
        return f"No configuration is ranked: {winner.title} has {figure} ({winner.explain()})."
    if not comparisons and len(ranking.configurations) > 1 and not _has_several(ranking):
        return f"{text}; the other configurations of full length have fewer seeds, so none ranks with it."
    if not comparisons:
        noun = "alternative" if _has_several(ranking) else "configuration"
        has_more = len((view.ranking or ranking).configurations) > len(ranking.configurations)
        within = " within the limits of [champion]" if has_more else ""
        return f"{text}; no other {noun} has full length{within}, so nothing compares with it."
    nearest = comparisons[0]
    if nearest.margin is None:
        other = objective.format_figure(nearest.figure, DIGITS)
        return f"{text}; {nearest.name} has {other}, but lacks seeds."
    if nearest.certainty == "equal":
        indifference = view.terms.repeats.describe_indifference(objective)
        return f"{text}, but {nearest.name} is equal within {indifference}."
    if nearest.margin < TIED_MARGIN:
        return f"{text}, equal to {nearest.name}."
    text += f", {nearest.margin:.1f} {objective.margin_unit} better than {nearest.name}"
    if not nearest.are_both_counted:
        return f"{text}{_CERTAINTY[nearest.certainty]}."
    if test := nearest.by_items:
        text += f" ({test.describe_interval(objective)} over {test.pairs:,} {test.unit})"
    return f"{text}{_CERTAINTY_OF_COUNTED[nearest.certainty]}."


def _decide(ranking: Ranking[StudyTrial], trials: Sequence[StudyTrial], repeats: Repeats) -> SeedDecision:
    """The decision on which the study's driver stopped its seeds, or which it has not reached."""
    found = [pair for each in ranking.configurations for pair in zip(each.trials, each.costs, strict=True)]
    known = {trial.identity: cost for trial, cost in found}
    searched = [trial for trial, _ in found if not trial.is_repeat]
    costs, alternatives = dict[str, SeedCosts](), dict[str, str]()
    for trial in sorted(searched, key=lambda trial: (known[trial.identity], trial.number)):
        seeds = range(trial.seed + 1, trial.seed + 1 + repeats.max_seeds)
        own = [each for each in _list_repeats(trials, trial) if each.seed in seeds]
        by_seed = {each.seed: known.get(each.identity) for each in own}
        costs[trial.name] = known[trial.identity] if trial.is_counted else by_seed
        alternatives[trial.name] = trial.alternative
    return decide_seeds(choose_compared(costs, alternatives), repeats.indifference, repeats.max_seeds)


def _list_repeats(trials: Sequence[StudyTrial], trial: StudyTrial) -> list[StudyTrial]:
    """The ended repeats of a trial, which have its number."""
    repeats = (each for each in trials if each.is_repeat and not each.state.is_open)
    return [each for each in repeats if each.number == trial.number]


def _describe_decision(decided: SeedDecision, objective: Objective, repeats: Repeats) -> str:
    *others, last = decided.remaining or [""]
    names = f"{', '.join(others)} and {last}" if others else last
    seeds = format_count(decided.seeds, "seed")
    within = repeats.describe_indifference(objective)
    if decided.end is None:
        return f"Seeds have not decided yet: {names} may be best." if others else ""
    sentences = {
        "separated": f"{names} was better than all others after {seeds}, corrected for repeated looks.",
        "equal": f"After {seeds} {names} are equal within {within}.",
        "max_seeds": f"After {seeds}, all that [repeats] allows, {names} may be best.",
        "unstable": "Fewer than two alternatives have enough seeds that did not fail.",
    }
    return sentences[decided.end]


def _advise(
    view: StudyView,
    ranking: Ranking[StudyTrial],
    comparisons: Sequence[WinnerComparison],
    leaders: Sequence[ShortTrial[StudyTrial]],
    decided: SeedDecision | None,
) -> str:
    """What would decide; empty where every difference is decided, and where no seed is left."""
    if leaders or (decided is not None and decided.end is None):
        return f"{_ADVICE_TO_GO_ON}{_describe_rest(view, ranking, leaders, decided)}"
    if _has_untried(view):
        return _ADVICE_TO_GO_ON
    if decided is not None and (decided.end != "max_seeds" or decided.seeds >= MAX_SEEDS):
        return ""
    nearest = next((other for other in comparisons if other.certainty != "significant"), None)
    if not comparisons and _has_several(ranking):
        return _ADVICE_TO_GO_ON
    if nearest is None and (comparisons or len(ranking.configurations) == 1):
        return ""
    if nearest and nearest.are_both_counted:
        return _ADVICE_FOR_COUNTED.get(nearest.certainty, "")
    if decided is None and _lacks_repeats(ranking, view):
        return _ADVICE_TO_END_REPEATS
    note = ""
    if decided is not None:
        change = f"raise max_seeds under [repeats] to {max(USUAL_SEEDS, _find_next_look(decided.seeds))} in"
        note = "; the test is corrected for repeated looks"
    elif nearest and _has_several(ranking):
        change = _CHANGE_FOR_REPEATED if view.terms.repeats.are_asked_for else _CHANGE_FOR_SEVERAL
    elif nearest is None or nearest.certainty == "not tested":
        change = _CHANGE_FOR_ONE
    else:
        change = f"raise seeds under [repeats] to {_find_next_look(nearest.seeds) + 1} in"
        note = "; the test is corrected for repeated looks"
    packaged = f" (memtune study new {view.name} {view.name}.toml writes it)"
    file = f"the study's file{packaged if view.name in list_packaged(FileKind.STUDY) else ''}"
    advice = f"To find out, {change} {file} and run it with --resume{note}."
    if nearest and nearest.counted:
        advice += f" {nearest.counted[0]} learns by counting: the seeds are those of the other."
    return advice


def _has_untried(view: StudyView) -> bool:
    """Whether alternatives are left that neither have a trial nor were refused."""
    return any(name not in view.refusals for name in find_untried(view))


def _find_next_look(seeds: int) -> int:
    return min((look for look in LOOKS if look > seeds), default=MAX_SEEDS)


def _lacks_repeats(ranking: Ranking[StudyTrial], view: StudyView) -> bool:
    """Whether `best` and `seeds` of the study ask for repeats that have not ended."""
    repeats = view.terms.repeats
    repeatable = [
        found
        for found in ranking.configurations
        if any(not t.is_repeat and t.state is TrialState.COMPLETE and not t.is_counted for t in found.trials)
    ]
    ended = Counter(t.configuration for t in view.trials if t.is_repeat and t.state.has_ended)
    done = sum(count >= repeats.seeds - 1 for count in ended.values())
    return done < min(repeats.best, len(repeatable))


def _describe_rest(
    view: StudyView,
    ranking: Ranking[StudyTrial],
    leaders: Sequence[ShortTrial[StudyTrial]],
    decided: SeedDecision | None,
) -> str:
    """What the rest of the trials that lead, or the seeds of the next test, take at the speed so far.

    Empty where alternatives have no trial of full length: whether theirs will be repeated is not known.
    """
    bests = ranking.find_bests(lambda trial: trial.alternative).values()
    lacks_length = _has_untried(view) or any(isinstance(found, ShortTrial) for found in bests)
    hours = sum(
        found.best.cpu_hours * max(0.0, found.best.planned_tokens / found.tokens - 1)
        for found in leaders
        if found.best.planned_tokens
    )
    if decided is not None and not (leaders or lacks_length):
        searched = [trial for trial in view.trials if not trial.is_repeat]
        for trial in (each for each in searched if each.name in decided.continued):
            ended = _list_repeats(view.trials, trial)
            spent = [
                each.cpu_hours for each in (trial, *ended) if each.state.has_ended and not each.is_reused
            ]
            hours += (decided.seeds - len(ended)) * fmean(spent or [0.0])
    if not hours:
        return ""
    study = ranking.winner.best.study
    what = "The rest of what leads" if leaders else "The next test"
    command = f"memtune search {study.rpartition('-')[0] or study}.toml --resume"
    return f" {what} takes about {hours:.2g} core h: {command}."
