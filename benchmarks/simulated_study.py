"""What a study of thousands of trials on many workers costs its driver: CPU time of decisions, and memory.

Clock and training are simulated: a trial's losses follow a formula of its configuration, and its reports come
when a worker of its own speed would send them. All else is what a search runs: the study is read and its
space checked; the director asks, hears and ends; sampler, halving, Optuna's storage and the records are the
real ones. Ray is not part of it.

The driver's decisions are timed on its thread, the records on theirs: their first `--recorded` trials go to a
tracking store in a sqlite file, and the rest of the study is the bound that their cost gives. At each
milestone the study is opened once more from its storage, as by a resumed driver. Gated: every trial must have
ended, as the storage has it, and every recorded one must be in the tracking store.

    python -m benchmarks.simulated_study [--trials 10000 --workers 1000 --figure FILE.png]
"""

import argparse
import gc
import heapq
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.side_by_side import line
from memtune.corpora.grammar import import_grammar
from memtune.execution.director import Director, Trial
from memtune.execution.records import StudyRecords
from memtune.execution.search import preflight
from memtune.execution.settings import Settings
from memtune.execution.study import ReadyStudy, load_study
from memtune.search import SuccessiveHalving
from memtune.tracking import Recorder, leaderboard
from memtune.training import Report
from memtune.values import digest

REPORTS = 9
EVERY = 100_000
GROWTH = 1.1
"""Of the cost of a trial when the trials double: what n log n allows from some thousand trials on."""

STUDY = f"""question = "What does a long study cost its driver?"
corpus = "grammar"
spaces = ["lstm", "recurrent_memory", "scrn", "lstmn"]
[protocol]
kind = "sentence"
[training]
tokens = {REPORTS * EVERY}
report_every = {EVERY}
[halving]
grace = {EVERY}
"""


def learning_curve(trial: Trial) -> list[Report]:
    """What its worker would report: losses that fall towards a floor of the configuration's own."""
    size, training = trial.config.model.describe(), trial.config.training
    assert training is not None
    rate = math.log10(training.optimiser.learning_rate)
    luck = int(digest(trial.proposal.identity)[:8], 16) / 16**8
    floor = 3.0 + 0.2 * abs(rate + 2.5) + 16 / int(size["width"]) + 0.1 * luck
    return [report(step, floor + 200 / math.sqrt(step * EVERY)) for step in range(1, REPORTS + 1)]


def report(step: int, loss: float) -> Report:
    """A report with every figure there is."""
    return Report(
        tokens=step * EVERY,
        epoch=step / 10,
        train_loss=loss,
        train_perplexity=math.exp(loss),
        valid_loss=loss,
        valid_perplexity=math.exp(loss),
        gradient_norm=1.0,
        learning_rate=0.1,
        tokens_per_second=1e4,
        seconds=10.0 * step,
        peak_memory_bytes=10**9,
        finished=step == REPORTS,
        reason="budget" if step == REPORTS else None,
    )


class SomeRecords:
    """Records of the first trials; what the others would say is left unsaid."""

    def __init__(self, records: StudyRecords, most: int) -> None:
        self._records, self.left = records, most
        self._recorded: set[int] = set()

    def start(self, trial: Trial) -> None:
        """The trial begins: it is recorded if it is among the first."""
        if self.left:
            self.left -= 1
            self._recorded.add(trial.proposal.number)
            self._records.start(trial)

    def report(self, trial: Trial, reports: Sequence[Report]) -> None:
        """New points of its curve."""
        if trial.proposal.number in self._recorded:
            self._records.report(trial, reports)

    def remark(self, trial: Trial) -> None:
        """What happened to it."""
        if trial.proposal.number in self._recorded:
            self._records.remark(trial)

    def finish(self, trial: Trial) -> None:
        """Its end."""
        if trial.proposal.number in self._recorded:
            self._records.finish(trial)


@dataclass
class Milestone:
    """Where the study stood after some trials: CPU seconds so far, of a reopening, and MiB of the process."""

    trials: int
    spent: dict[str, float]
    reopening: float
    memory: float

    @property
    def total(self) -> float:
        """CPU seconds of all decisions so far."""
        return sum(self.spent.values())


@dataclass
class Driver:
    """A director whose workers are simulated."""

    director: Director
    reopen: Callable[[], object]
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("ask", "hear", "end"), 0.0))
    milestones: list[Milestone] = field(default_factory=list)

    def run(self, workers: int, trials: int) -> None:
        """Simulate; milestones are at `trials`, half of them, a quarter, ..."""
        marks = {trials >> halvings for halvings in range(8) if trials >> halvings >= 50}
        ended = 0
        events: list[tuple[float, int, int]] = []
        curves: dict[int, list[Report]] = {}
        for _ in range(workers):
            self._start(0.0, events, curves)
        while events:
            now, number, step = heapq.heappop(events)
            if (
                self._timed("hear", self.director.heard, number, curves[number][:step], None)
                and step < REPORTS
            ):
                heapq.heappush(events, (now + pace(number), number, step + 1))
                continue
            self._timed("end", self.director.ended, number)
            del curves[number]
            ended += 1
            if ended in marks:
                self.milestones.append(self._milestone(ended))
            self._start(now, events, curves)

    def _start(
        self, now: float, events: list[tuple[float, int, int]], curves: dict[int, list[Report]]
    ) -> None:
        trial = self._timed("ask", self.director.next)
        if trial is not None:
            number = trial.proposal.number
            self.director.started(number)
            curves[number] = learning_curve(trial)
            heapq.heappush(events, (now + pace(number), number, 1))

    def _timed(self, what: str, work: Callable[..., Any], *arguments: object) -> Any:
        began = time.thread_time()
        done = work(*arguments)
        self.spent[what] += time.thread_time() - began
        return done

    def _milestone(self, trials: int) -> Milestone:
        gc.collect()
        memory = resident()
        began = time.thread_time()
        self.reopen()
        found = Milestone(trials, dict(self.spent), time.thread_time() - began, memory)
        print(
            f"{trials:6d} trials: {found.total:7.1f} s in all (ask {self.spent['ask']:.1f}, hear "
            f"{self.spent['hear']:.1f}, end {self.spent['end']:.1f}), reopened in {found.reopening:.2f} s, "
            f"{memory:.0f} MiB",
            flush=True,
        )
        return found


def pace(number: int) -> float:
    """Simulated seconds from one report of a trial to the next."""
    return 1 + int(digest(number)[:4], 16) / 16**4


def resident() -> float:
    """MiB that the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def simulate(folder: Path, options: argparse.Namespace) -> tuple[list[Milestone], float]:
    """The milestones, and the CPU seconds that recording a trial took."""
    settings = Settings.read(folder / "home")
    settings = settings.model_copy(update={"proposals": options.storage or settings.proposals})
    import_grammar("grammar", settings.store)
    file = folder / "simulated.toml"
    file.write_text(STUDY)
    study = load_study(file, {"sampler.kind": options.sampler, "budget.trials": options.trials})
    ready = preflight(file, study, settings)

    def direct(records: Any) -> Director:
        assert study.halving is not None
        rule = SuccessiveHalving(study.halving, ready.trial_tokens)
        return Director(ready.proposals(), records, options.trials, rule)

    with Recorder(settings.tracking, ready.corpus.name) as recorder:
        records = SomeRecords(StudyRecords(recorder, ready), options.recorded)
        driver = Driver(direct(records), lambda: direct(records))
        began, own = time.process_time(), time.thread_time()
        driver.run(options.workers, options.trials)
        assert recorder.flush(3600), "the tracking store does not keep up"
        beside = time.process_time() - began - (time.thread_time() - own)
    check(settings, ready, options.trials, options.recorded)
    return driver.milestones, beside / options.recorded


def check(settings: Settings, ready: ReadyStudy, trials: int, recorded: int) -> None:
    """Refuse to report when a trial was lost or doubled."""
    ended = ready.proposals().finished()
    rows = leaderboard(settings.tracking, "grammar")
    if len({outcome.identity for outcome in ended}) != trials or len(rows) != recorded:
        raise SystemExit(
            f"refused: {len(ended)} of {trials} trials ended, {len(rows)} of {recorded} recorded"
        )


def draw(milestones: Sequence[Milestone], file: Path) -> None:
    """CPU time of all decisions and of a reopening, and memory, against n log n."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    time_axes, memory_axes = figure.subplots(1, 2)
    trials = [milestone.trials for milestone in milestones]
    last = milestones[-1]
    scale = last.total / (last.trials * math.log(last.trials))
    time_axes.loglog(trials, [scale * n * math.log(n) for n in trials], "k:", label="n log n")
    time_axes.loglog(trials, [milestone.total for milestone in milestones], "o-", label="all decisions")
    for what in last.spent:
        time_axes.loglog(trials, [milestone.spent[what] for milestone in milestones], ".-", label=what)
    time_axes.loglog(trials, [milestone.reopening for milestone in milestones], "s--", label="one reopening")
    time_axes.set(xlabel="trials ended", ylabel="CPU seconds of the driver")
    memory_axes.plot(trials, [milestone.memory for milestone in milestones], "o-")
    memory_axes.set(xlabel="trials ended", ylabel="memory of the driver, MiB", ylim=(0, None))
    for axes in (time_axes, memory_axes):
        axes.grid(visible=True, which="both", alpha=0.3)
    time_axes.legend()
    figure.savefig(file, dpi=120)


def tell(milestones: Sequence[Milestone], recording: float, workers: int) -> None:
    """The measures, from the last milestone and those at a half and at a quarter of its trials."""
    quarter, half, last = milestones[-3:]
    name = f"simulated study of {last.trials:,} trials on {workers:,} workers"
    cost = (last.total - half.total) / (last.trials - half.trials)
    before = (half.total - quarter.total) / (half.trials - quarter.trials)
    detail = f"{1e3 * cost:.0f} ms a trial, before {1e3 * before:.0f} ms, {last.total:.0f} s in all"
    growth = f"{name}, driver's CPU time of a trial, last half / quarter before"
    print(line(growth, cost / before, GROWTH, 1.2, at_most=True, detail=detail))
    each = 1024 * (last.memory - quarter.memory) / (last.trials - quarter.trials)
    detail = f"{last.memory:.0f} MiB in all"
    print(line(f"{name}, KiB of memory a trial", each, 50, 100, at_most=True, detail=detail))
    again = (last.reopening / last.trials) / (half.reopening / half.trials)
    detail = f"{last.reopening:.2f} s"
    reopening = f"{name}, reopening, a trial's share, all / half of them"
    print(line(reopening, again, GROWTH, 1.3, at_most=True, detail=detail))
    detail = f"at most {3600 / recording:,.0f} trials an hour"
    print(line(f"{name}, CPU seconds of recording a trial", recording, 0.1, 0.3, at_most=True, detail=detail))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--recorded", type=int, default=100)
    parser.add_argument("--sampler", choices=["tpe", "random"], default="tpe")
    parser.add_argument("--storage", help="sqlite:///FILE, postgresql://...; default: a journal")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memtune-simulated-") as folder:
        milestones, recording = simulate(Path(folder), options)
    tell(milestones, recording, options.workers)
    if options.figure:
        draw(milestones, options.figure)


if __name__ == "__main__":
    main()
