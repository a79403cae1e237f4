"""`memtune corpus ...`: import texts as corpora; list, show and verify corpora."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memtune.cli.option_groups import expand_option_groups
from memtune.cli.terminal import (
    AsJson,
    CorpusStoreOption,
    out,
    progress_bar,
    resolve_corpus_store,
    warn,
)
from memtune.errors import CorpusError

if TYPE_CHECKING:
    from memtune.corpora import (
        CorpusDescription,
        Division,
        ImportOptions,
        ImportResult,
        Source,
        TextFile,
        VectorFile,
    )


__all__ = ["app"]

SPLITS = ("train", "valid", "test")
MAX_SHARE_DIGITS = 9

app = typer.Typer(help="Import texts as corpora; list, show and verify corpora.", no_args_is_help=True)


FormatName = Annotated[str, typer.Option(help="One of the formats of memtune corpus formats.")]
FormatOptions = Annotated[
    list[str] | None, typer.Option(help="NAME=VALUE, an option of the format; may be repeated.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Replace another corpus of this name.")]


@dataclass(frozen=True)
class SourceOptions:
    """The texts and how they are read."""

    train: Annotated[
        Path | None,
        typer.Option(help="Training text, or - for the standard input; it makes the vocabulary."),
    ] = None
    valid: Annotated[Path | None, typer.Option(help="Validation text, which selects models.")] = None
    test: Annotated[Path | None, typer.Option(help="Test text, read for champions only.")] = None
    split: Annotated[
        str | None, typer.Option(help="Divide the file of --train into three, as in 80,10,10.")
    ] = None
    split_seed: Annotated[int, typer.Option(help="Seed of --split.")] = 0
    format: FormatName = "text"
    option: FormatOptions = None

    def resolve(self) -> "Mapping[str, Source] | Division":
        """The sources of the import; raises BadParameter for a wrong --option or --split."""
        # Imported here: pyarrow and pydantic take about 1 s, and help does not need them.
        from memtune.corpora import TextFile

        options = _parse_format_options(self.option or [])
        paths = {"train": self.train, "valid": self.valid, "test": self.test}
        files = {name: TextFile(path, self.format, options) for name, path in paths.items() if path}
        return _parse_division(files, self.split, self.split_seed) if self.split else files


@dataclass(frozen=True)
class WordOptions:
    """Which words make the vocabulary and how they are spelled."""

    vocabulary: Annotated[
        Literal["train", "all"],
        typer.Option(help="Splits whose words make the vocabulary: train alone, or all."),
    ] = "train"
    min_count: Annotated[int, typer.Option(help="Keep words with at least this count in training.")] = 1
    max_size: Annotated[int | None, typer.Option(help="Largest vocabulary.")] = None
    lower_case: Annotated[bool, typer.Option("--lower-case", help="Lower-case every word.")] = False
    unescape: Annotated[bool, typer.Option("--unescape", help="Undo the escapes of the Moses tokenizer.")] = (
        False
    )
    unknown: Annotated[
        Literal["map", "refuse"],
        typer.Option(help="Words outside the vocabulary: map them to one unknown word, or refuse the text."),
    ] = "map"
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out entries that break the format, up to 1 %.")
    ] = False

    def resolve(self) -> "ImportOptions":
        """The options of the import; raises ConfigurationError for values out of range."""
        from memtune.corpora import ImportOptions
        from memtune.values import parse

        options: ImportOptions = parse(ImportOptions, asdict(self), "corpus import")
        return options


@dataclass(frozen=True)
class VectorOptions:
    """The word vectors stored with the corpus."""

    vectors: Annotated[
        Path | None, typer.Option(help="Word vectors as GloVe text, stored for the vocabulary.")
    ] = None
    vectors_seed: Annotated[int, typer.Option(min=0, help="Seed of the vectors of words without one.")] = 0

    def resolve(self) -> "VectorFile | None":
        """The file of vectors, if there is one."""
        from memtune.corpora import VectorFile

        return VectorFile(self.vectors, self.vectors_seed) if self.vectors else None


@app.command("import")
@expand_option_groups
def corpus_import(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")],
    sources: SourceOptions,
    words: WordOptions,
    vectors: VectorOptions,
    store: CorpusStoreOption = None,
    licence: Annotated[str | None, typer.Option(help="A note on the licence of the text.")] = None,
    replace: Replace = False,
) -> None:
    """Import a text as memory-mapped Arrow shards with a manifest.

    Example: memtune corpus import ptb --format ptb --train train.txt --valid valid.txt --test test.txt
    """
    from memtune.corpora import import_corpus

    options, texts = words.resolve(), sources.resolve()
    with progress_bar() as bar:
        task = bar.add_task("import", total=None)

        def show(done: int, total: int | None, split: str) -> None:
            bar.update(task, completed=done, total=total, description=split)

        imported = import_corpus(
            name,
            texts,
            resolve_corpus_store(store),
            options,
            licence=licence,
            vectors=vectors.resolve(),
            replace=replace,
            progress=show,
        )
    _print_import(imported)


@app.command("formats")
def corpus_formats() -> None:
    """List the formats of text that can be imported, with their options.

    Example: memtune corpus formats
    """
    from memtune.reports.corpus_tables import formats_table

    out.print(formats_table())


def _check_grammar_task(task: str | None) -> str | None:
    """Returns a task of the grammar or None; raises BadParameter for any other text."""
    from memtune.corpora.grammar.task_corpora import TASKS

    if task is None or task in TASKS:
        return task
    raise typer.BadParameter(
        f'no task "{task}"; known: {", ".join(TASKS)}; without --task the text is imported, with agreement '
        "questions and trees"
    )


@app.command("demo")
def corpus_demo(
    name: Annotated[str | None, typer.Argument(help="Name; default: grammar, or grammar_TASK.")] = None,
    task: Annotated[
        str | None,
        typer.Option(
            callback=_check_grammar_task,
            metavar="[completion|sentiment|inference]",
            help="Import data for this task instead of the text, which has trees and agreement questions.",
        ),
    ] = None,
    store: CorpusStoreOption = None,
    replace: Replace = False,
) -> None:
    """Import the embedded corpus: sentences of a grammar, with the exact ideal perplexity.

    The text has trees and agreement questions. With --task, gold data for another task is imported instead.

    Example: memtune corpus demo

    Example: memtune corpus demo --task completion
    """
    from memtune.corpora.grammar import import_grammar
    from memtune.corpora.grammar.task_corpora import import_grammar_task

    if task is None:
        imported = import_grammar(name or "grammar", resolve_corpus_store(store), replace=replace)
    else:
        imported = import_grammar_task(
            task, name or f"grammar_{task}", resolve_corpus_store(store), replace=replace
        )
    _print_import(imported)


@app.command("questions")
def corpus_questions(
    corpus: Annotated[str, typer.Argument(help="The corpus whose sentences become questions.")],
    name: Annotated[str, typer.Argument(help="Name of the corpus of questions; an older one is replaced.")],
    seed: Annotated[int, typer.Option(help="Seed of the words and of the candidates.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Questions of each split, at most.")] = None,
    store: CorpusStoreOption = None,
) -> None:
    """Make completion questions from the validation and test sentences of a corpus.

    Each question offers a word of the sentence and four others of about the same training frequency.

    Example: memtune corpus questions novels novels_questions
    """
    from memtune.corpora.importing.ranking_questions import import_ranking_questions

    counts = import_ranking_questions(corpus, name, resolve_corpus_store(store), seed, limit)
    out.print(f"{name}: " + ", ".join(f"{count:,} for {split}" for split, count in counts.items()))


@app.command("parse")
def corpus_parse(
    text: Annotated[Path, typer.Argument(help="Text to parse.")],
    target: Annotated[Path, typer.Argument(help="CoNLL-U file to write.")],
    parser: Annotated[
        Literal["spacy", "stanza"], typer.Option(help="The parser, which you install.")
    ] = "spacy",
    model: Annotated[str, typer.Option(help="A spaCy pipeline, or a language of stanza.")] = "en_core_web_sm",
    format: FormatName = "text",
    option: FormatOptions = None,
) -> None:
    """Parse the sentences of a text with spaCy or stanza, for memtune corpus import --format conllu.

    Example: memtune corpus parse novels.txt novels.conllu --parser stanza --model en
    """
    from memtune.corpora import TextFile
    from memtune.corpora.importing.dependency_parsers import parse_file

    count = parse_file(TextFile(text, format, _parse_format_options(option or [])), target, parser, model)
    out.print(f"{target}: {count:,} sentences", soft_wrap=True)


@app.command("list")
def corpus_list(store: CorpusStoreOption = None, json: AsJson = False) -> None:
    """List the corpora of a store.

    Example: memtune corpus list --json
    """
    from memtune.corpora import list_corpora
    from memtune.reports.corpus_tables import corpus_table

    manifests = list_corpora(resolve_corpus_store(store), lambda error: warn(str(error)))
    if json:
        out.print_json(data=[manifest.model_dump(mode="json") for manifest in manifests])
    elif manifests:
        out.print(corpus_table(manifests))
    else:
        out.print(f"no corpora in {resolve_corpus_store(store)}; start with: memtune corpus demo")


@app.command("show")
def corpus_show(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")],
    store: CorpusStoreOption = None,
    json: AsJson = False,
) -> None:
    """Show a corpus: counts, vocabulary, sentence lengths, skipped entries, digest, licence note.

    Example: memtune corpus show ptb
    """
    from memtune.corpora import describe_corpus

    description = describe_corpus(name, resolve_corpus_store(store))
    if json:
        out.print_json(description.model_dump_json())
        return
    for part in (description, description.joined):
        if part:
            _print_description(part)


@app.command("verify")
def corpus_verify(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")], store: CorpusStoreOption = None
) -> None:
    """Read every byte of a corpus and compare it with its manifest; exit code 1 for any difference.

    Example: memtune corpus verify ptb
    """
    from memtune.corpora import verify_corpus

    problems = verify_corpus(name, resolve_corpus_store(store))
    if problems:
        raise CorpusError("\n".join([*problems, f'import "{name}" again with --replace']))
    out.print(f"{name} is intact: every file, count and digest matches its manifest")


def _parse_division(files: "dict[str, TextFile]", split: str, seed: int) -> "Division":
    """The file of --train, divided by shares as in 80,10,10."""
    from memtune.corpora import Division

    shares = split.split(",")
    are_numbers = all(part.isdecimal() and len(part) <= MAX_SHARE_DIGITS for part in shares)
    if list(files) != ["train"] or len(shares) != len(SPLITS) or not are_numbers:
        raise typer.BadParameter(
            "give three numbers, as in 80,10,10, and --train without --valid and --test", param_hint="--split"
        )
    return Division(files["train"], dict(zip(SPLITS, map(int, shares), strict=True)), seed)


def _parse_format_options(options: list[str]) -> dict[str, str]:
    """A mapping of each NAME=VALUE; raises BadParameter for any other text."""
    wrong = [option for option in options if "=" not in option]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]} is not NAME=VALUE", param_hint="--option")
    return {name: value for name, _, value in (option.partition("=") for option in options)}


def _print_description(description: "CorpusDescription") -> None:
    from memtune.reports.corpus_tables import corpus_description_table

    out.print(corpus_description_table(description))
    frequent = " ".join(f"{word} ({count:,})" for word, count in description.frequent)
    out.print(f"most frequent: {frequent}")
    for remark in description.manifest.remarks:
        out.print(remark, soft_wrap=True)
    out.print(f"licence: {description.manifest.licence or 'no note'}")


def _print_import(imported: "ImportResult") -> None:
    from memtune.reports.corpus_tables import corpus_table

    for warning in imported.warnings:
        warn(warning)
    if imported.unchanged:
        out.print(f"{imported.manifest.name} is already in the store, with the same content")
    out.print(corpus_table([imported.manifest]))
