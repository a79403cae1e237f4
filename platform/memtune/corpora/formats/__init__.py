"""Text formats, a module each: what counts as a sentence in the lines of a file."""

from collections.abc import Mapping

from memtune.corpora.formats import (
    agreement,
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
from memtune.corpora.sources import Format

__all__ = ["FORMATS"]

FORMATS: Mapping[str, Format] = {
    "text": text.FORMAT,
    "ptb": ptb.FORMAT,
    "wikitext": wikitext.FORMAT,
    "gutenberg": gutenberg.FORMAT,
    "msr-completion": msr_completion.FORMAT,
    "agreement": agreement.FORMAT,
    "linzen-tsv": linzen_tsv.FORMAT,
    "sst": sst.FORMAT,
    "snli": snli.FORMAT,
    "snli-tsv": snli_tsv.FORMAT,
    "conllu": conllu.FORMAT,
}
"""Format name -> what reads it."""
