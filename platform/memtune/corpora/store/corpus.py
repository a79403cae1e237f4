"""A corpus opened for reading: splits of memory-mapped tokens, a vocabulary, a manifest.

Opening maps the shards and copies nothing; the system reads pages when they are first used, and all processes
of a node share them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memtune.arguments import CORPUS_NAME, check_type
from memtune.corpora.store.annotations import Annotations, read_annotation_table
from memtune.corpora.store.arrow_files import ShardArrays, map_file, view_shard
from memtune.corpora.store.corpus_store import CorpusStore
from memtune.corpora.store.manifest import SPLITS, Manifest, StoredFile
from memtune.corpora.store.node_cache import ensure_verified, resolve_cache_folder
from memtune.corpora.store.vocabulary import UNK, Vectors, Vocabulary
from memtune.data_frames import ResultList
from memtune.errors import CorpusError, StorageError, did_you_mean
from memtune.number_format import format_count
from memtune.values import digest

_PIECE_TOKENS = 2**20


class Split:
    """The tokens of one split: one stream of sentences, each ending with `<eos>`, over all its shards."""

    def __init__(self, name: str, shards: Sequence[ShardArrays]) -> None:
        self.name = name
        self._shards = tuple(shards)
        self._shard_starts = np.cumsum([0, *(int(shard.offsets[-1]) for shard in shards)], dtype=np.int64)

    @property
    def token_count(self) -> int:
        """Number of tokens, every `<eos>` included."""
        return int(self._shard_starts[-1])

    @cached_property
    def sentence_count(self) -> int:
        """Number of sentences."""
        return sum(len(shard.offsets) - 1 for shard in self._shards)

    @cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of each sentence, `<eos>` included, (sentences,)."""
        return np.concatenate([np.diff(shard.offsets) for shard in self._shards])

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Position of each sentence's first token in the stream, (sentences,)."""
        placed = zip(self._shards, self._shard_starts, strict=False)
        return np.concatenate([shard.offsets[:-1] + base for shard, base in placed])

    def read_tokens(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """A copy of the ids at positions start to stop - 1 of the stream; IndexError outside of it."""
        if not 0 <= start <= stop <= self.token_count:
            raise IndexError(f"positions {start} to {stop} of a split of {self.token_count} tokens")
        placed = zip(self._shards, self._shard_starts, strict=False)
        pieces = [shard.ids[max(0, start - base) : max(0, stop - base)] for shard, base in placed]
        return np.concatenate(pieces, dtype=np.int64)

    def iterate_tokens(self) -> Iterator[npt.NDArray[np.int64]]:
        """Copies of all ids in their order, 2^20 at a time."""
        for start in range(0, self.token_count, _PIECE_TOKENS):
            yield self.read_tokens(start, min(start + _PIECE_TOKENS, self.token_count))

    def gather(self, positions: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """A copy of the ids at the positions, in their shape; IndexError for one outside the stream."""
        flat = np.asarray(positions).ravel()
        if len(flat) and not 0 <= flat.min() <= flat.max() < self.token_count:
            raise IndexError(
                f"positions {flat.min()} to {flat.max()} of a split of {self.token_count} tokens"
            )
        copy = np.empty(len(flat), np.int64)
        shard_of = np.searchsorted(self._shard_starts, flat, side="right") - 1
        for index in np.unique(shard_of):
            here = shard_of == index
            copy[here] = self._shards[index].ids[flat[here] - self._shard_starts[index]]
        return copy.reshape(np.shape(positions))

    def gather_sentences(
        self, sentences: npt.NDArray[np.integer], lengths: npt.NDArray[np.integer]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The first `lengths` ids of each sentence, (B, T) with any padding, and the mask of these ids."""
        columns = np.arange(lengths.max())
        mask_BT = columns < lengths[:, None]
        return self.gather(self.starts[sentences][:, None] + np.where(mask_BT, columns, 0)), mask_BT


@dataclass(frozen=True)
class Corpus:
    """A corpus open for reading; `corpus["train"]` is a split.

    `annotations` are mapped tables by kind and split, with the columns that ANNOTATION_KINDS says.
    `vectors` belong to the tokens of its vocabulary. `joined` is the corpus of questions when it was opened
    as "text+questions". `tokeniser_document` is what makes the tokeniser of its words, None where the tokens
    are words.
    """

    name: str
    digest: str
    manifest: Manifest
    vocabulary: Vocabulary
    splits: Mapping[str, Split]
    annotations: Annotations = field(default_factory=dict)
    vectors: Vectors | None = None
    joined: "Corpus | None" = None
    tokeniser_document: str | None = None

    def __repr__(self) -> str:
        """The name and the sizes."""
        splits = ", ".join(
            f"{name} {format_count(split.token_count, 'token')}" for name, split in self.splits.items()
        )
        return f"Corpus({self.name}: vocabulary of {len(self.vocabulary):,}; {splits})"

    def __getitem__(self, split: str) -> Split:
        if split not in self.splits:
            raise CorpusError(f'{self.name} has no split "{split}"; {did_you_mean(split, self.splits)}')
        return self.splits[split]

    @property
    def questions(self) -> "Corpus | None":
        """The corpus with the annotations: the joined one, else itself if it has any."""
        return self.joined or (self if self.annotations else None)

    def iterate_trees(self, split: str) -> Iterator[tuple[tuple[int, ...], tuple[str, ...]]]:
        """The heads and the relations of the words of each sentence; nothing without trees."""
        table = self.annotations.get("trees", {}).get(split)
        if table is None:
            return
        labels = self.manifest.annotations["trees"].labels
        for batch in table.to_batches():
            for heads, relations in zip(batch.column("heads"), batch.column("relations"), strict=True):
                yield tuple(heads.as_py()), tuple(labels[relation] for relation in relations.as_py())

    def map_question_ids(self, *, refuse_missing: bool = False) -> npt.NDArray[np.int64]:
        """The id in this corpus of each token of the questions' vocabulary, (tokens,).

        A missing token is looked up in lower case, then without regard to case, the most frequent spelling
        first, and is `<unk>` else; -1 where this vocabulary has none. Raises CorpusError when there are no
        questions, and with `refuse_missing` for words that are missing without an `<unk>`.
        """
        questions = self.questions
        if questions is None:
            raise CorpusError(
                f'{self.name} has no annotations; join a corpus that has: "{self.name}+QUESTIONS"'
            )
        ids, unknown = self.vocabulary.ids, self.vocabulary.unknown_id
        folded: dict[str, int] = {}
        for token, number in ids.items():
            folded.setdefault(token.casefold(), number)

        def find_id(token: str) -> int:
            exact = (ids[spelling] for spelling in (token, token.lower()) if spelling in ids)
            return next(exact, folded.get(token.casefold(), -1 if unknown is None else unknown))

        asked = questions.vocabulary
        found = np.fromiter((find_id(token) for token in asked.tokens), np.int64)
        words = zip(asked.tokens, asked.counts, found, strict=True)
        missing = [word for word, count, id in words if id < 0 and (count or word != UNK)]
        if missing and refuse_missing:
            count = format_count(len(missing), "word")
            raise CorpusError(
                f'the questions of "{questions.name}" have {count} that the text lacks, such as '
                f"\"{missing[0]}\", and the text's vocabulary has no {UNK}; use questions in the text's "
                "words, or import the text with --unknown map"
            )
        return found


def open_corpus(
    name: str, store: str | Path | CorpusStore | None = None, cache: Path | None = None
) -> Corpus:
    """Open a corpus of a store, verified once per node; a remote one is downloaded to the node's cache first.

    `store` is by default that of the environment's settings, `cache` the folder of the variable
    MEMTUNE_CACHE, else ~/.cache/memtune. "text+questions" opens two: the splits and the vocabulary of the
    first with the annotations of the second. Raises CorpusError for a corpus that is missing, of a newer
    schema, truncated, altered or inconsistent, naming the file, and for questions without annotations.
    """
    check_type("name", name, str, CORPUS_NAME)
    place, (of_text, plus, of_questions) = CorpusStore.open(store), name.partition("+")
    text = _open_latest(of_text, place, cache)
    if not plus:
        return text
    questions = _open_latest(of_questions, place, cache)
    if not questions.annotations:
        raise CorpusError(
            f"{name}: {questions.name} has no annotations, so it cannot be asked of {text.name}"
        )
    if text.manifest.tokeniser is not None:
        raise CorpusError(
            f"{name}: questions are about words, and the tokens of {text.name} are "
            f"{text.manifest.tokeniser.kind}; import its text with --tokens words"
        )
    joined = digest("joined", text.digest, questions.digest)
    return replace(text, name=name, digest=joined, joined=questions)


def _open_latest(name: str, store: CorpusStore, cache: Path | None) -> Corpus:
    manifest = store.read_manifest(name)
    try:
        return _open_manifest(store, manifest, resolve_cache_folder(cache))
    except CorpusError:
        # An import may have replaced it between reading the manifest and its files.
        newer = store.read_manifest(name)
        if newer == manifest:
            raise
        return _open_manifest(store, newer, resolve_cache_folder(cache))


def _open_manifest(store: CorpusStore, manifest: Manifest, cache: Path) -> Corpus:
    folder = ensure_verified(store, manifest, cache)

    def map_content(file: StoredFile) -> tuple[pa.Buffer, str]:
        """The content, mapped, and the name of the file for messages."""
        return map_file(folder / file.path), str(folder / file.path)

    vocabulary, vectors, tokeniser = manifest.vocabulary, manifest.vectors, manifest.tokeniser
    return Corpus(
        manifest.name,
        manifest.digest,
        manifest,
        Vocabulary.from_buffer(*map_content(vocabulary)),
        {
            name: Split(name, [view_shard(*map_content(shard), vocabulary.size) for shard in summary.shards])
            for name, summary in manifest.splits.items()
        },
        {
            kind: {
                split: read_annotation_table(*map_content(file), kind) for split, file in record.files.items()
            }
            for kind, record in manifest.annotations.items()
        },
        Vectors.from_buffer(*map_content(vectors), vectors.width) if vectors else None,
        tokeniser_document=bytes(map_content(tokeniser)[0]).decode() if tokeniser else None,
    )


def list_corpora(
    store: str | Path | CorpusStore | None = None,
    on_unreadable: Callable[[CorpusError], None] | None = None,
) -> ResultList[Manifest]:
    """Manifests of a store's corpora, by name, as a list that is also a data frame.

    `on_unreadable` receives the error of an unreadable one; without it, the first of them raises CorpusError.
    `store` is by default that of the environment's settings.
    """
    place = CorpusStore.open(store)
    manifests = []
    for name in place.list_names():
        try:
            manifests.append(place.read_manifest(name))
        except (CorpusError, StorageError) as error:
            problem = CorpusError(
                f'the manifest of corpus "{name}" cannot be read: {error}; restore it, or import the corpus '
                "again with replace"
            )
            problem = error if isinstance(error, CorpusError) else problem
            if on_unreadable is None:
                raise problem from error
            on_unreadable(problem)
    return ResultList(manifests, f"corpora: {len(manifests)}", _describe_manifest)


def _describe_manifest(manifest: Manifest) -> dict[str, Any]:
    tokens = {name: manifest.splits[name].tokens if name in manifest.splits else None for name in SPLITS}
    return {
        "name": manifest.name,
        **tokens,
        "vocabulary": manifest.vocabulary.size,
        "tokens": manifest.options.tokens,
        "annotations": ", ".join(manifest.annotations),
        "bytes": manifest.bytes,
        "digest": manifest.digest,
    }
