"""One study whose trials lose their workers, diverge, or do not fit into memory.

Its trials run one after the other on a private Ray instance. Each network of the first family has one fault,
in the order in which they start. Of the other families one diverges, one is larger than the memory of the
machine, and one is larger than the memory that the first network's worker may still allocate.
"""

import json
import os
import re
import resource
import signal
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import optuna
import pytest
import torch

from memtune.corpora import open_corpus
from memtune.results.comparison import compare
from memtune.results.study.study_view import open_view
from memtune.search import StoredTrial
from memtune.search.database.study_database import open_study_database
from memtune.search.trial_store import IDENTITY_KEY
from memtune.settings import Settings
from memtune.studies.checkpoint_store import parse_tokens
from memtune.training import GradientTrainer, TrialConfig
from memtune.training.optimisation.matmul_backend import select_backend
from memtune.trial_state import TrialState
from tests.cluster.drivers import (
    Driver,
    RayInstance,
    load_resolved_study,
    read_outcomes,
    run_driver,
    start_ray_instance,
)
from tests.cluster.fault_table import RecordFault
from tests.cluster.poll import poll_until
from tests.cluster.study_setup import make_home

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("own_locations")]

CHECKPOINT_SECONDS, REPORT_TIMEOUT_SECONDS = 0.5, 8.0
PAUSE_SECONDS = REPORT_TIMEOUT_SECONDS / 4
TOKENS = 240_000
STUDY = f"""question = "What does a study survive?"

corpus = "tiny"
spaces = ["good.toml", "diverging.toml", "huge.toml", "wide.toml"]

[training]
tokens = {TOKENS}

[budget]
trials = 6

[resources]
max_concurrent = 1
checkpoint_every = "{CHECKPOINT_SECONDS}s"
report_timeout = "{REPORT_TIMEOUT_SECONDS}s"

[early_stopping]
kind = "none"
"""
WIDTH = 3000
SPARE_BYTES = 4 * 4 * WIDTH**2
"""Bytes that the first network's worker may still allocate: one of the two matrices of such a wide layer."""
TRAINED = f"""
[training]
report_every = {TOKENS // 2}
optimiser = {{ kind = "sgd", learning_rate = %s }}
"""
SPACES = {
    "good": '[model]\nfamily = "lstm"\nwidth = { choice = [4, 5, 6, 7] }\n' + TRAINED % "0.5",
    "diverging": '[model]\nfamily = "rnn"\nwidth = 4\n' + TRAINED % "1e39",
    "huge": '[model]\nfamily = "recurrent_memory"\nwidth = 300_000\nmemory_size = 4\n' + TRAINED % "0.5",
    "wide": f'[model]\nfamily = "depth_gated_lstm"\nwidth = {WIDTH}\n' + TRAINED % "0.5",
}
FAULTS = ("paused", "killed once", "ended always", "stopped always")
FAULT_SIGNALS = {
    "ended always": (signal.SIGSEGV, signal.SIGKILL),
    "stopped always": (signal.SIGSTOP,),
}
"""For the starts of a trial, in turn."""


@dataclass
class FaultyStudy:
    """The study after its end, and observations during its run."""

    study: Path
    settings: Settings
    output: str
    errors: str
    numbers: dict[str, int]
    """The number of the trial that had each fault."""
    checkpoints_at_signal: dict[str, list[list[str]]] = field(default_factory=dict)
    """The checkpoints, newest first, once each signal to a fault's trial has taken effect."""
    unsaved_seconds: float = 0.0
    """Seconds between the last checkpoint of the trial that was killed once and the kill."""

    @property
    def outcomes(self) -> dict[int, StoredTrial]:
        """The outcomes by number."""
        return {outcome.number: outcome for outcome in read_outcomes(self.study, self.settings)}

    def get_outcome(self, fault: str) -> StoredTrial:
        """The outcome of the trial that had the fault."""
        return self.outcomes[self.numbers[fault]]

    def find_resumed_checkpoints(self, fault: str) -> list[str]:
        """The checkpoints from which the fault's trial resumed, in order."""
        return re.findall(rf"trial +{self.numbers[fault]}  resumes from checkpoint (\S+)", self.output)


class FaultInjector:
    """Injects one fault into each network trial when the driver prints its start."""

    def __init__(self, driver: Driver, ray: RayInstance, faulty_study: FaultyStudy) -> None:
        self._driver, self._ray, self._faulty_study = driver, ray, faulty_study
        resolved = load_resolved_study(faulty_study.study, faulty_study.settings)
        self._study, self._checkpoints = resolved.id, Path(resolved.checkpoint_root)

    def inject_all(self) -> None:
        """Inject every fault, and wait for the end of each trial."""
        for fault in FAULTS:
            number = self._wait_for_next_network()
            self._faulty_study.numbers[fault] = number
            if fault == "killed once":
                self._kill_between_reports()
            elif fault == "paused":
                self._pause()
            else:
                self._signal_at_every_start(fault)
            self._driver.wait_for_line(rf"trial +{number}  (complete|failed) ")

    def _wait_for_next_network(self) -> int:
        known = self._faulty_study.numbers.values()

        def find_next() -> list[int]:
            started = re.findall(r"trial +(\d+)  running +lstm", "".join(self._driver.lines))
            return [int(number) for number in started if int(number) not in known]

        return poll_until(find_next, "another trial")[0]

    def _kill_between_reports(self) -> None:
        """Kill the worker when there are two checkpoints and no report."""
        index = self._get_index_path("killed once")
        poll_until(lambda: len(read_index(index)) == 2, "two checkpoints")
        self._send_signal("killed once", self._find_worker(), signal.SIGKILL)
        self._faulty_study.unsaved_seconds = time.time() - index.stat().st_mtime

    def _pause(self) -> None:
        """Pause the worker, and limit its memory for the next trials.

        This waits for the first checkpoint, because a starting worker still allocates memory that every trial
        needs.
        """
        index = self._get_index_path("paused")
        poll_until(lambda: read_index(index), "a checkpoint")
        worker = self._find_worker()
        os.kill(worker, signal.SIGSTOP)
        pages, *_ = Path(f"/proc/{worker}/statm").read_text().split()
        _, hard_limit = resource.prlimit(worker, resource.RLIMIT_AS)
        limit = int(pages) * os.sysconf("SC_PAGE_SIZE") + SPARE_BYTES
        resource.prlimit(worker, resource.RLIMIT_AS, (limit, hard_limit))
        time.sleep(PAUSE_SECONDS)  # the pause itself
        os.kill(worker, signal.SIGCONT)

    def _find_worker(self) -> int:
        """The process of the only trial that runs."""
        (worker,) = poll_until(self._ray.find_trial_processes, "the process of a trial")
        return worker

    def _signal_at_every_start(self, fault: str) -> None:
        number, signalled = self._faulty_study.numbers[fault], set[int]()
        while True:
            lines = "".join(self._driver.lines)
            if re.search(rf"trial +{number}  (complete|failed) ", lines):
                return
            starts = len(re.findall(rf"trial +{number}  running", lines))
            workers = set(self._ray.find_trial_processes()) if starts > len(signalled) else set()
            if unsignalled := workers - signalled:
                signalled.add(worker := unsignalled.pop())
                turn = (len(signalled) - 1) % len(FAULT_SIGNALS[fault])
                self._send_signal(fault, worker, FAULT_SIGNALS[fault][turn])
            time.sleep(0.02)

    def _send_signal(self, fault: str, worker: int, number: signal.Signals) -> None:
        os.kill(worker, number)
        poll_until(lambda: is_stopped_or_ended(worker), "the effect of the signal")
        self._faulty_study.checkpoints_at_signal.setdefault(fault, []).append(
            read_index(self._get_index_path(fault))
        )

    def _get_index_path(self, fault: str) -> Path:
        """The path of the checkpoint index of the fault's trial."""
        identity = self._read_trials()[self._faulty_study.numbers[fault]].user_attrs[IDENTITY_KEY]
        return self._checkpoints / identity / "latest.json"

    def _read_trials(self) -> list[optuna.trial.FrozenTrial]:
        """The study's trials, read without the lease."""
        storage = open_study_database(self._faulty_study.settings.study_database)
        return optuna.load_study(study_name=self._study, storage=storage).trials


def is_stopped_or_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "TZX"
    except OSError:
        return True


def read_index(index: Path) -> list[str]:
    """The checkpoints in an index, newest first."""
    found: list[str] = json.loads(index.read_text()) if index.exists() else []
    return found


@pytest.fixture(scope="module")
def faulty_study(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> FaultyStudy:
    folder = tmp_path_factory.mktemp("faults")
    settings = make_home(folder / "home", empty_store)
    for name, space in SPACES.items():
        (folder / f"{name}.toml").write_text(space)
    study = folder / "faults.toml"
    study.write_text(STUDY)
    faulty_study = FaultyStudy(study, settings, "", "", {})
    with start_ray_instance(cores=1) as ray:
        home = {"MEMTUNE_HOME": str(settings.home)}
        with run_driver(study, environment=ray.environment | home) as driver:
            FaultInjector(driver, ray, faulty_study).inject_all()
            faulty_study.output = driver.wait_for_success()
            faulty_study.errors = "".join(driver.errors)
    return faulty_study


def train_undisturbed(faulty_study: FaultyStudy, outcome: StoredTrial) -> dict[int, float | None]:
    """The curve of the same trial without faults, on the kernels that the study's node has chosen."""
    select_backend.cache_clear()
    corpus = open_corpus("tiny", faulty_study.settings.corpus_store)
    torch.set_num_threads(1)
    trainer = GradientTrainer(TrialConfig.model_validate(outcome.configuration), corpus)
    while not trainer.is_finished:
        trainer.advance()
    return {report.tokens: report.valid_loss for report in trainer.curve}


def test_a_worker_killed_between_two_reports_loses_at_most_one_checkpoint_interval(
    faulty_study: FaultyStudy, record_fault: RecordFault
) -> None:
    outcome = faulty_study.get_outcome("killed once")
    assert outcome.state is TrialState.COMPLETE
    assert outcome.curve == train_undisturbed(faulty_study, outcome), (
        "not bit-identical to an undisturbed trial"
    )
    ((newest, before),) = faulty_study.checkpoints_at_signal["killed once"]
    reached, interval = parse_tokens(newest), parse_tokens(newest) - parse_tokens(before)
    assert 0 < interval <= reached < TOKENS // 2
    assert faulty_study.find_resumed_checkpoints("killed once") == [newest]
    record_fault(
        "worker killed",
        1,
        0,
        f"killed between two reports, after {reached:,} tokens of a trial with a checkpoint every "
        f"{CHECKPOINT_SECONDS} s ({interval:,} tokens): another worker resumed from the last one, "
        f"{faulty_study.unsaved_seconds:.1f} s of training were lost, and the curve is bit-identical to "
        "that of an undisturbed trial",
    )


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("ended always", "failed 3 times, last because the worker process died"),
        (
            "stopped always",
            f"failed 3 times, last because its worker sent no report for {REPORT_TIMEOUT_SECONDS:.0f} s",
        ),
    ],
)
def test_a_trial_that_kills_its_worker_each_time_fails_after_three_attempts(
    faulty_study: FaultyStudy, record_fault: RecordFault, fault: str, reason: str
) -> None:
    outcome = faulty_study.get_outcome(fault)
    assert outcome.state is TrialState.FAILED
    assert re.search(reason, str(outcome.end))
    starts = re.findall(rf"trial +{outcome.number}  running", faulty_study.output)
    left = faulty_study.checkpoints_at_signal[fault]
    # Progress resets the count: on a busy machine, a worker may store a checkpoint before its signal.
    stored = [attempt for attempt, (before, after) in enumerate(pairwise([[], *left]), 1) if after != before]
    assert len(starts) == len(left) == max(stored, default=1) + 2
    record_fault(
        "bad configuration",
        len(left),
        0,
        f'worker {fault} at its start: tried {len(left)} times, then recorded as "{outcome.end}"',
    )


def test_a_trial_without_enough_memory_fails_with_its_reason_and_its_worker_continues(
    faulty_study: FaultyStudy, record_fault: RecordFault
) -> None:
    """The worker's address space is limited before it gets this trial."""
    (outcome,) = find_family_outcomes(faulty_study, "depth_gated_lstm")
    assert outcome.state is TrialState.FAILED
    assert re.search("out of memory on cpu .*use a smaller model", str(outcome.end))
    assert f"trial {outcome.number:3d}  waiting" not in faulty_study.output
    assert faulty_study.get_outcome("killed once").number > outcome.number
    reason = str(outcome.end).partition(". Configuration")[0]
    record_fault(
        "bad configuration",
        1,
        0,
        f'a layer larger than the address space of a worker (RLIMIT_AS): recorded as "{reason}", and the '
        "worker ran the next trial",
    )


def find_family_outcomes(faulty_study: FaultyStudy, family: str) -> list[StoredTrial]:
    return [
        each for each in faulty_study.outcomes.values() if each.configuration["model"]["family"] == family
    ]


def test_a_diverging_trial_fails_with_its_reason(
    faulty_study: FaultyStudy, record_fault: RecordFault
) -> None:
    (outcome,) = find_family_outcomes(faulty_study, "rnn")
    assert outcome.state is TrialState.FAILED
    assert str(outcome.end).startswith("diverged: ")
    record_fault("bad configuration", 1, 0, f'a learning rate of 1e39: recorded as "{outcome.end}"')


def test_a_model_larger_than_the_machine_is_never_started(
    faulty_study: FaultyStudy, record_fault: RecordFault
) -> None:
    study = open_view(faulty_study.study.stem, faulty_study.settings)
    reasons = [each.remark or "" for each in study.stored.refused]
    assert reasons
    assert all(re.search("it would take .* MiB there are", reason) for reason in reasons)
    assert re.search(r"Not tried: recurrent_memory \(\d+ samples? refused, for instance", faulty_study.output)
    assert "recurrent_memory #" not in faulty_study.output
    record_fault("bad configuration", 1, 0, f"a model that {reasons[0]}: refused before it starts")


def test_a_worker_stopped_briefly_continues_without_a_restart(
    faulty_study: FaultyStudy, record_fault: RecordFault
) -> None:
    outcome = faulty_study.get_outcome("paused")
    assert outcome.state is TrialState.COMPLETE
    assert outcome.curve == train_undisturbed(faulty_study, outcome)
    assert len(re.findall(rf"trial +{outcome.number}  running .* tokens", faulty_study.output)) == 2
    record_fault(
        "clock and pause",
        1,
        0,
        f"a worker was stopped (SIGSTOP) for {PAUSE_SECONDS:.0f} s, below the heartbeat timeout of "
        f"{REPORT_TIMEOUT_SECONDS:.0f} s: each report arrived once, bit-identical to an undisturbed trial",
    )


def test_the_study_completes_its_other_trials(faulty_study: FaultyStudy) -> None:
    assert "was not recorded" not in faulty_study.errors
    assert "Traceback" not in faulty_study.errors
    assert len(faulty_study.outcomes) == 6
    assert "new champion models:/tiny@champion" in faulty_study.output
    states = {row.trial: row.state for row in compare("tiny", settings=faulty_study.settings).rows}
    assert states == {each.identity: each.state for each in faulty_study.outcomes.values()}
