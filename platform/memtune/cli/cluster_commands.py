"""`memtune cluster ...`: check, launch, query and stop the cluster that a file describes."""

from typing import Annotated

import typer

from memtune.cli.terminal import AsJson, ClusterPath, Yes, err, out
from memtune.number_format import format_count

app = typer.Typer(help="Check, launch, query and stop a cluster that a file describes.", no_args_is_help=True)


@app.command("check")
def cluster_check(file: ClusterPath, json: AsJson = False) -> None:
    """List the faults of a cluster file and their fixes; nothing is launched. Exit code 1 for faults.

    Example: memtune cluster check cluster.yaml
    """
    # Imported here: pydantic and the cluster rules take about 0.4 s, and help does not need them.
    from memtune.ray_backend.clusters import check_cluster, format_findings

    findings = check_cluster(file)
    faults = [finding for finding in findings if finding.kind == "fault"]
    edits = [finding for finding in findings if finding.kind == "edit"]
    if json:
        out.print_json(data=findings)
    elif faults:
        err.print_line(format_findings(faults))
    else:
        out.print_line(f"{file}: no faults")
    if edits and not json:
        text = f"edit these values before a launch:\n{format_findings(edits)}"
        out.print_line(text)
    if faults:
        raise typer.Exit(1)


@app.command("up")
def cluster_up(
    file: ClusterPath,
    yes: Yes = False,
    wait: Annotated[int, typer.Option(min=0, help="Seconds to wait for the minimum number of nodes.")] = 900,
) -> None:
    """Check the file, create the token, launch with `ray up`, and wait until the nodes have joined.

    Example: memtune cluster up cluster.yaml --yes
    """
    from memtune.ray_backend.clusters import launch_cluster

    status = launch_cluster(
        file,
        yes=yes,
        timeout_seconds=wait,
        on_progress=out.print_line,
    )
    nodes = format_count(status.node_count, "node")
    out.print(f"the cluster is up with {nodes}; to submit studies, keep this command running:")
    out.print_line(f"    memtune cluster dashboard {file}")


@app.command("status")
def cluster_status(file: ClusterPath, json: AsJson = False) -> None:
    """Print the nodes and resources of a cluster, and the minimum number of nodes that its file asks for.

    Example: memtune cluster status cluster.yaml
    """
    from memtune.ray_backend.clusters import get_cluster_status

    status = get_cluster_status(file)
    if json:
        out.print_json(status.model_dump_json(exclude={"report"}))
        return
    out.print_line(status.report)
    out.print(f"{format_count(status.node_count, 'node')}; minimum {status.min_nodes}")


@app.command("dashboard")
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


@app.command("down")
def cluster_down(file: ClusterPath, yes: Yes = False) -> None:
    """Stop every node of a cluster.

    Example: memtune cluster down cluster.yaml
    """
    from memtune.ray_backend.clusters import stop_cluster

    stop_cluster(file, yes=yes)
