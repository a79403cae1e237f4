"""`memtune compare`, `best`, `evaluate` and `ui`: what came of the searches."""

import shlex
from typing import Annotated, Any

import typer

from memtune.cli.terminal import AsJson, Device, SplitName, out
from memtune.errors import ConfigurationError, MemtuneError

__all__ = ["best", "compare", "evaluate", "ui"]


def compare(
    corpus: Annotated[str, typer.Option(help="Name of the corpus.")],
    protocol: Annotated[
        str | None, typer.Option(help="One protocol's trials; default: the champion's.")
    ] = None,
    study: Annotated[str | None, typer.Option(help="One study's trials, by its name or id.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 20,
    json: AsJson = False,
) -> None:
    """The trials of a corpus, best first, as a table, a figure and a link into MLflow.

    Example: memtune compare --corpus ptb --study ptb_recurrent_memory
    """
    from memtune.execution.comparison import PAGES
    from memtune.execution.comparison import compare as compare_trials

    found = compare_trials(corpus, protocol, study)
    if json:
        out.print_json(data=[row.model_dump(mode="json") for row in found.rows])
        return
    from memtune.execution.wording import counted
    from memtune.reports.figures import leaderboard_figure
    from memtune.reports.trials import leaderboard_table

    title = f"{corpus}, protocol {found.protocol}, {counted(len(found.rows), 'trial')}"
    out.print(leaderboard_table(found.rows[:top], found.ideal, title))
    leaderboard_figure(found.rows, corpus, found.ideal, found.figure)
    out.print(f"figure: {found.figure}", soft_wrap=True)
    out.print(f"in MLflow: {found.link}", soft_wrap=True, highlight=False)
    if found.link.startswith(PAGES):
        out.print("the link works while `memtune ui` runs; with --port it takes that port's number")
    for other in found.others:
        _tell_other(corpus, study, other)


def _tell_other(corpus: str, study: str | None, protocol: str) -> None:
    options = (
        f"--corpus {corpus} " + (f"--study {study} " if study else "") + f"--protocol {shlex.quote(protocol)}"
    )
    out.print(
        f"trials under another protocol do not compare with these: memtune compare {options}",
        soft_wrap=True,
        highlight=False,
    )


def best(
    corpus: Annotated[str | None, typer.Option(help="One corpus; default: all.")] = None, json: AsJson = False
) -> None:
    """The champion of each corpus, as the registry holds it.

    Example: memtune best --corpus ptb
    """
    from memtune.execution.comparison import champions

    found = champions(corpus)
    if json:
        out.print_json(data=[champion.model_dump(mode="json") for champion in found])
        return
    for champion in found:
        out.print(
            f"models:/{champion.corpus}@champion is version {champion.version}: {champion.family}, "
            f"{champion.told}, protocol {champion.protocol}, {_origin(champion.study)}",
            soft_wrap=True,
        )


def _origin(study: str) -> str:
    from memtune.tracking import ALONE

    return "from memtune train" if study == ALONE else f"study {study}"


def evaluate(
    model: Annotated[str, typer.Argument(help="models:/NAME@champion or models:/NAME/VERSION.")],
    split: SplitName = "valid",
    device: Device = "cpu",
    cache_size: Annotated[
        int | None,
        typer.Option(min=1, help="Add a continuous cache of so many words; default with one: 2000."),
    ] = None,
    cache_flatness: Annotated[
        float | None, typer.Option(min=0, help="How much the cache minds likeness; default: 0.3.")
    ] = None,
    cache_weight: Annotated[
        float | None, typer.Option(min=0, max=1, help="The cache's share in the probability; default: 0.1.")
    ] = None,
    tune_cache: Annotated[
        bool, typer.Option("--tune-cache", help="Choose flatness and weight on the validation split.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Evaluate a registered model on a split of its corpus, under its protocol.

    Example: memtune evaluate models:/ptb@champion --split test --tune-cache
    """
    from memtune.execution.champions import evaluate_registered

    given = {"size": cache_size, "flatness": cache_flatness, "weight": cache_weight}
    cache = _cache({name: value for name, value in given.items() if value is not None}, tune_cache)
    found = evaluate_registered(model, split, device=device, cache=cache)
    if json:
        told = {
            **found.metrics.model_dump(exclude_none=True),
            "split": split,
            "protocol": found.champion.protocol,
        }
        with_cache = {"ideal": found.ideal, "cache": found.cache and found.cache.model_dump()}
        out.print_json(data={**told, "model": found.champion.uri, **with_cache})
        return
    ideal = f", ideal {found.ideal:.4f}" if found.ideal else ""
    used = f", {_described(found.cache)}" if found.cache else ""
    metrics = found.metrics
    asked = f"accuracy {metrics.accuracy:.4%} of {metrics.questions:,}, " if metrics.questions else ""
    if found.unit == "examples":
        figures = f"accuracy {metrics.accuracy:.4%} of {metrics.tokens:,} examples"
    else:
        figures = f"{asked}perplexity {metrics.perplexity:.6f} over {metrics.tokens:,} tokens"
    protocol = found.champion.protocol
    out.print(f"{found.champion.uri} on {split}: {figures}, protocol {protocol}{used}{ideal}", soft_wrap=True)


def _cache(given: dict[str, Any], tuned: bool) -> Any:
    """The cache that the options ask for, a grid when it is to be tuned, None when nothing asks for one."""
    from memtune.tasks import CacheGrid, ContinuousCache
    from memtune.values import parse

    if tuned and (set(given) - {"size"}):
        raise typer.BadParameter("--tune-cache chooses flatness and weight; leave them out")
    kind = CacheGrid if tuned else ContinuousCache
    try:
        return parse(kind, given, "the cache") if given or tuned else None
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from None


def _described(cache: Any) -> str:
    return f"cache of {cache.size:,} words, flatness {cache.flatness:g}, weight {cache.weight:g}"


def ui(port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 5000) -> None:
    """Open MLflow's pages on the store of the last search, on this machine only.

    Example: memtune ui --port 5001
    """
    from memtune.execution.settings import Settings
    from memtune.tracking import serve_pages

    tracking = Settings.read().tracking
    with serve_pages(tracking, port) as server:
        out.print(f"MLflow starts on http://127.0.0.1:{port}, which takes some seconds; end it with Ctrl-C")
        try:
            code = server.wait()
        except KeyboardInterrupt:
            return
    raise MemtuneError(f"MLflow's server ended by itself with exit code {code}")
