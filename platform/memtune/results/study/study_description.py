"""The description of a concluded study, as Markdown: its question, its answer, its best trial per family."""

from collections.abc import Iterable, Sequence

from memtune.number_format import format_parameters
from memtune.objective import Objective
from memtune.results.descriptions.registry_descriptions import StudyAnswer
from memtune.results.ranking.selection import Configuration
from memtune.results.study.study_leaderboard import LeaderboardEntry, make_entry
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView
from memtune.results.study.verdicts import Verdict
from memtune.tracking import PromotionResult, make_version_link
from memtune.usage import add_usages

DIGITS = 3
LINE_CHARACTERS = 96
"""Of a corpus's description in MLflow's table of runs, in a window of 1,000 pixels."""


def describe_conclusion(
    view: StudyView, answer: StudyAnswer, statements: Sequence[str], promotion: PromotionResult
) -> str:
    """The question, the answer with its interval and its tests, the best of each family, and the cost."""
    return "\n\n".join(
        [
            f"**Question.** {answer.question}",
            f"**Answer.** {answer.answer}",
            "\n".join(f"- {statement}" for statement in statements),
            describe_champion(promotion),
            "#### The best trial of each family",
            make_family_table(view),
            "#### Trials and repeats by state, and what they used",
            make_state_table(view),
            f"More: `memtune compare --corpus {view.terms.corpus} --study {view.id}`, "
            f"`memtune study show {view.id}`",
        ]
    )


def describe_answer(view: StudyView, verdict: Verdict, winner: Configuration[StudyTrial]) -> str:
    """The best model, by how much, at what size and cost; then the runner-up, the interval and the ideal.

    In this order and in short forms, because MLflow's pages show the first line: in a window of 1,000 pixels
    that is LINE_CHARACTERS.
    """
    objective, entry = view.objective, make_entry(view, winner)
    other = verdict.comparisons[0] if verdict.comparisons else None
    first = [
        f"**{winner.title}**: {objective} {_format_short(objective, entry.figure)}",
        *([f"margin {other.margin:.1f} {objective.margin_unit}"] if other else []),
        format_parameters(entry.sizes.parameters if entry.sizes else 0, is_short=True),
        _describe_usage(view, entry),
    ]
    second = f"The runner-up is {other.name} with {_format_short(objective, other.figure)}. " if other else ""
    third = f"Validation {objective} {_describe_estimate(winner, objective)}"
    above = entry.above_ideal
    distance = "" if above is None else f", {100 * above:,.1f} % above the ideal perplexity"
    answer = f"{', '.join(first)}. {second}{third}{distance}."
    return f"{verdict.headline} {answer}" if verdict.is_undecided else answer


def _describe_estimate(winner: Configuration[StudyTrial], objective: Objective) -> str:
    """The figure with its interval; of a model that counts, that it has one figure under every seed."""
    if winner.best.is_counted:
        return f"{winner.estimate.format(objective, DIGITS)} (a model that counts has it under every seed)"
    return winner.estimate.describe(objective, DIGITS)


def _format_short(objective: Objective, figure: float) -> str:
    return f"{objective.scale * figure:.4g}{objective.unit}"


def _describe_usage(view: StudyView, entry: LeaderboardEntry) -> str:
    """What training the winner took, all its seeds together."""
    prices = view.terms.prices
    gpu = f" and {entry.gpu_hours:.3g} GPU h" if entry.gpu_hours else ""
    money = f", {entry.money:.3g} {prices.currency}" if prices and entry.money is not None else ""
    return f"{entry.cpu_hours:.3g} core h{gpu}{money}"


def describe_champion(promotion: PromotionResult) -> str:
    """What the registry decided, with a link to the version."""
    version = promotion.champion or promotion.version
    if version is None:
        return f"**Registry.** No new version: {promotion.reason}."
    link = f"[{version.uri}]({make_version_link(version.corpus, version.version)})"
    role = "registered, and the champion stays"
    if promotion.champion:
        role = f"the champion `models:/{version.corpus}@{version.alias}`"
    return f"**Registry.** {link} is {role}: {promotion.reason}."


def make_family_table(view: StudyView) -> str:
    """The best trial of each family: figure, distance to the ideal, sizes, use, seeds and end."""
    objective, prices = view.objective, view.terms.prices
    unit = view.stored.trials[0].config.task.prediction_unit
    header = ["trial", "model", f"validation {objective} ({objective.direction} is better)"]
    header += ["above ideal"] if view.ideal is not None else []
    header += ["parameters", "carried state", unit, "core hours", "GPU hours"]
    header += [f"cost, {prices.currency}"] if prices else []
    header += ["seeds", "ended"]
    rows = []
    for found in view.family_bests:
        entry = make_entry(view, found)
        row = [f"{entry.family} {found.best.reference}", entry.model]
        row += [entry.estimate.format(objective, DIGITS)]
        row += [] if entry.above_ideal is None else [f"{100 * entry.above_ideal:,.1f} %"]
        row += [f"{entry.sizes.parameters:,}", f"{entry.sizes.state:,}"] if entry.sizes else ["", ""]
        row += [f"{entry.tokens:,}", f"{entry.cpu_hours:.4g}", f"{entry.gpu_hours:.4g}"]
        row += [] if entry.money is None else [f"{entry.money:.4g}"]
        rows.append([*row, str(entry.estimate.seeds), found.best.state.label])
    return make_table(header, rows)


def make_state_table(view: StudyView) -> str:
    """The trials with their repeats, and what they used, by state."""
    prices, outcomes = view.terms.prices, view.stored.trials
    header = ["state", "trials and repeats", "tokens", "core hours", "GPU hours"]
    header += [f"cost, {prices.currency}"] if prices else []
    groups = {state.label: [o for o in outcomes if o.state is state] for state in {o.state for o in outcomes}}
    rows = []
    for name, members in [*sorted(groups.items()), ("all", list(outcomes))]:
        usage = add_usages(outcome.usage for outcome in members)
        row = [name, f"{len(members):,}", f"{usage.tokens:,}"]
        row += [f"{usage.cpu_seconds / 3600:.4g}", f"{usage.gpu_seconds / 3600:.4g}"]
        rows.append([*row, *([f"{prices.compute_usage_money(usage):.4g}"] if prices else [])])
    return make_table(header, rows)


def make_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; a vertical bar in a cell is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
