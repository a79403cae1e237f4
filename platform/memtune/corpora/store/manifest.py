"""The manifest of a corpus: its files with their digests, its counts and its sources."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from memtune.arguments import CORPUS_NAME, check_type
from memtune.errors import CorpusError
from memtune.values import UserValue, Value

SCHEMA_VERSION = 3
"""3: tokenisers, and the words and bytes of each split."""
SPLITS = ("train", "valid", "test")

Count = Annotated[int, Field(ge=0, lt=2**48)]
"""A number of bytes, tokens or rows; the limit keeps sums of them within int64."""

_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_TRAINED = re.compile(r"(bpe|unigram):([0-9]{1,7})")
_MIN_TRAINED, _MAX_TRAINED = 300, 500_000


@dataclass(frozen=True)
class TokenChoice:
    """Words, characters, bytes, subwords that are trained to a size, or those of a tokenizer.json."""

    kind: Literal["words", "characters", "bytes", "bpe", "unigram", "file"]
    size: int = 0
    path: Path | None = None


_SIMPLE = {kind: TokenChoice(kind) for kind in ("words", "characters", "bytes")}


def parse_token_choice(text: str) -> TokenChoice:
    """The choice that a text such as `characters`, `bpe:8000` or FILE.json names. Raises ValueError."""
    if text in _SIMPLE:
        return _SIMPLE[text]
    found = _TRAINED.fullmatch(text)
    if found:
        size = int(found[2])
        if not _MIN_TRAINED <= size <= _MAX_TRAINED:
            raise ValueError(
                f"{text}: the size must be from {_MIN_TRAINED} (256 of them are bytes) to "
                f"{_MAX_TRAINED:,}, got {size:,}"
            )
        return TokenChoice("bpe" if found[1] == "bpe" else "unigram", size)
    if text.endswith(".json"):
        return TokenChoice("file", path=Path(text))
    raise ValueError(f"{text} is none of words, characters, bytes, bpe:8000, unigram:8000 and FILE.json")


class ImportOptions(UserValue):
    """How words become a vocabulary, and how an import treats lines that break the format.

    `vocabulary` selects the words that are counted: those of the training split ("train"), or those of all
    splits and of the word forms in questions ("all"); a corpus without a training split uses "all".
    A word is kept when its count is at least `min_count`; `max_size` bounds the whole
    vocabulary, `<eos>` and `<unk>` included. `lower_case` maps letter by letter (Unicode's simple
    mapping); `unescape` undoes Moses escapes such as `&apos;`. A word outside the vocabulary becomes
    `<unk>` with `unknown = "map"` and is an error with `unknown = "refuse"`.
    `normalise` is a Unicode normal form for all words; it also removes zero-width spaces, word joiners, byte
    order marks and soft hyphens within them. `tokens` says what a token is: words, characters, bytes,
    subwords that are trained on the training split ("bpe:8000", "unigram:8000"), or those of a
    tokenizer.json.
    `skip_bad` leaves bad entries out, up to 1 % of a file, instead of stopping at the first.
    `shard_tokens` bounds the tokens of one shard.
    """

    vocabulary: Literal["train", "all"] = "train"

    min_count: int = Field(default=1, ge=1)
    max_size: int | None = Field(default=None, ge=3)
    lower_case: bool = False
    unescape: bool = False
    normalise: Literal["NFC", "NFKC"] | None = None
    tokens: str = "words"
    unknown: Literal["map", "refuse"] = "map"
    skip_bad: bool = False
    shard_tokens: int = Field(default=2**23, ge=1, le=2**24)

    @field_validator("tokens")
    @classmethod
    def _check_tokens(cls, tokens: str) -> str:
        parse_token_choice(tokens)
        return tokens


class StoredFile(Value):
    """One file of a corpus; `path` is a folder and a file name below the corpus's own folder."""

    path: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*/[A-Za-z0-9_-][A-Za-z0-9_.-]*$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    bytes: Count


class ShardRecord(StoredFile):
    """Whole sentences of one split; `tokens` includes their `<eos>`."""

    tokens: Count
    sentences: Count


class VocabularyRecord(StoredFile):
    """The file of the vocabulary, and its number of tokens."""

    size: Count


class AnnotationFile(StoredFile):
    """The table of one kind of annotation and one split, and its number of rows."""

    rows: Count


class AnnotationRecord(Value):
    """One kind of annotation: the names of its labels, and its file by split."""

    labels: tuple[str, ...] = ()
    files: dict[str, AnnotationFile]


class TokeniserRecord(StoredFile):
    """The file of a tokeniser that splits words: its document, and what its tokens are."""

    kind: Literal["characters", "bytes", "subwords"]


class FileRecord(Value):
    """A source file of an import."""

    name: str
    sha256: str
    bytes: Count


class VectorsRecord(StoredFile):
    """The file of the vectors: their width, tokens with a vector in the source, the seed of the others."""

    width: int = Field(ge=1, le=2**20)
    known: Count
    seed: int
    source: FileRecord


class SplitSummary(Value):
    """Counts of one split, `<eos>` included everywhere.

    `types` are distinct tokens as stored, `oov_tokens` the words that became `<unk>` (a literal `<unk>` in
    the text is not one of them) and `longest` the tokens of the longest sentence. `words` and `bytes` are
    those of the text before its words became `<unk>` or other tokens: UTF-8, a blank between two words, a
    line feed for each sentence; corpora of earlier versions lack them.
    """

    tokens: Count
    sentences: Count
    types: Count
    oov_tokens: Count
    longest: Count
    words: Count | None = None
    bytes: Count | None = None
    shards: tuple[ShardRecord, ...] = Field(min_length=1)

    @property
    def oov_rate(self) -> float:
        """Share of the words that are outside the vocabulary, from 0 to 1; `<eos>` is not a word."""
        return self.oov_tokens / (self.tokens - self.sentences)


class SourceRecord(FileRecord):
    """The source of a split: a file, a folder, or generated sentences, one per line.

    `options` are those of its format and `beside` are its companion files. `skipped` counts entries that the
    import left out, by reason, and `notes` are its other remarks. `division` describes the part of the file
    that became this split, when it is not the whole file.
    """

    format: str
    options: dict[str, Any] = Field(default_factory=dict)
    beside: tuple[FileRecord, ...] = ()
    skipped: dict[str, int] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    division: str | None = None


class Manifest(Value):
    """The description of a corpus and the digests of its files.

    `digest` identifies the content: vocabulary, tokens and sentence boundaries of each split, independent of
    the division into shards, and annotations, vectors and tokeniser if any. `ideal` is the exact ideal
    perplexity per split, where it is known.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    digest: str
    vocabulary: VocabularyRecord
    splits: dict[str, SplitSummary]
    annotations: dict[str, AnnotationRecord] = Field(default_factory=dict)
    vectors: VectorsRecord | None = None
    tokeniser: TokeniserRecord | None = None
    """Splits words into tokens; None where the tokens are words."""
    sources: dict[str, SourceRecord]
    options: ImportOptions
    licence: str | None = None
    ideal: dict[str, float] | None = None

    @model_validator(mode="after")
    def _check_splits(self) -> Self:
        for kind, annotation in self.annotations.items():
            for split in annotation.files.keys() - self.splits.keys():
                raise ValueError(f"{kind} annotates the split {split[:100]}, which the corpus does not have")
        return self

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """All files except the manifest itself."""
        shards = (shard for split in self.splits.values() for shard in split.shards)
        annotated = (file for annotation in self.annotations.values() for file in annotation.files.values())
        others = [file for file in (self.vectors, self.tokeniser) if file]
        return (self.vocabulary, *shards, *annotated, *others)

    @property
    def bytes(self) -> int:
        """The size of all these files."""
        return sum(file.bytes for file in self.files)

    @property
    def remarks(self) -> Iterator[str]:
        """Remarks of the import about its sources, and counts of what it left out."""
        for split, source in self.sources.items():
            if source.division and split != SPLITS[0]:
                continue  # its remarks are about the whole file and were reported with the first split
            yield from source.notes
            for reason, count in source.skipped.items():
                yield f"{count:,} left out of {source.name} ({split}): {reason}"

    @property
    def folder(self) -> str:
        """The folder of all files."""
        return self.vocabulary.path.split("/")[0]


class _SchemaVersion(Value, extra="ignore"):
    schema_version: int


def check_name(name: str) -> str:
    """`name` itself. Raises CorpusError when a corpus cannot have this name."""
    check_type("name", name, str, CORPUS_NAME)
    if not _NAME_PATTERN.fullmatch(name):
        raise CorpusError(
            f'"{name}" is not a valid name for a corpus; use up to 100 letters from A to Z, digits, "_", "-" '
            'and ".", not starting with "."'
        )
    return name


def parse_manifest(data: bytes, where: str) -> Manifest:
    """The manifest in `data`. Raises CorpusError, naming `where`, for a newer schema or a damaged file."""
    try:
        version = _SchemaVersion.model_validate_json(data).schema_version
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
