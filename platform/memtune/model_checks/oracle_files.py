"""A user's oracle: the equations of a family once more, in a file that imports nothing of the family.

The file has `compute_logits(config, parameters, words_BT)`, which returns logits[b][t] as vectors over the
vocabulary, computed in float64 from the parameters by name. Optional: `EXAMPLES`, a list of fields of
configurations over which everything is checked; by default one small model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtune.errors import PluginError
from memtune.model_checks.oracle_agreement import Oracle
from memtune.plugins import load_source
from memtune.plugins.plugin_source import read_source_file


@dataclass(frozen=True)
class OracleFile:
    """The equations, and the fields of the configurations to check."""

    path: Path
    compute_logits: Oracle
    examples: Sequence[Mapping[str, Any]]


def load_oracle(path: Path) -> OracleFile:
    """Execute an oracle's file. Raises PluginError for one that cannot be loaded or lacks its function."""
    module = load_source(read_source_file(path))
    compute_logits = getattr(module, "compute_logits", None)
    examples = getattr(module, "EXAMPLES", [])
    if not callable(compute_logits):
        raise PluginError(f"{path} has no function compute_logits(config, parameters, words_BT)")
    if not isinstance(examples, list) or not all(isinstance(example, Mapping) for example in examples):
        raise PluginError(f"{path}: EXAMPLES must be a list of fields, such as [{{'width': 8}}]")
    return OracleFile(path, compute_logits, examples)
