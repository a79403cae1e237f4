"""`memtune cluster ...`: clusters that files describe, checked, launched, watched and ended."""

from typing import Annotated

import typer

from memtune.cli.terminal import AsJson, ClusterPath, Yes, err, escaped, out

__all__ = ["app"]

app = typer.Typer(help="Check, launch and end a cluster that a file describes.", no_args_is_help=True)


@app.command("check")
def cluster_check(file: ClusterPath, json: AsJson = False) -> None:
    """Say what would go wrong with a cluster file, and the fix; nothing is launched. Exit code 1 for faults.

    Example: memtune cluster check cluster.yaml
    """
    from memtune.execution.clusters import check_cluster, describe

    findings = check_cluster(file)
    faults = [finding for finding in findings if finding.kind == "fault"]
    edits = [finding for finding in findings if finding.kind == "edit"]
    if json:
        out.print_json(data=[finding.model_dump() for finding in findings])
    elif faults:
        err.print(escaped(describe(faults)), soft_wrap=True, highlight=False)
    else:
        out.print(f"{file}: nothing wrong", soft_wrap=True)
    if edits and not json:
        out.print(escaped(f"to edit before a launch:\n{describe(edits)}"), soft_wrap=True, highlight=False)
    if faults:
        raise typer.Exit(1)


@app.command("up")
def cluster_up(
    file: ClusterPath,
    yes: Yes = False,
    wait: Annotated[int, typer.Option(min=0, help="Seconds to wait for the least number of nodes.")] = 900,
) -> None:
    """Check, make the token, launch with `ray up`, and wait until every node asked for is there.

    Example: memtune cluster up cluster.yaml --yes
    """
    from memtune.execution.clusters import cluster_up as launch
    from memtune.execution.wording import counted

    status = launch(file, yes=yes, wait=wait, tell=lambda step: out.print(escaped(step), soft_wrap=True))
    out.print(f"the cluster is up with {counted(status.present, 'node')}; to submit, keep this running:")
    out.print(f"    ray dashboard {file}", soft_wrap=True, highlight=False)


@app.command("status")
def cluster_status(file: ClusterPath, json: AsJson = False) -> None:
    """What is in a cluster now, and whether that is as many nodes as its file asks for at the least.

    Example: memtune cluster status cluster.yaml
    """
    from memtune.execution.clusters import cluster_status as status_of
    from memtune.execution.wording import counted

    status = status_of(file)
    if json:
        out.print_json(status.model_dump_json(exclude={"report"}))
        return
    out.print(escaped(status.report), soft_wrap=True, highlight=False)
    out.print(f"{counted(status.present, 'node')}; at the least {status.least}")


@app.command("down")
def cluster_down(file: ClusterPath, yes: Yes = False) -> None:
    """End every node of a cluster.

    Example: memtune cluster down cluster.yaml
    """
    from memtune.execution.clusters import cluster_down as end

    end(file, yes=yes)
