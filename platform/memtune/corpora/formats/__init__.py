"""Text formats, a module each: what counts as a sentence in the lines of a file."""

from collections.abc import Mapping

from memtune.corpora.formats import ptb, text, wikitext
from memtune.corpora.sources import Format

__all__ = ["FORMATS"]

FORMATS: Mapping[str, Format] = {"text": text.read, "ptb": ptb.read, "wikitext": wikitext.read}
"""Format name -> what reads it."""
