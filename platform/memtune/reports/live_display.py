"""A running study: a live table on a terminal, one line per event elsewhere."""

import time
from collections.abc import Collection, Iterable
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from memtune.models import LanguageModelConfig
from memtune.number_format import format_count
from memtune.objective import format_figure
from memtune.reports.text_console import show_control_characters
from memtune.studies.director import Trial
from memtune.studies.seed_repeats import TrialNames
from memtune.tasks import LanguageModellingConfig
from memtune.training import TrialConfig
from memtune.trial_state import TrialState
from memtune.values import flatten

__all__ = ["LiveDisplay", "describe_trial", "format_fields", "format_key_parameters"]

MAX_ROWS = 20
COLOURS = {
    TrialState.RUNNING: "cyan",
    TrialState.COMPLETE: "green",
    TrialState.STOPPED: "yellow",
    TrialState.PAUSED: "blue",
    TrialState.FAILED: "red",
    TrialState.INTERRUPTED: "magenta",
    TrialState.WAITING: "dim",
}

ENDED = (TrialState.COMPLETE, TrialState.STOPPED, TrialState.FAILED)


class LiveDisplay:
    """A display of trials: a context manager that is called with each trial that changed."""

    def __init__(
        self,
        console: Console,
        title: str,
        trial_budget: int,
        ideal: float | None = None,
        searched_fields: Collection[str] = (),
        names: TrialNames | None = None,
    ) -> None:
        """`ideal` is the lowest validation perplexity that a model can reach; `searched_fields` has
        the dotted names of the fields that distinguish trials besides their key parameters."""
        self._console, self._title, self._trial_budget, self._ideal = console, title, trial_budget, ideal
        self._searched_fields = searched_fields
        self._names = names or TrialNames()
        self._trials: dict[int, Trial] = {}
        self._printed_states: dict[int, tuple[str, int]] = {}
        self._printed_remarks: dict[int, int] = {}
        self._start_seconds = time.monotonic()
        self._live = Live(self, console=console, refresh_per_second=2) if console.is_terminal else None

    def __enter__(self) -> "LiveDisplay":
        """Start the live table on a terminal."""
        if self._live:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop updating; the last table stays on the terminal."""
        if self._live:
            self._live.stop()

    def __call__(self, trial: Trial) -> None:
        """Show a trial's new state."""
        self._trials[trial.proposal.number] = trial
        self._print_remarks(trial)
        now = (trial.state, trial.tokens)
        if not self._live and self._printed_states.get(trial.proposal.number) != now:
            self._printed_states[trial.proposal.number] = now
            self._console.print(self._format_line(trial), markup=False, highlight=False, soft_wrap=True)

    def _print_remarks(self, trial: Trial) -> None:
        """Print each new remark on a line of its own, above the table where there is one."""
        number = trial.proposal.number
        for remark in trial.remarks[self._printed_remarks.get(number, 0) :]:
            line = f"trial {self._get_name(trial):>3}  {remark}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._printed_remarks[number] = len(trial.remarks)

    def _format_line(self, trial: Trial) -> str:
        parts = [
            f"trial {self._get_name(trial):>3}",
            f"{trial.state:11s}",
            describe_trial(trial.config, self._searched_fields),
        ]
        if trial.reports:
            found = f"{_format_trial_figure(trial)} validation {trial.config.task.objective}"
            parts.append(f"{trial.tokens:,} {trial.config.task.prediction_unit}, {found}")
        if trial.end and trial.state in (TrialState.STOPPED, TrialState.PAUSED, TrialState.FAILED):
            parts.append(str(trial.end))
        return "  ".join(parts)

    def __rich__(self) -> RenderableType:
        """The table: running trials first, then the best of the others."""
        table = Table(
            title=Text(show_control_characters(self._title)),
            caption=self._format_caption(),
            title_justify="left",
            caption_justify="left",
        )
        for name, justify in [("trial", "right"), ("configuration", "left")]:
            table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
        task = next((trial.config.task for trial in self._trials.values()), LanguageModellingConfig())
        for name in [task.prediction_unit, f"{task.prediction_unit}/s", task.objective]:
            table.add_column(name, justify="right")
        table.add_column("state")
        running = [trial for trial in self._trials.values() if trial.state is TrialState.RUNNING]
        others = sorted(
            (t for t in self._trials.values() if t.state is not TrialState.RUNNING), key=_cost_or_infinity
        )
        for trial in (running + others)[:MAX_ROWS]:
            table.add_row(
                *self._format_row(trial), style="bold" if trial is next(iter(others), None) else None
            )
        return table

    def _format_row(self, trial: Trial) -> list[str | Text]:
        speed = f"{trial.reports[-1].tokens_per_second:,.0f}" if trial.reports else ""
        state = Text(trial.state, COLOURS[trial.state])
        tokens = f"{trial.tokens:,}" if trial.reports else ""
        told = describe_trial(trial.config, self._searched_fields)
        return [self._get_name(trial), told, tokens, speed, _format_trial_figure(trial), state]

    def _get_name(self, trial: Trial) -> str:
        return self._names.name(trial.proposal.number, trial.config).removeprefix("#")

    def _format_caption(self) -> str:
        ended = sum(trial.state in ENDED for trial in self._trials.values())
        elapsed = time.monotonic() - self._start_seconds
        parts = [f"{ended} of {format_count(self._trial_budget, 'trial')} ended"]
        if paused := sum(trial.state is TrialState.PAUSED for trial in self._trials.values()):
            parts.append(f"{paused} paused")
        parts.append(_format_duration(elapsed))
        if 0 < ended < self._trial_budget:
            parts.append(f"about {_format_duration(elapsed / ended * (self._trial_budget - ended))} left")
        if self._ideal:
            parts.append(f"ideal perplexity {self._ideal:.2f}")
        return ", ".join(parts)


def format_key_parameters(config: LanguageModelConfig) -> str:
    """The fields that distinguish two models of a family, as `name=value` words."""
    return " ".join(
        f"{name}={value}" for name, value in {**config.describe(), **config.describe_output()}.items()
    )


def describe_trial(config: TrialConfig, searched_fields: Collection[str] = ()) -> str:
    """Family, key parameters and the other searched fields."""
    values = dict(flatten(config.model_dump(mode="json")))
    told = {"model.family", *(f"model.{name}" for name in config.model.describe())}
    told |= {
        f"model.output.{'kind' if name == 'output' else name}" for name in config.model.describe_output()
    }
    more = format_fields(
        (name, values[name]) for name in searched_fields if name in values and name not in told
    )
    return " ".join([config.model.family, format_key_parameters(config.model), *more])


def format_fields(fields: Iterable[tuple[str, object]]) -> list[str]:
    """Fields by dotted name as `name=value`, with names as short as they stay unambiguous.

    >>> format_fields([("task.fusion", "deep"), ("training.optimiser.learning_rate", 0.31622)])
    ['fusion=deep', 'learning_rate=0.316']
    """
    return [f"{_shorten_name(name)}={_format_value(value)}" for name, value in fields]


def _shorten_name(name: str) -> str:
    parent, _, last = name.rpartition(".")
    if last == "kind":
        return parent.removeprefix("training.").removeprefix("model.")
    _, _, within = name.partition(".")
    return within.removeprefix("optimiser.") or name


def _format_value(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _format_trial_figure(trial: Trial) -> str:
    return "" if trial.best_cost is None else format_figure(trial.config.task.objective, trial.best_cost, 2)


def _cost_or_infinity(trial: Trial) -> float:
    return float("inf") if trial.best_cost is None else trial.best_cost


def _format_duration(seconds: float) -> str:
    minutes, left = divmod(int(seconds), 60)
    return f"{minutes // 60}h {minutes % 60:02d}m" if minutes >= 60 else f"{minutes}m {left:02d}s"
