"""`memtune corpus ...`: import texts as corpora, look at them, and change them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from memtune.cli.shell_completion import complete_corpus
from memtune.cli.terminal import AsJson, CorpusName, CorpusStoreOption, SplitName, Yes, out, warn
from memtune.errors import CorpusError
from memtune.number_format import format_count
from memtune.reports.text_console import show_control_characters

if TYPE_CHECKING:
    from memtune.corpora import Division, ImportOptions, ImportResult, Source

app = typer.Typer(
    help="Import texts as corpora; list, show, verify, export, rename and remove corpora.",
    no_args_is_help=True,
)
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
        # Imported here, as in every command: pyarrow and pydantic take 1 s, which help need not wait for.
        from memtune.corpora import Division, TextFile

        options = _parse_format_options(self.option or [])
        paths = {"train": self.train, "valid": self.valid, "test": self.test}
        files = {name: TextFile(path, self.format, options) for name, path in paths.items() if path}
        if not self.split:
            return files
        shares = self.split.split(",")
        are_numbers = all(part.isdecimal() and len(part) <= MAX_SHARE_DIGITS for part in shares)
        if list(files) != ["train"] or len(shares) != len(paths) or not are_numbers:
            raise typer.BadParameter(
                "give three whole numbers, as in 80,10,10, and --train without --valid and --test",
                param_hint="--split",
            )
        return Division(files["train"], dict(zip(paths, map(int, shares), strict=True)), self.split_seed)


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


@app.command("import")
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
    _print_import(imported)


def _parse_format_options(options: list[str]) -> dict[str, str]:
    """A mapping of each NAME=VALUE; raises BadParameter for any other text."""
    for option in options:
        if "=" not in option:
            raise typer.BadParameter(f"{option} is not NAME=VALUE", param_hint="--option")
    return dict(option.split("=", maxsplit=1) for option in options)


def _print_import(imported: "ImportResult") -> None:
    from memtune.reports.corpus_tables import make_corpus_table

    for warning in imported.warnings:
        warn(warning)
    if imported.unchanged:
        out.print(f"{imported.manifest.name} is already in the store, with the same content")
    out.print(make_corpus_table([imported.manifest]))


@app.command("formats")
def corpus_formats() -> None:
    """List the formats of text that can be imported, with their options.

    Example: memtune corpus formats
    """
    from memtune.reports.corpus_tables import make_formats_table

    out.print(make_formats_table())


@app.command("demo")
def corpus_demo(
    name: Annotated[str | None, typer.Argument(help="Name; default: grammar, or grammar_TASK.")] = None,
    task: Annotated[
        Literal["completion", "sentiment", "inference"] | None,
        typer.Option(
            help="Import data for this task instead of the text, which has trees and agreement questions."
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
    from memtune.corpora.grammar.embedded_corpus import import_grammar
    from memtune.corpora.grammar.task_corpora import import_grammar_task

    if task is None:
        _print_import(import_grammar(name or "grammar", store, replace=replace))
    else:
        _print_import(import_grammar_task(task, name or f"grammar_{task}", store, replace=replace))


@app.command("probe")
def corpus_probe(
    names: Annotated[
        list[str], typer.Argument(help="Probes or sets, with settings: mqar, mqar-pairs-16, state, ...")
    ],
    store: CorpusStoreOption = None,
    replace: Replace = False,
) -> None:
    """Draw the rows of probes as corpora probe-NAME, for studies with task.kind = "probe".

    Example: memtune corpus probe mqar parity-length-64
    """
    from memtune.corpora.probes.probe_corpora import PREFIX, import_probe

    for name in names:
        _print_import(import_probe(f"{PREFIX}{name.removeprefix(PREFIX)}", store, replace=replace))


@app.command("questions")
def corpus_questions(
    corpus: Annotated[
        str,
        typer.Argument(help="The corpus whose sentences become questions.", autocompletion=complete_corpus),
    ],
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

    counts = import_ranking_questions(corpus, name, store, seed, limit)
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
    out.print_line(f"{target}: {format_count(count, 'sentence')}")


@app.command("list")
def corpus_list(store: CorpusStoreOption = None, json: AsJson = False) -> None:
    """List the corpora of a store.

    Example: memtune corpus list --json
    """
    from memtune.corpora import CorpusStore, list_corpora
    from memtune.reports.corpus_tables import make_corpus_table

    manifests = list_corpora(store, lambda error: warn(str(error)))
    if json:
        records = [manifest.model_dump(mode="json") | {"bytes": manifest.bytes} for manifest in manifests]
        out.print_json(data=records)
    elif manifests:
        out.print(make_corpus_table(manifests))
    else:
        out.print(f"no corpora in {CorpusStore.open(store).folder}; start with: memtune corpus demo")


@app.command("show")
def corpus_show(name: CorpusName, store: CorpusStoreOption = None, json: AsJson = False) -> None:
    """Show a corpus: counts, vocabulary, sentence lengths, skipped entries, digest, licence note.

    Example: memtune corpus show ptb
    """
    from memtune.corpora import describe_corpus, show_tokens
    from memtune.reports.corpus_tables import make_corpus_description_table

    description = describe_corpus(name, store)
    if json:
        out.print_json(data=description)
        return
    for part in (description, *([description.joined] if description.joined else [])):
        out.print(make_corpus_description_table(part))
        tokens, counts = zip(*part.frequent, strict=True)
        frequent = zip(show_tokens(tokens, part.tokeniser_document), counts, strict=True)
        out.print(f"most frequent: {' '.join(f'{word} ({count:,})' for word, count in frequent)}")
        for remark in part.manifest.remarks:
            out.print_line(remark)
        out.print(f"licence: {part.manifest.licence or 'no note'}")


@app.command("verify")
def corpus_verify(name: CorpusName, store: CorpusStoreOption = None) -> None:
    """Read every byte of a corpus and compare it with its manifest; exit code 1 for any difference.

    Example: memtune corpus verify ptb
    """
    from memtune.corpora import verify_corpus

    problems = verify_corpus(name, store)
    if problems:
        raise CorpusError("\n".join([*problems, f'import "{name}" again with --replace']))
    out.print(f"{name} is intact: every file, count and digest matches its manifest")


@app.command("remove")
def corpus_remove(name: CorpusName, store: CorpusStoreOption = None, yes: Yes = False) -> None:
    """Remove a corpus from the store; models that were trained on it can no longer be evaluated.

    Example: memtune corpus remove novels --yes
    """
    from memtune.corpora import CorpusStore, remove_corpus

    if not yes:
        typer.confirm(f"remove {name} from {CorpusStore.open(store).folder}?", abort=True)
    removed = remove_corpus(name, store)
    out.print(f"{name} is removed, {removed.bytes / 1e6:,.1f} MB")


@app.command("rename")
def corpus_rename(
    name: CorpusName,
    new_name: Annotated[str, typer.Argument(help="Its new name.")],
    store: CorpusStoreOption = None,
) -> None:
    """Rename a corpus; its digest stays. Trials and models keep the old name and look for it.

    Example: memtune corpus rename novels novels_cased
    """
    from memtune.corpora import rename_corpus

    renamed = rename_corpus(name, new_name, store)
    out.print(f"{name} is now {new_name}, digest {renamed.digest[:12]}")


@app.command("export")
def corpus_export(
    name: CorpusName,
    folder: Annotated[Path, typer.Argument(help="Folder for one file per split.")],
    format: Annotated[
        Literal["text", "jsonl", "parquet"], typer.Option(help="Format of the files.")
    ] = "text",
    store: CorpusStoreOption = None,
) -> None:
    """Write the sentences of a corpus to files, one per split, as text with one sentence per line.

    Example: memtune corpus export ptb texts --format parquet
    """
    from memtune.corpora import export_text, open_corpus

    for path in export_text(open_corpus(name, store), folder, format):
        out.print_line(str(path))


@app.command("sample")
def corpus_sample(
    name: CorpusName,
    split: SplitName = "train",
    sentences: Annotated[int, typer.Option(min=1, help="Number of sentences.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="The same seed chooses the same sentences.")] = 0,
    store: CorpusStoreOption = None,
) -> None:
    """Print some sentences of a split, chosen at random, with their numbers.

    Example: memtune corpus sample ptb --split valid --sentences 5
    """
    from memtune.corpora import open_corpus, sample_sentences

    corpus = open_corpus(name, store)
    for number, sentence in sample_sentences(corpus, split, sentences, seed):
        out.print_line(f"{number}: {show_control_characters(sentence)}")
