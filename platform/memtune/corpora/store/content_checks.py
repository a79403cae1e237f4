"""Checks of a corpus's content. Equal digests do not suffice: who can write to a store can write digests too.

Each check yields one sentence per problem. The checks of a table get the words of each sentence of its split,
and the numbers of tokens and labels.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memtune.corpora.store.annotations import TableDigest, read_annotation_table
from memtune.corpora.store.arrow_files import ShardArrays, SplitDigest, view_shard
from memtune.corpora.store.manifest import Manifest, ShardRecord, StoredFile, TokeniserRecord, VectorsRecord
from memtune.corpora.store.vocabulary import Vectors, Vocabulary
from memtune.errors import CorpusError, StorageError
from memtune.storage.digests import hash_bytes
from memtune.values import digest, parse_json

CONTENT_VERSION = 1

Numbers = npt.NDArray[np.integer[Any]]
MAX_TOKENISER_BYTES = 2**26
OTHER_COUNTS = "the manifest has other counts of rows or columns"


def compute_content_digest(
    vocabulary: str, splits: Mapping[str, tuple[str, str]], annotations: Mapping[str, Any]
) -> str:
    """Digest of a corpus, computed from the digests of its parts.

    `splits` maps each split to the digests of its tokens and of its sentence lengths. `annotations` holds the
    digests of annotations and vectors; an empty mapping leaves the digest of a plain text unchanged.
    """
    text = {split: list(digests) for split, digests in splits.items()}
    return digest(CONTENT_VERSION, vocabulary, text, *([dict(annotations)] if annotations else []))


class ContentCheck:
    """The check of a corpus's files, one file in memory at a time."""

    def __init__(
        self, manifest: Manifest, read: Callable[[StoredFile], pa.Buffer], *, computes_digest: bool = False
    ) -> None:
        """`read` returns a file's content; CorpusError or StorageError is a problem of that file alone."""
        self._manifest, self._read, self._computes_digest = manifest, read, computes_digest
        self._words: dict[str, Numbers] = {}
        """Words of each sentence of the splits that could be read."""
        self._vocabulary = ""
        self._texts: dict[str, tuple[str, str]] = {}
        self._others: dict[str, Any] = {}

    @property
    def digest(self) -> str:
        """The digest of what was read; call `find_problems` before."""
        return compute_content_digest(self._vocabulary, self._texts, self._others)

    def find_problems(self) -> Iterator[str]:
        """Problems of all files."""
        manifest = self._manifest
        yield from _report_errors(self._check_vocabulary())
        for split in manifest.splits:
            yield from self._check_split(split)
        for kind in manifest.annotations:
            yield from self._check_annotation(kind)
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

    def _check_split(self, split: str) -> Iterator[str]:
        pieces, text, size = [], SplitDigest(), self._manifest.vocabulary.size
        for shard in self._manifest.splits[split].shards:
            try:
                arrays = view_shard(self._read(shard), shard.path, size)
            except (CorpusError, StorageError) as error:
                yield str(error)
                continue
            yield from _find_shard_problems(shard, arrays, size)
            pieces.append(np.diff(arrays.offsets))
            if self._computes_digest:
                text.add(arrays.ids, pieces[-1])
        self._texts[split] = text.hexdigests
        if len(pieces) == len(self._manifest.splits[split].shards):
            self._words[split] = np.concatenate(pieces) - 1

    def _check_annotation(self, kind: str) -> Iterator[str]:
        annotation, size = self._manifest.annotations[kind], self._manifest.vocabulary.size
        digests: dict[str, Any] = {"labels": list(annotation.labels)}
        for split, file in annotation.files.items():
            try:
                table = read_annotation_table(self._read(file), file.path, kind)
            except (CorpusError, StorageError) as error:
                yield str(error)
                continue
            if split in self._words:  # else the split's own problem was reported
                if table.num_rows != file.rows:
                    yield f"{file.path}: {OTHER_COUNTS}"
                problems = TABLE_CHECKS[kind](table, self._words[split], size, len(annotation.labels))
                yield from (f"{file.path}: {problem}" for problem in problems)
            if self._computes_digest:
                content = TableDigest(table.schema)
                for batch in table.to_batches():
                    content.add(batch)
                digests[split] = content.hexdigests
        self._others[kind] = digests

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


def _find_shard_problems(shard: ShardRecord, arrays: ShardArrays, vocabulary_size: int) -> Iterator[str]:
    if (len(arrays.ids), len(arrays.offsets) - 1) != (shard.tokens, shard.sentences):
        yield f"{shard.path}: the manifest has other counts of tokens and sentences"
    if not np.array_equal(np.flatnonzero(arrays.ids == 0) + 1, arrays.offsets[1:]):
        yield f"{shard.path}: a sentence does not end with its only <eos>"
    for number in (int(arrays.ids.min()), int(arrays.ids.max())):
        if not 0 <= number < vocabulary_size:
            yield f"{shard.path}: id {number} in a vocabulary of {vocabulary_size}"


def _check_completion(table: pa.Table, words: Numbers, vocabulary_size: int, labels: int) -> Iterator[str]:
    names = ("first", "candidates", "blank", "answer")
    first, candidates, blank, answer = (_get_column(table, name) for name in names)
    yield from _check_range("candidates", candidates, 1, 127)
    yield from _check_range("first", first, 0, len(words) - candidates)
    yield from _check_range("answer", answer, -1, candidates - 1)
    yield from _check_range("blank", blank, 0, _look_up(words, first) - 1)


def _check_agreement(table: pa.Table, words: Numbers, vocabulary_size: int, labels: int) -> Iterator[str]:
    sentence, verb, attractors = (_get_column(table, name) for name in ("sentence", "verb", "attractors"))
    yield from _check_range("sentence", sentence, 0, len(words) - 1)
    yield from _check_range("verb", verb, 0, _look_up(words, sentence))
    yield from _check_range("attractors", attractors, -1, None)  # -1: not known
    for name in ("right", "wrong"):
        yield from _check_range(name, _get_column(table, name), 0, vocabulary_size - 1)


def _check_sentiment(table: pa.Table, words: Numbers, vocabulary_size: int, labels: int) -> Iterator[str]:
    names = ("sentence", "start", "stop", "label")
    sentence, start, stop, label = (_get_column(table, name) for name in names)
    yield from _check_range("sentence", sentence, 0, len(words) - 1)
    yield from _check_range("start", start, 0, stop - 1)
    yield from _check_range("stop", stop, 1, _look_up(words, sentence))
    yield from _check_range("label", label, 0, labels - 1)


def _check_inference(table: pa.Table, words: Numbers, vocabulary_size: int, labels: int) -> Iterator[str]:
    for name in ("premise", "hypothesis"):
        yield from _check_range(name, _get_column(table, name), 0, len(words) - 1)
    yield from _check_range("label", _get_column(table, "label"), 0, labels - 1)


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


def _get_column(table: pa.Table, name: str) -> Numbers:
    numbers: Numbers = table[name].to_numpy().astype(np.int64)
    return numbers


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
