"""`memtune cluster ...`, `submit` and `jobs ...`: the cluster that a file describes, and its jobs."""

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from memtune.cli.search_commands import BudgetOptions, NoCache, StudyFile
from memtune.cli.terminal import AsJson, ClusterPath, Yes, err, out, warn
from memtune.number_format import format_count, format_duration
from memtune.reports.text_console import make_table

if TYPE_CHECKING:
    from memtune.ray_backend.jobs.job_server import Job, JobServer
    from memtune.ray_backend.jobs.job_submission import Submission


cluster_app = typer.Typer(
    help="Check, launch, query and stop a cluster that a file describes.", no_args_is_help=True
)


@cluster_app.command("check")
def cluster_check(file: ClusterPath, json: AsJson = False) -> None:
    """List the faults of a cluster file and their fixes; nothing is launched. Exit code 1 for faults.

    Example: memtune cluster check cluster.yaml
    """
    # Imported here, as in every command: Ray and torch load for seconds, which help need not wait for.
    from memtune.ray_backend.clusters import check_cluster, format_findings, load_cluster

    findings = check_cluster(load_cluster(file))
    faults = [finding for finding in findings if finding.kind == "fault"]
    edits = [finding for finding in findings if finding.kind == "edit"]
    if json:
        out.print_json(data=findings)
    elif faults:
        err.print_line(format_findings(faults))
    else:
        out.print_line(f"{file}: no faults")
    if edits and not json:
        out.print_line(f"edit these values before a launch:\n{format_findings(edits)}")
    if faults:
        raise typer.Exit(1)


@cluster_app.command("up")
def cluster_up(
    file: ClusterPath,
    yes: Yes = False,
    wait: Annotated[int, typer.Option(min=0, help="Seconds to wait for the minimum number of nodes.")] = 900,
) -> None:
    """Check the file, create the token, launch with `ray up`, and wait until the nodes have joined.

    Example: memtune cluster up cluster.yaml --yes
    """
    from memtune.ray_backend.clusters import launch_cluster

    status = launch_cluster(file, yes=yes, timeout_seconds=wait, on_progress=out.print_line)
    nodes = format_count(status.node_count, "node")
    out.print(f"the cluster is up with {nodes}; to submit studies, keep this command running:")
    out.print_line(f"    memtune cluster dashboard {file}")


@cluster_app.command("status")
def cluster_status(file: ClusterPath, json: AsJson = False) -> None:
    """Print the nodes and resources of a cluster, and the minimum number of nodes that its file asks for.

    Example: memtune cluster status cluster.yaml
    """
    from memtune.ray_backend.clusters import load_cluster, query_status

    status = query_status(load_cluster(file))
    if json:
        out.print_json(status.model_dump_json(exclude={"report"}))
        return
    out.print_line(status.report)
    out.print(f"{format_count(status.node_count, 'node')}; minimum {status.min_nodes}")


@cluster_app.command("dashboard")
def cluster_dashboard(
    file: ClusterPath,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 8265,
) -> None:
    """Forward the head's job server and dashboard to this machine, until Ctrl-C.

    Unlike `ray dashboard`, it verifies the head's host key, so that no other host receives the token.

    Example: memtune cluster dashboard cluster.yaml
    """
    from memtune.ray_backend.clusters import forward_dashboard

    forward_dashboard(file, port)


@cluster_app.command("down")
def cluster_down(file: ClusterPath, yes: Yes = False) -> None:
    """Stop every node of a cluster.

    Example: memtune cluster down cluster.yaml
    """
    from memtune.ray_backend.clusters import stop_cluster

    stop_cluster(file, yes=yes)


jobs_app = typer.Typer(help="List, follow, stop and resume the jobs of a cluster.")

Address = Annotated[
    str | None,
    typer.Option(help="URL of the job server; default: RAY_API_SERVER_ADDRESS, or http://127.0.0.1:8265."),
]
Detach = Annotated[bool, typer.Option("--detach", help="Do not follow the job's log.")]
JobId = Annotated[str, typer.Argument(help="The id of a job, listed by `memtune jobs`.")]


def submit(
    study: StudyFile,
    budget: BudgetOptions,
    address: Address = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume a study that was started before.")] = False,
    no_cache: NoCache = False,
    detach: Detach = False,
) -> None:
    """Check a study, submit it to a cluster and follow its log; the exit code is the job's.

    The job receives MEMTUNE_STORE, MEMTUNE_STUDIES, MEMTUNE_PROPOSALS and MLFLOW_TRACKING_URI, and never a
    password. Ctrl-C stops following; the job continues.

    Example: memtune submit jobs/studies/demo.toml --address http://127.0.0.1:8265
    """
    from memtune.ray_backend.jobs.job_submission import prepare_submission

    submission = prepare_submission(study, budget.collect(), resume=resume, reuse=not no_cache)
    _submit_and_follow(_open_job_server(address), submission, detach)


@jobs_app.callback(invoke_without_command=True)
def jobs(context: typer.Context, address: Address = None, json: AsJson = False) -> None:
    """List, follow, stop and resume the jobs of a cluster; without a subcommand, list them."""
    if context.invoked_subcommand is None:
        jobs_list(address, json)


@jobs_app.command("list")
def jobs_list(address: Address = None, json: AsJson = False) -> None:
    """List the jobs of a cluster, newest first.

    Example: memtune jobs list --json
    """
    listed = _open_job_server(address).list_jobs()
    if json:
        out.print_json(
            data=[job.model_dump(mode="json", exclude={"metadata", "environment"}) for job in listed]
        )
    elif listed:
        out.print(make_job_table(listed, time.time()))
    else:
        out.print_line("no jobs yet; submit a study: memtune submit jobs/studies/demo.toml")


@jobs_app.command("logs")
def jobs_logs(
    job: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job ends.")] = False,
    address: Address = None,
) -> None:
    """Print the log of a job; with --follow, the exit code is the job's.

    Example: memtune jobs logs demo-3f9a1c --follow
    """
    server = _open_job_server(address)
    if follow:
        _follow(server, job)
    else:
        sys.stdout.write(server.read_log(job))


@jobs_app.command("stop")
def jobs_stop(job: JobId, address: Address = None) -> None:
    """Stop a job. Its open trials keep their checkpoints, and its study can be resumed.

    Example: memtune jobs stop demo-3f9a1c
    """
    if _open_job_server(address).stop(job):
        out.print_line(f"{job} is stopping; to resume its study later: memtune jobs resume {job}")
    else:
        out.print_line(f"{job} has already ended")


@jobs_app.command("resume")
def jobs_resume(
    job: JobId,
    budget: BudgetOptions,
    address: Address = None,
    detach: Detach = False,
) -> None:
    """Submit the study of an ended job again, to resume it or to add trials or time.

    Example: memtune jobs resume demo-3f9a1c --trials 16
    """
    from memtune.ray_backend.jobs.job_submission import prepare_resumption

    server = _open_job_server(address)
    _submit_and_follow(server, prepare_resumption(server.get_job(job), budget.collect()), detach)


def _open_job_server(address: str | None) -> "JobServer":
    from memtune.ray_backend.jobs.job_server import JobServer, resolve_server_address

    return JobServer(resolve_server_address(address))


def _submit_and_follow(server: "JobServer", submission: "Submission", detach: bool) -> None:
    from memtune.ray_backend.jobs.job_submission import submit as submit_job

    for note in submission.notes:
        out.print_line(f"note: {note}")
    job = submit_job(server, submission)
    out.print_line(f"submitted {job} to {server.address}")
    if detach:
        out.print_line(f"to follow its log: memtune jobs logs {job} --follow")
    else:
        _follow(server, job)


def _follow(server: "JobServer", job: str) -> None:
    """Print the log of a job until the job ends; raise typer.Exit with the exit code of a failed one."""

    def write(piece: str) -> None:
        sys.stdout.write(piece)
        sys.stdout.flush()

    try:
        ended = server.follow_log(job, write)
    except KeyboardInterrupt:
        warn(
            f"{job} continues; to follow it: memtune jobs logs {job} --follow; "
            f"to stop it: memtune jobs stop {job}"
        )
        raise typer.Exit(1) from None
    if ended.status == "SUCCEEDED":
        if ended.study:
            out.print_line(f"to continue {ended.study} with an edited file: memtune submit STUDY --resume")
        return
    code = ended.exit_code
    reason = f"exit code {code}" if code else (ended.message or "no exit code")
    warn(f"{job} {ended.status.lower()}: {reason}; to resume its study: memtune jobs resume {job}")
    raise typer.Exit(code or 1)


def make_job_table(jobs: "Iterable[Job]", now: float) -> Table:
    """A row per job: study, user, status, start in local time, duration until its end or `now` (seconds)."""
    columns = ("job", "study", "user", "status", "started", ">duration")
    table = make_table("", columns, overflow="ellipsis")
    for job in jobs:
        start = None if job.started is None else time.localtime(job.started)
        started = "" if start is None else time.strftime("%Y-%m-%d %H:%M:%S", start)
        status = job.status.lower() + (f", exit code {job.exit_code}" if job.exit_code else "")
        study = job.study or job.entrypoint
        seconds = job.duration_seconds(now)
        duration = "" if seconds is None else format_duration(seconds)
        table.add_row(job.id, study, job.user or "", status, started, duration)
    return table
