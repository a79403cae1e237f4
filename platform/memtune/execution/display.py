"""A study while it runs: a live table on a terminal, one line an event anywhere else."""

import time
from collections.abc import Collection, Iterable
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from memtune.execution.director import Trial
from memtune.execution.wording import counted, unit
from memtune.models import Architecture, LanguageModelConfig
from memtune.objective import shown
from memtune.tasks import LanguageModellingConfig
from memtune.training import TrialConfig
from memtune.values import flatten

__all__ = ["Display", "described", "key_parameters", "words"]

SHOWN = 20
COLOURS = {
    "running": "cyan",
    "done": "green",
    "stopped": "yellow",
    "failed": "red",
    "interrupted": "magenta",
    "waiting": "dim",
}


class Display:
    """Watches trials. Use as a context; call it with each trial that changed."""

    def __init__(
        self,
        console: Console,
        title: str,
        trials: int,
        ideal: float | None = None,
        searched: Collection[str] = (),
    ) -> None:
        """`trials` is the study's budget; `ideal` the best validation perplexity any model could reach;
        `searched` the fields, by dotted name, that trials are told apart by besides their key parameters."""
        self._console, self._title, self._budget, self._ideal = console, title, trials, ideal
        self._searched = searched
        self._trials: dict[int, Trial] = {}
        self._told: dict[int, tuple[str, int]] = {}
        self._remarked: dict[int, int] = {}
        self._began = time.monotonic()
        self._live = Live(self, console=console, refresh_per_second=2) if console.is_terminal else None

    def __enter__(self) -> "Display":
        """Start the live table, if there is a terminal."""
        if self._live:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last table standing."""
        if self._live:
            self._live.stop()

    def __call__(self, trial: Trial) -> None:
        """Take in a trial's new state."""
        self._trials[trial.proposal.number] = trial
        self._tell_remarks(trial)
        now = (trial.state, trial.tokens)
        if not self._live and self._told.get(trial.proposal.number) != now:
            self._told[trial.proposal.number] = now
            self._console.print(self._line(trial), highlight=False, soft_wrap=True)

    def _tell_remarks(self, trial: Trial) -> None:
        """Each on a line of its own, above the table where there is one."""
        number = trial.proposal.number
        for remark in trial.remarks[self._remarked.get(number, 0) :]:
            self._console.print(f"trial {number:3d}  {remark}", highlight=False, soft_wrap=True)
        self._remarked[number] = len(trial.remarks)

    def _line(self, trial: Trial) -> str:
        parts = [
            f"trial {trial.proposal.number:3d}",
            f"{trial.state:11s}",
            described(trial.config, self._searched),
        ]
        if trial.reports:
            found = f"{_figure(trial)} validation {trial.config.task.objective}"
            parts.append(f"{trial.tokens:,} {unit(trial.config.task)}, {found}")
        if trial.reason and trial.state in ("stopped", "failed", "interrupted"):
            parts.append(trial.reason)
        return "  ".join(parts)

    def __rich__(self) -> RenderableType:
        """The table: running trials first, then the best of the others."""
        table = Table(
            title=self._title, caption=self._caption(), title_justify="left", caption_justify="left"
        )
        for name, justify in [("trial", "right"), ("configuration", "left")]:
            table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
        task = next((trial.config.task for trial in self._trials.values()), LanguageModellingConfig())
        for name in [unit(task), f"{unit(task)}/s", task.objective]:
            table.add_column(name, justify="right")
        table.add_column("state")
        running = [trial for trial in self._trials.values() if trial.state == "running"]
        others = sorted((t for t in self._trials.values() if t.state != "running"), key=_by_cost)
        for trial in (running + others)[:SHOWN]:
            table.add_row(*self._row(trial), style="bold" if trial is next(iter(others), None) else None)
        return table

    def _row(self, trial: Trial) -> list[str]:
        speed = f"{trial.reports[-1].tokens_per_second:,.0f}" if trial.reports else ""
        state = f"[{COLOURS[trial.state]}]{trial.state}[/]"
        tokens = f"{trial.tokens:,}" if trial.reports else ""
        told = described(trial.config, self._searched)
        return [str(trial.proposal.number), told, tokens, speed, _figure(trial), state]

    def _caption(self) -> str:
        ended = sum(trial.state in ("done", "stopped", "failed") for trial in self._trials.values())
        elapsed = time.monotonic() - self._began
        parts = [f"{ended} of {counted(self._budget, 'trial')} ended, {_duration(elapsed)}"]
        if 0 < ended < self._budget:
            parts.append(f"about {_duration(elapsed / ended * (self._budget - ended))} left")
        if self._ideal:
            parts.append(f"ideal perplexity {self._ideal:.2f}")
        return ", ".join(parts)


def key_parameters(config: LanguageModelConfig) -> str:
    """What tells two models of a family apart, as `name=value` words."""
    return " ".join(f"{name}={value}" for name, value in {**config.describe(), **_output(config)}.items())


def _output(config: LanguageModelConfig) -> dict[str, str | int | float]:
    return config.output.describe() if isinstance(config, Architecture) else {}


def described(config: TrialConfig, searched: Collection[str] = ()) -> str:
    """Family, key parameters and the other fields of these dotted names, as a study searches them."""
    values = dict(flatten(config.model_dump(mode="json")))
    told = {"model.family", *(f"model.{name}" for name in config.model.describe())}
    told |= {f"model.output.{'kind' if name == 'output' else name}" for name in _output(config.model)}
    more = words((name, values[name]) for name in searched if name in values and name not in told)
    return " ".join([config.model.family, key_parameters(config.model), *more])


def words(fields: Iterable[tuple[str, object]]) -> list[str]:
    """Fields of a trial by dotted name as `name=value`, the names as short as they are clear.

    >>> words([("task.fusion", "deep"), ("training.optimiser.learning_rate", 0.31622)])
    ['fusion=deep', 'learning_rate=0.316']
    """
    return [f"{_short(name)}={_written(value)}" for name, value in fields]


def _short(name: str) -> str:
    parent, _, last = name.rpartition(".")
    if last == "kind":
        return parent.removeprefix("training.").removeprefix("model.")
    _, _, within = name.partition(".")
    return within.removeprefix("optimiser.") or name


def _written(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _figure(trial: Trial) -> str:
    return "" if trial.cost is None else shown(trial.config.task.objective, trial.cost, 2)


def _by_cost(trial: Trial) -> float:
    return float("inf") if trial.cost is None else trial.cost


def _duration(seconds: float) -> str:
    minutes, left = divmod(int(seconds), 60)
    return f"{minutes // 60}h {minutes % 60:02d}m" if minutes >= 60 else f"{minutes}m {left:02d}s"
