"""The table of the jobs of a cluster."""

from memtune.cli.cluster_commands import make_job_table
from memtune.ray_backend.jobs.job_server import Job
from memtune.reports.text_console import TextConsole


def make_job(**changes: object) -> Job:
    fields: dict[str, object] = {
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
    return Job.model_validate({**fields, **changes})


def render(*jobs: Job) -> str:
    console = TextConsole(width=120, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(make_job_table(jobs, now=1_000.0 + 3_725.0))
    return captured.get()


def test_a_running_job_has_the_time_since_its_start() -> None:
    assert "1h 02m" in render(make_job(study="demo"))


def test_a_failed_job_has_its_exit_code_and_duration() -> None:
    text = render(make_job(study="demo", status="FAILED", exit_code=3, ended=1_090.0))
    assert "failed, exit code 3" in text
    assert "1m 30s" in text


def test_a_job_without_a_study_has_its_command() -> None:
    assert "echo [x]" in render(make_job())


def test_a_study_and_a_command_are_shown_literally() -> None:
    """Whoever submits a job chooses both."""
    for job in (make_job(study="\x1b[31m[/b]"), make_job(entrypoint="\x1b[31m[/b]")):
        assert r"\x1b[31m[/b]" in render(job)
