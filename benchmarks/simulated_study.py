"""The cost of a study with thousands of trials for its driver: CPU time of decisions, and memory.

Clock and training are simulated: the losses of a trial follow a formula of its configuration, and each worker
reports at its own speed. The rest is the code of a search: reading the study, checking its space, the
director, sampler, successive halving, Optuna's storage and the records. Ray is not used.

Decisions are timed on the driver's thread, records on their own threads. The first `--recorded` trials are
recorded in a tracking store in sqlite; their cost gives a bound on the trials per hour. At each milestone the
study is opened again from its storage, as by a resumed driver. No result is printed unless the storage has
the end of every trial, and the tracking store every recorded trial.

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

from benchmarks.side_by_side import format_measure
from memtune.corpora.grammar.embedded_corpus import import_grammar
from memtune.settings import Settings
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import load_study
from memtune.studies.director import DirectedTrial, Director
from memtune.studies.study_check import check_study
from memtune.studies.trial_records import StudyRecords
from memtune.studies.trial_worker import WorkerReport
from memtune.tracking import Recorder, read_leaderboard
from memtune.training import Report
from memtune.trial_state import StopReason, TrialEnd
from memtune.values import digest

REPORTS_PER_TRIAL = 9
REPORT_INTERVAL_TOKENS = 100_000
GROWTH_GOAL = 1.1
"""Growth of the cost per trial when the number of trials doubles; n log n allows it from about 1,000 on."""

STUDY_TOML = f"""question = "What does a long study cost its driver?"
corpus = "grammar"
spaces = ["lstm", "recurrent_memory", "scrn", "lstmn"]
[protocol]
kind = "sentence"
[training]
tokens = {REPORTS_PER_TRIAL * REPORT_INTERVAL_TOKENS}
report_every = {REPORT_INTERVAL_TOKENS}
[early_stopping]
kind = "successive_halving"
grace = {REPORT_INTERVAL_TOKENS}
"""


def simulate_curve(trial: DirectedTrial) -> list[Report]:
    """The reports of a trial: losses that fall towards a floor, which depends on the configuration."""
    size, training = trial.config.model.describe(), trial.config.training
    assert training is not None
    rate = math.log10(training.optimiser.learning_rate)
    noise = int(digest(trial.proposal.identity)[:8], 16) / 16**8
    floor = 3.0 + 0.2 * abs(rate + 2.5) + 16 / int(size["width"]) + 0.1 * noise
    return [
        make_report(step, floor + 200 / math.sqrt(step * REPORT_INTERVAL_TOKENS))
        for step in range(1, REPORTS_PER_TRIAL + 1)
    ]


def make_report(step: int, loss: float) -> Report:
    """A report with all figures."""
    return Report(
        tokens=step * REPORT_INTERVAL_TOKENS,
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
        end=TrialEnd(reason=StopReason.BUDGET) if step == REPORTS_PER_TRIAL else None,
    )


class PartialRecords:
    """Records of the first `max_trials` trials; calls for other trials have no effect."""

    def __init__(self, records: StudyRecords, max_trials: int) -> None:
        self._records, self.trials_left = records, max_trials
        self._recorded: set[int] = set()

    def start(self, trial: DirectedTrial) -> None:
        """Record the start of a trial."""
        if self.trials_left:
            self.trials_left -= 1
            self._recorded.add(trial.proposal.number)
            self._records.start(trial)

    def report(self, trial: DirectedTrial, reports: Sequence[Report]) -> None:
        """Record new points of the curve."""
        if trial.proposal.number in self._recorded:
            self._records.report(trial, reports)

    def remark(self, trial: DirectedTrial) -> None:
        """Record an event of the trial."""
        if trial.proposal.number in self._recorded:
            self._records.remark(trial)

    def finish(self, trial: DirectedTrial) -> None:
        """Record the end of the trial."""
        if trial.proposal.number in self._recorded:
            self._records.finish(trial)


@dataclass
class Milestone:
    """Costs after a number of trials: CPU seconds of decisions and of reopening, memory in MiB."""

    trials: int
    cpu_seconds: dict[str, float]
    reopening_seconds: float
    memory_mib: float

    @property
    def total_cpu_seconds(self) -> float:
        """CPU seconds of all decisions so far."""
        return sum(self.cpu_seconds.values())


@dataclass
class SimulatedDriver:
    """Runs a director with simulated workers."""

    director: Director
    reopen: Callable[[], object]
    cpu_seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("sample", "report", "end"), 0.0)
    )
    milestones: list[Milestone] = field(default_factory=list)

    def run(self, workers: int, trials: int) -> None:
        """Simulate the study, with milestones at `trials`, a half, a quarter, ... of them."""
        marks = {trials >> halvings for halvings in range(8) if trials >> halvings >= 50}
        ended = 0
        events: list[tuple[float, int, int]] = []
        curves: dict[int, list[Report]] = {}
        for _ in range(workers):
            self._start_trial(0.0, events, curves)
        while events:
            now, number, step = heapq.heappop(events)
            report = WorkerReport(reports=tuple(curves[number][:step]))
            continues = self._time_call("report", self.director.on_worker_report, number, report)
            if continues and step < REPORTS_PER_TRIAL:
                heapq.heappush(events, (now + simulate_report_seconds(number), number, step + 1))
                continue
            self._time_call("end", self.director.on_ended, number)
            del curves[number]
            ended += 1
            if ended in marks:
                self.milestones.append(self._measure_milestone(ended))
            self._start_trial(now, events, curves)

    def _start_trial(
        self, now: float, events: list[tuple[float, int, int]], curves: dict[int, list[Report]]
    ) -> None:
        trial = self._time_call("sample", self.director.take_next_trial)
        if trial is not None:
            number = trial.proposal.number
            self.director.on_started(number)
            curves[number] = simulate_curve(trial)
            heapq.heappush(events, (now + simulate_report_seconds(number), number, 1))

    def _time_call(self, decision: str, work: Callable[..., Any], *arguments: object) -> Any:
        start = time.thread_time()
        result = work(*arguments)
        self.cpu_seconds[decision] += time.thread_time() - start
        return result

    def _measure_milestone(self, trials: int) -> Milestone:
        gc.collect()
        memory = measure_resident_mib()
        start = time.thread_time()
        self.reopen()
        milestone = Milestone(trials, dict(self.cpu_seconds), time.thread_time() - start, memory)
        print(
            f"{trials:6d} trials: {milestone.total_cpu_seconds:7.1f} s in all (sample "
            f"{self.cpu_seconds['sample']:.1f}, report "
            f"{self.cpu_seconds['report']:.1f}, end {self.cpu_seconds['end']:.1f}), reopened in "
            f"{milestone.reopening_seconds:.2f} s, "
            f"{memory:.0f} MiB",
            flush=True,
        )
        return milestone


def simulate_report_seconds(number: int) -> float:
    """Simulated seconds from one report of a trial to the next."""
    return 1 + int(digest(number)[:4], 16) / 16**4


def measure_resident_mib() -> float:
    """Resident memory of the process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def simulate(folder: Path, options: argparse.Namespace) -> tuple[list[Milestone], float]:
    """The milestones, and the CPU seconds of recording per trial."""
    settings = Settings.from_environment(folder / "home")
    settings = settings.model_copy(update={"study_database": options.storage or settings.study_database})
    import_grammar("grammar", settings.corpus_store)
    file = folder / "simulated.toml"
    file.write_text(STUDY_TOML)
    study = load_study(file, {"sampler.kind": options.sampler, "budget.trials": options.trials})
    resolved = check_study(file, study, settings)

    def open_director(records: Any) -> Director:
        rule = resolved.make_early_stopping_rule()
        return Director(resolved.open_proposals(), records, options.trials, rule)

    corpus = resolved.corpus.name
    with Recorder(settings.tracking_uri, corpus) as recorder:
        records = PartialRecords(StudyRecords(recorder, resolved), options.recorded)
        driver = SimulatedDriver(open_director(records), lambda: open_director(records))
        process_start, thread_start = time.process_time(), time.thread_time()
        driver.run(options.workers, options.trials)
        assert recorder.flush(3600), "the tracking store is too slow for the reports"
        driver_seconds = time.thread_time() - thread_start
        recording_seconds = time.process_time() - process_start - driver_seconds
    check_trials(settings, resolved, options.trials, options.recorded)
    return driver.milestones, recording_seconds / options.recorded


def check_trials(settings: Settings, resolved: ResolvedStudy, trials: int, recorded: int) -> None:
    """Raise SystemExit when a trial is missing or stored twice."""
    ended = resolved.open_proposals().list_finished()
    rows = read_leaderboard(settings.tracking_uri, "grammar")
    if len({outcome.identity for outcome in ended}) != trials or len(rows) != recorded:
        raise SystemExit(
            f"no result: {len(ended)} of {trials} trials ended, {len(rows)} of {recorded} recorded"
        )


def draw_figure(milestones: Sequence[Milestone], file: Path) -> None:
    """Draw the CPU time of decisions and of a reopening against n log n, and the memory."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    time_axes, memory_axes = figure.subplots(1, 2)
    trials = [milestone.trials for milestone in milestones]
    last = milestones[-1]
    scale = last.total_cpu_seconds / (last.trials * math.log(last.trials))
    time_axes.loglog(trials, [scale * n * math.log(n) for n in trials], "k:", label="n log n")
    time_axes.loglog(
        trials, [milestone.total_cpu_seconds for milestone in milestones], "o-", label="all decisions"
    )
    for decision in last.cpu_seconds:
        time_axes.loglog(
            trials, [milestone.cpu_seconds[decision] for milestone in milestones], ".-", label=decision
        )
    time_axes.loglog(
        trials, [milestone.reopening_seconds for milestone in milestones], "s--", label="one reopening"
    )
    time_axes.set(xlabel="trials ended", ylabel="CPU seconds of the driver")
    memory_axes.plot(trials, [milestone.memory_mib for milestone in milestones], "o-")
    memory_axes.set(xlabel="trials ended", ylabel="memory of the driver, MiB", ylim=(0, None))
    for axes in (time_axes, memory_axes):
        axes.grid(visible=True, which="both", alpha=0.3)
    time_axes.legend()
    figure.savefig(file, dpi=120)


def print_measures(milestones: Sequence[Milestone], recording: float, workers: int) -> None:
    """Print the measures, from the milestones at all, a half and a quarter of the trials."""
    quarter, half, last = milestones[-3:]
    name = f"simulated study of {last.trials:,} trials on {workers:,} workers"
    cost = (last.total_cpu_seconds - half.total_cpu_seconds) / (last.trials - half.trials)
    before = (half.total_cpu_seconds - quarter.total_cpu_seconds) / (half.trials - quarter.trials)
    detail = (
        f"{1e3 * cost:.0f} ms per trial, before {1e3 * before:.0f} ms, {last.total_cpu_seconds:.0f} s in all"
    )
    growth = f"{name}, driver's CPU time per trial, last half / quarter before"
    print(format_measure(growth, cost / before, GROWTH_GOAL, 1.2, at_most=True, detail=detail))
    each = 1024 * (last.memory_mib - quarter.memory_mib) / (last.trials - quarter.trials)
    detail = f"{last.memory_mib:.0f} MiB in all"
    print(format_measure(f"{name}, KiB of memory per trial", each, 50, 100, at_most=True, detail=detail))
    again = (last.reopening_seconds / last.trials) / (half.reopening_seconds / half.trials)
    detail = f"{last.reopening_seconds:.2f} s"
    reopening = f"{name}, reopening time per trial, all / half of the trials"
    print(format_measure(reopening, again, GROWTH_GOAL, 1.3, at_most=True, detail=detail))
    detail = f"at most {3600 / recording:,.0f} trials per hour"
    print(
        format_measure(
            f"{name}, CPU seconds of recording per trial", recording, 0.1, 0.3, at_most=True, detail=detail
        )
    )


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
    print_measures(milestones, recording, options.workers)
    if options.figure:
        draw_figure(milestones, options.figure)


if __name__ == "__main__":
    main()
