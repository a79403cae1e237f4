"""Text formats, one module each: they parse the lines of a file into sentences and annotations."""

from collections.abc import Mapping

from memtune.corpora.formats import (
    agreement_lines,
    agreement_prefixes,
    conllu,
    gutenberg,
    linzen_tsv,
    msr_completion,
    ptb,
    snli,
    snli_tsv,
    sst,
    text,
    wikitext,
)
from memtune.corpora.importing.text_blocks import Format

__all__ = ["FORMATS"]

FORMATS: Mapping[str, Format] = {
    "text": text.FORMAT,
    "ptb": ptb.FORMAT,
    "wikitext": wikitext.FORMAT,
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
"""Formats by name."""
