"""The answer of a study: its best alternative, by how much, whether that is real, and what is not known.

The alternatives of a study are its families, or the values of the field that `compare` names. Each is
represented by its best configuration of full length. The best is tested against each other one, and the
p-values are corrected for its choice. Where an alternative leads before full length, there is no winner.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from memtune.library import FileKind, list_packaged
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.results.study.alternative_comparison import (
    AlternativeEffort,
    Certainty,
    Ranked,
    WinnerComparison,
    compare_all,
    measure_efforts,
    select_compared,
)
from memtune.results.study.ranking import DIGITS, Ranking, ShortTrial, has_reached, is_rankable
from memtune.results.study.study_front import are_equal_sizes
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
from memtune.studies.definition.study_terms import Repeats, name_value
from memtune.trial_state import TrialState
from memtune.values import Value, flatten

FEW_CONFIGURATIONS_RATIO = 3
"""An alternative with fewer than a third of the configurations of another one is named."""
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
        caveats=tuple(_list_caveats(view, ranking, comparisons)),
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
        and found.estimate.cost < found.leader_cost
        and not found.best.is_repeat
        and not (has_several and found.best.alternative == own)
    ]


def _has_several(ranking: Ranking[StudyTrial]) -> bool:
    """Whether more than one alternative has a trial that can be ranked."""
    return len(ranking.find_bests(lambda trial: trial.alternative)) > 1


def _list_caveats(
    view: StudyView, ranking: Ranking[StudyTrial], comparisons: Sequence[WinnerComparison]
) -> Iterator[str]:
    if view.chance is not None:
        bounds = ranking.winner.estimate.compute_interval(view.objective)
        low = bounds[0] if bounds else view.objective.compute_figure(ranking.winner.estimate.cost)
        guess = view.objective.format_figure(view.chance, DIGITS)
        is_above = low > view.chance and view.objective.format_figure(low, DIGITS) != guess
        yield f"Chance is {guess}." if is_above else f"Not above chance, which is {guess}."
    undecided = [
        f"{other.name} ({other.certainty})" for other in comparisons if other.certainty != "significant"
    ]
    if undecided and comparisons[0].certainty == "significant":
        yield f"Still open against: {', '.join(undecided)}."
    longest = max((trial.planned_tokens or 0 for trial in view.trials), default=0)
    is_complete = any(trial.state is TrialState.COMPLETE for trial in view.trials)
    if not is_complete and not has_reached(ranking.winner.best, longest):
        unit = ranking.winner.best.unit
        yield f"No trial is complete: full length is so far {ranking.tokens:,.0f} of {longest:,.0f} {unit}."
    yield from _list_untried(view)
    yield from _list_unranked(view, ranking)
    yield from _list_uneven_efforts(view.trials)
    yield from _list_instabilities(view.trials, ranking)
    searched = [trial for trial in view.trials if not trial.is_repeat]
    winner, *others = select_compared(ranking)
    if others and winner.best.alternative != others[0].best.alternative:
        yield from _list_inequalities(winner, others[0], view.ranking or ranking, searched)
    if view.corpus is None:
        name = view.terms.corpus
        yield f'The store does not have the text that the trials read as "{name}", so that sizes are unknown.'


def _list_untried(view: StudyView) -> Iterator[str]:
    """Alternatives without a trial, with the reasons for which their samples were refused."""
    untried = [
        f"{name} ({format_count(len(reasons), 'sample')} refused, for instance because {reasons[0]})"
        if (reasons := view.refusals.get(name))
        else name
        for name in _find_untried(view)
    ]
    if untried:
        yield f"Not tried: {', '.join(untried)}."
    if untried and (unnamed := view.refusals.get("")):
        samples = format_count(len(unnamed), "sample")
        yield f"Refused before its alternative was known: {samples}, for instance because {unnamed[0]}."


def _list_unranked(view: StudyView, ranking: Ranking[StudyTrial]) -> Iterator[str]:
    """Alternatives with trials that have no place: too short, outside the limits, or with fewer seeds."""
    bests = ranking.find_bests(lambda trial: trial.alternative)
    anywhere = (view.ranking or ranking).find_bests(lambda trial: trial.alternative)
    known = dict.fromkeys([*bests, *sorted({trial.alternative for trial in view.trials})])
    lacking = [name for name in known if isinstance(bests.get(name), ShortTrial | None)]
    short = [name for name in lacking if isinstance(anywhere.get(name), ShortTrial | None)]
    if short:
        yield f"Without a trial of full length: {', '.join(short)}."
    if excluded := [name for name in lacking if name not in short]:
        yield f"Of full length only outside the limits of [champion]: {', '.join(excluded)}."
    fewer = [name for name, found in bests.items() if name not in lacking and not found.place]
    if fewer:
        yield f"Not ranked, for lack of seeds with a result: {', '.join(fewer)}."


def _list_uneven_efforts(trials: Sequence[StudyTrial]) -> Iterator[str]:
    """Open and reused trials, and alternatives with far fewer configurations than others."""
    if nouns := Counter("repeat" if trial.is_repeat else "trial" for trial in trials if trial.state.is_open):
        verb = "is" if nouns.total() == 1 else "are"
        open_ones = " and ".join(format_count(count, noun) for noun, count in nouns.items())
        yield f"{open_ones} {verb} open: the answer may change."
    if reused := sum(trial.is_reused for trial in trials):
        verb = "is" if reused == 1 else "are"
        yield f"{reused} of {len(trials)} trainings {verb} reused from other studies, in whole or in part."
    counts = {
        name: len({t.configuration for t in trials if t.alternative == name and t.curve and not t.is_repeat})
        for name in dict.fromkeys(t.alternative for t in trials if any(map(is_rankable, t.curve.values())))
    }
    most = max(counts.values(), default=0)
    few = [f"{name} ({count})" for name, count in counts.items() if FEW_CONFIGURATIONS_RATIO * count < most]
    if few:
        yield f"Far fewer configurations than the {most} of others: {', '.join(few)}."


def _list_instabilities(trials: Sequence[StudyTrial], ranking: Ranking[StudyTrial]) -> Iterator[str]:
    """How many trials of each alternative diverged or failed, and which of the compared ones and repeats."""
    started = Counter(trial.alternative for trial in trials if not trial.is_repeat)
    lost = Counter(
        trial.alternative
        for trial in trials
        if not trial.is_repeat and (trial.has_diverged or trial.state is TrialState.FAILED)
    )
    if lost:
        counts = ", ".join(f"{count} of {started[name]} of {name}" for name, count in lost.items())
        yield f"Trials that diverged or failed: {counts}."
    repeats = {trial.configuration: trial for trial in trials if trial.is_repeat}
    seeds = Counter(trial.configuration for trial in trials if trial.is_repeat)
    diverged = Counter(trial.configuration for trial in trials if trial.is_repeat and trial.has_diverged)
    unstable = [
        f"{repeats[each].alternative} #{repeats[each].number} ({count} of {seeds[each]} seeds diverged)"
        for each, count in diverged.items()
    ]
    selected = {found.best.identity for found in select_compared(ranking)}
    unstable += [
        f"{trial.name} (diverged)"
        for trial in trials
        if trial.identity in selected and trial.has_diverged and trial.configuration not in diverged
    ]
    if unstable:
        yield f"Unstable: {', '.join(unstable)}."


def _list_inequalities(
    winner: Ranked, other: Ranked, ranking: Ranking[StudyTrial], searched: Sequence[StudyTrial]
) -> Iterator[str]:
    """In what the winner and the next one differ beside what is compared: settings, size and search."""
    if fields := _find_unequal_settings(winner, other, searched):
        yield (
            f"{winner.title} and {other.title} also differ in what one or both alternatives have tried at "
            f"one value only: {', '.join(fields)}."
        )
    sizes = [found.best.sizes.parameters for found in (winner, other) if found.best.sizes]
    if len(sizes) == 2 and all(sizes) and not are_equal_sizes(sizes):
        yield f"{winner.title} has {sizes[0]:,} parameters, {other.title} {sizes[1]:,}."
    names = (winner.best.alternative, other.best.alternative)
    tried = {name: {t.configuration for t in searched if t.alternative == name} for name in names}
    full = {found.best.configuration for found in ranking.configurations}
    if any(own - full for own in tried.values()):
        reached = [f"{len(own & full)} of {len(own)} of {name}" for name, own in tried.items()]
        yield f"Configurations of full length: {', '.join(reached)}."


def _find_unequal_settings(first: Ranked, second: Ranked, searched: Sequence[StudyTrial]) -> list[str]:
    """The fields in which configurations of two alternatives differ, and which one of these did not vary.

    What both varied is the best that each of them found.
    """
    own, other = (dict(flatten(_select_shared(found.best))) for found in (first, second))
    tried = [
        [dict(flatten(_select_shared(trial))) for trial in searched if trial.alternative == alternative]
        for alternative in (first.best.alternative, second.best.alternative)
    ]
    return [
        name
        for name, value in own.items()
        if name in other
        and other[name] != value
        and name_value(name, value) != first.best.alternative  # what is compared
        and any(len({str(each.get(name)) for each in settings}) == 1 for settings in tried)
    ]


def _select_shared(trial: StudyTrial) -> dict[str, Any]:
    """The training and the dropout of a trial: what an alternative is not meant to differ in."""
    config = trial.config.model_dump(mode="json", include={"model", "training"})
    model = {name: value for name, value in config["model"].items() if "dropout" in name}
    return {"model": model, "training": config["training"] or {}}


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


def _find_untried(view: StudyView) -> list[str]:
    """The alternatives without a trial."""
    tried = {trial.alternative for trial in view.trials}
    return [name for name in view.terms.alternatives if name not in tried]


def _has_untried(view: StudyView) -> bool:
    """Whether alternatives are left that neither have a trial nor were refused."""
    return any(name not in view.refusals for name in _find_untried(view))


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
