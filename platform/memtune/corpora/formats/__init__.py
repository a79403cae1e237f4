"""Text formats, one module each: they parse the lines of a file into sentences and annotations."""

from collections.abc import Mapping

from memtune.corpora.blocks.text_blocks import BadLineError, Block, Format, split_lines
from memtune.corpora.formats import (
    agreement_lines,
    agreement_prefixes,
    conllu,
    gutenberg,
    linzen_tsv,
    msr_completion,
    plain_prose,
    ptb,
    raw,
    snli,
    snli_tsv,
    sst,
    text,
    wikitext,
)
from memtune.corpora.formats.records import column_files, csv_rows, json_lines
from memtune.corpora.sources.line_reader import LineReader
from memtune.plugins import ObjectRegistry

__all__ = ["FORMATS", "BadLineError", "Block", "Format", "LineReader", "split_lines"]

_BUILT_IN: Mapping[str, Format] = {
    "text": text.FORMAT,
    "ptb": ptb.FORMAT,
    "wikitext": wikitext.FORMAT,
    "prose": plain_prose.FORMAT,
    "raw": raw.FORMAT,
    "jsonl": json_lines.FORMAT,
    "csv": csv_rows.FORMAT,
    "parquet": column_files.PARQUET,
    "arrow": column_files.ARROW,
    "gutenberg": gutenberg.FORMAT,
    "msr-completion": msr_completion.FORMAT,
    "agreement": agreement_lines.FORMAT,
    "agreement-prefix": agreement_prefixes.FORMAT,
    "linzen-tsv": linzen_tsv.FORMAT,
    "sst": sst.FORMAT,
    "snli": snli.FORMAT,
    "snli-tsv": snli_tsv.FORMAT,
    "conllu": conllu.FORMAT,
}
FORMATS: ObjectRegistry[Format] = ObjectRegistry(
    "text format", "memtune.formats", lambda entry: isinstance(entry, Format), _BUILT_IN
)
"""Formats by name; packages add theirs as entry points `memtune.formats`."""
