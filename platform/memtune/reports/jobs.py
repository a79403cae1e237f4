"""The jobs of a cluster as a table."""

import time
from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

from memtune.execution.jobs.server import Job

__all__ = ["job_table"]


def job_table(jobs: Iterable[Job], now: float) -> Table:
    """One row a job: its study, its state, when it started (local time) and how long it has run by `now`."""
    table = Table()
    for name in ("job", "study", "status", "started"):
        table.add_column(name)
    table.add_column("ran for", justify="right")
    for job in jobs:
        started = (
            "" if job.started is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.started))
        )
        status = job.status.lower() + (f", exit code {job.exit_code}" if job.exit_code else "")
        study = job.study or escape(job.entrypoint)
        table.add_row(job.id, study, status, started, _duration(job.seconds(now)))
    return table


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m {rest:02d}s" if hours else f"{minutes}m {rest:02d}s"
