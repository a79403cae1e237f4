"""Tables of corpora and of text formats."""

from collections.abc import Iterable

from rich.table import Table

from memtune.corpora import FORMATS, CorpusDescription, Manifest
from memtune.reports.text_console import make_table


def make_formats_table() -> Table:
    """One row per format, with its options and their defaults."""
    columns = ("format", "what it reads", "annotations", "options")
    table = make_table("", columns, overflow="ellipsis")
    for name in FORMATS.list_names():
        format = FORMATS[name]
        options = (
            f"{option}={'' if field.default is None else field.default}"
            for option, field in format.options.model_fields.items()
        )
        table.add_row(name, format.summary, ", ".join(format.annotations) or "-", " ".join(options) or "-")
    return table


def make_corpus_table(manifests: Iterable[Manifest]) -> Table:
    """One row per corpus: tokens per split, vocabulary, unit, kinds of annotations, size, digest."""
    splits = ("train", "valid", "test")
    columns = ("corpus", *(f">{split}" for split in splits), ">vocabulary", "tokens", "annotations", ">size")
    table = make_table("", (*columns, "digest"), overflow="ellipsis")
    for manifest in manifests:
        counts = {name: f"{split.tokens:,}" for name, split in manifest.splits.items()}
        table.add_row(
            manifest.name,
            *(counts.get(split, "-") for split in splits),
            f"{manifest.vocabulary.size:,}",
            manifest.options.tokens,
            ", ".join(manifest.annotations) or "-",
            f"{manifest.bytes / 1e6:,.1f} MB",
            manifest.digest[:12],
        )
    return table


def make_corpus_description_table(description: CorpusDescription) -> Table:
    """One column per split: counts, sentence lengths in words, share of words outside of the vocabulary."""
    manifest = description.manifest
    title = f"{manifest.name}, {manifest.vocabulary.size:,} types, digest {manifest.digest[:12]}"
    columns = ("", *(f">{split}" for split in manifest.splits))
    table = make_table(title, columns, overflow="ellipsis")
    splits, lengths = manifest.splits.values(), description.lengths.values()
    table.add_row("tokens, <eos> counted", *(f"{split.tokens:,}" for split in splits))
    table.add_row("sentences", *(f"{split.sentences:,}" for split in splits))
    table.add_row("types", *(f"{split.types:,}" for split in splits))
    table.add_row("words out of vocabulary", *(f"{split.oov_rate:.2%}" for split in splits))
    for unit in ("words", "bytes"):
        counts = [getattr(split, unit) for split in splits]
        if manifest.tokeniser and None not in counts:
            table.add_row(f"{unit} of the text", *(f"{count:,}" for count in counts))
    table.add_row("mean length", *(f"{length.mean:.1f}" for length in lengths))
    table.add_row("95 % are at most", *(f"{length.percentile_95:.0f}" for length in lengths))
    table.add_row("longest", *(f"{length.longest:,}" for length in lengths))
    for kind, annotation in manifest.annotations.items():
        rows = (annotation.files[split].rows if split in annotation.files else 0 for split in manifest.splits)
        table.add_row(kind, *(f"{count:,}" for count in rows))
    if vectors := manifest.vectors:
        table.caption = f"{vectors.known:,} vectors of {vectors.width} numbers from {vectors.source.name}"
    if manifest.ideal:
        table.add_row("ideal perplexity", *(f"{manifest.ideal[split]:.3f}" for split in manifest.splits))
    return table
