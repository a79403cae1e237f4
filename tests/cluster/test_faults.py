"""Trials that lose their workers, or should never have been: one study in which all of that happens.

Its trials run one after the other, on a Ray of their own. Networks of three widths meet a fate each, in the
order in which they come; of the other families one diverges and one is larger than the machine.
"""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from memtune.corpora import import_corpus, open_corpus
from memtune.execution.comparison import compare
from memtune.execution.settings import Settings
from memtune.search import Outcome, Proposals
from memtune.training import Learner, TrialConfig
from tests.cluster.drivers import Driver, RayInstance, driving, eventually, outcomes, prepared, ray_instance
from tests.cluster.fault_table import RecordFault
from tests.conftest import SENTENCES

pytestmark = pytest.mark.cluster

CHECKPOINT_SECONDS, SILENCE_SECONDS = 0.5, 8.0
PAUSE_SECONDS = SILENCE_SECONDS / 4
TOKENS = 240_000
STUDY = f"""question = "What does a study survive?"

corpus = "tiny"
spaces = ["good.toml", "diverging.toml", "huge.toml"]

[training]
tokens = {TOKENS}

[budget]
trials = 5

[resources]
max_concurrent = 1
checkpoint_every = "{CHECKPOINT_SECONDS}s"
max_silence = "{SILENCE_SECONDS}s"
"""
TRAINED = f"""
[training]
report_every = {TOKENS // 2}
optimiser = {{ kind = "sgd", learning_rate = %s }}
"""
SPACES = {
    "good": '[model]\nfamily = "lstm"\nwidth = { choice = [4, 5, 6, 7] }\n' + TRAINED % "0.5",
    "diverging": '[model]\nfamily = "rnn"\nwidth = 4\n' + TRAINED % "1e39",
    "huge": '[model]\nfamily = "recurrent_memory"\nwidth = 300_000\nmemory_size = 4\n' + TRAINED % "0.5",
}
FATES = ("killed once", "killed always", "stopped always", "paused")


@dataclass
class Aftermath:
    """What became of the study, and what was seen while it ran."""

    study: Path
    settings: Settings
    output: str
    numbers: dict[str, int]
    """The trials by their fate."""
    before: list[str] = field(default_factory=list)
    """The checkpoints of the trial that was killed once, when it was."""
    after: list[str] = field(default_factory=list)
    """The first ones of the worker that went on with it."""
    unsaved: float = 0.0
    """Seconds between its last checkpoint and the kill."""

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """By number."""
        return {outcome.number: outcome for outcome in outcomes(self.study, self.settings)}

    def of(self, fate: str) -> Outcome:
        """The trial that met it."""
        return self.outcomes[self.numbers[fate]]


class Fates:
    """Deals its fate to each trial of the driver, as it prints that it starts."""

    def __init__(self, driver: Driver, ray: RayInstance, checkpoints: Path, aftermath: Aftermath) -> None:
        self._driver, self._ray, self._checkpoints, self._aftermath = driver, ray, checkpoints, aftermath

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
                self._strike_at_every_start(
                    number, signal.SIGKILL if fate == "killed always" else signal.SIGSTOP
                )
            self._driver.wait_for(rf"trial +{number}  (done|failed) ")

    def _next_network(self) -> int:
        met = self._aftermath.numbers.values()

        def found() -> list[int]:
            started = re.findall(r"trial +(\d+)  running +lstm", "".join(self._driver.lines))
            return [int(number) for number in started if int(number) not in met]

        return eventually(found, "another trial")[0]

    def _kill_between_reports(self) -> None:
        """Once there are two checkpoints and no report."""
        index = eventually(lambda: list(self._checkpoints.glob("*/latest.json")), "a checkpoint")[0]
        eventually(lambda: len(names(index)) == 2, "two checkpoints")
        (worker,) = self._ray.workers()
        os.kill(worker, signal.SIGKILL)
        self._aftermath.unsaved = time.time() - index.stat().st_mtime
        before = self._aftermath.before = names(index)
        self._aftermath.after = eventually(
            lambda: [name for name in names(index) if name[-8:] != before[0][-8:]], "another worker's"
        )

    def _pause(self) -> None:
        (worker,) = self._ray.workers()
        os.kill(worker, signal.SIGSTOP)
        time.sleep(PAUSE_SECONDS)  # the pause itself
        os.kill(worker, signal.SIGCONT)

    def _strike_at_every_start(self, number: int, strike: signal.Signals) -> None:
        struck: set[int] = set()
        while True:
            lines = "".join(self._driver.lines)
            if re.search(rf"trial +{number}  failed", lines):
                return
            starts = len(re.findall(rf"trial +{number}  running", lines))
            fresh = [worker for worker in self._ray.workers() if worker not in struck]
            if starts > len(struck) and fresh:
                os.kill(fresh[0], strike)
                struck.add(fresh[0])
            time.sleep(0.02)


def names(index: Path) -> list[str]:
    """The checkpoints that an index names, the furthest first."""
    found: list[str] = json.loads(index.read_text())
    return found


@pytest.fixture(scope="module", autouse=True)
def own_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No place comes from the environment, and the cache is this module's."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MEMTUNE_STORE", "MEMTUNE_STUDIES", "MEMTUNE_PROPOSALS", "MLFLOW_TRACKING_URI"):
            patch.delenv(name, raising=False)
        patch.setenv("MEMTUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    folder = tmp_path_factory.mktemp("faults")
    settings = Settings.read(folder / "home")
    import_corpus("tiny", dict.fromkeys(("train", "valid", "test"), SENTENCES * 20), settings.store)
    for name, space in SPACES.items():
        (folder / f"{name}.toml").write_text(space)
    study = folder / "faults.toml"
    study.write_text(STUDY)
    aftermath = Aftermath(study, settings, "", {})
    sockets = Path("/tmp") / folder.name
    with ray_instance(sockets, cores=2) as ray:
        home = {"MEMTUNE_HOME": str(settings.home)}
        with driving(study, environment=ray.environment | home) as driver:
            Fates(driver, ray, Path(prepared(study, settings).checkpoints), aftermath).deal()
            aftermath.output = driver.succeed()
    shutil.rmtree(sockets, ignore_errors=True)
    return aftermath


def alone(aftermath: Aftermath, outcome: Outcome) -> dict[int, float | None]:
    """The curve of a trial that nothing happens to."""
    corpus = open_corpus("tiny", aftermath.settings.store)
    torch.set_num_threads(1)
    learner = Learner(TrialConfig.model_validate(outcome.configuration), corpus)
    while not learner.finished:
        learner.advance()
    return {report.tokens: report.valid_loss for report in learner.curve}


def test_a_worker_killed_between_two_reports_loses_at_most_one_checkpoint_interval(
    aftermath: Aftermath, record_fault: RecordFault
) -> None:
    outcome = aftermath.of("killed once")
    assert outcome.state == "complete"
    assert outcome.curve == alone(aftermath, outcome), "the very bits of a trial that was left alone"
    reached, gone_on = (int(found[0].partition("-")[0]) for found in (aftermath.before, aftermath.after))
    assert 0 < reached < TOKENS // 2
    assert gone_on > reached, "it went on from the newest checkpoint"
    record_fault(
        "worker killed",
        1,
        0,
        f"killed between two reports, {reached:,} tokens into a trial with a checkpoint each "
        f"{CHECKPOINT_SECONDS} s: another worker went on from there, {aftermath.unsaved:.1f} s of "
        "training were lost, and the curve has the bits of a trial that was left alone",
    )


@pytest.mark.parametrize(
    ("fate", "reason"),
    [
        ("killed always", "failed 3 times, last because .*worker"),
        ("stopped always", f"failed 3 times, last because nothing was heard .* for {SILENCE_SECONDS:.0f} s"),
    ],
)
def test_a_trial_that_takes_its_worker_along_each_time_is_failed_after_three_tries(
    aftermath: Aftermath, record_fault: RecordFault, fate: str, reason: str
) -> None:
    outcome = aftermath.of(fate)
    assert outcome.state == "failed"
    assert re.search(reason, outcome.reason or "")
    starts = re.findall(rf"trial +{outcome.number}  running", aftermath.output)
    assert len(starts) == 3
    record_fault(
        "bad configuration",
        3,
        0,
        f'worker {fate} at its start: tried 3 times, then recorded as "{outcome.reason}"',
    )


def test_a_diverging_trial_is_failed_with_its_reason(aftermath: Aftermath, record_fault: RecordFault) -> None:
    (outcome,) = [
        each for each in aftermath.outcomes.values() if each.configuration["model"]["family"] == "rnn"
    ]
    assert outcome.state == "failed"
    assert (outcome.reason or "").startswith("diverged: ")
    record_fault("bad configuration", 1, 0, f'a learning rate of 1e39: recorded as "{outcome.reason}"')


def test_a_model_larger_than_the_machine_is_never_started(
    aftermath: Aftermath, record_fault: RecordFault
) -> None:
    ready = prepared(aftermath.study, aftermath.settings)
    known = Proposals(
        aftermath.settings.proposals,
        ready.id,
        ready.space,
        ready.study.sampler,
        ready.identify,
        ready.refuse,
        ready.count_parameters,
    )
    reasons = [each.reason or "" for each in known.rejected() if each.state == "refused"]
    assert reasons
    assert all(re.search("it would take .* MiB there are", reason) for reason in reasons)
    assert "recurrent_memory" not in aftermath.output
    record_fault("bad configuration", 1, 0, f"a model that {reasons[0]}: refused before it starts")


def test_a_worker_stopped_for_a_while_goes_on_where_it_was(
    aftermath: Aftermath, record_fault: RecordFault
) -> None:
    outcome = aftermath.of("paused")
    assert outcome.state == "complete"
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
    assert len(aftermath.outcomes) == 5
    assert "new champion models:/tiny@champion" in aftermath.output
    states = {row.trial: row.state for row in compare("tiny", settings=aftermath.settings).rows}
    assert states == {
        each.identity: "finished" if each.state == "complete" else "failed"
        for each in aftermath.outcomes.values()
    }
