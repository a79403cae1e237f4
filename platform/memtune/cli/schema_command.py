"""`memtune schema`: JSON Schema for editors."""

import json
from typing import Annotated, Literal

import typer


def schema(
    kind: Annotated[Literal["study", "trial", "space", "paper"], typer.Argument(help="The kind of file.")],
) -> None:
    """Print the JSON Schema of a kind of file, with which editors complete and check its fields.

    Example: memtune schema study > study.schema.json
    """
    # Imported here: torch loads for seconds, which --help need not wait for.
    from memtune.reports.json_schemas import make_schema

    typer.echo(json.dumps(make_schema(kind), indent=2, ensure_ascii=False))
