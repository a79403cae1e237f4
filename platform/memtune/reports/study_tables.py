"""Tables of studies: the list, one study in detail, its cost, and why a trial ended."""

from collections.abc import Sequence

from rich.table import Table

from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.reports.text_console import make_table
from memtune.results.study.ranking import DIGITS
from memtune.results.study.study_catalogue import StudySummary
from memtune.results.study.study_detail import ReportedTrial, StudyDetail
from memtune.results.study.study_front import describe_seeds
from memtune.search import MIN_IMPORTANCE_TRIALS, MIN_PARAMETER_TRIALS, QUANTITIES, ObjectiveName
from memtune.studies.budgets import StudyCost

MAX_IMPROVEMENTS, MAX_PARAMETERS = 12, 15
"""Rows of the terminal's tables; `--json` has all."""
MIN_SHOWN_IMPORTANCE = 0.005
NO_IMPORTANCE = (
    f"No importance of parameters: it needs {MIN_IMPORTANCE_TRIALS} trials with a validation, and two "
    f"parameters that {MIN_PARAMETER_TRIALS} of them have; each family has parameters of its own."
)


def make_study_list_table(studies: Sequence[StudySummary]) -> Table:
    """One row per study."""
    table = make_table("", ("study", "corpus", "trials", ">best", ">spent", ">last activity"))
    for study in studies:
        best = ""
        if study.best is not None:
            figure = study.objective.format_figure(study.best.figure, DIGITS)
            best = f"{study.best.name} {study.objective} {figure}"
        if study.is_undecided:
            best = f"undecided: {best}"
        activity = "" if study.last_activity is None else f"{study.last_activity:%Y-%m-%d %H:%M}"
        table.add_row(study.id, study.corpus, study.counts, best, describe_spending(study), activity)
    return table


def describe_spending(study: StudySummary) -> str:
    """Tokens, core hours and GPU hours."""
    gpu = f", {study.gpu_hours:.2f} GPU h" if study.gpu_hours else ""
    return f"{study.tokens:,} {study.unit}, {study.cpu_hours:.2f} core h{gpu}"


def explain_verdict(detail: StudyDetail) -> str:
    """The verdict in words, and the rule by which the study chooses its best configuration."""
    if detail.verdict is None:
        return detail.explain_lack()
    return f"{detail.verdict.text} Chosen by: {detail.summary.champion_rule}."


def describe_prior(detail: StudyDetail) -> str:
    """Which trials a prior led, and the best validation of these and of the others; "" without such a one."""
    if not detail.led:
        return ""
    trials = [trial for trial in detail.trials if not trial.is_repeat]

    def describe_best(is_led: bool) -> str:
        costs = [trial.cost for trial in trials if (trial.number in detail.led) == is_led]
        best = min((cost for cost in costs if cost is not None), default=None)
        return "none" if best is None else detail.summary.objective.format_cost(best, DIGITS)

    numbers = ", ".join(f"#{number}" for number in detail.led)
    return (
        f"a prior led {len(detail.led)} of {format_count(len(trials), 'trial')} ({numbers}); best validation "
        f"{detail.summary.objective} {describe_best(True)}, of the others {describe_best(False)}"
    )


def make_importance_table(detail: StudyDetail) -> Table:
    """The most important parameters; the conditions of a parameter of a branch are in brackets."""
    names = ("parameter", ">importance", ">trials that have it")
    table = make_table("importance of parameters (PED-ANOVA)", names)
    shown = [found for found in detail.importance if found.importance >= MIN_SHOWN_IMPORTANCE]
    for found in shown[:MAX_PARAMETERS]:
        share = f"{found.importance:.0%}"
        table.add_row(found.label, share if found.is_above_noise else f"{share}, noise", f"{found.trials:,}")
    if others := len(detail.importance) - len(shown):
        table.caption = f"{format_count(others, 'other')} below 1 %"
    return table


def make_front_table(detail: StudyDetail) -> Table:
    """The configurations that no other one beats in every objective."""
    front, objective = detail.front, detail.summary.objective
    if front is None:
        return Table()
    titles = [QUANTITIES[name].name_unit(detail.summary.unit) or objective for name in front.objectives]
    table = make_table("Pareto front", ["configuration", *(f">{title}" for title in titles), ">seeds"])
    for point in front.front:
        cells = [format_objective(name, value, objective) for name, value in point.values.items()]
        is_best = detail.best is not None and point.number == detail.best.number
        table.add_row(f"{point.name} (best)" if is_best else point.name, *cells, str(point.seeds))
    notes = [describe_seeds([point.seeds for point in front.front])]
    if front.unmeasured:
        notes.append(f"without {', '.join(front.unmeasured)}, whose sizes are not known here")
    if front.hypervolume:
        volume = front.hypervolume[-1].volume
        notes.append(f"hypervolume of single seeds {volume:.3f} from {describe_reference(detail)}")
    table.caption = "; ".join(filter(None, notes))
    return table


def describe_reference(detail: StudyDetail) -> str:
    """The corner from which the hypervolume is measured."""
    front, objective = detail.front, detail.summary.objective
    assert front is not None
    values = [
        (QUANTITIES[name].name_unit(detail.summary.unit), format_objective(name, value, objective))
        for name, value in front.reference.items()
    ]
    return ", ".join(f"{value} {unit}" if unit else f"{objective} {value}" for unit, value in values)


def format_objective(name: ObjectiveName, value: float, objective: Objective) -> str:
    """A value of an objective as tables show it."""
    return objective.format_figure(value, DIGITS) if name == "value" else f"{value:,.0f}"


def make_ended_table(detail: StudyDetail) -> Table:
    """The trials that ended before full length or diverged, and those that are open, with the reason.

    Their last value and their best one are next to the best value of a trial of full length at these tokens.
    """
    figures = (f">last {detail.summary.objective}", ">best", ">best of full length")
    names = (">trial", "alternative", f">{detail.summary.unit}", *figures, "state", "reason")
    table = make_table("trials that ended early, diverged or are open", names)
    for trial in detail.ended_early:
        figures = (trial.last_figure or "", trial.figure or "", trial.leader_figure or "")
        cells = [f"{trial.tokens:,}", *figures, trial.state.label, trial.reason]
        table.add_row(trial.name.removeprefix(f"{trial.alternative} "), trial.alternative, *cells)
    return table


def make_progress_table(detail: StudyDetail) -> Table:
    """The last improvements of the best validation against the tokens and core hours of all trials."""
    shown = detail.progress[-MAX_IMPROVEMENTS:]
    title = "best so far, single seeds, trials in the order of their numbers"
    if len(shown) < len(detail.progress):
        title += f", last {len(shown)} of {len(detail.progress)} improvements"
    return make_table(
        title,
        (f">{detail.summary.unit} of all trials", ">core hours", ">trial", f">{detail.summary.objective}"),
        ((f"{at.tokens:,}", f"{at.core_hours:.3f}", f"#{at.number}", at.figure) for at in shown),
    )


def make_comparison_table(trials: Sequence[ReportedTrial], ended: ReportedTrial) -> Table:
    """The values of trials at the length at which one of them ended, also of those that came there later."""
    title = f"values by now at the first report at or past {ended.tokens:,} {ended.unit}"
    table = make_table(title, (">rank now", ">trial", "alternative", f">{ended.unit}", ">value", "state"))
    for rank, trial in enumerate(trials, 1):
        cells = [f"#{trial.number}", trial.alternative, f"{trial.tokens:,}", trial.figure, trial.state.label]
        table.add_row(str(rank), *cells, style="bold" if trial.number == ended.number else None)
    return table


def make_cost_table(cost: StudyCost) -> Table:
    """What a study has spent, by state and by family."""
    has_gpus, has_money = bool(cost.total.gpu_hours), cost.currency is not None
    names = ["", "trials", f">{cost.unit}", ">core hours"]
    names += [">GPU hours"] * has_gpus + [f">{cost.currency}"] * has_money
    table = make_table(f"study {cost.study}", names)
    for rows in (cost.by_state, cost.by_family, (cost.total,)):
        for row in rows:
            cells = [row.group, f"{row.trials:,}", f"{row.tokens:,}", f"{row.cpu_hours:.3f}"]
            cells += [f"{row.gpu_hours:.3f}"] * has_gpus + [f"{row.money or 0:,.4f}"] * has_money
            table.add_row(*cells)
        table.add_section()
    return table
