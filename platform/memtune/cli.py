"""`memtune ...`: one thin function a command; what it does is a function of the package.

Exit codes: 0 success, 1 a mistake or fault that the message names, 2 wrong usage.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from memtune.errors import MemtuneError

__all__ = ["app", "main"]

app = typer.Typer(
    name="memtune",
    help="Search for the best language model with memory for a corpus, on one machine or a cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
corpus_app = typer.Typer(help="Import texts as corpora, and look at what there is.", no_args_is_help=True)
app.add_typer(corpus_app, name="corpus")
cluster_app = typer.Typer(help="Check, launch and end a cluster that a file describes.", no_args_is_help=True)
app.add_typer(cluster_app, name="cluster")
PIPED_WIDTH = 160
out = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
err = Console(stderr=True)

Store = Annotated[str | None, typer.Option(help="Folder or URI of the corpora; default: MEMTUNE_STORE.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
ReplaceChampion = Annotated[
    bool, typer.Option("--replace-champion", help="Register the model whatever the champion is.")
]
ClusterPath = Annotated[Path, typer.Argument(help="A cluster file, such as cluster.yaml.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Device = Annotated[str, typer.Option(help='Where to compute: "cpu", "cuda", "cuda:1".')]


def main() -> None:
    """Run the command line; a MemtuneError ends it with its message and exit code 1."""
    try:
        app()
    except MemtuneError as error:
        err.print(f"[bold red]error:[/] {_escaped(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(1)


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Search for the best language model with memory for a corpus."""
    if version:
        from importlib.metadata import version as version_of

        out.print(version_of("memtune"))
        raise typer.Exit


@corpus_app.command("import")
def corpus_import(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")],
    train: Annotated[Path, typer.Option(help="Training text; it alone makes the vocabulary.")],
    valid: Annotated[Path, typer.Option(help="Validation text, by which models are chosen.")],
    test: Annotated[Path, typer.Option(help="Test text, read for champions only.")],
    format: Annotated[str, typer.Option(help="text, ptb or wikitext.")] = "text",
    store: Store = None,
    min_count: Annotated[int, typer.Option(help="Keep words seen at least so often in training.")] = 1,
    max_size: Annotated[int | None, typer.Option(help="Largest vocabulary.")] = None,
    lower_case: Annotated[bool, typer.Option("--lower-case", help="Lower-case every word.")] = False,
    unescape: Annotated[
        bool, typer.Option("--unescape", help="Undo the escapes of the Moses tokenizer.")
    ] = False,
    unknown: Annotated[
        Literal["map", "refuse"],
        typer.Option(help="Words outside the vocabulary: one unknown word, or an error."),
    ] = "map",
    licence: Annotated[str | None, typer.Option(help="A note on the text's licence, kept with it.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another corpus of this name.")] = False,
) -> None:
    """Import a text as memory-mapped Arrow shards with a manifest.

    Example: memtune corpus import ptb --format ptb --train train.txt --valid valid.txt --test test.txt
    """
    from memtune.corpora import ImportOptions, TextFile, import_corpus
    from memtune.values import parse

    given = {"min_count": min_count, "max_size": max_size, "lower_case": lower_case}
    options = parse(ImportOptions, {**given, "unescape": unescape, "unknown": unknown}, "corpus import")
    sources = {
        "train": TextFile(train, format),
        "valid": TextFile(valid, format),
        "test": TextFile(test, format),
    }
    with _bar() as bar:
        task = bar.add_task("import", total=None)

        def show(done: int, total: int | None, split: str) -> None:
            bar.update(task, completed=done, total=total, description=split)

        imported = import_corpus(
            name, sources, _store(store), options, licence=licence, replace=replace, progress=show
        )
    _tell_import(imported)


@corpus_app.command("demo")
def corpus_demo(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")] = "grammar", store: Store = None
) -> None:
    """Import the embedded corpus: sentences of a grammar, with the exact ideal perplexity.

    Example: memtune corpus demo
    """
    from memtune.corpora.grammar import import_grammar

    _tell_import(import_grammar(name, _store(store)))


@corpus_app.command("list")
def corpus_list(store: Store = None, json: AsJson = False) -> None:
    """List the corpora of a store.

    Example: memtune corpus list --json
    """
    from memtune.corpora import list_corpora
    from memtune.reports.corpora import corpus_table

    manifests = list_corpora(_store(store), lambda error: _warn(str(error)))
    if json:
        out.print_json(data=[manifest.model_dump(mode="json") for manifest in manifests])
    elif manifests:
        out.print(corpus_table(manifests))
    else:
        out.print(f"no corpora in {_store(store)}; start with: memtune corpus demo")


@corpus_app.command("show")
def corpus_show(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")],
    store: Store = None,
    json: AsJson = False,
) -> None:
    """Show a corpus: counts, vocabulary, sentence lengths, digest, licence note.

    Example: memtune corpus show ptb
    """
    from memtune.corpora import describe_corpus
    from memtune.reports.corpora import describe_table

    description = describe_corpus(name, _store(store))
    if json:
        out.print_json(description.model_dump_json())
        return
    out.print(describe_table(description))
    out.print("most frequent: " + " ".join(f"{word} ({count:,})" for word, count in description.frequent))
    out.print(f"licence: {description.manifest.licence or 'no note was given at import'}")


@corpus_app.command("verify")
def corpus_verify(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")], store: Store = None
) -> None:
    """Read every byte of a corpus and compare it with its manifest; exit code 1 when something is wrong.

    Example: memtune corpus verify ptb
    """
    from memtune.corpora import verify_corpus
    from memtune.errors import CorpusError

    problems = verify_corpus(name, _store(store))
    if problems:
        raise CorpusError("\n".join([*problems, f'import "{name}" again with --replace']))
    out.print(f"{name} is whole: every file, count and digest is as its manifest says")


@app.command()
def train(
    file: Annotated[Path, typer.Argument(help="A trial: corpus, model, protocol, training as TOML.")],
    corpus: Annotated[str | None, typer.Option(help="Another corpus than the file's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed than the file's.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch; default: its own.")] = None,
    device: Device = "cpu",
    replace_champion: ReplaceChampion = False,
) -> None:
    """Train one configuration here, recorded like a trial; a second call goes on where it stopped.

    Example: memtune train jobs/trials/tran2016_ptb_rm.toml --seed 1
    """
    import torch

    from memtune.execution.single import train as train_one

    if threads:
        torch.set_num_threads(threads)
    overrides = {name: value for name, value in (("corpus", corpus), ("seed", seed)) if value is not None}
    with _bar(TextColumn("{task.fields[figures]}")) as bar:
        task = bar.add_task(file.stem, total=None, figures="")

        def show(now: Any) -> None:
            total = now.tokens + now.seconds_left * now.tokens_per_second
            figures = f"{now.tokens_per_second:,.0f} tokens/s, loss {now.loss:.3f}"
            bar.update(task, completed=now.tokens, total=total, figures=figures)

        try:
            trained = train_one(
                file,
                overrides,
                device=device,
                replace_champion=replace_champion,
                progress=show,
                report=lambda report: bar.console.print(_line(report)),
            )
        except KeyboardInterrupt:
            _warn("stopped; the same command goes on from the last checkpoint")
            raise typer.Exit(1) from None
    if trained.best is None:
        raise MemtuneError(f"{file} reached no validation: {trained.curve[-1].reason}")
    out.print(
        f"best: validation perplexity {trained.best.valid_perplexity:.3f} at {trained.best.tokens:,} tokens"
    )
    _tell_decision(trained.crowning)


@app.command()
def search(
    study: Annotated[Path, typer.Argument(help="A study as TOML.")],
    trials: Annotated[int | None, typer.Option(min=1, help="Configurations in all.")] = None,
    gpus_per_trial: Annotated[
        float | None, typer.Option(min=0, help="GPUs of a trial; 0.5 shares one.")
    ] = None,
    time_budget: Annotated[str | None, typer.Option(help="Such as 90s, 15m, 2h.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, show five samples.")] = False,
    json: Annotated[bool, typer.Option("--json", help="With --dry-run: print JSON for a script.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a study that has begun.")] = False,
    address: Annotated[str | None, typer.Option(help="A Ray cluster; default: this machine.")] = None,
    replace_champion: ReplaceChampion = False,
) -> None:
    """Run a study: sample, train, stop early what lags, register the best model.

    Example: memtune search jobs/studies/demo.toml --trials 8
    """
    given = {
        "budget.trials": trials,
        "budget.time": time_budget,
        "resources.gpus_per_trial": gpus_per_trial,
    }
    overrides = {name: value for name, value in given.items() if value is not None}
    if json and not dry_run:
        raise typer.BadParameter("goes with --dry-run; a search's results are in: memtune compare --json")
    if dry_run:
        _dry_run(study, overrides, json)
        return
    from memtune.execution.search import search as run_search
    from memtune.reports.trials import family_table, spread_table

    result = run_search(
        study, overrides, resume=resume, replace_champion=replace_champion, address=address, console=out
    )
    if result.interrupted:
        left = len(result.interrupted)
        _warn(f"stopped with {left} trials open; go on with: memtune search {study} --resume")
        raise typer.Exit(1)
    ready = result.ready
    out.print(family_table(result.outcomes, ready.vocabulary_size, ready.study.question))
    if result.repeats:
        out.print(spread_table(result.outcomes, result.repeats))
    _tell_decision(result.crowning)
    if not result.recorded:
        _warn(f"the tracking store lacks some records; send them with: memtune search {study} --resume")


def _dry_run(study: Path, overrides: dict[str, Any], json: bool) -> None:
    from memtune.execution.search import dry_run
    from memtune.reports.trials import sample_table

    ready, samples = dry_run(study, overrides)
    if json:
        sampled = [sample.model_dump(mode="json") for sample in samples]
        told = {"id": ready.id, "study": ready.study.model_dump(mode="json"), "samples": sampled}
        out.print_json(data=told)
        return
    out.print_json(ready.study.model_dump_json())
    size = ready.space.size()
    points = "a continuum of" if size is None else f"{size:,}"
    out.print(f"study {ready.id}: {points} configurations, {ready.trial_tokens:,} tokens a trial")
    out.print(sample_table(samples, ready.vocabulary_size))
    out.print("nothing was started")


@app.command()
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
    from memtune.execution.comparison import compare as compare_trials
    from memtune.reports.figures import leaderboard_figure
    from memtune.reports.trials import leaderboard_table

    found = compare_trials(corpus, protocol, study)
    if json:
        out.print_json(data=[row.model_dump(mode="json") for row in found.rows])
        return
    title = f"{corpus}, protocol {found.protocol}, {len(found.rows)} trials"
    out.print(leaderboard_table(found.rows[:top], found.ideal, title))
    leaderboard_figure(found.rows, corpus, found.ideal, found.figure)
    out.print(f"figure: {found.figure}", soft_wrap=True)
    out.print(f"in MLflow, while `memtune ui` runs: {found.link}", soft_wrap=True, highlight=False)


@app.command()
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
            f"validation perplexity {champion.valid_perplexity:.4f}, protocol {champion.protocol}, "
            f"study {champion.study}",
            soft_wrap=True,
        )


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="models:/NAME@champion or models:/NAME/VERSION.")],
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "valid",
    device: Device = "cpu",
    cache_size: Annotated[
        int | None, typer.Option(help="Add a continuous cache of so many words; default with one: 2000.")
    ] = None,
    cache_flatness: Annotated[
        float | None, typer.Option(help="How much the cache minds likeness; default: 0.3.")
    ] = None,
    cache_weight: Annotated[
        float | None, typer.Option(help="The cache's share in the probability; default: 0.1.")
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
        figures = {**found.metrics.model_dump(), "split": split, "protocol": found.champion.protocol}
        with_cache = {"ideal": found.ideal, "cache": found.cache and found.cache.model_dump()}
        out.print_json(data={**figures, "model": found.champion.uri, **with_cache})
        return
    ideal = f", ideal {found.ideal:.4f}" if found.ideal else ""
    used = f", {_described(found.cache)}" if found.cache else ""
    out.print(
        f"{found.champion.uri} on {split}: perplexity {found.metrics.perplexity:.6f} over "
        f"{found.metrics.tokens:,} tokens, protocol {found.champion.protocol}{used}{ideal}",
        soft_wrap=True,
    )


def _cache(given: dict[str, Any], tuned: bool) -> Any:
    """The cache that the options ask for, a grid when it is to be tuned, None when nothing asks for one."""
    from memtune.tasks import CacheGrid, ContinuousCache
    from memtune.values import parse

    if tuned and (set(given) - {"size"}):
        raise typer.BadParameter("--tune-cache chooses flatness and weight; leave them out")
    if tuned:
        return parse(CacheGrid, given, "--cache")
    return parse(ContinuousCache, given, "--cache") if given else None


def _described(cache: Any) -> str:
    return f"cache of {cache.size:,} words, flatness {cache.flatness:g}, weight {cache.weight:g}"


@app.command()
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


@cluster_app.command("check")
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
        err.print(_escaped(describe(faults)), soft_wrap=True, highlight=False)
    else:
        out.print(f"{file}: nothing wrong", soft_wrap=True)
    if edits and not json:
        out.print(_escaped(f"to edit before a launch:\n{describe(edits)}"), soft_wrap=True, highlight=False)
    if faults:
        raise typer.Exit(1)


@cluster_app.command("up")
def cluster_up(
    file: ClusterPath,
    yes: Yes = False,
    wait: Annotated[int, typer.Option(min=0, help="Seconds to wait for the least number of nodes.")] = 900,
) -> None:
    """Check, make the token, launch with `ray up`, and wait until every node asked for is there.

    Example: memtune cluster up cluster.yaml --yes
    """
    from memtune.execution.clusters import cluster_up as launch

    status = launch(file, yes=yes, wait=wait, tell=lambda step: out.print(_escaped(step), soft_wrap=True))
    out.print(f"the cluster is up with {status.present} nodes; to submit, keep this running:")
    out.print(f"    ray dashboard {file}", soft_wrap=True, highlight=False)


@cluster_app.command("status")
def cluster_status(file: ClusterPath, json: AsJson = False) -> None:
    """What is in a cluster now, and whether that is as many nodes as its file asks for at the least.

    Example: memtune cluster status cluster.yaml
    """
    from memtune.execution.clusters import cluster_status as status_of

    status = status_of(file)
    if json:
        out.print_json(status.model_dump_json(exclude={"report"}))
        return
    out.print(_escaped(status.report), soft_wrap=True, highlight=False)
    out.print(f"{status.present} nodes; at the least {status.least}")


@cluster_app.command("down")
def cluster_down(file: ClusterPath, yes: Yes = False) -> None:
    """End every node of a cluster.

    Example: memtune cluster down cluster.yaml
    """
    from memtune.execution.clusters import cluster_down as end

    end(file, yes=yes)


def _warn(message: str) -> None:
    err.print(f"[yellow]warning:[/] {_escaped(message)}", soft_wrap=True, highlight=False)


def _store(given: str | None) -> str:
    from memtune.execution.settings import Settings

    return given or Settings.read().store


@contextmanager
def _bar(*columns: TextColumn) -> Iterator[Progress]:
    """A progress bar on a terminal, silence elsewhere."""
    shown = [TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn()]
    with Progress(*shown, console=out, transient=True, disable=not out.is_terminal) as bar:
        yield bar


def _line(report: Any) -> str:
    found = "diverged" if report.valid_perplexity is None else f"{report.valid_perplexity:.3f}"
    trained = "" if report.train_perplexity is None else f"train perplexity {report.train_perplexity:.3f}, "
    return (
        f"epoch {report.epoch:.2f}, {report.tokens:,} tokens: {trained}validation perplexity {found}, "
        f"{report.tokens_per_second:,.0f} tokens/s"
    )


def _tell_import(imported: Any) -> None:
    from memtune.reports.corpora import corpus_table

    for warning in imported.warnings:
        _warn(warning)
    if imported.unchanged:
        out.print(f"{imported.manifest.name} is in the store already, with the same content")
    out.print(corpus_table([imported.manifest]))


def _tell_decision(decision: Any) -> None:
    if decision is None:
        out.print("no model to register: no trial reached a validation")
    elif decision.champion is None:
        out.print(f"the champion stays: {decision.reason}", soft_wrap=True)
    else:
        corpus = decision.champion.corpus
        out.print(f"new champion models:/{corpus}@champion: {decision.reason}", soft_wrap=True)
        out.print(
            f"evaluate it with: memtune evaluate models:/{corpus}@champion --split test", soft_wrap=True
        )


if __name__ == "__main__":
    main()
