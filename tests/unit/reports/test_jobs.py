"""The jobs of a cluster as a table."""

from rich.console import Console

from memtune.execution.jobs.server import Job
from memtune.reports.jobs import job_table


def job(**known: object) -> Job:
    unknown: dict[str, object] = {
        "id": "demo-1",
        "study": None,
        "status": "RUNNING",
        "started": 1_000.0,
        "ended": None,
        "entrypoint": "echo [x]",
        "message": "",
        "exit_code": None,
        "metadata": {},
        "environment": {},
    }
    return Job.model_validate({**unknown, **known})


def shown(*jobs: Job) -> str:
    console = Console(width=120, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(job_table(jobs, now=1_000.0 + 3_725.0))
    return captured.get()


def test_a_job_that_runs_is_shown_with_the_time_since_its_start() -> None:
    assert "1h 02m 05s" in shown(job(study="demo"))


def test_a_job_that_failed_is_shown_with_its_exit_code_and_its_own_time() -> None:
    text = shown(job(study="demo", status="FAILED", exit_code=3, ended=1_090.0))
    assert "failed, exit code 3" in text
    assert "1m 30s" in text


def test_a_job_that_is_no_study_is_shown_by_its_command() -> None:
    assert "echo [x]" in shown(job())
