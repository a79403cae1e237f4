"""A study's proposals in a real PostgreSQL that stops, restarts, hangs and loses responses."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memtune.errors import StorageError, StudyError
from memtune.search import Lease, Proposals, StorageUnavailableError, StoredTrial
from memtune.search.database import outage_buffer, study_database
from memtune.search.proposals import Candidates
from memtune.search.samplers import TpeConfig
from memtune.spaces import read_space
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.values import digest
from tests.cluster.fault_table import RecordFault
from tests.cluster.poll import poll_until
from tests.cluster.proxy import FaultyProxy
from tests.cluster.servers import Postgres

pytestmark = pytest.mark.cluster

BEHIND = TrialEnd(reason=StopReason.EARLY_STOPPING, detail="behind the other trials")

SPACE = """
[model]
memory_size = { int = [1, 9] }
composition = { choice = ["gate", "sum"] }
"""
TRIALS = 7
LONG_TIMEOUT_SECONDS = 600.0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage_buffer, "FIRST_RETRY_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(outage_buffer, "MAX_RETRY_PAUSE_SECONDS", 0.1)


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[FaultyProxy]:
    """A proxy of PostgreSQL that can drop answers."""
    with FaultyProxy(postgres.port).serve() as running:
        yield running


@pytest.fixture
def open_study(postgres: Postgres, user_home: Path) -> Callable[..., Proposals]:
    """Opens a study by name, at PostgreSQL's port or another one."""
    (user_home / ".pgpass").write_text(
        (user_home / ".pgpass").read_text().replace(f":{postgres.port}:", ":*:")
    )

    def open_named(name: str, port: int | None = None) -> Proposals:
        url = postgres.url.replace(str(postgres.port), str(port or postgres.port))
        sampler = TpeConfig(startup_trials=4)
        space = read_space(SPACE, "space.toml")
        candidates = Candidates(space, sampler, lambda c: digest(c)[:16], refuse)
        return Proposals(url, name, candidates)

    return open_named


def refuse(configuration: dict[str, Any]) -> str | None:
    return "too large" if configuration["model"]["memory_size"] == 9 else None


def run_trials(proposals: Proposals) -> None:
    """Run one trial after another, like a driver with a single worker."""
    while len(proposals.list_outcomes()) < TRIALS:
        proposal = ask_until_answered(proposals)
        if proposal is None:
            return
        for tokens in (10, 20, 30):
            proposals.report(proposal.number, tokens, compute_cost(proposal, tokens))
        if proposal.configuration["model"]["composition"] == "gate":
            proposals.complete(proposal.number, compute_cost(proposal, 30))
        else:
            proposals.stop(proposal.number, BEHIND, 40, compute_cost(proposal, 40))


def compute_cost(proposal: StoredTrial, tokens: int) -> float:
    return abs(proposal.configuration["model"]["memory_size"] - 4) + 1 / tokens


def ask_until_answered(proposals: Proposals) -> StoredTrial | None:
    """Repeat the ask until the storage answers."""
    found: list[StoredTrial | None] = []

    def try_ask() -> bool:
        try:
            found.append(proposals.ask())
        except StorageUnavailableError:
            return False
        return True

    poll_until(try_ask, "a proposal")
    return found[0]


def list_results(proposals: Proposals) -> list[StoredTrial]:
    """The outcomes without their numbers, of which a lost answer may skip some."""
    return [replace(found, number=0) for found in proposals.list_outcomes()]


@pytest.mark.parametrize("seed", [0, 1])
def test_lost_answers_neither_lose_nor_duplicate_a_trial(
    seed: int, open_study: Callable[..., Proposals], proxy: FaultyProxy, record_fault: RecordFault
) -> None:
    interrupted = open_study(f"lost {seed}", proxy.port)
    proxy.drop_responses(seed, min_responses=60, max_responses=140)
    run_trials(interrupted)
    assert proxy.fault_count > 3
    run_trials(open_study(f"whole {seed}"))
    assert list_results(interrupted) == list_results(open_study(f"whole {seed}"))
    assert open_study(f"lost {seed}").list_unfinished() == []
    record_fault(
        "server stopped",
        proxy.fault_count,
        0,
        "connections to PostgreSQL closed after it had carried out a request",
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["orderly", "at once"])
def test_reports_during_an_outage_of_postgresql_are_stored_after_it(
    how: signal.Signals, open_study: Callable[..., Proposals], postgres: Postgres, record_fault: RecordFault
) -> None:
    proposals = open_study(f"down {how}")
    first, second = ask_until_answered(proposals), ask_until_answered(proposals)
    assert first is not None
    assert second is not None
    proposals.report(first.number, 10, 5.0)
    postgres.stop(how)
    proposals.report(first.number, 20, 4.0)
    proposals.complete(first.number, 4.0)
    proposals.stop(second.number, BEHIND, 10, 9.0)
    with pytest.raises(StorageUnavailableError, match="has not answered"):
        proposals.ask()
    postgres.start()
    assert ask_until_answered(proposals) is not None
    found = {outcome.number: outcome for outcome in open_study(f"down {how}").list_outcomes()}
    assert (found[first.number].state, found[first.number].curve) == (TrialState.COMPLETE, {10: 5.0, 20: 4.0})
    assert (found[second.number].state, found[second.number].end) == (TrialState.STOPPED, BEHIND)
    assert len(found) == 3
    record_fault("server stopped", 1, 0, f"PostgreSQL stopped by {how.name} while trials reported and ended")


REFUSALS = {
    "read-only": (
        "ALTER ROLE memtune SET default_transaction_read_only = on",
        "ALTER ROLE memtune RESET default_transaction_read_only",
    ),
    "no permission": ("REVOKE UPDATE ON trials FROM memtune", "GRANT UPDATE ON trials TO memtune"),
}
DISCONNECT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'memtune' AND pid <> pg_backend_pid()
"""


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_postgresql_that_refuses_writes_is_unavailable_until_it_takes_them(
    kind: str, open_study: Callable[..., Proposals], postgres: Postgres
) -> None:
    """As a replica does during a failover."""
    refuse_writes, permit_writes = REFUSALS[kind]
    proposals = open_study(kind)
    first = ask_until_answered(proposals)
    assert first is not None
    with psycopg.connect(postgres.url, autocommit=True) as owner:
        try:
            owner.execute(refuse_writes)
            owner.execute(DISCONNECT)
            proposals.complete(first.number, 4.0)
            with pytest.raises(StorageUnavailableError, match=r"read-only transaction|permission denied"):
                proposals.ask()
        finally:
            owner.execute(permit_writes)
            owner.execute(DISCONNECT)
    assert ask_until_answered(proposals) is not None
    (found, _) = open_study(kind).list_outcomes()
    assert (found.state, found.value) == (TrialState.COMPLETE, 4.0)


@pytest.fixture
def short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections with a short timeout for answers."""
    monkeypatch.setattr(study_database, "ANSWER_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setitem(study_database.CONNECTION_OPTIONS, "connect_timeout", 2)  # the minimum of libpq


@pytest.mark.usefixtures("short_answers")
def test_a_hanging_postgresql_is_unavailable_until_it_answers(
    open_study: Callable[..., Proposals], postgres: Postgres, record_fault: RecordFault
) -> None:
    proposals = open_study("hangs")
    first, second = ask_until_answered(proposals), ask_until_answered(proposals)
    assert first is not None
    assert second is not None
    proposals.report(first.number, 10, 5.0)
    began = time.monotonic()
    with postgres.suspend(max_seconds=20):
        proposals.report(first.number, 20, 4.0)
        proposals.complete(first.number, 4.0)
        proposals.stop(second.number, BEHIND, 10, 9.0)
        with pytest.raises(StorageUnavailableError, match="has not answered"):
            proposals.ask()
    assert time.monotonic() - began < 6, "four calls of at most 1.5 s"
    assert ask_until_answered(proposals) is not None
    found = {outcome.number: outcome for outcome in open_study("hangs").list_outcomes()}
    assert (found[first.number].state, found[first.number].curve) == (TrialState.COMPLETE, {10: 5.0, 20: 4.0})
    assert (found[second.number].state, found[second.number].end) == (TrialState.STOPPED, BEHIND)
    assert len(found) == 3
    record_fault("server hangs", 1, 0, "every process of PostgreSQL stopped (SIGSTOP) while trials reported")


@pytest.mark.usefixtures("short_answers", "open_study")
def test_a_lease_outlasts_a_hanging_postgresql(postgres: Postgres, record_fault: RecordFault) -> None:
    """The holder sends no heartbeat for longer than the timeout, and no other driver can read its counter."""
    heartbeat, timeout = 0.1, 1.0
    with (
        ExitStack() as second_hang,
        Lease(postgres.url, "hangs", heartbeat_seconds=heartbeat, timeout_seconds=timeout) as holder,
    ):
        with postgres.suspend(max_seconds=20):
            with pytest.raises(StorageError, match="connection timeout expired"):
                Lease(postgres.url, "hangs", heartbeat_seconds=heartbeat, timeout_seconds=timeout)
            time.sleep(timeout)  # the hang itself
        holder.check()
        another = Lease(
            postgres.url, "hangs", heartbeat_seconds=heartbeat, timeout_seconds=LONG_TIMEOUT_SECONDS
        )
        with pytest.raises(StudyError, match="is run by process"), another:
            pass
        second_hang.enter_context(postgres.suspend(max_seconds=20))
    with Lease(postgres.url, "hangs", heartbeat_seconds=heartbeat, timeout_seconds=timeout) as successor:
        successor.check()
    record_fault(
        "server hangs",
        2,
        0,
        "PostgreSQL hung for longer than the timeout of the lease: the driver kept its study, another driver "
        "was refused, and a driver that ended during the hang left the lease free",
    )


def test_a_postgresql_that_stays_unavailable_is_an_error_with_the_command_that_resumes(
    open_study: Callable[..., Proposals], postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage_buffer, "OUTAGE_LIMIT_SECONDS", 0.3)
    proposals = open_study("unavailable")
    postgres.stop()
    with pytest.raises(
        StorageUnavailableError, match=r"memtune@127\.0\.0\.1:\d+/optuna has not answered.*--resume"
    ):
        proposals.list_outcomes()


def test_a_wrong_password_is_refused_without_repeating_it(
    open_study: Callable[..., Proposals], user_home: Path
) -> None:
    path = user_home / ".pgpass"
    path.write_text(path.read_text().rpartition(":")[0] + ":not-the-password\n")
    with pytest.raises(StorageError, match="password authentication failed") as refused:
        open_study("wrong password")
    assert "not-the-password" not in str(refused.value)


def test_no_password_is_refused(open_study: Callable[..., Proposals], user_home: Path) -> None:
    (user_home / ".pgpass").unlink()
    with pytest.raises(StorageError, match="no password supplied"):
        open_study("no password")
