"""Looking at a corpus in a store: is every byte as imported, and what does it hold?"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.annotations import KINDS, TableDigest
from memtune.corpora.location import Store
from memtune.corpora.manifest import AnnotationFile, Manifest, Shard, StoredFile, VectorsRecord
from memtune.corpora.shards import ShardArrays, SplitDigest, shard_arrays
from memtune.corpora.store import Corpus, open_corpus
from memtune.corpora.vectors import Vectors
from memtune.corpora.vocabulary import Vocabulary
from memtune.corpora.writing import content_digest
from memtune.errors import CorpusError
from memtune.values import Value

__all__ = ["CorpusDescription", "LengthSummary", "describe_corpus", "verify_corpus"]


def verify_corpus(name: str, store: str | Path | Store) -> list[str]:
    """Reads every byte of a corpus and lists what is wrong with it, file by file; [] if all is well.

    Besides each file's size and SHA-256 it checks that sentences end where they should, that every id is in
    the vocabulary, and that counts and digest are those of the manifest. Of "text+questions" it reads both.
    Raises CorpusError where there is no such corpus or its manifest cannot be read.
    """
    place = Store.at(store)
    return [problem for part in name.split("+") for problem in _problems(place, place.manifest(part))]


def _problems(store: Store, manifest: Manifest) -> Iterator[str]:
    texts: dict[str, tuple[str, str]] = {}
    contents: dict[str, Any] = {}
    found = [*_split_problems(store, manifest, texts), *_annotation_problems(store, manifest, contents)]
    if manifest.vectors:
        found += _vectors_problems(store, manifest, manifest.vectors, contents)
    yield from found
    content, problem = _read(store, manifest, manifest.vocabulary)
    if content is None:
        yield problem
    elif not found:
        vocabulary = Vocabulary.of_file(content)
        if content_digest(vocabulary.digest, texts, contents) != manifest.digest:
            yield f"{manifest.name}/manifest.json: the digest is not that of the vocabulary and the tokens"


def _split_problems(store: Store, manifest: Manifest, texts: dict[str, tuple[str, str]]) -> Iterator[str]:
    """What is wrong with the shards; `texts` gets the digests of their content."""
    for split, summary in manifest.splits.items():
        digest = SplitDigest()
        for shard in summary.shards:
            content, problem = _read(store, manifest, shard)
            if content is None:
                yield problem
                continue
            arrays = shard_arrays(content)
            yield from _shard_problems(shard, arrays, manifest.vocabulary.size)
            digest.add(arrays.ids, np.diff(arrays.offsets))
        texts[split] = digest.hexadecimal


def _annotation_problems(store: Store, manifest: Manifest, contents: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the tables of annotations; `contents` gets the digests of their content."""
    for kind, annotation in manifest.annotations.items():
        contents[kind] = {"labels": list(annotation.labels)}
        for split, file in annotation.files.items():
            content, problem = _read(store, manifest, file)
            if content is None:
                yield problem
                continue
            table = pa.ipc.open_file(content).read_all()
            yield from _table_problems(kind, file, table, manifest.splits[split].sentences)
            contents[kind][split] = _table_digest(table)


def _read(store: Store, manifest: Manifest, file: StoredFile) -> tuple[pa.Buffer | None, str]:
    """The content of a file, or what is wrong with it."""
    path = f"{manifest.name}/{file.path}"
    try:
        with store.open_file(manifest.name, file.path) as stream:
            content = stream.read_buffer()
    except CorpusError as error:
        return None, str(error)
    if content.size != file.bytes:
        return None, f"{path} has {content.size} bytes instead of {file.bytes}: it was truncated or altered"
    if hashlib.sha256(content).hexdigest() != file.sha256:
        return None, f"{path} has another SHA-256 than at its import: it was altered"
    return content, ""


def _shard_problems(shard: Shard, arrays: ShardArrays, vocabulary_size: int) -> Iterator[str]:
    if (len(arrays.ids), len(arrays.offsets) - 1) != (shard.tokens, shard.sentences):
        yield f"{shard.path}: the manifest has other counts of tokens and sentences"
    if not np.array_equal(np.flatnonzero(arrays.ids == 0) + 1, arrays.offsets[1:]):
        yield f"{shard.path}: a sentence does not end with its only <eos>"
    if int(arrays.ids.max()) >= vocabulary_size:
        yield f"{shard.path}: id {arrays.ids.max()} in a vocabulary of {vocabulary_size}"


def _vectors_problems(
    store: Store, manifest: Manifest, file: VectorsRecord, contents: dict[str, Any]
) -> Iterator[str]:
    content, problem = _read(store, manifest, file)
    if content is None:
        yield problem
        return
    vectors = Vectors.of_file(content)
    contents["vectors"] = vectors.digest
    if vectors.values_VE.shape != (manifest.vocabulary.size, file.width):
        yield f"{file.path}: other rows or columns than the manifest says"


def _table_problems(kind: str, file: AnnotationFile, table: pa.Table, sentences: int) -> Iterator[str]:
    if table.num_rows != file.rows or table.schema != KINDS[kind].stored:
        yield f"{file.path}: other rows or columns than the manifest says"
        return
    for name in KINDS[kind].sentences:
        bounds = pc.min_max(table[name]).as_py()
        if not 0 <= bounds["min"] <= bounds["max"] < sentences:
            yield f"{file.path}: {name} {bounds['max']} in a split of {sentences} sentences"


def _table_digest(table: pa.Table) -> list[str]:
    found = TableDigest(table.schema)
    for batch in table.to_batches():
        found.add(batch)
    return found.hexadecimal


class LengthSummary(Value):
    """Tokens a sentence, `<eos>` included: quantiles and mean."""

    shortest: int
    median: float
    mean: float
    percentile_95: float
    longest: int


class CorpusDescription(Value):
    """What `memtune corpus show` tells: the manifest, the commonest tokens with counts, lengths per split;
    of "text+questions" the text, with the questions' corpus as `joined`.
    """

    manifest: Manifest
    frequent: tuple[tuple[str, int], ...]
    lengths: dict[str, LengthSummary]
    joined: "CorpusDescription | None" = None


def describe_corpus(
    name: str, store: str | Path | Store, cache: Path | None = None, frequent: int = 10
) -> CorpusDescription:
    """Describes a corpus with its `frequent` commonest tokens; raises what open_corpus raises."""
    return _described(open_corpus(name, store, cache), frequent)


def _described(corpus: Corpus, frequent: int) -> CorpusDescription:
    counted = zip(corpus.vocabulary.tokens, corpus.vocabulary.counts, strict=True)
    commonest = sorted(counted, key=lambda pair: -pair[1])[:frequent]
    lengths = {name: _summary(split.lengths) for name, split in corpus.splits.items()}
    return CorpusDescription(
        manifest=corpus.manifest,
        frequent=tuple(commonest),
        lengths=lengths,
        joined=_described(corpus.joined, frequent) if corpus.joined else None,
    )


def _summary(lengths: Any) -> LengthSummary:
    median, percentile_95 = np.quantile(lengths, [0.5, 0.95])
    return LengthSummary(
        shortest=int(lengths.min()),
        median=float(median),
        mean=float(lengths.mean()),
        percentile_95=float(percentile_95),
        longest=int(lengths.max()),
    )
