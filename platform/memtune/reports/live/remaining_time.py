"""How long a running study still takes, from the trials that it has ended."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from memtune.search import Outcome
from memtune.studies.trial import Trial
from memtune.trial_state import TrialState

__all__ = ["Pace", "PaceMeter", "format_duration"]

MEASURED_STATES = (TrialState.COMPLETE, TrialState.STOPPED)
"""States whose trials show how long a trial of this study is; a failed trial does not."""


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

    def __init__(self, earlier: Iterable[Outcome] = (), clock: Callable[[], float] = time.monotonic) -> None:
        """`earlier` are the trials that earlier runs have ended; `clock` counts seconds."""
        self._clock = clock
        self._ended = {
            one.number: max(one.curve, default=0) for one in earlier if one.state in MEASURED_STATES
        }
        self._tokens: dict[int, int] = {}
        self._trained = 0
        self._start: float | None = None
        self._last_report = 0.0

    def watch(self, trial: Trial) -> None:
        """Count what a trial has trained since its last change."""
        if self._start is None:
            self._start = self._clock()
        number = trial.proposal.number
        if trial.reports and trial.tokens > self._tokens.get(number, 0):
            # The first news of a resumed trial is its whole curve, which this run has not trained.
            self._trained += trial.tokens - max(self._tokens.get(number, 0), trial.restored_tokens)
            self._tokens[number], self._last_report = trial.tokens, self._clock()
        if trial.state in MEASURED_STATES:
            self._ended[number] = trial.tokens
        else:
            self._ended.pop(number, None)

    def estimate(self, unstarted: int, running: Iterable[Trial]) -> Pace | None:
        """The pace with `unstarted` trials to come; None before a trial has ended in any run or trained in
        this one."""
        lengths = [tokens for tokens in list(self._ended.values()) if tokens]
        seconds = self._last_report - (self._start or 0.0)
        if not (lengths and self._trained and seconds > 0):
            return None
        length, speed = sum(lengths) / len(lengths), self._trained / seconds
        left = unstarted * length + sum(max(0.0, length - trial.tokens) for trial in running)
        since_report = self._clock() - self._last_report
        return Pace(max(0.0, left / speed - since_report), speed, length)


def format_duration(seconds: float) -> str:
    """Minutes and seconds, or hours and minutes.

    >>> format_duration(3725)
    '1h 02m'
    """
    minutes, left = divmod(int(seconds), 60)
    return f"{minutes // 60}h {minutes % 60:02d}m" if minutes >= 60 else f"{minutes}m {left:02d}s"
