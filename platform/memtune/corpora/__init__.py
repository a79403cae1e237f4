"""Corpora: text in, splits of memory-mapped tokens out.

`memtune.corpora.protocols`, which makes batches of them, is imported by itself: only it needs torch.
"""

from memtune.corpora.annotations import KINDS
from memtune.corpora.division import Division
from memtune.corpora.examples import Example
from memtune.corpora.formats import FORMATS
from memtune.corpora.importing import Imported, import_corpus
from memtune.corpora.inspection import CorpusDescription, describe_corpus, verify_corpus
from memtune.corpora.location import Store
from memtune.corpora.manifest import ImportOptions, Manifest
from memtune.corpora.reading import Source
from memtune.corpora.sources import TextFile
from memtune.corpora.store import Corpus, Split, list_corpora, open_corpus
from memtune.corpora.vectors import VectorFile, Vectors
from memtune.corpora.vocabulary import EOS, UNK, Vocabulary

__all__ = [
    "EOS",
    "FORMATS",
    "KINDS",
    "UNK",
    "Corpus",
    "CorpusDescription",
    "Division",
    "Example",
    "ImportOptions",
    "Imported",
    "Manifest",
    "Source",
    "Split",
    "Store",
    "TextFile",
    "VectorFile",
    "Vectors",
    "Vocabulary",
    "describe_corpus",
    "import_corpus",
    "list_corpora",
    "open_corpus",
    "verify_corpus",
]
