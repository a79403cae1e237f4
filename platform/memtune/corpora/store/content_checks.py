"""Checks of a corpus's content. Equal digests do not suffice: who can write to a store can write digests too.

Each check yields one sentence per problem. The checks of a table get the words of each sentence of its split,
and the numbers of tokens and labels.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memtune.corpora.store.annotations import encode_column, read_annotation_table
from memtune.corpora.store.arrow_files import ColumnDigests, view_shard
from memtune.corpora.store.manifest import (
    AnnotationFile,
    Manifest,
    ShardRecord,
    StoredFile,
    TokeniserRecord,
    VectorsRecord,
)
from memtune.corpora.store.vocabulary import Vectors, Vocabulary
from memtune.errors import CorpusError, StorageError
from memtune.storage.digests import hash_bytes
from memtune.values import digest, parse_json

CONTENT_VERSION = 1

Numbers = npt.NDArray[np.integer[Any]]
MAX_TOKENISER_BYTES = 2**26
OTHER_COUNTS = "the manifest has other counts of rows or columns"


def compute_content_digest(
    vocabulary: str, splits: Mapping[str, list[str]], annotations: Mapping[str, Any]
) -> str:
    """Digest of a corpus, computed from the digests of its parts.

    `splits` maps each split to the digests of its tokens and of its sentence lengths. `annotations` holds the
    digests of annotations and vectors; an empty mapping leaves the digest of a plain text unchanged.
    """
    return digest(CONTENT_VERSION, vocabulary, dict(splits), *([dict(annotations)] if annotations else []))


class ContentCheck:
    """The check of a corpus's files, one file in memory at a time."""

    def __init__(
        self, manifest: Manifest, read: Callable[[StoredFile], pa.Buffer], *, computes_digest: bool = False
    ) -> None:
        """`read` returns a file's content; CorpusError or StorageError is a problem of that file alone."""
        self._manifest, self._read, self._computes_digest = manifest, read, computes_digest
        self._vocabulary = ""
        self._texts = {split: ColumnDigests(2) for split in manifest.splits}
        self._others: dict[str, Any] = {
            kind: {"labels": list(annotation.labels)} for kind, annotation in manifest.annotations.items()
        }
        self._lengths: dict[str, list[Numbers]] = {split: [] for split in manifest.splits}
        """Tokens of each sentence of the shards that could be read."""

    @property
    def digest(self) -> str:
        """The digest of what was read; call `find_problems` before."""
        texts = {split: text.hexdigests for split, text in self._texts.items()}
        return compute_content_digest(self._vocabulary, texts, self._others)

    def find_problems(self) -> Iterator[str]:
        """Problems of all files."""
        manifest = self._manifest
        yield from _report_errors(self._check_vocabulary())
        for split, summary in manifest.splits.items():
            for shard in summary.shards:
                yield from _report_errors(self._check_shard(split, shard))
        for kind, annotation in manifest.annotations.items():
            for split, file in annotation.files.items():
                yield from _report_errors(self._check_table(kind, split, file))
        if manifest.vectors:
            yield from _report_errors(self._check_vectors(manifest.vectors))
        if manifest.tokeniser:
            yield from _report_errors(self._check_tokeniser(manifest.tokeniser))

    def _check_vocabulary(self) -> Iterator[str]:
        record = self._manifest.vocabulary
        vocabulary = Vocabulary.from_buffer(self._read(record), record.path)
        if len(vocabulary) != record.size:
            yield f"{record.path}: {OTHER_COUNTS}"
        if len(set(vocabulary.tokens)) != len(vocabulary):
            yield f"{record.path}: a token has two ids"
        if min(vocabulary.counts) < 0:
            yield f"{record.path}: a token has a count of {min(vocabulary.counts)}"
        if self._computes_digest:
            self._vocabulary = vocabulary.digest

    def _check_shard(self, split: str, shard: ShardRecord) -> Iterator[str]:
        size = self._manifest.vocabulary.size
        arrays = view_shard(self._read(shard), shard.path, size)
        if (len(arrays.ids), len(arrays.offsets) - 1) != (shard.tokens, shard.sentences):
            yield f"{shard.path}: the manifest has other counts of tokens and sentences"
        if not np.array_equal(np.flatnonzero(arrays.ids == 0) + 1, arrays.offsets[1:]):
            yield f"{shard.path}: a sentence does not end with its only <eos>"
        for number in (int(arrays.ids.min()), int(arrays.ids.max())):
            if not 0 <= number < size:
                yield f"{shard.path}: id {number} in a vocabulary of {size}"
        lengths = np.diff(arrays.offsets)
        self._lengths[split].append(lengths)
        if self._computes_digest:
            self._texts[split].add(arrays.ids.data, lengths.data)

    def _check_table(self, kind: str, split: str, file: AnnotationFile) -> Iterator[str]:
        table = read_annotation_table(self._read(file), file.path, kind)
        lengths = self._lengths[split]
        if len(lengths) == len(self._manifest.splits[split].shards):  # else a shard's problem was reported
            if table.num_rows != file.rows:
                yield f"{file.path}: {OTHER_COUNTS}"
            labels = len(self._manifest.annotations[kind].labels)
            words, size = np.concatenate(lengths) - 1, self._manifest.vocabulary.size
            yield from (f"{file.path}: {each}" for each in TABLE_CHECKS[kind](table, words, size, labels))
        if self._computes_digest:
            content = ColumnDigests(table.num_columns)
            for batch in table.to_batches():
                content.add(*map(encode_column, batch.columns))
            self._others[kind][split] = content.hexdigests

    def _check_vectors(self, record: VectorsRecord) -> Iterator[str]:
        vectors = Vectors.from_buffer(self._read(record), record.path, record.width)
        if len(vectors.values_VE) != self._manifest.vocabulary.size:
            yield f"{record.path}: {OTHER_COUNTS}"
        if not np.isfinite(vectors.values_VE).all():
            yield f"{record.path}: a vector has a number that is not finite"
        if self._computes_digest:
            self._others["vectors"] = vectors.digest

    def _check_tokeniser(self, record: TokeniserRecord) -> Iterator[str]:
        if record.bytes > MAX_TOKENISER_BYTES:
            yield f"{record.path}: a tokeniser of more than {MAX_TOKENISER_BYTES:,} bytes"
            return
        content = self._read(record)
        try:
            document = parse_json(content.to_pybytes())
        except ValueError:
            document = None
        if not isinstance(document, dict):
            yield f"{record.path}: not the document of a tokeniser"
        self._others["tokeniser"] = [record.kind, hash_bytes(content)]


def _report_errors(problems: Iterator[str]) -> Iterator[str]:
    """The problems of a file; where it cannot be read, the error is one."""
    try:
        yield from problems
    except (CorpusError, StorageError) as error:
        yield str(error)


def _check_completion(table: pa.Table, words: Numbers, vocabulary_size: int, labels: int) -> Iterator[str]:
    first, candidates, blank, answer = _get_columns(table, "first", "candidates", "blank", "answer")
    yield from _check_range("candidates", candidates, 1, 127)
    yield from _check_range("first", first, 0, len(words) - candidates)
    yield from _check_range("answer", answer, -1, candidates - 1)
    yield from _check_range("blank", blank, 0, _look_up(words, first) - 1)


def _check_agreement(table: pa.Table, words: Numbers, vocabulary_size: int, labels: int) -> Iterator[str]:
    names = ("sentence", "verb", "attractors", "right", "wrong")
    sentence, verb, attractors, right, wrong = _get_columns(table, *names)
    yield from _check_range("sentence", sentence, 0, len(words) - 1)
    yield from _check_range("verb", verb, 0, _look_up(words, sentence))
    yield from _check_range("attractors", attractors, -1, None)  # -1: not known
    yield from _check_range("right", right, 0, vocabulary_size - 1)
    yield from _check_range("wrong", wrong, 0, vocabulary_size - 1)


def _check_sentiment(table: pa.Table, words: Numbers, vocabulary_size: int, labels: int) -> Iterator[str]:
    sentence, start, stop, label = _get_columns(table, "sentence", "start", "stop", "label")
    yield from _check_range("sentence", sentence, 0, len(words) - 1)
    yield from _check_range("start", start, 0, stop - 1)
    yield from _check_range("stop", stop, 1, _look_up(words, sentence))
    yield from _check_range("label", label, 0, labels - 1)


def _check_inference(table: pa.Table, words: Numbers, vocabulary_size: int, labels: int) -> Iterator[str]:
    premise, hypothesis, label = _get_columns(table, "premise", "hypothesis", "label")
    yield from _check_range("premise", premise, 0, len(words) - 1)
    yield from _check_range("hypothesis", hypothesis, 0, len(words) - 1)
    yield from _check_range("label", label, 0, labels - 1)


def _check_trees(table: pa.Table, words: Numbers, vocabulary_size: int, labels: int) -> Iterator[str]:
    for name in ("heads", "relations"):
        column = table[name].combine_chunks()
        counts = np.diff(column.offsets.to_numpy())
        if not np.array_equal(counts, words):
            yield f"{name} of another number of words than the sentences have"
            return
        last = np.repeat(words, words) - 1 if name == "heads" else labels - 1
        yield from _check_range(name, column.flatten().to_numpy(), -1, last)


TABLE_CHECKS: Mapping[str, Callable[[pa.Table, Numbers, int, int], Iterator[str]]] = {
    "completion": _check_completion,
    "agreement": _check_agreement,
    "sentiment": _check_sentiment,
    "inference": _check_inference,
    "trees": _check_trees,
}


def _get_columns(table: pa.Table, *names: str) -> Iterator[Numbers]:
    return (table[name].to_numpy().astype(np.int64) for name in names)


def _look_up(words: Numbers, sentences: Numbers) -> Numbers:
    """Words of each sentence; 0 for a sentence outside of the split, which has its own message."""
    inside = (sentences >= 0) & (sentences < len(words))
    return np.where(inside, words[np.where(inside, sentences, 0)], 0)


def _check_range(name: str, values: Numbers, low: int, high: int | Numbers | None) -> Iterator[str]:
    """One message for the first value outside low <= value <= high."""
    outside = values < low if high is None else (values < low) | (values > high)
    if outside.any():
        index = int(np.argmax(outside))
        limit = high if high is None or isinstance(high, int) else high[index]
        bound = f"at least {low}" if limit is None else f"from {low} to {limit}"
        yield f"{name} of row {index} must be {bound}, got {values[index]}"
