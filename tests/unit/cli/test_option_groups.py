"""A dataclass parameter of a command becomes one option per field."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from memtune.cli.terminal import expand_option_groups


@dataclass(frozen=True)
class Point:
    """Two options."""

    x: Annotated[int, typer.Option(help="Across.")] = 1
    up: Annotated[bool, typer.Option("--up", help="Upwards.")] = False


def run(*arguments: str) -> str:
    app = typer.Typer()

    @app.command()
    @expand_option_groups
    def show(name: Annotated[str, typer.Argument()], point: Point, last: str = "end") -> None:
        """Show a point."""
        typer.echo(f"{name} {point} {last}")

    return CliRunner().invoke(app, list(arguments)).output


def test_the_fields_of_a_group_are_options_with_their_defaults() -> None:
    assert run("a").strip() == "a Point(x=1, up=False) end"


def test_options_of_a_group_set_the_fields_of_its_value() -> None:
    assert run("a", "--x", "3", "--up", "--last", "z").strip() == "a Point(x=3, up=True) z"


def test_options_of_a_group_have_their_help_and_types() -> None:
    assert "Across." in run("--help")
    assert "Invalid value" in run("a", "--x", "three")
