"""Corpora: import text, store it as memory-mapped token splits, and open it.

`memtune.corpora.batching.protocols`, which makes batches, is not imported here because only it needs torch.
"""

from memtune.corpora.formats import FORMATS
from memtune.corpora.importing.example_blocks import Example
from memtune.corpora.importing.importer import ImportResult, import_corpus
from memtune.corpora.importing.source_reader import Source
from memtune.corpora.importing.split_assignment import Division
from memtune.corpora.importing.text_blocks import TextFile
from memtune.corpora.store.annotations import ANNOTATION_KINDS
from memtune.corpora.store.corpus import Corpus, Split, list_corpora, open_corpus
from memtune.corpora.store.corpus_inspection import CorpusDescription, describe_corpus, verify_corpus
from memtune.corpora.store.corpus_store import CorpusStore
from memtune.corpora.store.manifest import ImportOptions, Manifest
from memtune.corpora.store.vocabulary import EOS, UNK, Vocabulary
from memtune.corpora.store.word_vectors import VectorFile, Vectors

__all__ = [
    "ANNOTATION_KINDS",
    "EOS",
    "FORMATS",
    "UNK",
    "Corpus",
    "CorpusDescription",
    "CorpusStore",
    "Division",
    "Example",
    "ImportOptions",
    "ImportResult",
    "Manifest",
    "Source",
    "Split",
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
