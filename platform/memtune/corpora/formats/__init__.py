"""Text formats: they parse the lines of a file into sentences and annotations."""

from collections.abc import Mapping

from typing_extensions import override

from memtune.corpora.formats import (
    conllu,
    labelled_sentences,
    msr_completion,
    number_agreement,
    plain_texts,
    prose_texts,
    records,
)
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.text_blocks import BadLineError, Block, Format, split_lines
from memtune.errors import PluginError
from memtune.plugins import PluginRegistry, PluginSource

_BUILT_IN: Mapping[str, Format] = {
    "text": plain_texts.TEXT,
    "ptb": plain_texts.PTB,
    "wikitext": plain_texts.WIKITEXT,
    "prose": prose_texts.PROSE,
    "raw": plain_texts.RAW,
    "jsonl": records.JSON_LINES,
    "csv": records.CSV,
    "parquet": records.PARQUET,
    "arrow": records.ARROW,
    "gutenberg": prose_texts.GUTENBERG,
    "msr-completion": msr_completion.FORMAT,
    "agreement": number_agreement.AGREEMENT,
    "agreement-prefix": number_agreement.AGREEMENT_PREFIX,
    "linzen-tsv": number_agreement.LINZEN_TSV,
    "sst": labelled_sentences.SST,
    "snli": labelled_sentences.SNLI,
    "snli-tsv": labelled_sentences.SNLI_TSV,
    "conllu": conllu.FORMAT,
}


class _FormatRegistry(PluginRegistry[Format]):
    @override
    def adapt(self, name: str, entry: object, source: PluginSource) -> Format:
        if not isinstance(entry, Format):
            raise PluginError(f'{source} has {entry!r} as "{name}", which is no {self.noun}')
        return entry


FORMATS = _FormatRegistry("text format", "memtune.formats", _BUILT_IN)
"""Formats by name; packages add theirs as entry points `memtune.formats`."""
