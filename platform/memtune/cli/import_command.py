"""`memtune corpus import`: its options, and what it prints."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from memtune.cli.terminal import CorpusStoreOption, expand_option_groups, out, warn

if TYPE_CHECKING:
    from memtune.corpora import Division, ImportOptions, ImportResult, Source, TextFile

SPLITS = ("train", "valid", "test")
MAX_SHARE_DIGITS = 9

FormatName = Annotated[str, typer.Option(help="One of the formats of memtune corpus formats.")]
FormatOptions = Annotated[
    list[str] | None, typer.Option(help="NAME=VALUE, an option of the format; may be repeated.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Replace another corpus of this name.")]


@dataclass(frozen=True)
class SourceOptions:
    """The texts and how they are read."""

    train: Annotated[
        str | None,
        typer.Option(
            help="Training text, which makes the vocabulary: a file, a folder, a pattern in quotes, a URI "
            "such as s3://bucket/a.txt, or - for the standard input."
        ),
    ] = None
    valid: Annotated[str | None, typer.Option(help="Validation text, which selects models.")] = None
    test: Annotated[str | None, typer.Option(help="Test text, read for champions only.")] = None
    split: Annotated[
        str | None, typer.Option(help="Divide the file of --train into three, as in 80,10,10.")
    ] = None
    split_seed: Annotated[int, typer.Option(help="Seed of --split.")] = 0
    format: FormatName = "text"
    option: FormatOptions = None

    def resolve(self) -> "Mapping[str, Source] | Division":
        """The sources of the import; raises BadParameter for a wrong --option or --split."""
        # Imported here: pyarrow and pydantic take about 1 s, and help does not need them.
        from memtune.corpora import TextFile, parse_location

        options = parse_format_options(self.option or [])
        paths = {"train": self.train, "valid": self.valid, "test": self.test}
        files = {
            name: TextFile(parse_location(path), self.format, options) for name, path in paths.items() if path
        }
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
    normalise: Annotated[
        Literal["NFC", "NFKC"] | None,
        typer.Option(help="Unicode normal form of the words, without zero-width characters."),
    ] = None
    tokens: Annotated[
        str,
        typer.Option(
            help="words, characters, bytes, bpe:8000, unigram:8000, or a file of Hugging Face tokenizers, "
            "such as tokenizer.json."
        ),
    ] = "words"
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


@expand_option_groups
def corpus_import(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")],
    sources: SourceOptions,
    words: WordOptions,
    vectors: Annotated[
        Path | None, typer.Option(help="Word vectors as GloVe text, stored for the vocabulary.")
    ] = None,
    vectors_seed: Annotated[int, typer.Option(min=0, help="Seed of the vectors of words without one.")] = 0,
    store: CorpusStoreOption = None,
    licence: Annotated[str | None, typer.Option(help="A note on the licence of the text.")] = None,
    replace: Replace = False,
) -> None:
    """Import a text as memory-mapped Arrow shards with a manifest.

    Example: memtune corpus import ptb --format ptb --train train.txt --valid valid.txt --test test.txt
    """
    from memtune.corpora import VectorFile, import_corpus

    options, texts = words.resolve(), sources.resolve()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("import", total=None)

        def show(done: int, total: int | None, split: str) -> None:
            bar.update(task, completed=done, total=total, description=split)

        imported = import_corpus(
            name,
            texts,
            store,
            options,
            licence=licence,
            vectors=VectorFile(vectors, vectors_seed) if vectors else None,
            replace=replace,
            progress=show,
        )
    print_import(imported)


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


def parse_format_options(options: list[str]) -> dict[str, str]:
    """A mapping of each NAME=VALUE; raises BadParameter for any other text."""
    wrong = [option for option in options if "=" not in option]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]} is not NAME=VALUE", param_hint="--option")
    return {name: value for name, _, value in (option.partition("=") for option in options)}


def print_import(imported: "ImportResult") -> None:
    """Print the warnings of an import and the row of its corpus."""
    from memtune.reports.corpus_tables import make_corpus_table

    for warning in imported.warnings:
        warn(warning)
    if imported.unchanged:
        out.print(f"{imported.manifest.name} is already in the store, with the same content")
    out.print(make_corpus_table([imported.manifest]))
