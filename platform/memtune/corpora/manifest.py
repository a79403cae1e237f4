"""The manifest of a corpus: what a store holds under one name, written last and read first."""

import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, ValidationError

from memtune.errors import CorpusError
from memtune.values import Value

__all__ = [
    "SCHEMA_VERSION",
    "SPLITS",
    "Annotation",
    "AnnotationFile",
    "FileRecord",
    "ImportOptions",
    "Manifest",
    "Shard",
    "SourceRecord",
    "SplitSummary",
    "StoredFile",
    "VectorsRecord",
    "VocabularyRecord",
    "check_name",
    "parse_manifest",
]

SCHEMA_VERSION = 2
SPLITS = ("train", "valid", "test")

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


class ImportOptions(Value):
    """How words become a vocabulary, and what becomes of lines that break the format.

    `vocabulary` says whose words are counted: those of the training split ("train"), or of all splits and of
    the forms that questions ask for ("all"); a corpus without a training split has those of all.
    A word is kept when it was counted at least `min_count` times; `max_size` bounds the whole
    vocabulary, `<eos>` and `<unk>` included. `lower_case` maps letter by letter (Unicode's simple
    mapping); `unescape` undoes Moses escapes such as `&apos;`. A word outside the vocabulary becomes
    `<unk>` with `unknown = "map"` and is an error with `unknown = "refuse"`.
    `skip_bad` leaves bad entries out, up to 1 % of a file, instead of stopping at the first.
    `shard_tokens` bounds the tokens of one shard.
    """

    vocabulary: Literal["train", "all"] = "train"

    min_count: int = Field(default=1, ge=1)
    max_size: int | None = Field(default=None, ge=3)
    lower_case: bool = False
    unescape: bool = False
    unknown: Literal["map", "refuse"] = "map"
    skip_bad: bool = False
    shard_tokens: int = Field(default=2**23, ge=1, le=2**24)


class StoredFile(Value):
    """One file of a corpus: `path` is a folder and a file in the corpus' own folder."""

    path: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*/[A-Za-z0-9_-][A-Za-z0-9_.-]*$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    bytes: int


class Shard(StoredFile):
    """Whole sentences of one split; `tokens` counts their `<eos>` too."""

    tokens: int
    sentences: int


class VocabularyRecord(StoredFile):
    """The file of the vocabulary, and how many tokens it lists."""

    size: int


class AnnotationFile(StoredFile):
    """The annotations of one kind and split; `rows` of them."""

    rows: int


class Annotation(Value):
    """One kind of annotation: the names of its labels, and its file by split."""

    labels: tuple[str, ...] = ()
    files: dict[str, AnnotationFile]


class FileRecord(Value):
    """A file that was read."""

    name: str
    sha256: str
    bytes: int


class VectorsRecord(StoredFile):
    """The file of the vectors: their width, how many tokens the source had, the seed of the others."""

    width: int
    known: int
    seed: int
    source: FileRecord


class SplitSummary(Value):
    """Counts of one split, `<eos>` included everywhere.

    `types` are distinct tokens as stored, `oov_tokens` the words that became `<unk>` (a literal `<unk>` in
    the text is not one of them) and `longest` the tokens of the longest sentence.
    """

    tokens: int
    sentences: int
    types: int
    oov_tokens: int
    longest: int
    shards: tuple[Shard, ...]


class SourceRecord(FileRecord):
    """What a split was read from: a file, a folder, or sentences made by a program, as one a line.

    `options` are those of its format, `beside` the files read along with it; `skipped` counts what was left
    out, by reason, bad lines among them, and `notes` say what else was found. `division` says which part of
    the file the split has, where it has not all of it.
    """

    format: str
    options: dict[str, Any] = Field(default_factory=dict)
    beside: tuple[FileRecord, ...] = ()
    skipped: dict[str, int] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    division: str | None = None


class Manifest(Value):
    """Everything about a corpus but its tokens.

    `digest` names the content: schema version, vocabulary, tokens and sentence boundaries of each split,
    however they are cut into shards, and annotations and vectors where there are any. `ideal` is the exact
    ideal perplexity per split, where it is known.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    digest: str
    vocabulary: VocabularyRecord
    splits: dict[str, SplitSummary]
    annotations: dict[str, Annotation] = Field(default_factory=dict)
    vectors: VectorsRecord | None = None
    sources: dict[str, SourceRecord]
    options: ImportOptions
    licence: str | None = None
    ideal: dict[str, float] | None = None

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """Every file but the manifest itself."""
        shards = (shard for split in self.splits.values() for shard in split.shards)
        annotated = (file for annotation in self.annotations.values() for file in annotation.files.values())
        return (self.vocabulary, *shards, *annotated, *([self.vectors] if self.vectors else []))

    @property
    def remarks(self) -> Iterator[str]:
        """What the import found worth saying of its sources, and what it left out of them."""
        for split, source in self.sources.items():
            if source.division and split != SPLITS[0]:
                continue  # said of the whole file already
            yield from source.notes
            for reason, count in source.skipped.items():
                yield f"{count:,} left out of {source.name} ({split}): {reason}"

    @property
    def folder(self) -> str:
        """The folder all files are in."""
        return self.vocabulary.path.split("/")[0]


class _Version(Value, extra="ignore"):
    schema_version: int


def check_name(name: str) -> str:
    """`name` itself if a corpus may be called so, else a CorpusError."""
    if not _NAME.fullmatch(name):
        raise CorpusError(
            f'"{name}" is no name for a corpus: use up to 100 letters, digits, "_", "-" and ".", '
            'not starting with "."'
        )
    return name


def parse_manifest(data: bytes, where: str) -> Manifest:
    """The manifest in `data`; a newer schema or a damaged file is a CorpusError that starts with `where`."""
    try:
        version = _Version.model_validate_json(data).schema_version
        if version > SCHEMA_VERSION:
            raise CorpusError(
                f"{where}: written by a newer memtune (corpus schema {version}, this one reads up to "
                f"{SCHEMA_VERSION}); update memtune or import the corpus again"
            )
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        raise CorpusError(
            f"{where}: not a manifest ({error.errors()[0]['msg']}); import the corpus again with replace"
        ) from None
