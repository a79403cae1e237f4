"""Trials as tables: a corpus's leaderboard, a study's spread over seeds, a space's samples."""

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.table import Table

from memtune.execution.display import described, key_parameters, words
from memtune.execution.wording import unit
from memtune.models import MODELS, CountingConfig
from memtune.objective import Objective, shown
from memtune.search import Outcome
from memtune.tasks import TASKS, LanguageModellingConfig, TaskConfig
from memtune.tasks.language_modelling import TextTaskConfig
from memtune.tracking import ALONE, Row, varying
from memtune.training import TrialConfig

__all__ = ["family_table", "leaderboard_table", "sample_table", "spread_table"]

MODEL, TRAINING = "model.", "training."
SECTIONS = (MODEL, "task.", "protocol.", TRAINING)
TERMS = ("training.tokens", "training.epochs", "training.report_every")
"""Of a study, not of a trial: a column has the tokens."""
HALVED, TIME_UP = "successive halving", "the study's time was up"
"""Why a study stops a trial, which counts as stopped, as it did while it ran."""


def leaderboard_table(rows: Sequence[Row], ideal: float | None, title: str) -> Table:
    """Best first: validation perplexity per token (lower is better), with how far it lies above the ideal
    where that is known, or accuracy (higher is better).

    A trial is told by its family's key parameters and by whatever else these trials differ in. Trials of
    several studies compare under their own budgets, so each names its study.
    """
    caption = f"ideal perplexity {ideal:.3f}" if ideal else None
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("", justify="right")
    table.add_column("trial", overflow="fold", ratio=1)
    mixed = len({row.study for row in rows}) > 1
    objective = rows[0].objective if rows else "perplexity"
    classifies = all(not issubclass(_task_of(row), TextTaskConfig) for row in rows)
    told = "examples" if rows and classifies else "tokens"
    for name in ("parameters", told, objective, *(("above",) if ideal else ())):
        table.add_column(name, justify="right")
    table.add_column("state")
    differing = [name for name in varying(rows) if name.startswith(SECTIONS) and _tells(name, rows)]
    for place, row in enumerate(rows, start=1):
        trial = "\n".join(
            [
                row.name,
                *([row.study if row.study != ALONE else "no study"] if mixed else []),
                _model(row, differing),
            ]
        )
        table.add_row(
            str(place), trial, *_figures(row, ideal), _end(row), style="bold" if place == 1 else None
        )
    return table


def _figures(row: Row, ideal: float | None) -> list[str]:
    found = row.figure
    figures = ["" if found is None else _written(row.objective, found)]
    if ideal:
        figures.append("" if found is None else f"{found / ideal - 1:.1%}")
    count = "" if row.parameter_count is None else f"{row.parameter_count:,}"
    return [count, f"{row.tokens:,}", *figures]


def _written(objective: Objective, figure: float) -> str:
    return f"{100 * figure:.2f} %" if objective == "accuracy" else f"{figure:.3f}"


def _task_of(row: Row) -> type[TaskConfig]:
    """The task that a trial was recorded under."""
    return TASKS.get(str(row.parameters.get("task.kind")), LanguageModellingConfig)


def _end(row: Row) -> str:
    """How the trial stands, and why where that is neither its budget nor the trials beside it."""
    if row.state == "finished" and row.reason.startswith(HALVED):
        return "stopped"
    state = "stopped" if row.state == "finished" and row.reason == TIME_UP else row.state
    return state if row.reason in ("", "budget") else f"{state}: {row.reason}"


def _tells(name: str, rows: Sequence[Row]) -> bool:
    """Whether a field tells trials apart: those that have it differ in it, or of a family only some have it.

    That another family lacks it tells nothing.
    """
    if name in TERMS:
        return False
    having = [row for row in rows if _has(row, name)]
    families = {row.family for row in having}
    everywhere = all(_has(row, name) for row in rows if row.family in families)
    return not everywhere or len({str(row.parameters[name]) for row in having}) > 1


def _has(row: Row, name: str) -> bool:
    """Whether the field is the trial's own; one that only other families search was recorded as neutral."""
    family = MODELS.get(row.family)
    if name not in row.parameters or family is None:
        return False
    if name.startswith(MODEL):
        return name.split(".")[1] in family.model_fields
    return not (name.startswith(TRAINING) and issubclass(family, CountingConfig))


def _model(row: Row, differing: Collection[str]) -> str:
    """The key parameters of a recorded model, in its family's own words, and what else tells it apart."""
    family = MODELS.get(row.family)
    if family is None:
        return row.family
    recorded = {
        name.removeprefix(MODEL): value for name, value in row.parameters.items() if name.startswith(MODEL)
    }
    own = {name: value for name, value in recorded.items() if name in family.model_fields}
    config = family.model_validate(own)
    told = {MODEL + name for name in ("family", *config.describe())}
    others = [name for name in row.parameters if name in differing and _has(row, name) and name not in told]
    return " ".join([key_parameters(config), *words((name, row.parameters[name]) for name in others)])


def family_table(
    outcomes: Sequence[Outcome], vocabulary_size: int, title: str, searched: Collection[str] = ()
) -> Table:
    """The best trial of each family, best first, with the fields searched: what a study answers."""
    table = Table(title=title, title_justify="left")
    task = _task(outcomes)
    objective = task.objective
    table.add_column("best", justify="right")
    table.add_column("configuration", overflow="fold")
    for name in ("parameters", unit(task), f"validation {objective}", "trials"):
        table.add_column(name, justify="right")
    families: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.curve:
            families.setdefault(outcome.configuration["model"]["family"], []).append(outcome)
    best = {family: min(found, key=_lowest) for family, found in families.items()}
    for family, outcome in sorted(best.items(), key=lambda item: _lowest(item[1])):
        config = TrialConfig.model_validate(outcome.configuration)
        count, tokens = config.parameter_count(vocabulary_size), max(outcome.curve)
        cells = [f"#{outcome.number}", described(config, searched), f"{count:,}", f"{tokens:,}"]
        table.add_row(*cells, shown(objective, _lowest(outcome), 3), str(len(families[family])))
    return table


def _task(outcomes: Sequence[Outcome]) -> TaskConfig:
    """What a study's trials are asked."""
    configurations = (outcome.configuration for outcome in outcomes)
    return next((TrialConfig.model_validate(one).task for one in configurations), LanguageModellingConfig())


def _lowest(outcome: Outcome) -> float:
    return min(outcome.curve.values())


def spread_table(
    outcomes: Sequence[Outcome], repeats: Sequence[Outcome], searched: Collection[str] = ()
) -> Table:
    """The repeated configurations: best validation cost per seed, mean and deviation."""
    unit = "share of wrong answers" if _task(repeats).objective == "accuracy" else "loss, nats per token"
    table = Table(title=f"the best configurations under other seeds: validation {unit}")
    for name in ("configuration", "seeds", "mean", "deviation", "per seed"):
        table.add_column(name, justify="left" if name == "configuration" else "right", overflow="fold")
    groups: dict[str, list[Outcome]] = {}
    for outcome in repeats:
        groups.setdefault(_unseeded(outcome.configuration), []).append(outcome)
    for key, again in groups.items():
        same = [outcome for outcome in outcomes if _unseeded(outcome.configuration) == key] + again
        losses = [min(outcome.curve.values()) for outcome in same if outcome.curve]
        table.add_row(*_spread(same[0], losses, searched))
    return table


def _spread(outcome: Outcome, losses: Sequence[float], searched: Collection[str]) -> list[str]:
    config = TrialConfig.model_validate(outcome.configuration)
    deviation = f"{statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
    listed = " ".join(f"{loss:.4f}" for loss in losses)
    return [
        described(config, searched),
        str(len(losses)),
        f"{statistics.mean(losses):.4f}",
        deviation,
        listed,
    ]


def _unseeded(configuration: Mapping[str, object]) -> str:
    return TrialConfig.model_validate({**configuration, "seed": 0}).model_dump_json()


def sample_table(
    samples: Iterable[TrialConfig], vocabulary_size: int, searched: Collection[str] = ()
) -> Table:
    """Configurations drawn from a space, with the size each model has on the corpus."""
    table = Table(title="five configurations of the space")
    table.add_column("configuration", overflow="fold")
    table.add_column("parameters", justify="right")
    for config in samples:
        table.add_row(described(config, searched), f"{config.parameter_count(vocabulary_size):,}")
    return table
