"""What a worker reports to a director, in tests that have no worker."""

from collections.abc import Sequence

from memtune.studies.director import Director
from memtune.studies.trial_worker import WorkerReport
from memtune.training import Report
from memtune.usage import Usage


def report_curve(
    director: Director,
    number: int,
    curve: Sequence[Report],
    error: str | None = None,
    remarks: Sequence[str] = (),
    usage: Usage | None = None,
) -> bool:
    """Report a trial's curve so far; return whether the trial should continue."""
    report = WorkerReport(reports=tuple(curve), error=error, remarks=tuple(remarks), usage=usage)
    return director.on_worker_report(number, report)
