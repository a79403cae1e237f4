"""clusters/slurm.sh on two hosts: a study on both, its stop and resumption, its token, and a login node."""

import re
import stat
from collections.abc import Iterator

import pytest

from memtune.corpora import import_corpus
from memtune.trial_state import TrialState
from tests.cluster.drivers import Driver, read_files, read_outcomes
from tests.cluster.poll import poll_until
from tests.cluster.slurm_allocation import SSH, Allocation, boot_allocation
from tests.conftest import SENTENCES

pytestmark = [pytest.mark.cluster, pytest.mark.long]

STUDY = """question = "Does a second layer help?"

corpus = "tiny"
spaces = ["lstm"]

[model]
width = 8
dropout = 0.0

[training]
tokens = 900_000_000
report_every = 10_000

[early_stopping]
kind = "none"

[budget]
trials = 2
"""
MAX_REPORT_TOKENS = 10_200
"""Tokens between two reports, with the rest of a batch."""
TRIAL = "ray::ResourceTrainable"


@pytest.fixture(scope="module")
def allocation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Allocation]:
    with boot_allocation(tmp_path_factory.mktemp("slurm")) as allocation:
        import_corpus(
            "tiny",
            dict.fromkeys(("train", "valid", "test"), SENTENCES * 20),
            allocation.settings.corpus_store,
        )
        (allocation.home / "layers.toml").write_text(STUDY)
        yield allocation


@pytest.fixture(scope="module")
def running(allocation: Allocation) -> Iterator[Driver]:
    """The batch script, once a trial runs on each host and has reported."""
    with allocation.run_batch("layers.toml") as batch:
        for number in (0, 1):
            batch.wait_for_line(rf"trial +{number} .* tokens")
        yield batch


def test_trials_run_on_every_node_of_the_allocation(allocation: Allocation, running: Driver) -> None:
    def find_trials() -> list[list[int]]:
        """The processes of trials by host; nothing while a host has none, as between two of its trials."""
        found = [host.find_processes(TRIAL) for host in allocation.hosts]
        return found if all(found) else []

    processes = [set(found) for found in poll_until(find_trials, "a trial on each host")]
    assert len(processes) == len(allocation.hosts)
    assert len(set.union(*processes)) == sum(map(len, processes)), "two hosts share a trial"


def test_only_its_owner_can_read_the_token_and_no_command_line_or_log_has_it(
    allocation: Allocation, running: Driver
) -> None:
    file = allocation.home / ".ray" / "auth_token"
    token = file.read_text()
    assert len(token) == 64
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not any(host.find_processes(token) for host in allocation.hosts)
    logs = {path: text for host in allocation.hosts for path, text in read_files(host.tmp).items()}
    assert logs
    assert not [path for path, text in logs.items() if token.encode() in text]
    assert not [line for line in [*running.lines, *running.errors] if token in line]


def test_a_worker_without_the_token_is_refused(allocation: Allocation, running: Driver) -> None:
    assert "InvalidAuthToken" in allocation.join_without_token()


def test_a_study_that_sigterm_stopped_continues_from_its_checkpoints(
    allocation: Allocation, running: Driver
) -> None:
    allocation.terminate()
    code, out, _ = running.wait_for_exit()
    assert code == 1
    assert "to continue it, run sbatch with the same words and --resume" in out
    stopped = read_tokens(allocation)
    assert [*stopped] == [0, 1]
    # Slurm would kill what is left of a step; an agent of Ray notices within seconds that its node has ended.
    poll_until(lambda: not any(host.find_processes("ray") for host in allocation.hosts), "the end of Ray")
    assert not [path for host in allocation.hosts for path in host.tmp.glob("memtune-??????")]
    with allocation.run_batch("layers.toml", "--resume", nodes=1) as batch:
        first, _ = (batch.wait_for_line(r"trial +0 .* tokens", times) for times in (1, 2))
        assert stopped[0] <= parse_tokens(first) <= stopped[0] + MAX_REPORT_TOKENS
        allocation.terminate()
        batch.wait_for_exit()
    assert read_tokens(allocation)[0] > stopped[0]


def test_a_login_node_submits_to_an_allocation_without_a_study(allocation: Allocation) -> None:
    short = (
        STUDY.replace("900_000_000", "2_000").replace("10_000", "1_000").replace("trials = 2", "trials = 1")
    )
    (allocation.home / "short.toml").write_text(short)
    with allocation.run_batch(nodes=1) as batch:
        command = batch.wait_for_line(r"^ +ssh -N -L 8265:").strip()
        # -f returns once the port is forwarded.
        connect = command.replace("ssh", f"{SSH} -f -o ExitOnForwardFailure=yes", 1)
        connected = allocation.run_on_login_node(f"{connect} > /dev/null 2>&1")
        assert connected.returncode == 0
        submitted = allocation.run_on_login_node("memtune submit short.toml")
        assert submitted.returncode == 0, submitted.stderr
        assert "1 of 1 trial ended" in submitted.stdout
        listed = allocation.run_on_login_node("memtune jobs").stdout
        assert re.search(r"short-\w+ .* succeeded", listed)
        allocation.terminate()
        batch.wait_for_exit()
    (outcome,) = read_outcomes(allocation.home / "short.toml", allocation.settings)
    assert outcome.state is TrialState.COMPLETE


def parse_tokens(line: str) -> int:
    """The tokens that a line of the log says a trial has trained on."""
    found = re.search(r"([\d,]+) tokens", line)
    assert found is not None
    return int(found[1].replace(",", ""))


def read_tokens(allocation: Allocation) -> dict[int, int]:
    """The tokens of each open trial, by its number."""
    outcomes = read_outcomes(allocation.home / "layers.toml", allocation.settings)
    return {each.number: max(each.curve) for each in outcomes if each.state is TrialState.RUNNING}
