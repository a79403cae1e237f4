"""Another text of the store in the tokens of a model's vocabulary."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from memtune.corpora import Corpus, Split, TextUnits, iterate_sentences, open_corpus
from memtune.corpora.batching.protocols import Protocol
from memtune.corpora.store.arrow_files import ShardArrays
from memtune.errors import CorpusError, TrackingError
from memtune.models.architecture import Model
from memtune.storage.local_files import write_whole
from memtune.tasks import compute_token_nats
from memtune.tracking import ReadText, TextReader, find_text_rules

WORD_STARTS = ("_", "Ġ", "▁")
"""How a character and a subword begin that stand for the blank before a word."""
SCHEMA = pa.schema(
    {"sentence": pa.int32(), "word": pa.int32(), "token": pa.string(), "log_probability": pa.float64()}
)


def write_word_log_probabilities(
    model: Model, corpus: Corpus, protocol: Protocol, split: str, path: Path, device: str = "cpu"
) -> int:
    """Write one row per predicted token, in the order of the text; returns the number of rows.

    Columns: `sentence` and `word` count from 0, `<eos>` counts as the last word; the rows of one word, if its
    tokens are characters or subwords, have the same numbers. `log_probability` is in nats. Raises
    ConfigurationError for a classifier and for trees.
    """
    purpose = "a table of the words' probabilities"
    reader = model.require_language_model(purpose)
    plan = protocol.require_text(purpose).text_plan(corpus[split])
    ids, nats = compute_token_nats(reader, plan, device)
    tokens = corpus.vocabulary.decode(ids)
    is_end = ids == 0
    sentence = np.concatenate([[0], np.cumsum(is_end)[:-1]])
    columns = [
        pa.array(sentence.astype(np.int32)),
        pa.array(number_words(tokens, is_end, corpus.manifest.tokeniser is None)),
        pa.array(tokens, pa.string()),
        pa.array(-nats),
    ]
    written = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), written)
    write_whole(path, written.getvalue().to_pybytes())
    return len(tokens)


def number_words(tokens: list[str], is_end: np.ndarray, are_words: bool) -> np.ndarray:
    """The index of each token's word within its sentence, (tokens,) int32."""
    begins = np.array([are_words or token.startswith(WORD_STARTS) for token in tokens]) | is_end
    first = np.concatenate([[True], is_end[:-1]])
    steps = np.cumsum(begins & ~first)
    sentence_starts = np.maximum.accumulate(np.where(first, np.arange(len(tokens)), 0))
    numbers: np.ndarray = (steps - steps[sentence_starts]).astype(np.int32)
    return numbers


def make_reader(corpus: Corpus) -> TextReader:
    """What makes tokens of a corpus's vocabulary of text."""
    return TextReader(find_text_rules(corpus), corpus.vocabulary.ids)


def read_known(reader: TextReader, text: str, place: str) -> ReadText:
    """The ids of a text that an error calls `place`.

    Raises TrackingError for a word, or another token, that the vocabulary lacks where it has no `<unk>`.
    """
    try:
        return reader.read(text)
    except TrackingError as error:
        raise TrackingError(f"{place}: {error}") from None


def read_other_text(model_corpus: Corpus, name: str, split: str, store: str) -> tuple[Corpus, TextUnits]:
    """A split of the corpus `name` in the tokens of the corpus that a model was trained on, and its size.

    It is in memory; the returned corpus has it in place of every split. Raises CorpusError where the store
    lacks it, and TrackingError for a word that the vocabulary lacks where it has no `<unk>`.
    """
    other = open_corpus(name, store)
    reader = make_reader(model_corpus)
    ids: list[int] = []
    lengths: list[int] = []
    words = size = lost = 0
    for number, sentence in enumerate(iterate_sentences(other, split)):
        read = read_known(reader, sentence, f'sentence {number} of the {split} split of "{name}"')
        ids += [*read.ids, 0]
        lengths.append(len(read.ids) + 1)
        words += len(sentence.split())
        size += len(sentence.encode()) + 1
        lost += len(read.unknown_words)
    lost += other.manifest.splits[split].oov_tokens
    if not words:
        raise CorpusError(f'the {split} split of "{name}" has no words')
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    text = Split(split, [ShardArrays(np.array(ids, np.int32), offsets)])
    splits = dict.fromkeys(("train", "valid", split), text)
    corpus = replace(
        model_corpus, name=other.name, digest=other.digest, splits=splits, annotations={}, joined=None
    )
    return corpus, TextUnits(len(ids), words, size, len(lengths), lost)
