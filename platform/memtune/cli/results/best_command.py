"""`memtune best`: the champions of each corpus."""

from typing import Annotated

import typer

from memtune.cli.shell_completion import complete_corpus
from memtune.cli.terminal import AsJson, out
from memtune.number_format import format_count


def best(
    corpus: Annotated[
        str | None, typer.Option(help="One corpus; default: all.", autocompletion=complete_corpus)
    ] = None,
    json: AsJson = False,
) -> None:
    """The champions of each corpus, one for each protocol and task, as the registry holds them.

    Example: memtune best --corpus ptb
    """
    # Imported here, as below: MLflow and pydantic take a second, and help needs neither.
    from memtune.results.comparison import count_accesses, find_champions

    found = find_champions(corpus)
    accesses = count_accesses(found)
    if json:
        records = [
            champion.model_dump(mode="json") | {"test_accesses": accesses[champion.corpus]}
            for champion in found
        ]
        out.print_json(data=records)
        return
    for champion in found:
        out.print(
            f"models:/{champion.corpus}@{champion.alias} is version {champion.version}: {champion.family}, "
            f"{champion.summary}, protocol {champion.protocol}, {_describe_origin(champion.study)}; "
            f"{describe_accesses(accesses[champion.corpus])}",
            soft_wrap=True,
        )


def describe_accesses(count: int) -> str:
    """How often the models of a corpus have read a test split, in words."""
    return f"test split read {format_count(count, 'time')} by models of this corpus"


def _describe_origin(study: str) -> str:
    from memtune.tracking import NO_STUDY

    return "from memtune train" if study == NO_STUDY else f"study {study}"
