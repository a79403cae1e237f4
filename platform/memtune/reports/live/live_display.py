"""A running study: a table with its progress on a terminal or in a notebook, one line per event elsewhere."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from memtune.number_format import format_count, format_duration
from memtune.reports.live.live_view import LiveView
from memtune.reports.text_console import WITHOUT_FRAME, make_table, show_control_characters
from memtune.results.study.study_leaderboard import describe_settings
from memtune.search import StoredTrial
from memtune.studies.director import DirectedTrial
from memtune.studies.study_run import TrialPhase
from memtune.tasks import LanguageModellingConfig, TaskConfig
from memtune.trial_state import TrialState

MEASURED_STATES = (TrialState.COMPLETE, TrialState.STOPPED)
"""States whose trials show how long a trial of this study is; a failed trial does not."""
MAX_ROWS = 20
TITLE_AND_HEADER_LINES = 3
NARROW_CHARACTERS = 90
"""On narrower terminals the table leaves out the speed, so that the configurations have room."""
COLOURS = {
    TrialState.RUNNING: "cyan",
    TrialState.COMPLETE: "green",
    TrialState.STOPPED: "yellow",
    TrialState.PAUSED: "blue",
    TrialState.FAILED: "red",
    TrialState.INTERRUPTED: "magenta",
    TrialState.WAITING: "dim",
}


@dataclass(frozen=True)
class Pace:
    """The time that the open and the unstarted trials take, and what it is computed from."""

    seconds_left: float
    tokens_per_second: float
    """Of all trials together, with their evaluations."""
    tokens_per_trial: float
    """Mean of the ended trials, those that were stopped early included."""


class PaceMeter:
    """Measures the speed of this run and the length of the study's trials."""

    def __init__(
        self,
        earlier: Iterable[StoredTrial] = (),
        clock: Callable[[], float] = time.monotonic,
        trial_tokens: int = 0,
    ) -> None:
        """`earlier` are the trials that earlier runs have ended; `clock` counts seconds; a trial that nothing
        stops has `trial_tokens`."""
        self._clock = clock
        self._trial_tokens = trial_tokens
        self._ended = {
            one.number: max(one.curve, default=0) for one in earlier if one.state in MEASURED_STATES
        }
        self._tokens: dict[int, int] = {}
        self._trained = 0
        self._start: float | None = None
        self._last_report = 0.0

    def watch(self, trial: DirectedTrial) -> None:
        """Count what a trial has trained since its last change."""
        if self._start is None:
            self._start = self._clock()
        number = trial.proposal.number
        # The first news of a resumed trial is its curve up to its checkpoint, which this run has not trained.
        known = max(self._tokens.get(number, 0), trial.restored_tokens)
        if trial.tokens > known:
            self._trained += trial.tokens - known
            self._tokens[number], self._last_report = trial.tokens, self._clock()
        if trial.state in MEASURED_STATES:
            self._ended[number] = trial.tokens
        else:
            self._ended.pop(number, None)

    def estimate(self, unstarted: int, running: Iterable[DirectedTrial]) -> Pace | None:
        """The pace with `unstarted` trials to come; None before a trial has ended in any run or trained in
        this one."""
        lengths = [tokens for tokens in list(self._ended.values()) if tokens]
        seconds = self._last_report - (self._start or 0.0)
        if not (lengths and self._trained and seconds > 0):
            return None
        length, speed = fmean(lengths), self._trained / seconds
        left = unstarted * length
        for tokens in (trial.tokens for trial in running):
            # What has come further than the trials that were stopped is as long as those that went on.
            longer = [each for each in lengths if each > tokens] or [max(self._trial_tokens, tokens)]
            left += fmean(longer) - tokens
        since_report = self._clock() - self._last_report
        return Pace(max(0.0, left / speed - since_report), speed, length)


class LiveDisplay(LiveView):
    """A display of trials: a context manager that is called with each trial that changed."""

    def __init__(self, console: Console, phase: TrialPhase, start_seconds: float | None = None) -> None:
        """`start_seconds` is when the run of the study began, by `time.monotonic`; default: now."""
        super().__init__(console)
        self._phase = phase
        earlier = [outcome for outcome in phase.earlier if outcome.state.has_ended]
        results = [outcome for outcome in earlier if outcome.curve and outcome.state is not TrialState.FAILED]
        self._earlier_count = len(earlier)
        self._best_earlier = min(results, key=lambda outcome: min(outcome.curve.values()), default=None)
        self._pace_meter = PaceMeter(phase.earlier, trial_tokens=phase.trial_tokens)
        self._trials: dict[int, DirectedTrial] = {}
        """The trials that have not ended, and as many of the best others as the table may show."""
        self._ended: set[int] = set()
        """The numbers of the trials that have ended in this run."""
        self._printed_states: dict[int, tuple[str, int]] = {}
        self._printed_remarks: dict[int, int] = {}
        self._start_seconds = time.monotonic() if start_seconds is None else start_seconds

    def __call__(self, trial: DirectedTrial) -> None:
        """Show a trial's new state."""
        number = trial.proposal.number
        had_ended = number in self._ended
        self._trials[number] = trial
        if trial.state.has_ended:
            self._ended.add(number)
            ended = [known for known in self._trials.values() if known.state.has_ended]
            for surplus in sorted(ended, key=_get_cost_or_infinity)[MAX_ROWS:]:
                del self._trials[surplus.proposal.number]  # no table shows it
        self._pace_meter.watch(trial)
        # Each on a line of its own, above the table where there is one.
        for remark in trial.remarks[self._printed_remarks.get(number, 0) :]:
            self.add_line(f"trial {self._get_name(trial):>3}  {remark}")
            self._printed_remarks[number] = len(trial.remarks)
        self.refresh()
        if not self.is_shown_in_place and not had_ended:
            self._print_change(trial)

    def _print_change(self, trial: DirectedTrial) -> None:
        """Print a line for a trial's news; the first one has its configuration, the last one the progress."""
        number, now = trial.proposal.number, (str(trial.state), trial.tokens)
        before = self._printed_states.get(number)
        if before == now:
            return
        self._printed_states[number] = now
        parts = [f"trial {self._get_name(trial):>3}", f"{trial.state:11s}"]
        if before is None:
            parts.append(describe_settings(trial.config, self._phase.searched_fields))
        if trial.reports:
            figure = _format_figure(trial)
            best = f", best so far {figure} validation {trial.config.task.objective}" if figure else ""
            parts.append(f"{trial.tokens:,} {trial.config.task.prediction_unit}{best}")
        if trial.end and trial.state.has_ended_early:
            parts.append(str(trial.end))
        self.add_line("  ".join(parts).rstrip())
        if trial.state.has_ended:
            del self._printed_states[number]
            self.add_line("; ".join(self._list_progress()))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Title, table and progress. The table has as many rows as leave the progress on the terminal."""
        progress = Text("\n".join(self._list_progress()))
        progress_lines = len(console.render_lines(progress, options))
        # One line stays free for the cursor.
        rows = (
            console.height - TITLE_AND_HEADER_LINES - progress_lines - 1 if console.is_terminal else MAX_ROWS
        )
        yield Text(
            show_control_characters(self._phase.title), style="italic", no_wrap=True, overflow="ellipsis"
        )
        yield self._make_table(max(1, min(rows, MAX_ROWS)), is_narrow=options.max_width < NARROW_CHARACTERS)
        yield progress

    def _make_table(self, max_rows: int, *, is_narrow: bool) -> Table:
        """One line per trial: running trials first, then the best of the others."""
        unit, best = self._find_task().prediction_unit, self._find_best_trial()
        # Expanded with one flexible column: where there is little room, only configurations are cut.
        speeds = [] if is_narrow else [f">{unit}/s"]
        columns = (">trial", "state", f">{unit}", *speeds, ">best so far", "configuration")
        table = make_table("", columns, overflow="ellipsis", expand=True, **WITHOUT_FRAME)
        for column in table.columns:
            column.no_wrap = True
        table.columns[-1].ratio = 1
        shown = self._select_trials(max_rows)
        for trial in shown:
            speed = f"{trial.reports[-1].tokens_per_second:,.0f}" if trial.reports else ""
            table.add_row(
                self._get_name(trial),
                Text(trial.state, COLOURS[trial.state]),
                f"{trial.tokens:,}" if trial.reports else "",
                *([] if is_narrow else [speed]),
                _format_figure(trial),
                describe_settings(trial.config, self._phase.searched_fields),
                style="bold" if trial is best else None,
            )
        if hidden := self._count_trials() - len(shown):
            table.add_row(*[""] * (len(columns) - 1), f"and {hidden} more", style="dim")
        return table

    def _select_trials(self, max_rows: int) -> list[DirectedTrial]:
        """The running trials by number and the others by value, with the best of these in any case."""
        running = self._list_running()
        others = sorted((t for t in self._list_trials() if t not in running), key=_get_cost_or_infinity)
        if self._count_trials() <= max_rows:
            return running + others
        places = max(1, max_rows - 1)  # the last row tells how many are hidden
        kept = running[: places - 1] if others else running[:places]
        return kept + others[: places - len(kept)]

    def _get_name(self, trial: DirectedTrial) -> str:
        return self._phase.names.name(trial.proposal.number, trial.config).removeprefix("#")

    def _find_task(self) -> TaskConfig:
        trials = self._list_trials()
        return trials[0].config.task if trials else LanguageModellingConfig()

    def _list_trials(self) -> list[DirectedTrial]:
        """The trials by number, copied: a thread draws the display while the driver adds trials."""
        return [trial for _, trial in sorted(self._trials.copy().items())]

    def _count_trials(self) -> int:
        return len(self._ended) + sum(not trial.state.has_ended for trial in self._list_trials())

    def _list_running(self) -> list[DirectedTrial]:
        return [trial for trial in self._list_trials() if trial.state is TrialState.RUNNING]

    def _find_best_trial(self) -> DirectedTrial | None:
        """The trial of this run with the lowest cost; None before the first validation. A trial that failed
        has no result."""
        validated = [trial for trial in self._list_trials() if _get_cost_or_infinity(trial) < math.inf]
        return min(validated, key=_get_cost_or_infinity, default=None)

    def _list_progress(self) -> list[str]:
        """The progress as two lines: trials and the best value, then times."""
        trials = self._list_trials()
        ended = len(self._ended) + self._earlier_count
        counts = [f"{ended} of {format_count(self._phase.max_trials, self._phase.noun)} ended"]
        for state in (TrialState.RUNNING, TrialState.PAUSED):
            if number := sum(trial.state is state for trial in trials):
                counts.append(f"{number} {state.value}")
        best = self._describe_best()
        ideal = f"ideal {self._phase.ideal_perplexity:.2f}" if self._phase.ideal_perplexity else ""
        elapsed = format_duration(time.monotonic() - self._start_seconds)
        times = [elapsed, self._describe_time_left(ended)]
        return [", ".join(filter(None, [*counts, best, ideal])), ", ".join(filter(None, times))]

    def _describe_best(self) -> str:
        """The best value of all runs of the study and the trial that has it; empty before there is one."""
        found = []
        if (earlier := self._best_earlier) is not None:
            name = self._phase.names.name(earlier.number, earlier.config)
            found.append((min(earlier.curve.values()), name, earlier.config))
        if (own := self._find_best_trial()) is not None and own.best_cost is not None:
            found.append((own.best_cost, self._phase.names.name(own.proposal.number, own.config), own.config))
        if not found:
            return ""
        cost, name, config = min(found, key=lambda item: item[0])
        return f"best {self._phase.noun} so far {config.task.objective.format_cost(cost, 2)} ({name})"

    def _describe_time_left(self, ended: int) -> str:
        """The time that the study still takes with what it is computed from; empty while that is unknown."""
        running = self._list_running()
        paused = sum(trial.state is TrialState.PAUSED for trial in self._list_trials())
        unstarted = max(0, self._phase.max_trials - ended - len(running) - paused)
        pace = self._pace_meter.estimate(unstarted, running) if unstarted or running else None
        budget = self._phase.find_seconds_left()
        if budget is not None and (pace is None or budget < pace.seconds_left):
            return f"about {format_duration(max(0.0, budget))} left of the budget"
        if pace is None:
            return ""
        unit = self._find_task().prediction_unit
        left = f"{format_duration(pace.seconds_left)} left"
        left += " before the repeats" if self._phase.has_repeats_after else ""
        return (
            f"about {left} at {pace.tokens_per_second:,.0f} {unit}/s and "
            f"{pace.tokens_per_trial:,.0f} {unit} per trial"
        )


def _format_figure(trial: DirectedTrial) -> str:
    return "" if trial.best_cost is None else trial.config.task.objective.format_cost(trial.best_cost, 2)


def _get_cost_or_infinity(trial: DirectedTrial) -> float:
    """The cost that orders trials; a failed trial is the last, whatever it reached before."""
    return math.inf if trial.best_cost is None or trial.state is TrialState.FAILED else trial.best_cost
