"""Corpora: import text, store it as memory-mapped token splits, and open it.

`memtune.corpora.batching.protocols`, which makes batches, is not imported here because only it needs torch.
"""

from memtune.corpora.formats import FORMATS
from memtune.corpora.importing.data_sets import DataSet, find_splits
from memtune.corpora.importing.division import Division
from memtune.corpora.importing.import_sources import Source
from memtune.corpora.importing.importer import ImportResult, import_corpus
from memtune.corpora.importing.token_stage import spell_sentence
from memtune.corpora.store.annotations import ANNOTATION_KINDS
from memtune.corpora.store.corpus import Corpus, Split, list_corpora, open_corpus
from memtune.corpora.store.corpus_inspection import (
    CorpusDescription,
    TextUnits,
    count_text_units,
    describe_corpus,
    remove_corpus,
    rename_corpus,
    verify_corpus,
)
from memtune.corpora.store.corpus_store import CorpusStore
from memtune.corpora.store.manifest import ImportOptions, Manifest
from memtune.corpora.store.vocabulary import EOS, UNK, VectorFile, Vocabulary
from memtune.corpora.text_blocks import Example, TextFile
from memtune.corpora.tokenisation.corpus_text import (
    export_text,
    iterate_sentences,
    make_tokeniser,
    sample_sentences,
    show_tokens,
)
