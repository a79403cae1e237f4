"""Trials that lose their workers, or should never have been: one study in which all of that happens.

Its trials run one after the other, on a Ray of their own. Networks of several widths meet a fate each, in
the order in which they come; of the other families one diverges, one is larger than the machine, and one than
what the first network's worker is left with.
"""

import json
import os
import re
import resource
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import optuna
import pytest
import torch

from memtune.corpora import import_corpus, open_corpus
from memtune.results.comparison import compare
from memtune.search import Outcome
from memtune.search.optuna_trials import IDENTITY_KEY
from memtune.search.study_database import open_study_database
from memtune.settings import Settings
from memtune.studies.checkpoint_store import parse_tokens
from memtune.training import GradientTrainer, TrialConfig
from memtune.trial_state import TrialState
from tests.cluster.drivers import (
    Driver,
    RayInstance,
    load_resolved_study,
    open_proposals,
    poll_until,
    read_outcomes,
    run_driver,
    start_ray_instance,
)
from tests.cluster.fault_table import RecordFault
from tests.conftest import SENTENCES

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("own_places")]

CHECKPOINT_SECONDS, SILENCE_SECONDS = 0.5, 8.0
PAUSE_SECONDS = SILENCE_SECONDS / 4
TOKENS = 240_000
STUDY = f"""question = "What does a study survive?"

corpus = "tiny"
spaces = ["good.toml", "diverging.toml", "huge.toml", "wide.toml"]

[training]
tokens = {TOKENS}

[budget]
trials = 7

[resources]
max_concurrent = 1
checkpoint_every = "{CHECKPOINT_SECONDS}s"
max_silence = "{SILENCE_SECONDS}s"
"""
WIDTH = 3000
ROOM = 4 * 4 * WIDTH**2 // 2
"""Bytes that the first network's worker may still take: half of the matrix of a layer so wide."""
TRAINED = f"""
[training]
report_every = {TOKENS // 2}
optimiser = {{ kind = "sgd", learning_rate = %s }}
"""
SPACES = {
    "good": '[model]\nfamily = "lstm"\nwidth = { choice = [4, 5, 6, 7, 8] }\n' + TRAINED % "0.5",
    "diverging": '[model]\nfamily = "rnn"\nwidth = 4\n' + TRAINED % "1e39",
    "huge": '[model]\nfamily = "recurrent_memory"\nwidth = 300_000\nmemory_size = 4\n' + TRAINED % "0.5",
    "wide": f'[model]\nfamily = "depth_gated_lstm"\nwidth = {WIDTH}\n' + TRAINED % "0.5",
}
FATES = ("paused", "killed once", "killed always", "segfaulting always", "stopped always")
STRIKES = {
    "killed always": signal.SIGKILL,
    "segfaulting always": signal.SIGSEGV,
    "stopped always": signal.SIGSTOP,
}


@dataclass
class Aftermath:
    """What became of the study, and what was seen while it ran."""

    study: Path
    settings: Settings
    output: str
    errors: str
    numbers: dict[str, int]
    """The trials by their fate."""
    struck: dict[str, list[list[str]]] = field(default_factory=dict)
    """The checkpoints there were at each strike at a fate's trial, the furthest first."""
    unsaved: float = 0.0
    """Seconds between the last checkpoint of the trial that was killed once and the kill."""

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """By number."""
        return {outcome.number: outcome for outcome in read_outcomes(self.study, self.settings)}

    def of(self, fate: str) -> Outcome:
        """The trial that met it."""
        return self.outcomes[self.numbers[fate]]

    def whence(self, fate: str) -> list[str]:
        """The checkpoints that its trial went on from, in order."""
        return re.findall(rf"trial +{self.numbers[fate]}  resumes from checkpoint (\S+)", self.output)


class Fates:
    """Deals its fate to each trial of the driver, as it prints that it starts."""

    def __init__(self, driver: Driver, ray: RayInstance, aftermath: Aftermath) -> None:
        self._driver, self._ray, self._aftermath = driver, ray, aftermath
        ready = load_resolved_study(aftermath.study, aftermath.settings)
        self._study, self._checkpoints = ready.id, Path(ready.checkpoint_root)

    def deal(self) -> None:
        """Until every fate is met."""
        for fate in FATES:
            number = self._next_network()
            self._aftermath.numbers[fate] = number
            if fate == "killed once":
                self._kill_between_reports()
            elif fate == "paused":
                self._pause()
            else:
                self._strike_at_every_start(fate)
            self._driver.wait_for_line(rf"trial +{number}  (complete|failed) ")

    def _next_network(self) -> int:
        met = self._aftermath.numbers.values()

        def found() -> list[int]:
            started = re.findall(r"trial +(\d+)  running +lstm", "".join(self._driver.lines))
            return [int(number) for number in started if int(number) not in met]

        return poll_until(found, "another trial")[0]

    def _kill_between_reports(self) -> None:
        """Once there are two checkpoints and no report."""
        index = self._index("killed once")
        poll_until(lambda: len(names(index)) == 2, "two checkpoints")
        self._strike("killed once", self._ray.find_trial_processes()[0], signal.SIGKILL)
        self._aftermath.unsaved = time.time() - index.stat().st_mtime

    def _pause(self) -> None:
        """And leave little memory to the worker, which goes on with the next trials too."""
        (worker,) = self._ray.find_trial_processes()
        os.kill(worker, signal.SIGSTOP)
        pages, *_ = Path(f"/proc/{worker}/statm").read_text().split()
        _, most = resource.prlimit(worker, resource.RLIMIT_AS)
        limit = int(pages) * os.sysconf("SC_PAGE_SIZE") + ROOM
        resource.prlimit(worker, resource.RLIMIT_AS, (limit, most))
        time.sleep(PAUSE_SECONDS)  # the pause itself
        os.kill(worker, signal.SIGCONT)

    def _strike_at_every_start(self, fate: str) -> None:
        number, struck = self._aftermath.numbers[fate], set[int]()
        while True:
            lines = "".join(self._driver.lines)
            if re.search(rf"trial +{number}  failed", lines):
                return
            starts = len(re.findall(rf"trial +{number}  running", lines))
            fresh = [worker for worker in self._ray.find_trial_processes() if worker not in struck]
            if starts > len(struck) and fresh:
                self._strike(fate, fresh[0], STRIKES[fate])
                struck.add(fresh[0])
            time.sleep(0.02)

    def _strike(self, fate: str, worker: int, strike: signal.Signals) -> None:
        os.kill(worker, strike)
        self._aftermath.struck.setdefault(fate, []).append(names(self._index(fate)))

    def _index(self, fate: str) -> Path:
        """The list of its trial's checkpoints."""
        identity = self._trials()[self._aftermath.numbers[fate]].user_attrs[IDENTITY_KEY]
        return self._checkpoints / identity / "latest.json"

    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        """The study's trials as somebody sees them who only reads."""
        storage = open_study_database(self._aftermath.settings.study_database)
        return optuna.load_study(study_name=self._study, storage=storage).trials


def names(index: Path) -> list[str]:
    """The checkpoints that an index names, the furthest first."""
    found: list[str] = json.loads(index.read_text()) if index.exists() else []
    return found


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    folder = tmp_path_factory.mktemp("faults")
    settings = Settings.from_environment(folder / "home")
    import_corpus("tiny", dict.fromkeys(("train", "valid", "test"), SENTENCES * 20), settings.corpus_store)
    for name, space in SPACES.items():
        (folder / f"{name}.toml").write_text(space)
    study = folder / "faults.toml"
    study.write_text(STUDY)
    aftermath = Aftermath(study, settings, "", "", {})
    with start_ray_instance(cores=2) as ray:
        home = {"MEMTUNE_HOME": str(settings.home)}
        with run_driver(study, environment=ray.environment | home) as driver:
            Fates(driver, ray, aftermath).deal()
            aftermath.output = driver.wait_for_success()
            aftermath.errors = "".join(driver.errors)
    return aftermath


def alone(aftermath: Aftermath, outcome: Outcome) -> dict[int, float | None]:
    """The curve of a trial that nothing happens to."""
    corpus = open_corpus("tiny", aftermath.settings.corpus_store)
    torch.set_num_threads(1)
    learner = GradientTrainer(TrialConfig.model_validate(outcome.configuration), corpus)
    while not learner.finished:
        learner.advance()
    return {report.tokens: report.valid_loss for report in learner.curve}


def test_a_worker_killed_between_two_reports_loses_at_most_one_checkpoint_interval(
    aftermath: Aftermath, record_fault: RecordFault
) -> None:
    outcome = aftermath.of("killed once")
    assert outcome.state is TrialState.COMPLETE
    assert outcome.curve == alone(aftermath, outcome), "the very bits of a trial that was left alone"
    ((newest, before),) = aftermath.struck["killed once"]
    reached, interval = parse_tokens(newest), parse_tokens(newest) - parse_tokens(before)
    assert 0 < interval <= reached < TOKENS // 2
    assert aftermath.whence("killed once") == [newest]
    record_fault(
        "worker killed",
        1,
        0,
        f"killed between two reports, {reached:,} tokens into a trial with a checkpoint each "
        f"{CHECKPOINT_SECONDS} s, of {interval:,} tokens: another worker went on from the last one, "
        f"{aftermath.unsaved:.1f} s of training were lost, and the curve has the bits of a trial left alone",
    )


@pytest.mark.parametrize(
    ("fate", "reason"),
    [
        ("killed always", "failed 3 times, last because the worker process died"),
        ("segfaulting always", "failed 3 times, last because the worker process died"),
        (
            "stopped always",
            f"failed 3 times, last because its worker sent no report for {SILENCE_SECONDS:.0f} s",
        ),
    ],
)
def test_a_trial_that_takes_its_worker_along_each_time_is_failed_after_three_tries(
    aftermath: Aftermath, record_fault: RecordFault, fate: str, reason: str
) -> None:
    outcome = aftermath.of(fate)
    assert outcome.state is TrialState.FAILED
    assert re.search(reason, str(outcome.end))
    starts = re.findall(rf"trial +{outcome.number}  running", aftermath.output)
    assert len(starts) == len(aftermath.struck[fate]) == 3
    assert aftermath.whence(fate) == [], "there was nothing yet to lose"
    assert aftermath.struck[fate] == [[]] * 3
    record_fault(
        "bad configuration",
        3,
        0,
        f'worker {fate} at its start: tried 3 times, then recorded as "{outcome.end}"',
    )


def test_a_trial_for_which_there_is_no_memory_is_failed_with_its_reason_and_its_worker_goes_on(
    aftermath: Aftermath, record_fault: RecordFault
) -> None:
    """The worker's address space is limited, by the system, before this trial comes to it."""
    (outcome,) = of_family(aftermath, "depth_gated_lstm")
    assert outcome.state is TrialState.FAILED
    assert re.search("out of memory on cpu .*use a smaller model", str(outcome.end))
    assert f"trial {outcome.number:3d}  waiting" not in aftermath.output
    assert aftermath.of("killed once").number > outcome.number
    reason = str(outcome.end).partition(". Configuration")[0]
    record_fault(
        "bad configuration",
        1,
        0,
        f'a layer larger than what the system leaves a worker (RLIMIT_AS): recorded as "{reason}", and the '
        "worker took up the next trial",
    )


def of_family(aftermath: Aftermath, family: str) -> list[Outcome]:
    return [each for each in aftermath.outcomes.values() if each.configuration["model"]["family"] == family]


def test_a_diverging_trial_is_failed_with_its_reason(aftermath: Aftermath, record_fault: RecordFault) -> None:
    (outcome,) = of_family(aftermath, "rnn")
    assert outcome.state is TrialState.FAILED
    assert str(outcome.end).startswith("diverged: ")
    record_fault("bad configuration", 1, 0, f'a learning rate of 1e39: recorded as "{outcome.end}"')


def test_a_model_larger_than_the_machine_is_never_started(
    aftermath: Aftermath, record_fault: RecordFault
) -> None:
    known = open_proposals(aftermath.study, aftermath.settings)
    reasons = [each.remark or "" for each in known.list_rejected() if each.state is TrialState.REFUSED]
    assert reasons
    assert all(re.search("it would take .* MiB there are", reason) for reason in reasons)
    assert "recurrent_memory" not in aftermath.output
    record_fault("bad configuration", 1, 0, f"a model that {reasons[0]}: refused before it starts")


def test_a_worker_stopped_for_a_while_goes_on_where_it_was(
    aftermath: Aftermath, record_fault: RecordFault
) -> None:
    outcome = aftermath.of("paused")
    assert outcome.state is TrialState.COMPLETE
    assert outcome.curve == alone(aftermath, outcome)
    assert len(re.findall(rf"trial +{outcome.number}  running .* tokens", aftermath.output)) == 2
    record_fault(
        "clock and pause",
        1,
        0,
        f"a worker was stopped (SIGSTOP) and continued after {PAUSE_SECONDS:.0f} of the "
        f"{SILENCE_SECONDS:.0f} s it may be silent: each report came once, with the same bits",
    )


def test_the_study_goes_on_past_all_of_that(aftermath: Aftermath) -> None:
    assert "was not recorded" not in aftermath.errors
    assert "Traceback" not in aftermath.errors
    assert len(aftermath.outcomes) == 7
    assert "new champion models:/tiny@champion" in aftermath.output
    states = {row.trial: row.state for row in compare("tiny", settings=aftermath.settings).rows}
    assert states == {each.identity: each.state for each in aftermath.outcomes.values()}
