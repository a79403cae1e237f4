"""What a study does not know beside its answer: a sentence for each caveat."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from memtune.models.layers.placed_dropout import explain_unused_dropout
from memtune.number_format import format_count
from memtune.results.study.alternative_comparison import Ranked, WinnerComparison, select_compared
from memtune.results.study.ranking import DIGITS, Ranking, ShortTrial, has_reached
from memtune.results.study.study_front import are_equal_sizes
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView
from memtune.studies.definition.study_terms import name_value
from memtune.trial_state import TrialState
from memtune.values import flatten

FEW_CONFIGURATIONS_RATIO = 3
"""An alternative with fewer than a third of the configurations of another one is named."""
OPTIONAL = frozenset({"tie_output", "embedding_width"})
"""Fields of models that are like dropout: a family without one is as one in which it is off."""
SURROUNDINGS = OPTIONAL | {"forget_bias", "output"}
"""Fields of models, beside dropout, that are not about a memory."""


def list_caveats(
    view: StudyView, ranking: Ranking[StudyTrial], comparisons: Sequence[WinnerComparison]
) -> Iterator[str]:
    """The caveats of the answer, a sentence each."""
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
        yield from _list_inequalities(winner, others, view.ranking or ranking, searched)
    if view.corpus is None:
        name = view.terms.corpus
        yield f'The store does not have the text that the trials read as "{name}", so that sizes are unknown.'


def _list_untried(view: StudyView) -> Iterator[str]:
    """Alternatives without a trial, with the reasons for which their samples were refused."""
    untried = [
        f"{name} ({format_count(len(reasons), 'sample')} refused, for instance because {reasons[0]})"
        if (reasons := view.refusals.get(name))
        else name
        for name in find_untried(view)
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
        for name in dict.fromkeys(t.alternative for t in trials if t.curve)
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
    winner: Ranked, others: Sequence[Ranked], ranking: Ranking[StudyTrial], searched: Sequence[StudyTrial]
) -> Iterator[str]:
    """In what the winner differs beside what is compared: settings and search of the next, all sizes."""
    other = others[0]
    if fields := _find_unequal_settings(winner, other, searched):
        yield (
            f"{winner.title} and {other.title} also differ in what one or both alternatives have tried at "
            f"one value only: {', '.join(fields)}."
        )
    sizes = {found.title: found.best.sizes.parameters for found in (winner, *others) if found.best.sizes}
    known = {title: size for title, size in sizes.items() if size}  # a model that counts has none
    if len(known) > 1 and winner.title in known and not are_equal_sizes(list(known.values())):
        _, *rest = known
        unequal = ", ".join(f"{title} {known[title]:,}" for title in rest)
        yield f"{winner.title} has {known[winner.title]:,} parameters, {unequal}."
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
    own, other = (_select_shared(found.best) for found in (first, second))
    tried = [
        [_select_shared(trial) for trial in searched if trial.alternative == alternative]
        for alternative in (first.best.alternative, second.best.alternative)
    ]
    compared = {first.best.alternative, second.best.alternative}
    return [
        name
        for name in (other | own if own and other else {})
        if own.get(name) != other.get(name)
        and (name in own.keys() & other.keys() or _is_off_without(name))
        and compared.isdisjoint(name_value(name, found.get(name)) for found in (own, other))
        and any(len({str(each.get(name)) for each in settings}) == 1 for settings in tried)
    ]


def _select_shared(trial: StudyTrial) -> dict[str, Any]:
    """Training, protocol and surroundings of a memory by field: what alternatives are not meant to differ in.

    Fields that are off are left out: to lack one is the same. Empty for a model that counts.
    """
    if trial.config.training is None:
        return {}
    config = trial.config.model_dump(mode="json", include={"model", "protocol", "training"})
    model = config["model"]
    config["model"] = {name: value for name, value in model.items() if name in SURROUNDINGS or "drop" in name}
    if "dropout" in model and (not model["dropout"] or explain_unused_dropout(trial.config.model)):
        for name in ("dropout", "dropout_placement"):
            config["model"].pop(name, None)
    return {name: value for name, value in flatten(config) if value or not _is_off_without(name)}


def _is_off_without(field: str) -> bool:
    """Whether a family that lacks a field is as one in which it is off; a place of dropout is never off."""
    table, _, name = field.partition(".")
    return table == "model" and (name in OPTIONAL or ("drop" in name and name != "dropout_placement"))


def find_untried(view: StudyView) -> list[str]:
    """The alternatives without a trial."""
    tried = {trial.alternative for trial in view.trials}
    return [name for name in view.terms.alternatives if name not in tried]
