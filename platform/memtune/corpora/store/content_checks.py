"""Checks of a corpus's content. Equal digests do not suffice: who can write to a store can write digests too.

Each function yields one sentence per problem.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memtune.corpora.store.annotations import digest_table, read_annotation_table
from memtune.corpora.store.manifest import (
    AnnotationFile,
    AnnotationRecord,
    Manifest,
    ShardRecord,
    StoredFile,
    TokeniserRecord,
    VectorsRecord,
)
from memtune.corpora.store.shards import ShardArrays, SplitDigest, view_shard
from memtune.corpora.store.vocabulary import Vocabulary
from memtune.corpora.store.word_vectors import Vectors
from memtune.errors import CorpusError
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


@dataclass
class ContentSummary:
    """Digests of the content that was read: vocabulary, tokens and lengths per split, other tables."""

    vocabulary: str = ""
    texts: dict[str, tuple[str, str]] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)


def find_content_problems(
    manifest: Manifest, read: Callable[[StoredFile], pa.Buffer], summary: ContentSummary | None = None
) -> Iterator[str]:
    """Problems of all files, one file in memory at a time.

    `read` returns a file's content or raises CorpusError, which counts as a problem of that file alone.
    `summary` receives the digests of what was read.
    """
    yield from _report_errors(_check_vocabulary(manifest, read, summary))
    lengths: dict[str, Numbers] = {}
    for split in manifest.splits:
        yield from _check_split(manifest, split, read, lengths, summary)
    for kind in manifest.annotations:
        yield from _check_annotation(manifest, kind, read, lengths, summary)
    if manifest.vectors:
        yield from _report_errors(_check_vectors(manifest, manifest.vectors, read, summary))
    if manifest.tokeniser:
        yield from _report_errors(_check_tokeniser(manifest.tokeniser, read, summary))


def _report_errors(problems: Iterator[str]) -> Iterator[str]:
    """The problems of a file; where it cannot be read, the error is one."""
    try:
        yield from problems
    except CorpusError as error:
        yield str(error)


def _check_vocabulary(
    manifest: Manifest, read: Callable[[StoredFile], pa.Buffer], summary: ContentSummary | None
) -> Iterator[str]:
    vocabulary = Vocabulary.from_buffer(read(manifest.vocabulary), manifest.vocabulary.path)
    if len(vocabulary) != manifest.vocabulary.size:
        yield f"{manifest.vocabulary.path}: {OTHER_COUNTS}"
    if len(set(vocabulary.tokens)) != len(vocabulary):
        yield f"{manifest.vocabulary.path}: a token has two ids"
    if min(vocabulary.counts) < 0:
        yield f"{manifest.vocabulary.path}: a token has a count of {min(vocabulary.counts)}"
    if summary:
        summary.vocabulary = vocabulary.digest


def _check_split(
    manifest: Manifest,
    split: str,
    read: Callable[[StoredFile], pa.Buffer],
    lengths: dict[str, Numbers],
    summary: ContentSummary | None,
) -> Iterator[str]:
    """Problems of a split's shards; `lengths` receives the tokens per sentence when all can be read."""
    pieces = []
    text = SplitDigest()
    for shard in manifest.splits[split].shards:
        try:
            arrays = view_shard(read(shard), shard.path, manifest.vocabulary.size)
        except CorpusError as error:
            yield str(error)
            continue
        yield from _find_shard_problems(shard, arrays, manifest.vocabulary.size)
        pieces.append(np.diff(arrays.offsets))
        if summary:
            text.add(arrays.ids, pieces[-1])
    if summary:
        summary.texts[split] = text.hexdigests
    if len(pieces) == len(manifest.splits[split].shards):
        lengths[split] = np.concatenate(pieces)


def _check_annotation(
    manifest: Manifest,
    kind: str,
    read: Callable[[StoredFile], pa.Buffer],
    lengths: Mapping[str, Numbers],
    summary: ContentSummary | None,
) -> Iterator[str]:
    annotation = manifest.annotations[kind]
    digests: dict[str, Any] = {"labels": list(annotation.labels)}
    for split, file in annotation.files.items():
        try:
            table = read_annotation_table(read(file), kind, file.path)
        except CorpusError as error:
            yield str(error)
            continue
        if split in lengths:  # else the split's own problem was reported
            yield from _find_table_problems(
                kind, annotation, file, table, lengths[split], manifest.vocabulary.size
            )
        if summary:
            digests[split] = digest_table(table)
    if summary:
        summary.others[kind] = digests


def _check_vectors(
    manifest: Manifest,
    record: VectorsRecord,
    read: Callable[[StoredFile], pa.Buffer],
    summary: ContentSummary | None,
) -> Iterator[str]:
    vectors = Vectors.from_buffer(read(record), record.path, record.width)
    if len(vectors.values_VE) != manifest.vocabulary.size:
        yield f"{record.path}: {OTHER_COUNTS}"
    if not np.isfinite(vectors.values_VE).all():
        yield f"{record.path}: a vector has a number that is not finite"
    if summary:
        summary.others["vectors"] = vectors.digest


def _check_tokeniser(
    record: TokeniserRecord, read: Callable[[StoredFile], pa.Buffer], summary: ContentSummary | None
) -> Iterator[str]:
    if record.bytes > MAX_TOKENISER_BYTES:
        yield f"{record.path}: a tokeniser of more than {MAX_TOKENISER_BYTES:,} bytes"
        return
    content = read(record)
    try:
        document = parse_json(content.to_pybytes())
    except ValueError:
        document = None
    if not isinstance(document, dict):
        yield f"{record.path}: not the document of a tokeniser"
    if summary:
        summary.others["tokeniser"] = [record.kind, hash_bytes(content)]


def _find_shard_problems(shard: ShardRecord, arrays: ShardArrays, vocabulary_size: int) -> Iterator[str]:
    """Problems of one shard."""
    if (len(arrays.ids), len(arrays.offsets) - 1) != (shard.tokens, shard.sentences):
        yield f"{shard.path}: the manifest has other counts of tokens and sentences"
    if not np.array_equal(np.flatnonzero(arrays.ids == 0) + 1, arrays.offsets[1:]):
        yield f"{shard.path}: a sentence does not end with its only <eos>"
    for number in (int(arrays.ids.min()), int(arrays.ids.max())):
        if not 0 <= number < vocabulary_size:
            yield f"{shard.path}: id {number} in a vocabulary of {vocabulary_size}"


def _find_table_problems(
    kind: str,
    annotation: AnnotationRecord,
    file: AnnotationFile,
    table: pa.Table,
    lengths: Numbers,
    vocabulary_size: int,
) -> Iterator[str]:
    """Problems of a table of annotations; `lengths` are the split's tokens per sentence with `<eos>`."""
    if table.num_rows != file.rows:
        yield f"{file.path}: {OTHER_COUNTS}"
    for problem in TABLE_CHECKS[kind](table, lengths - 1, vocabulary_size, len(annotation.labels)):
        yield f"{file.path}: {problem}"


def _check_completion(table: pa.Table, words: Numbers, vocabulary_size: int, labels: int) -> Iterator[str]:
    first, candidates, blank, answer = _get_columns(table, "first", "candidates", "blank", "answer")
    yield from _check_range("candidates", candidates, 1, 127)
    yield from _check_range("first", first, 0, len(words) - candidates)
    yield from _check_range("answer", answer, -1, candidates - 1)
    yield from _check_range("blank", blank, 0, _look_up(words, first) - 1)


def _check_agreement(table: pa.Table, words: Numbers, vocabulary_size: int, labels: int) -> Iterator[str]:
    sentence, verb, attractors = _get_columns(table, "sentence", "verb", "attractors")
    yield from _check_range("sentence", sentence, 0, len(words) - 1)
    yield from _check_range("verb", verb, 0, _look_up(words, sentence))
    yield from _check_range("attractors", attractors, -1, None)  # -1: not known
    for name in ("right", "wrong"):
        yield from _check_range(name, _get_column(table, name), 0, vocabulary_size - 1)


def _check_sentiment(table: pa.Table, words: Numbers, vocabulary_size: int, labels: int) -> Iterator[str]:
    sentence, start, stop, label = _get_columns(table, "sentence", "start", "stop", "label")
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


def _get_columns(table: pa.Table, *names: str) -> list[Numbers]:
    return [_get_column(table, name) for name in names]


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
