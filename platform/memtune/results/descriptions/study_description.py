"""The description of a concluded study, as Markdown: its question, its answer, its best trial per family."""

from collections.abc import Iterable, Iterator, Sequence

from memtune.estimate import Estimate
from memtune.number_format import format_parameters
from memtune.objective import Objective
from memtune.results.descriptions.registry_descriptions import StudyAnswer
from memtune.results.ranking.selection import RankedConfiguration, RankedTrial, Ranking
from memtune.search import Outcome
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.trial_records import format_value
from memtune.tracking import PromotionResult, make_version_link
from memtune.training import TrialConfig
from memtune.usage import add_usages

__all__ = [
    "LINE_CHARACTERS",
    "describe_answer",
    "describe_margin",
    "describe_study",
    "list_family_bests",
]

DIGITS = 3
LINE_CHARACTERS = 96
"""Of a corpus's description in MLflow's table of runs, in a window of 1,000 pixels."""


def describe_study(
    study: ResolvedStudy,
    answer: StudyAnswer,
    ranking: Ranking,
    outcomes: Sequence[Outcome],
    statements: Sequence[str],
    promotion: PromotionResult,
) -> str:
    """The question, the answer with its interval and its tests, the best of each family, and the cost."""
    return "\n\n".join(
        [
            f"**Question.** {answer.question}",
            f"**Answer.** {answer.answer}",
            "\n".join(f"- {statement}" for statement in statements),
            describe_champion(promotion),
            "#### The best trial of each family",
            make_family_table(study, ranking, outcomes),
            "#### Trials and repeats by state, and what they used",
            make_state_table(study, outcomes),
            f"More: `memtune compare --corpus {study.corpus.name} --study {study.id}`, "
            f"`memtune study show {study.id}`",
        ]
    )


def describe_answer(study: ResolvedStudy, ranking: Ranking, outcomes: Sequence[Outcome]) -> str:
    """The best model, by how much, at what size and cost; then the runner-up, the interval and the ideal.

    In this order and in short forms, because MLflow's pages show the first line: in a window of 1,000 pixels
    that is LINE_CHARACTERS.
    """
    winner = ranking.winner
    config = _read_configs(outcomes)[winner.best.identity]
    objective, cost = config.task.objective, winner.estimate.cost
    first = [
        f"**{winner.title}**: {objective} {_format_short(objective, cost)}",
        *describe_margin(ranking, objective),
        format_parameters(config.parameter_count(study.vocabulary_size), is_short=True),
        _describe_usage(study, winner, outcomes),
    ]
    other = ranking.runner_up
    figure = _format_short(objective, other.estimate.cost) if other else ""
    second = f"The runner-up is {other.title} with {figure}. " if other else ""
    third = f"Validation {objective} {_describe_estimate(winner, objective)}"
    return f"{', '.join(first)}. {second}{third}{_describe_distance(study, objective, winner.estimate)}."


def describe_margin(ranking: Ranking, objective: Objective) -> Iterator[str]:
    """By how much the winner is better than the runner-up; nothing without one."""
    winner, other = ranking.winner, ranking.runner_up
    if other is not None:
        margin = objective.compute_margin(winner.estimate.cost, other.estimate.cost)
        yield f"margin {margin:.3g} {objective.margin_unit}"


def _describe_estimate(winner: RankedConfiguration, objective: Objective) -> str:
    """The figure with its interval; of a model that counts, that it has one figure under every seed."""
    if winner.best.is_counted:
        return f"{winner.estimate.format(objective, DIGITS)} (a model that counts has it under every seed)"
    return winner.estimate.describe(objective, DIGITS)


def _format_short(objective: Objective, cost: float) -> str:
    return f"{objective.scale * objective.compute_figure(cost):.4g}{objective.unit}"


def _describe_usage(study: ResolvedStudy, winner: RankedConfiguration, outcomes: Sequence[Outcome]) -> str:
    """What training the winner took, all its seeds together."""
    identities, prices = {trial.identity for trial in winner.trials}, study.study.prices
    usage = add_usages(outcome.usage for outcome in outcomes if outcome.identity in identities)
    gpu = f" and {usage.gpu_seconds / 3600:.3g} GPU h" if usage.gpu_seconds else ""
    money = f", {prices.compute_usage_money(usage):.3g} {prices.currency}" if prices else ""
    return f"{usage.cpu_seconds / 3600:.3g} core h{gpu}{money}"


def _describe_distance(study: ResolvedStudy, objective: Objective, estimate: Estimate) -> str:
    distance = _compute_distance(study, objective, estimate.cost)
    return "" if distance is None else f", {100 * distance:,.1f} % above the ideal perplexity"


def _compute_distance(study: ResolvedStudy, objective: Objective, cost: float) -> float | None:
    """How far a perplexity is above the ideal one, as a share of it; None where no ideal is known."""
    ideal = (study.corpus.manifest.ideal or {}).get("valid")
    if ideal is None or not objective.has_ideal:
        return None
    return objective.compute_figure(cost) / ideal - 1


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


def list_family_bests(
    ranking: Ranking,
) -> Iterator[tuple[RankedTrial, Estimate, RankedConfiguration | None]]:
    """The best trial of each family, best first, with its estimate; last those of no full length.

    These have no ranked configuration.
    """
    listed: set[str] = set()
    for configuration in ranking.configurations:
        if configuration.best.family not in listed:
            listed.add(configuration.best.family)
            yield configuration.best, configuration.estimate, configuration
    for short in ranking.short:
        if short.trial.family not in listed:
            listed.add(short.trial.family)
            yield short.trial, Estimate(cost=short.cost), None


def make_family_table(study: ResolvedStudy, ranking: Ranking, outcomes: Sequence[Outcome]) -> str:
    """The best trial of each family: figure, distance to the ideal, sizes, use, seeds and end."""
    by_identity, configs = {outcome.identity: outcome for outcome in outcomes}, _read_configs(outcomes)
    task, prices = configs[ranking.winner.best.identity].task, study.study.prices
    objective = task.objective
    has_ideal = _compute_distance(study, objective, 0.0) is not None
    direction = objective.direction
    header = ["trial", "model", f"validation {objective} ({direction} is better)"]
    header += ["above ideal"] if has_ideal else []
    header += ["parameters", "carried state", task.prediction_unit, "core hours", "GPU hours"]
    header += [f"cost, {prices.currency}"] if prices else []
    header += ["seeds", "ended"]
    rows = []
    for trial, estimate, configuration in list_family_bests(ranking):
        outcome, config = by_identity[trial.identity], configs[trial.identity]
        trials = [trial] if configuration is None else configuration.trials
        usage = add_usages(by_identity[other.identity].usage for other in trials)
        distance = _compute_distance(study, objective, estimate.cost)
        row = [f"{trial.family} {trial.name}", describe_model(config), estimate.format(objective, DIGITS)]
        row += ["" if distance is None else f"{100 * distance:,.1f} %"] if has_ideal else []
        row += [f"{config.parameter_count(study.vocabulary_size):,}", f"{config.model.state_size():,}"]
        row += [f"{max(outcome.curve, default=0):,}"]
        row += [f"{usage.cpu_seconds / 3600:.4g}", f"{usage.gpu_seconds / 3600:.4g}"]
        row += [f"{prices.compute_usage_money(usage):.4g}"] if prices else []
        rows.append([*row, str(estimate.seeds), _describe_state(outcome)])
    return make_table(header, rows)


def describe_model(config: TrialConfig) -> str:
    """The fields that distinguish two models of a family, as `name=value` words."""
    fields = {**config.model.describe(), **config.model.describe_output()}
    return " ".join(f"{name}={format_value(value)}" for name, value in fields.items())


def _describe_state(outcome: Outcome) -> str:
    return outcome.state.label if outcome.curve else f"{outcome.state.label} without a validation"


def make_state_table(study: ResolvedStudy, outcomes: Sequence[Outcome]) -> str:
    """The trials with their repeats, and what they used, by state."""
    prices = study.study.prices
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


def _read_configs(outcomes: Iterable[Outcome]) -> dict[str, TrialConfig]:
    return {outcome.identity: TrialConfig.model_validate(outcome.configuration) for outcome in outcomes}
