"""Verifying and describing a corpus of a store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from memtune.arguments import CORPUS_NAME, check_type
from memtune.corpora.store.content_checks import (
    ContentSummary,
    compute_content_digest,
    find_content_problems,
)
from memtune.corpora.store.corpus import Corpus, open_corpus
from memtune.corpora.store.corpus_store import CorpusStore
from memtune.corpora.store.manifest import Manifest, StoredFile
from memtune.errors import CorpusError, StorageError
from memtune.storage.digests import hash_bytes
from memtune.storage.regular_files import read_at_most
from memtune.values import Value

__all__ = ["CorpusDescription", "LengthSummary", "describe_corpus", "verify_corpus"]


def verify_corpus(name: str, store: str | Path | CorpusStore | None = None) -> list[str]:
    """Read every byte of a corpus and list its problems, file by file; [] for a valid corpus.

    The checks cover size and SHA-256 of each file, sentence boundaries, ids, annotations, and the counts and
    the digest of the manifest. Of "text+questions" both corpora are read. Raises CorpusError when a corpus
    does not exist or its manifest cannot be read.
    """
    check_type("name", name, str, CORPUS_NAME)
    place = CorpusStore.open(store)
    return [
        problem for part in name.split("+") for problem in _find_problems(place, place.read_manifest(part))
    ]


def _find_problems(store: CorpusStore, manifest: Manifest) -> Iterator[str]:
    summary = ContentSummary()
    problems = list(
        find_content_problems(manifest, lambda file: _read_verified(store, manifest, file), summary)
    )
    yield from problems
    found = compute_content_digest(summary.vocabulary, summary.texts, summary.others)
    if not problems and found != manifest.digest:
        yield f"{manifest.name}/manifest.json: the digest is not that of the vocabulary and the tokens"


def _read_verified(store: CorpusStore, manifest: Manifest, file: StoredFile) -> pa.Buffer:
    """The content of a file. Raises CorpusError when it has another size or digest than the manifest says."""
    path = f"{manifest.name}/{file.path}"
    try:
        with store.open_file(manifest.name, file.path) as stream:
            content = pa.py_buffer(read_at_most(stream, file.bytes + 1))
    except StorageError as error:
        raise CorpusError(str(error)) from None
    if content.size != file.bytes:
        found = content.size if content.size < file.bytes else f"more than {file.bytes}"
        raise CorpusError(f"{path} has {found} bytes instead of {file.bytes}: it was truncated or altered")
    if hash_bytes(content) != file.sha256:
        raise CorpusError(f"{path} has another SHA-256 than at its import: it was altered")
    return content


class LengthSummary(Value):
    """Tokens per sentence, `<eos>` included: quantiles and mean."""

    shortest: int
    median: float
    mean: float
    percentile_95: float
    longest: int


class CorpusDescription(Value):
    """A corpus as `memtune corpus show` prints it: manifest, most frequent tokens with counts, lengths.

    For "text+questions" it describes the text, and `joined` describes the corpus of the questions.
    """

    manifest: Manifest
    frequent: tuple[tuple[str, int], ...]
    lengths: dict[str, LengthSummary]
    joined: "CorpusDescription | None" = None


def describe_corpus(
    name: str, store: str | Path | CorpusStore | None = None, cache: Path | None = None, frequent: int = 10
) -> CorpusDescription:
    """Describe a corpus with its `frequent` most frequent tokens; raises as `open_corpus` does."""
    return _describe(open_corpus(name, store, cache), frequent)


def _describe(corpus: Corpus, frequent: int) -> CorpusDescription:
    counted = zip(corpus.vocabulary.tokens, corpus.vocabulary.counts, strict=True)
    commonest = sorted(counted, key=lambda pair: -pair[1])[:frequent]
    lengths = {name: _summarise_lengths(split.lengths) for name, split in corpus.splits.items()}
    return CorpusDescription(
        manifest=corpus.manifest,
        frequent=tuple(commonest),
        lengths=lengths,
        joined=_describe(corpus.joined, frequent) if corpus.joined else None,
    )


def _summarise_lengths(lengths: Any) -> LengthSummary:
    median, percentile_95 = np.quantile(lengths, [0.5, 0.95])
    return LengthSummary(
        shortest=int(lengths.min()),
        median=float(median),
        mean=float(lengths.mean()),
        percentile_95=float(percentile_95),
        longest=int(lengths.max()),
    )
