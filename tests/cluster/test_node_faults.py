"""Hosts lost during a study: a disconnected worker, a killed head."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from memtune.corpora import import_corpus
from memtune.results.comparison import compare
from memtune.trial_state import TrialState
from tests.cluster.drivers import Driver, load_resolved_study, read_outcomes
from tests.cluster.fault_table import RecordFault
from tests.cluster.hosts import Host
from tests.cluster.on_premises_cluster import (
    CLUSTER_FILE,
    TIMEOUT_SECONDS,
    TRIAL_PROCESS_TITLE,
    OnPremisesCluster,
)
from tests.cluster.poll import poll_until

pytestmark = [pytest.mark.cluster, pytest.mark.long]

SENTENCES = [["the", "dog", "sees", "a", "cat"], ["a", "cat", "sleeps"], ["the", "cat", "eats"]] * 200
INTERVAL = 5_000
"""Tokens between two reports, and so between two checkpoints."""
STUDY = f"""question = "Which learning rate?"

corpus = "small"
spaces = ["rate.toml"]

[training]
tokens = {6 * INTERVAL}
report_every = {INTERVAL}

[resources]
cpus_per_trial = 2

[early_stopping]
kind = "none"

[budget]
trials = 100
"""
SPACE = """[model]
family = "lstm"
width = 16

[training.optimiser]
kind = "sgd"
learning_rate = { float = [0.1, 1.0], log = true }
"""


class ClusterStudy:
    """A study that runs on the cluster for longer than any test; one trial fills a host."""

    def __init__(self, cluster: OnPremisesCluster) -> None:
        """Submit the study, and follow its log."""
        self.cluster = cluster
        self.name = "jobs/studies/rates.toml"
        self.file = cluster.project / self.name
        self.file.write_text(STUDY)
        (self.file.parent / "rate.toml").write_text(SPACE)
        import_corpus(
            "small", dict.fromkeys(("train", "valid", "test"), SENTENCES), cluster.settings.corpus_store
        )
        self.checkpoints = CheckpointLog(
            Path(load_resolved_study(self.file, cluster.settings).checkpoint_root)
        )
        self._open = ExitStack()
        self._open.callback(self.checkpoints.close)
        address = self._open.enter_context(cluster.forward_dashboard())
        self.job: Driver = self._open.enter_context(cluster.submit(address, self.name))

    def close(self) -> None:
        """Stop following the log; the job may continue."""
        self._open.close()

    def find_trials(self, state: str, since: int = 0) -> set[int]:
        """The trials that the log reported in this state, after line number `since`."""
        line = re.compile(rf"trial +(\d+)  {state}\b")
        return {int(found[1]) for text in self.job.lines[since:] if (found := line.match(text))}

    def read_tokens(self, trial: int) -> int:
        """The tokens that the log last reported for a trial."""
        line = re.compile(rf"trial +{trial}  .*  ([\d,]+) tokens")
        reported = [found[1] for text in self.job.lines if (found := line.match(text))]
        return max((int(tokens.replace(",", "")) for tokens in reported), default=0)

    def is_training_on(self, *hosts: Host) -> bool:
        """Whether each host has a trial, and two running trials have reported."""
        assert self.job.process.poll() is None, self.job.lines + self.job.errors
        return (
            all(host.find_processes(TRIAL_PROCESS_TITLE) for host in hosts) and len(self.checkpoints.seen) > 1
        )


class CheckpointLog:
    """Every checkpoint of a study's trials."""

    def __init__(self, folder: Path) -> None:
        """Watch the indices of trials below `folder` in a thread."""
        self.seen: dict[str, dict[str, int]] = {}
        """Tokens of each checkpoint by the trial's identity and the checkpoint's name."""
        self._folder, self._ended = folder, Event()
        self._thread = Thread(target=self._watch)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def find_newest(self) -> dict[str, int]:
        """The tokens of the newest checkpoint of each trial."""
        return {identity: max([*found.values()]) for identity, found in [*self.seen.items()]}

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            for index in self._folder.glob("*/latest.json"):
                with suppress(OSError, ValueError):
                    self._record(index.parent.name, json.loads(index.read_text()))

    def _record(self, identity: str, names: list[str]) -> None:
        for name in names:
            self.seen.setdefault(identity, {})[name] = int(name.partition("-")[0])

    def list_new(self, known: Mapping[str, Collection[str]]) -> dict[str, list[int]]:
        """The tokens of the checkpoints that are not `known`, by the trial's identity."""
        return {
            identity: [tokens for name, tokens in [*found.items()] if name not in known.get(identity, ())]
            for identity, found in [*self.seen.items()]
        }


@pytest.fixture(scope="module")
def cluster_study(idle_cluster: OnPremisesCluster) -> Iterator[ClusterStudy]:
    idle_cluster.up()
    search = ClusterStudy(idle_cluster)
    yield search
    search.close()


def test_trials_of_a_disconnected_host_resume_elsewhere_and_the_host_is_used_again(
    cluster_study: ClusterStudy, record_fault: RecordFault
) -> None:
    head, worker = cluster_study.cluster.head, cluster_study.cluster.workers[0]
    poll_until(lambda: cluster_study.is_training_on(head, worker), "a trial on each host", TIMEOUT_SECONDS)
    lines, before = len(cluster_study.job.lines), cluster_study.checkpoints.find_newest()
    known = {identity: {*found} for identity, found in [*cluster_study.checkpoints.seen.items()]}
    processes = worker.find_processes(TRIAL_PROCESS_TITLE)
    worker.disconnect()
    lost = poll_until(
        lambda: cluster_study.find_trials("waiting", lines), "the notice of the lost host", TIMEOUT_SECONDS
    )
    tokens_before = {trial: cluster_study.read_tokens(trial) for trial in lost}
    poll_until(
        lambda: all(cluster_study.read_tokens(trial) > tokens for trial, tokens in tokens_before.items()),
        f"progress of the trials {lost} on the other host",
        TIMEOUT_SECONDS,
    )
    worker.reconnect()
    poll_until(
        lambda: set(worker.find_processes(TRIAL_PROCESS_TITLE)) - set(processes),
        "a trial on the reconnected host",
        TIMEOUT_SECONDS,
    )

    later = cluster_study.checkpoints.list_new(known)
    assert any(later.values())
    for identity, tokens in later.items():
        assert all(each > before.get(identity, 0) for each in tokens), (
            "tokens before the last checkpoint were trained again"
        )
    note = (
        "a worker disconnected while both hosts trained: the other host continued its trial from the newest "
    )
    record_fault("node lost", 1, 0, note + "checkpoint, and the reconnected worker received the next trial")


def test_a_study_resumes_after_the_head_loses_power_and_is_launched_again(
    cluster_study: ClusterStudy, record_fault: RecordFault
) -> None:
    cluster, checkpoints = cluster_study.cluster, cluster_study.checkpoints
    poll_until(
        lambda: cluster_study.is_training_on(cluster.head, cluster.workers[0]),
        "a trial on each host",
        TIMEOUT_SECONDS,
    )
    cluster.head.kill()
    before, newest = read_outcomes(cluster_study.file, cluster.settings), checkpoints.find_newest()
    known = {identity: {*found} for identity, found in checkpoints.seen.items()}
    cluster.head.start()
    cluster.run("ray", "up", "--yes", CLUSTER_FILE)
    cluster.run("memtune", "cluster", "up", CLUSTER_FILE, "--yes")
    more = str(len(before) + 1)
    with (
        cluster.forward_dashboard() as address,
        cluster.submit(address, cluster_study.name, "--resume", "--trials", more) as job,
    ):
        job.wait_for_success(TIMEOUT_SECONDS)
    after = read_outcomes(cluster_study.file, cluster.settings)
    assert [outcome.identity for outcome in after[:-1]] == [outcome.identity for outcome in before]
    assert len({outcome.identity for outcome in after}) == len(after)
    assert {outcome.state for outcome in after} == {TrialState.COMPLETE}
    rows = compare("small", settings=cluster.settings).rows
    assert sorted(row.trial for row in rows) == sorted(outcome.identity for outcome in after)
    assert {(row.state, row.tokens) for row in rows} == {(TrialState.COMPLETE, max(after[0].curve))}
    open_trials = [outcome.identity for outcome in before if outcome.state is TrialState.RUNNING]
    assert len(open_trials) == 2
    later = checkpoints.list_new(known)
    for identity in known:
        if identity in open_trials:
            assert all(each > newest[identity] for each in later[identity]), (
                "tokens before the newest checkpoint were trained again"
            )
        else:
            assert later[identity] == [], "an ended trial was trained again"
    note = "the head killed while both hosts trained, the cluster launched again, the study resumed: "
    record_fault(
        "head lost", 1, 0, f"{note}its {len(open_trials)} open trials continued from their newest checkpoints"
    )
