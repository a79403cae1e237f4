"""What Ray itself says of a cluster file: its defaults filled in, then its schema."""

import contextlib
import copy
import io
import re
from typing import Any

from memtune.execution.clusters.file import ClusterFile, Finding

__all__ = ["broken_schema", "least_nodes", "prepared"]


def prepared(cluster: ClusterFile) -> dict[str, Any]:
    """The file's configuration as `ray up` completes it. Raises ValueError with what Ray says against it."""
    import click
    from ray.autoscaler._private.util import prepare_config

    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return dict(prepare_config(copy.deepcopy(cluster.config)))
    except click.ClickException as error:
        raise ValueError(_plain(said.getvalue()) or error.message) from error
    except (AssertionError, AttributeError, KeyError, NotImplementedError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def broken_schema(cluster: ClusterFile) -> list[Finding]:
    """What Ray's own check refuses, at most one finding: it stops at the first."""
    import jsonschema  # type: ignore[import-untyped]
    from ray.autoscaler._private.util import validate_config

    try:
        validate_config(prepared(cluster))
    except jsonschema.ValidationError as error:
        where = ".".join(str(part) for part in error.absolute_path) or "the file"
        return [_refused(where, error.message)]
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        return [_refused("the file", str(error))]
    return []


def least_nodes(cluster: ClusterFile) -> int:
    """How many nodes the cluster has when it is up and idle: the head and each type's least workers."""
    types = prepared(cluster)["available_node_types"].values()
    return 1 + sum(int(node_type.get("min_workers", 0)) for node_type in types)


def _refused(where: str, problem: str) -> Finding:
    return Finding(
        rule="schema",
        where=where,
        problem=f"Ray refuses it: {problem}",
        fix="write the entry as in cluster.yaml, clusters/gcp.yaml or clusters/onprem.yaml",
    )


def _plain(text: str) -> str:
    """What Ray prints, without colours, line breaks, and the time and place that lead a line of its log."""
    bare = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())
    return re.sub(r"[\d-]+ [\d:,]+\s+(?:PANIC|ERR|WARN|INFO) \S+\.py:\d+ -- ", "", bare)
