"""`memtune submit` and `memtune jobs ...`: studies run by a cluster, seen from here."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from memtune.cli.searching import GpusPerTrial, TimeBudget, Trials, study_overrides
from memtune.cli.terminal import AsJson, ReplaceChampion, escaped, out, warn

__all__ = ["app", "submit"]

app = typer.Typer(help="The jobs of a cluster: listed, followed, stopped, taken up again.")

Address = Annotated[
    str | None,
    typer.Option(help="The job server; default: RAY_API_SERVER_ADDRESS, or http://127.0.0.1:8265."),
]
Detach = Annotated[bool, typer.Option("--detach", help="Do not follow the job's log.")]
JobId = Annotated[str, typer.Argument(help="A job's id, as `memtune jobs` lists it.")]


def submit(
    study: Annotated[Path, typer.Argument(help="A study as TOML.")],
    address: Address = None,
    trials: Trials = None,
    gpus_per_trial: GpusPerTrial = None,
    time_budget: TimeBudget = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a study that has begun.")] = False,
    replace_champion: ReplaceChampion = False,
    detach: Detach = False,
) -> None:
    """Run a study on a cluster: check it here, send it, follow its log; exit code is the job's.

    The places named by MEMTUNE_STORE, MEMTUNE_STUDIES, MEMTUNE_PROPOSALS and MLFLOW_TRACKING_URI are handed
    on; passwords never are. Ctrl-C ends the following and leaves the job running.

    Example: memtune submit jobs/studies/demo.toml --address http://127.0.0.1:8265
    """
    from memtune.execution.jobs.submission import prepare_submission

    overrides = study_overrides(trials, time_budget, gpus_per_trial)
    ready = prepare_submission(study, overrides, resume=resume, replace_champion=replace_champion)
    _send(_server(address), ready, detach)


@app.callback(invoke_without_command=True)
def jobs(context: typer.Context, address: Address = None, json: AsJson = False) -> None:
    """The jobs of a cluster: listed, followed, stopped, taken up again; alone it lists them."""
    if context.invoked_subcommand is None:
        _list(address, json)


@app.command("list")
def jobs_list(address: Address = None, json: AsJson = False) -> None:
    """List the jobs of a cluster, newest first.

    Example: memtune jobs list --json
    """
    _list(address, json)


@app.command("logs")
def jobs_logs(
    job: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    address: Address = None,
) -> None:
    """Print what a job has printed; with --follow its exit code becomes the command's.

    Example: memtune jobs logs demo-3f9a1c --follow
    """
    server = _server(address)
    if follow:
        _follow(server, job)
    else:
        sys.stdout.write(server.log(job))


@app.command("stop")
def jobs_stop(job: JobId, address: Address = None) -> None:
    """Ask a job to end in order; its study can be taken up again.

    Example: memtune jobs stop demo-3f9a1c
    """
    asked = _server(address).stop(job)
    if asked:
        _tell(f"{job} is asked to end; go on with it later: memtune jobs resume {job}")
    else:
        _tell(f"{job} had ended before")


@app.command("resume")
def jobs_resume(
    job: JobId,
    trials: Trials = None,
    gpus_per_trial: GpusPerTrial = None,
    time_budget: TimeBudget = None,
    address: Address = None,
    detach: Detach = False,
) -> None:
    """Submit the study of an ended job again, to go on where it stopped, or with more trials or time.

    Example: memtune jobs resume demo-3f9a1c --trials 16
    """
    from memtune.execution.jobs.submission import resumption

    server = _server(address)
    overrides = study_overrides(trials, time_budget, gpus_per_trial)
    _send(server, resumption(server.job(job), overrides), detach)


def _server(address: str | None) -> Any:
    from memtune.execution.jobs.server import JobServer, server_address

    return JobServer(server_address(address))


def _send(server: Any, submission: Any, detach: bool) -> None:
    from memtune.execution.jobs.submission import submit as send

    for note in submission.notes:
        _tell(f"note: {note}")
    job = send(server, submission)
    _tell(f"submitted {job} to {server.address}")
    if detach:
        _tell(f"follow it with: memtune jobs logs {job} --follow")
    else:
        _follow(server, job)


def _follow(server: Any, job: str) -> None:
    """Print a job's log as it comes, and end as the job ends."""

    def write(piece: str) -> None:
        sys.stdout.write(piece)
        sys.stdout.flush()

    try:
        ended = server.follow(job, write)
    except KeyboardInterrupt:
        warn(f"{job} goes on; follow it: memtune jobs logs {job} --follow; end it: memtune jobs stop {job}")
        raise typer.Exit(1) from None
    if ended.status == "SUCCEEDED":
        return
    code = ended.exit_code
    why = f"exit code {code}" if code else (ended.message or "no exit code")
    warn(f"{job} {ended.status.lower()}: {why}; go on with its study: memtune jobs resume {job}")
    raise typer.Exit(code or 1)


def _list(address: str | None, json: bool) -> None:
    from memtune.reports.jobs import job_table

    found = _server(address).jobs()
    if json:
        out.print_json(
            data=[job.model_dump(mode="json", exclude={"metadata", "environment"}) for job in found]
        )
    elif found:
        out.print(job_table(found, time.time()))
    else:
        _tell("no jobs yet; submit a study: memtune submit jobs/studies/demo.toml")


def _tell(message: str) -> None:
    out.print(escaped(message), soft_wrap=True, highlight=False)
