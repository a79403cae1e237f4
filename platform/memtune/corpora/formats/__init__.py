"""Text formats, a module each: what counts as a sentence in the lines of a file."""

from collections.abc import Mapping

from memtune.corpora.formats import conllu, ptb, text, wikitext
from memtune.corpora.sources import Format

__all__ = ["FORMATS"]

FORMATS: Mapping[str, Format] = {
    "text": text.FORMAT,
    "ptb": ptb.FORMAT,
    "wikitext": wikitext.FORMAT,
    "conllu": conllu.FORMAT,
}
"""Format name -> what reads it."""
