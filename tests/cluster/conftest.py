"""What the tests that strike at real processes share."""

import pytest

from tests.cluster.fault_table import Observation, RecordFault, append


@pytest.fixture
def record_fault(request: pytest.FixtureRequest) -> RecordFault:
    """Called as `record_fault(row, kills, lost, note)` by a test that has seen the outcome hold.

    `row` is a name of `fault_table.FAULTS`, `kills` how often it struck, `lost` how many trials, reports or
    metrics were missing or double in the end, `note` what was done and seen, in a sentence.
    """

    def record(row: str, kills: int, lost: int, note: str) -> None:
        append(Observation(row, request.node.name, kills, lost, note))

    return record
