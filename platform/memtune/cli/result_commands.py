"""`memtune compare`, `best`, `evaluate` and `ui`: the results of searches."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memtune.cli.shell_completion import complete_corpus, complete_study
from memtune.cli.terminal import AsJson, Device, ModelName, SplitName, TrustCode, out, print_pages
from memtune.errors import ConfigurationError, MemtuneError

if TYPE_CHECKING:
    from memtune.results.model_evaluation import EvaluationResult
    from memtune.tasks import ContinuousCache


__all__ = ["best", "compare", "evaluate", "ui"]


def compare(
    corpus: Annotated[str, typer.Option(help="Name of the corpus.", autocompletion=complete_corpus)],
    protocol: Annotated[
        str | None, typer.Option(help="One protocol's trials; default: the champion's.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="One study's trials, by its name or id.", autocompletion=complete_study),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 20,
    json: AsJson = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV, with a column for every recorded parameter.")
    ] = False,
) -> None:
    """The trials of a corpus, best first, as a table, a figure and a link into MLflow.

    Several corpora of one text in different tokens, with commas between their names, are compared by the bits
    per byte of their best trials.

    Example: memtune compare --corpus ptb --study ptb_recurrent_memory

    Example: memtune compare --corpus ptb_characters,ptb_bpe
    """
    if json and csv:
        raise typer.BadParameter("choose one of --json and --csv")
    if "," in corpus:
        _compare_tokenisations(corpus.split(","), protocol, json)
        return
    # Imported here: MLflow and torch load for seconds, which --help and refused options need not wait for.
    from memtune.results.comparison import compare as compare_trials

    found = compare_trials(corpus, protocol, study)
    rows = found.rows[:top]
    if json:
        out.print_json(data=[row.model_dump(mode="json") for row in rows])
        return
    if csv:
        from memtune.reports.trials.leaderboard_csv import format_leaderboard_csv

        typer.echo(format_leaderboard_csv(rows, found.ideal_perplexity), nl=False)
        return
    from memtune.number_format import format_count
    from memtune.reports.report_page.chart_files import write_figure
    from memtune.reports.report_page.trade_off_charts import draw_trials
    from memtune.reports.trials.trial_tables import leaderboard_table

    title = f"{corpus}, protocol {found.protocol}, {format_count(len(found.rows), 'trial')}"
    out.print(leaderboard_table(rows, found.ideal_perplexity, title, is_stacked=out.is_terminal))
    if chart := draw_trials(found.rows, found.ideal_perplexity):
        write_figure(chart, corpus, found.figure_path)
        out.print(f"figure: {found.figure_path}", soft_wrap=True)
    print_pages(found.pages)
    out.print(describe_accesses(found.test_accesses))
    for other in found.other_protocols:
        _print_compare_hint(corpus, study, other)


def _compare_tokenisations(corpora: list[str], protocol: str | None, json: bool) -> None:
    """The best trial of each corpus, by bits per byte of the one text that they hold."""
    from memtune.results.tokenisation_comparison import compare_tokenisations

    rows = compare_tokenisations(corpora, protocol)
    if json:
        out.print_json(data=[row.model_dump(mode="json") for row in rows])
        return
    from memtune.reports.tokenisation_table import tokenisation_table

    out.print(tokenisation_table(rows))


def _print_compare_hint(corpus: str, study: str | None, protocol: str) -> None:
    options = (
        f"--corpus {corpus} " + (f"--study {study} " if study else "") + f"--protocol {shlex.quote(protocol)}"
    )
    out.print(
        f"trials under another protocol do not compare with these: memtune compare {options}",
        soft_wrap=True,
        highlight=False,
    )


def best(
    corpus: Annotated[
        str | None, typer.Option(help="One corpus; default: all.", autocompletion=complete_corpus)
    ] = None,
    json: AsJson = False,
) -> None:
    """The champions of each corpus, one for each protocol and task, as the registry holds them.

    Example: memtune best --corpus ptb
    """
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
    from memtune.number_format import format_count

    return f"test split read {format_count(count, 'time')} by models of this corpus"


def _describe_origin(study: str) -> str:
    from memtune.tracking import NO_STUDY

    return "from memtune train" if study == NO_STUDY else f"study {study}"


def evaluate(
    model: ModelName,
    split: SplitName = "valid",
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Another text of the store, in the model's vocabulary.", autocompletion=complete_corpus
        ),
    ] = None,
    words: Annotated[
        Path | None, typer.Option(help="Parquet file for the log probability of each word, in nats.")
    ] = None,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    cache_size: Annotated[
        int | None,
        typer.Option(min=1, help="Add a continuous cache of this many words; default with a cache: 2000."),
    ] = None,
    cache_flatness: Annotated[
        float | None, typer.Option(min=0, help="Inverse temperature of the cache; default: 0.3.")
    ] = None,
    cache_weight: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Weight of the cache in the mixed probability; default: 0.1."),
    ] = None,
    tune_cache: Annotated[
        bool, typer.Option("--tune-cache", help="Choose flatness and weight on the validation split.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Evaluate a registered model or a trial on a split of its corpus, under its protocol.

    Example: memtune evaluate models:/ptb@champion --split test --tune-cache
    """
    from memtune.settings import Settings
    from memtune.tracking import require_registered

    given = {"size": cache_size, "flatness": cache_flatness, "weight": cache_weight}
    options = {name: value for name, value in given.items() if value is not None}
    cache = _parse_cache(options, tune_cache) if options or tune_cache else None
    # Before torch is imported, which takes seconds and hundreds of megabytes.
    require_registered(Settings.from_environment().tracking_uri, model)
    from memtune.results.model_evaluation import evaluate_model

    found = evaluate_model(
        model, split, device=device, cache=cache, corpus=corpus, words=words, trust_code=trust_code
    )
    if json:
        out.print_json(data=_summarise_evaluation(found, split))
        return
    out.print(_describe_evaluation(found, split), soft_wrap=True)


def _summarise_evaluation(found: "EvaluationResult", split: str) -> dict[str, Any]:
    """The figures of an evaluation by name, as JSON has them."""
    return {
        **found.metrics.model_dump(exclude_none=True),
        **found.text_figures,
        "split": split,
        "protocol": found.label,
        "model": found.model,
        "ideal": found.ideal_perplexity,
        "cache": found.cache and found.cache.model_dump(),
    }


def _describe_evaluation(found: "EvaluationResult", split: str) -> str:
    """The figures of an evaluation in one sentence."""
    ideal = f", ideal {found.ideal_perplexity:.4f}" if found.ideal_perplexity else ""
    used = f", {_describe_cache(found.cache)}" if found.cache else ""
    text = f"{found.corpus} {split}" if found.corpus else split
    return f"{found.model} on {text}: {_describe_figures(found)}, protocol {found.label}{used}{ideal}"


def _describe_figures(found: "EvaluationResult") -> str:
    """The accuracy of examples or questions, and the perplexity of a text."""
    from memtune.number_format import format_count

    metrics = found.metrics
    tied = f" ({format_count(metrics.ties, 'tie')})" if metrics.ties else ""
    if found.unit == "examples":
        return f"accuracy {metrics.accuracy:.4%} of {metrics.tokens:,} examples{tied}"
    perplexity = f"perplexity {metrics.perplexity:.6f} over {metrics.tokens:,} tokens"
    figures = perplexity + _describe_text_figures(found)
    if not metrics.questions:
        return figures
    return f"accuracy {metrics.accuracy:.4%} of {metrics.questions:,}{tied}, {figures}"


def _describe_text_figures(found: "EvaluationResult") -> str:
    """The figures that compare over tokenisations, in words; nothing where they are not known."""
    if found.units is None:
        return ""
    figures, lost = found.text_figures, found.units.lost
    text = f", {figures['word_perplexity']:.2f} per word, {figures['bits_per_byte']:.4f} bits per byte"
    return text + (f", {lost:,} tokens read as <unk>" if lost else "")


def _parse_cache(given: dict[str, Any], is_tuned: bool) -> Any:
    """The cache that the options describe, a grid when it is to be tuned, None without any option."""
    from memtune.tasks import CacheGrid, ContinuousCache
    from memtune.values import parse

    if is_tuned and (set(given) - {"size"}):
        raise typer.BadParameter("--tune-cache chooses flatness and weight; leave them out")
    kind = CacheGrid if is_tuned else ContinuousCache
    try:
        return parse(kind, given, "the cache") if given or is_tuned else None
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from None


def _describe_cache(cache: "ContinuousCache") -> str:
    return f"cache of {cache.size:,} words, flatness {cache.flatness:g}, weight {cache.weight:g}"


def ui(port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 5000) -> None:
    """Serve MLflow's pages over the records of your searches, for you alone, on this machine.

    Each corpus has a table of its trials, their charts, and charts of the best trial of each family. The
    printed address holds a token, which is new at each start; requests without it are refused.

    Example: memtune ui --port 5001
    """
    from memtune.settings import Settings
    from memtune.tracking import link_corpora, serve_pages

    settings = Settings.from_environment()
    with serve_pages(port, settings) as pages:
        corpora = link_corpora(settings.tracking_uri, pages.url)
        # A token in a log file would be readable to whoever reads the log.
        add_token = pages.add_token if out.is_terminal else str
        address = pages.address if out.is_terminal else f"the address in {pages.address_file}"
        out.print(f"open {address}", soft_wrap=True, highlight=False)
        if corpora and not out.is_terminal:
            out.print("the browser needs that address first; then these open")
        for corpus in corpora:
            answer = f": {corpus.answer}" if corpus.answer else ""
            out.print(f"corpus {corpus.corpus}{answer}", soft_wrap=True, highlight=False, markup=False)
            for title, link in corpus.list_titled_links():
                out.print(f"  {title}: {add_token(link)}", soft_wrap=True, highlight=False)
        out.print("MLflow takes some seconds to start; stop it with Ctrl-C")
        try:
            code = pages.process.wait()
        except KeyboardInterrupt:
            return
    raise MemtuneError(f"MLflow's server ended with exit code {code}; its own message is above")
