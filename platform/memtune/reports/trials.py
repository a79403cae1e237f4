"""Trials as tables: a corpus's leaderboard, a study's spread over seeds, a space's samples."""

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.table import Table

from memtune.execution.display import key_parameters
from memtune.models import MODELS
from memtune.objective import Objective, shown
from memtune.search import Outcome
from memtune.tracking import Row, varying
from memtune.training import TrialConfig

__all__ = ["family_table", "leaderboard_table", "sample_table", "spread_table"]

MODEL, TASK = "model.", "task."


def leaderboard_table(rows: Sequence[Row], ideal: float | None, title: str) -> Table:
    """Best first: validation perplexity per token (lower is better), beside the ideal where it is known, or
    accuracy (higher is better).

    A model is told by its family's key parameters and by whatever else these trials, or their tasks, differ
    in. Trials of several studies compare under their own budgets, so a column names the study.
    """
    table = Table(title=title, title_justify="left")
    table.add_column("", justify="right")
    table.add_column("trial")
    mixed = len({row.study for row in rows}) > 1
    if mixed:
        table.add_column("study", overflow="fold")
    table.add_column("model", overflow="fold", ratio=1)
    objective = rows[0].objective if rows else "perplexity"
    for name in ("parameters", "tokens", objective, *(("ideal", "above") if ideal else ())):
        table.add_column(name, justify="right")
    table.add_column("state")
    differing = [name for name in varying(rows) if name.startswith((MODEL, TASK))]
    for place, row in enumerate(rows, start=1):
        cells = [str(place), row.name, *([row.study] if mixed else []), _model(row, differing)]
        table.add_row(*cells, *_figures(row, ideal), _end(row), style="bold" if place == 1 else None)
    return table


def _figures(row: Row, ideal: float | None) -> list[str]:
    found = row.figure
    figures = ["" if found is None else _written(row.objective, found)]
    if ideal:
        figures += [f"{ideal:.3f}", "" if found is None else f"{found / ideal - 1:.1%}"]
    count = "" if row.parameter_count is None else f"{row.parameter_count:,}"
    return [count, f"{row.tokens:,}", *figures]


def _written(objective: Objective, figure: float) -> str:
    return f"{100 * figure:.2f} %" if objective == "accuracy" else f"{figure:.3f}"


def _end(row: Row) -> str:
    """How the trial stands, and why it ended when that was not its budget."""
    return row.state if row.reason in ("", "budget") else f"{row.state}: {row.reason}"


def _model(row: Row, differing: Collection[str]) -> str:
    """The key parameters of a recorded model, in its family's own words, and what else tells it apart."""
    family = MODELS.get(row.family)
    if family is None:
        return row.family
    recorded = {
        name.removeprefix(MODEL): value for name, value in row.parameters.items() if name.startswith(MODEL)
    }
    named = {name: value for name, value in recorded.items() if name.split(".")[0] in family.model_fields}
    config = family.model_validate({name: value for name, value in named.items() if "." not in name})
    others = [name for name in named if MODEL + name in differing and name not in config.describe()]
    words = [f"{name}={named[name]}" for name in others if name != "family"]
    asked = [name for name in differing if name.startswith(TASK) and name in row.parameters]
    words += [f"{name.removeprefix(TASK)}={row.parameters[name]}" for name in asked]
    return " ".join([key_parameters(config), *words])


def family_table(outcomes: Sequence[Outcome], vocabulary_size: int, title: str) -> Table:
    """The best trial of each family, best first: what a study over several families answers."""
    table = Table(title=title, title_justify="left")
    objective = _objective(outcomes)
    for name in ("family", "best trial", "parameters", "tokens", f"validation {objective}", "trials"):
        table.add_column(name, justify="left" if name == "family" else "right")
    families: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.curve:
            families.setdefault(outcome.configuration["model"]["family"], []).append(outcome)
    best = {family: min(found, key=_lowest) for family, found in families.items()}
    for family, outcome in sorted(best.items(), key=lambda item: _lowest(item[1])):
        count = TrialConfig.model_validate(outcome.configuration).parameter_count(vocabulary_size)
        tokens = max(outcome.curve)
        cells = [family, f"#{outcome.number}", f"{count:,}", f"{tokens:,}"]
        table.add_row(*cells, shown(objective, _lowest(outcome), 3), str(len(families[family])))
    return table


def _objective(outcomes: Sequence[Outcome]) -> Objective:
    """What a study's trials compare by."""
    configurations = (outcome.configuration for outcome in outcomes)
    return next((TrialConfig.model_validate(one).task.objective for one in configurations), "perplexity")


def _lowest(outcome: Outcome) -> float:
    return min(outcome.curve.values())


def spread_table(outcomes: Sequence[Outcome], repeats: Sequence[Outcome]) -> Table:
    """The repeated configurations: best validation cost per seed, mean and deviation."""
    unit = "share of wrong answers" if _objective(repeats) == "accuracy" else "loss, nats per token"
    table = Table(title=f"the best configurations under other seeds: validation {unit}")
    for name in ("configuration", "seeds", "mean", "deviation", "per seed"):
        table.add_column(name, justify="left" if name == "configuration" else "right", overflow="fold")
    groups: dict[str, list[Outcome]] = {}
    for outcome in repeats:
        groups.setdefault(_unseeded(outcome.configuration), []).append(outcome)
    for key, again in groups.items():
        same = [outcome for outcome in outcomes if _unseeded(outcome.configuration) == key] + again
        losses = [min(outcome.curve.values()) for outcome in same if outcome.curve]
        table.add_row(*_spread(same[0], losses))
    return table


def _spread(outcome: Outcome, losses: Sequence[float]) -> list[str]:
    config = TrialConfig.model_validate(outcome.configuration)
    deviation = f"{statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
    listed = " ".join(f"{loss:.4f}" for loss in losses)
    return [_named(config), str(len(losses)), f"{statistics.mean(losses):.4f}", deviation, listed]


def _unseeded(configuration: Mapping[str, object]) -> str:
    return TrialConfig.model_validate({**configuration, "seed": 0}).model_dump_json()


def _named(config: TrialConfig) -> str:
    return f"{config.model.family} {key_parameters(config.model)}"


def sample_table(samples: Iterable[TrialConfig], vocabulary_size: int) -> Table:
    """Configurations drawn from a space, with the size each model has on the corpus."""
    table = Table(title="five configurations of the space")
    for name in ("model", "optimiser", "parameters"):
        table.add_column(name, justify="right" if name == "parameters" else "left", overflow="fold")
    for config in samples:
        table.add_row(_named(config), _optimiser(config), f"{config.parameter_count(vocabulary_size):,}")
    return table


def _optimiser(config: TrialConfig) -> str:
    if config.training is None:
        return ""
    optimiser = config.training.optimiser
    return f"{optimiser.kind} learning_rate={optimiser.learning_rate:.3g}"
