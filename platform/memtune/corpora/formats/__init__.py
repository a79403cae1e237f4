"""Text formats: they parse the lines of a file into sentences and annotations."""

from collections.abc import Mapping

from memtune.corpora.blocks.text_blocks import BadLineError, Block, Format, split_lines
from memtune.corpora.formats import (
    column_files,
    conllu,
    msr_completion,
    number_agreement,
    prose_texts,
    raw,
    records,
    sentence_lines,
    snli,
    sst,
)
from memtune.corpora.sources.line_reader import LineReader
from memtune.plugins import ObjectRegistry

_BUILT_IN: Mapping[str, Format] = {
    "text": sentence_lines.TEXT,
    "ptb": sentence_lines.PTB,
    "wikitext": sentence_lines.WIKITEXT,
    "prose": prose_texts.PROSE,
    "raw": raw.FORMAT,
    "jsonl": records.JSON_LINES,
    "csv": records.CSV,
    "parquet": column_files.PARQUET,
    "arrow": column_files.ARROW,
    "gutenberg": prose_texts.GUTENBERG,
    "msr-completion": msr_completion.FORMAT,
    "agreement": number_agreement.AGREEMENT,
    "agreement-prefix": number_agreement.AGREEMENT_PREFIX,
    "linzen-tsv": number_agreement.LINZEN_TSV,
    "sst": sst.FORMAT,
    "snli": snli.SNLI,
    "snli-tsv": snli.SNLI_TSV,
    "conllu": conllu.FORMAT,
}
FORMATS: ObjectRegistry[Format] = ObjectRegistry(
    "text format", "memtune.formats", lambda entry: isinstance(entry, Format), _BUILT_IN
)
"""Formats by name; packages add theirs as entry points `memtune.formats`."""
