"""`memtune corpus ...`: texts imported, listed, shown and verified."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from memtune.cli.terminal import AsJson, Store, escaped, out, progress_bar, store_of, warn

__all__ = ["app"]

SPLITS = ("train", "valid", "test")

app = typer.Typer(help="Import texts as corpora, and look at what there is.", no_args_is_help=True)


@app.command("import")
def corpus_import(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")],
    train: Annotated[Path | None, typer.Option(help="Training text; it alone makes the vocabulary.")] = None,
    valid: Annotated[Path | None, typer.Option(help="Validation text, by which models are chosen.")] = None,
    test: Annotated[Path | None, typer.Option(help="Test text, read for champions only.")] = None,
    split: Annotated[
        str | None, typer.Option(help="Divide the file of --train in three, as in 80,10,10.")
    ] = None,
    split_seed: Annotated[int, typer.Option(help="Seed of --split.")] = 0,
    format: Annotated[str, typer.Option(help="One of those memtune corpus formats lists.")] = "text",
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, an option of the format; may be repeated.")
    ] = None,
    store: Store = None,
    vocabulary: Annotated[
        Literal["train", "all"],
        typer.Option(help="Whose words make the vocabulary: the training text's, or all."),
    ] = "train",
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
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out what breaks its format, up to 1 %.")
    ] = False,
    vectors: Annotated[
        Path | None, typer.Option(help="Word vectors as GloVe text, kept for the vocabulary.")
    ] = None,
    vectors_seed: Annotated[int, typer.Option(help="Seed of the vectors of other words.")] = 0,
    licence: Annotated[str | None, typer.Option(help="A note on the text's licence, kept with it.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another corpus of this name.")] = False,
) -> None:
    """Import a text as memory-mapped Arrow shards with a manifest.

    Example: memtune corpus import ptb --format ptb --train train.txt --valid valid.txt --test test.txt
    """
    from memtune.corpora import ImportOptions, TextFile, VectorFile, import_corpus
    from memtune.values import parse

    given = {
        "vocabulary": vocabulary,
        "min_count": min_count,
        "max_size": max_size,
        "lower_case": lower_case,
        "unescape": unescape,
        "unknown": unknown,
        "skip_bad": skip_bad,
    }
    options = parse(ImportOptions, given, "corpus import")
    settings = _settings(option or [])
    given_files = {"train": train, "valid": valid, "test": test}
    files = {name: TextFile(path, format, settings) for name, path in given_files.items() if path}
    sources = _division(files, split, split_seed) if split else files
    with progress_bar() as bar:
        task = bar.add_task("import", total=None)

        def show(done: int, total: int | None, split: str) -> None:
            bar.update(task, completed=done, total=total, description=split)

        imported = import_corpus(
            name,
            sources,
            store_of(store),
            options,
            licence=licence,
            vectors=VectorFile(vectors, vectors_seed) if vectors else None,
            replace=replace,
            progress=show,
        )
    _tell_import(imported)


@app.command("formats")
def corpus_formats() -> None:
    """List the formats of text that can be imported, with their options.

    Example: memtune corpus formats
    """
    from memtune.reports.corpora import formats_table

    out.print(formats_table())


def _grammar_task(task: str | None) -> str | None:
    """A task of the grammar, or none; BadParameter for another."""
    from memtune.corpora.grammar.tasks import TASKS

    if task is None or task in TASKS:
        return task
    raise typer.BadParameter(
        f'no "{task}"; there are {", ".join(TASKS)}; without --task the text is imported, with agreement '
        "questions and trees"
    )


@app.command("demo")
def corpus_demo(
    name: Annotated[str | None, typer.Argument(help="Name; default: grammar, or grammar_TASK.")] = None,
    task: Annotated[
        str | None,
        typer.Option(
            callback=_grammar_task,
            metavar="[completion|sentiment|inference]",
            help="Data for a task instead of the text, which has trees and agreement questions.",
        ),
    ] = None,
    store: Store = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another corpus of this name.")] = False,
) -> None:
    """Import the embedded corpus: sentences of a grammar, with the exact ideal perplexity.

    Its text carries trees and agreement; with --task, gold data for another task is drawn apart from it.

    Example: memtune corpus demo

    Example: memtune corpus demo --task completion
    """
    from memtune.corpora.grammar import import_grammar
    from memtune.corpora.grammar.tasks import import_grammar_task

    if task is None:
        imported = import_grammar(name or "grammar", store_of(store), replace=replace)
    else:
        imported = import_grammar_task(task, name or f"grammar_{task}", store_of(store), replace=replace)
    _tell_import(imported)


@app.command("parse")
def corpus_parse(
    text: Annotated[Path, typer.Argument(help="Text to parse.")],
    target: Annotated[Path, typer.Argument(help="CoNLL-U file to write.")],
    parser: Annotated[
        Literal["spacy", "stanza"], typer.Option(help="What parses; it has to be installed.")
    ] = "spacy",
    model: Annotated[
        str, typer.Option(help="spaCy's pipeline, or the language of stanza's.")
    ] = "en_core_web_sm",
    format: Annotated[str, typer.Option(help="One of those memtune corpus formats lists.")] = "text",
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, an option of the format; may be repeated.")
    ] = None,
) -> None:
    """Parse a text's sentences by a parser of yours, for memtune corpus import --format conllu.

    Example: memtune corpus parse novels.txt novels.conllu --parser stanza --model en
    """
    from memtune.corpora import TextFile
    from memtune.corpora.parsing import parse_file

    count = parse_file(TextFile(text, format, _settings(option or [])), target, parser, model)
    out.print(f"{target}: {count:,} sentences", soft_wrap=True)


@app.command("list")
def corpus_list(store: Store = None, json: AsJson = False) -> None:
    """List the corpora of a store.

    Example: memtune corpus list --json
    """
    from memtune.corpora import list_corpora
    from memtune.reports.corpora import corpus_table

    manifests = list_corpora(store_of(store), lambda error: warn(str(error)))
    if json:
        out.print_json(data=[manifest.model_dump(mode="json") for manifest in manifests])
    elif manifests:
        out.print(corpus_table(manifests))
    else:
        out.print(f"no corpora in {store_of(store)}; start with: memtune corpus demo")


@app.command("show")
def corpus_show(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")],
    store: Store = None,
    json: AsJson = False,
) -> None:
    """Show a corpus: counts, vocabulary, sentence lengths, what its import left out, digest, licence note.

    Example: memtune corpus show ptb
    """
    from memtune.corpora import describe_corpus

    description = describe_corpus(name, store_of(store))
    if json:
        out.print_json(description.model_dump_json())
        return
    for part in (description, description.joined):
        if part:
            _tell(part)


@app.command("verify")
def corpus_verify(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")], store: Store = None
) -> None:
    """Read every byte of a corpus and compare it with its manifest; exit code 1 when something is wrong.

    Example: memtune corpus verify ptb
    """
    from memtune.corpora import verify_corpus
    from memtune.errors import CorpusError

    problems = verify_corpus(name, store_of(store))
    if problems:
        raise CorpusError("\n".join([*problems, f'import "{name}" again with --replace']))
    out.print(f"{name} is whole: every file, count and digest is as its manifest says")


def _division(files: dict[str, Any], split: str, seed: int) -> Any:
    """The one file given, divided by shares as in 80,10,10."""
    from memtune.corpora import Division

    shares = split.split(",")
    if list(files) != ["train"] or len(shares) != len(SPLITS) or not all(part.isdecimal() for part in shares):
        raise typer.BadParameter(
            "it takes three numbers, as in 80,10,10, and --train alone", param_hint="--split"
        )
    return Division(files["train"], dict(zip(SPLITS, map(int, shares), strict=True)), seed)


def _settings(options: list[str]) -> dict[str, str]:
    """NAME=VALUE as a mapping."""
    wrong = [option for option in options if "=" not in option]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]} is not NAME=VALUE", param_hint="--option")
    return {name: value for name, _, value in (option.partition("=") for option in options)}


def _tell(description: Any) -> None:
    from memtune.reports.corpora import describe_table

    out.print(describe_table(description))
    frequent = " ".join(f"{word} ({count:,})" for word, count in description.frequent)
    out.print(f"most frequent: {escaped(frequent)}")
    for remark in description.manifest.remarks:
        out.print(escaped(remark), soft_wrap=True)
    out.print(f"licence: {description.manifest.licence or 'no note was given at import'}")


def _tell_import(imported: Any) -> None:
    from memtune.reports.corpora import corpus_table

    for warning in imported.warnings:
        warn(warning)
    if imported.unchanged:
        out.print(f"{imported.manifest.name} is in the store already, with the same content")
    out.print(corpus_table([imported.manifest]))
