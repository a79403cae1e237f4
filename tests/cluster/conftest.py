"""What the tests with real processes share: the record of what they struck, and a cluster on two hosts."""

from collections.abc import Iterator

import pytest

from tests.cluster.fault_table import Observation, RecordFault, append
from tests.cluster.hosts import Hosts, missing
from tests.cluster.premises import Premises


@pytest.fixture
def record_fault(request: pytest.FixtureRequest) -> RecordFault:
    """Called as `record_fault(row, kills, lost, note)` by a test that has seen the outcome hold.

    `row` is a name of `fault_table.FAULTS`, `kills` how often it struck, `lost` how many trials, reports or
    metrics were missing or double in the end, `note` what was done and seen, in a sentence.
    """

    def record(row: str, kills: int, lost: int, note: str) -> None:
        append(Observation(row, request.node.name, kills, lost, note))

    return record


@pytest.fixture(scope="session")
def premises(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Premises]:
    """Two hosts, and a project that describes them as a cluster; nothing runs on them."""
    if lacking := missing():
        pytest.skip(f"no hosts on this machine without {', '.join(lacking)}")
    folder = tmp_path_factory.mktemp("premises")
    for name in ("hosts", "client"):
        (folder / name).mkdir()
    with Hosts(folder / "hosts", 2) as hosts:
        yield Premises(hosts, folder / "client")


@pytest.fixture
def cluster(premises: Premises) -> Premises:
    """The cluster on those hosts, up with every node."""
    premises.up()
    return premises
