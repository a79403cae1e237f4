"""`memtune corpus remove`, `rename`, `export` and `sample`: corpora that are in the store."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from memtune.cli.shell_completion import complete_corpus
from memtune.cli.terminal import CorpusStoreOption, SplitName, Yes, out, resolve_corpus_store
from memtune.reports.text_console import show_control_characters

CorpusName = Annotated[str, typer.Argument(help="Name of the corpus.", autocompletion=complete_corpus)]


def corpus_remove(name: CorpusName, store: CorpusStoreOption = None, yes: Yes = False) -> None:
    """Remove a corpus from the store; models that were trained on it can no longer be evaluated.

    Example: memtune corpus remove novels --yes
    """
    # Imported here, as below: pyarrow and pydantic take about 0.5 s, and help needs neither.
    from memtune.corpora import remove_corpus

    if not yes:
        typer.confirm(f"remove {name} from {resolve_corpus_store(store)}?", abort=True)
    removed = remove_corpus(name, resolve_corpus_store(store))
    out.print(f"{name} is removed, {removed.bytes / 1e6:,.1f} MB")


def corpus_rename(
    name: CorpusName,
    new_name: Annotated[str, typer.Argument(help="Its new name.")],
    store: CorpusStoreOption = None,
) -> None:
    """Rename a corpus; its digest stays. Trials and models keep the old name and look for it.

    Example: memtune corpus rename novels novels_cased
    """
    from memtune.corpora import rename_corpus

    renamed = rename_corpus(name, new_name, resolve_corpus_store(store))
    out.print(f"{name} is now {new_name}, digest {renamed.digest[:12]}")


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

    for path in export_text(open_corpus(name, resolve_corpus_store(store)), folder, format):
        out.print(str(path), soft_wrap=True, highlight=False, markup=False)


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

    corpus = open_corpus(name, resolve_corpus_store(store))
    for number, sentence in sample_sentences(corpus, split, sentences, seed):
        out.print(
            f"{number}: {show_control_characters(sentence)}", soft_wrap=True, highlight=False, markup=False
        )
