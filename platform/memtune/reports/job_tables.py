"""A table of the jobs of a cluster."""

import time
from collections.abc import Iterable

from rich.table import Table

from memtune.ray_backend.jobs.job_server import Job


def make_job_table(jobs: Iterable[Job], now: float) -> Table:
    """One row per job: study, status, start in local time, duration until its end or `now` (Unix seconds)."""
    table = Table()
    for name in ("job", "study", "status", "started"):
        table.add_column(name)
    table.add_column("duration", justify="right")
    for job in jobs:
        started = (
            "" if job.started is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.started))
        )
        status = job.status.lower() + (f", exit code {job.exit_code}" if job.exit_code else "")
        study = job.study or job.entrypoint
        table.add_row(job.id, study, status, started, _format_duration(job.duration_seconds(now)))
    return table


def _format_duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m {rest:02d}s" if hours else f"{minutes}m {rest:02d}s"
