"""The sentences of a corpus as text: exported to files, or a sample of them."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from memtune.corpora.store.corpus import Corpus
from memtune.corpora.tokenisation.tokeniser import CharacterTokeniser, Tokeniser, TokeniserKind, show_subword
from memtune.errors import StorageError

ExportFormat = Literal["text", "jsonl", "parquet"]

_SUFFIXES = {"text": ".txt", "jsonl": ".jsonl", "parquet": ".parquet"}
_ROWS_PER_GROUP = 8192


def make_tokeniser(kind: TokeniserKind, document: str) -> Tokeniser:
    """The tokeniser of a stored document. Raises CorpusError for one that `tokenizers` cannot read."""
    if kind != "subwords":
        return CharacterTokeniser(kind)
    # Imported here: only texts of subwords need `tokenizers`, and `import memtune` loads without it.
    from memtune.corpora.tokenisation.subwords import SubwordTokeniser

    return SubwordTokeniser(document)


def show_tokens(tokens: Sequence[str], document: str | None) -> Sequence[str]:
    """Tokens as tables and figures show them, by the document of their tokeniser."""
    decoder = json.loads(document or "{}").get("decoder") or {}
    is_bytes = "ByteLevel" in (decoder.get("type"), *(part["type"] for part in decoder.get("decoders", ())))
    return [*map(show_subword, tokens)] if is_bytes else tokens


def iterate_sentences(corpus: Corpus, split: str, numbers: Iterable[int] | None = None) -> Iterator[str]:
    """The sentences of a split as text, all of them or those of the numbers, without `<eos>`."""
    text = corpus[split]
    record, document = corpus.manifest.tokeniser, corpus.tokeniser_document
    tokeniser = make_tokeniser(record.kind, document) if record and document is not None else None
    starts, lengths = text.starts, text.lengths
    for number in range(text.sentence_count) if numbers is None else numbers:
        start = int(starts[number])
        tokens = corpus.vocabulary.decode(text.read_tokens(start, start + int(lengths[number]) - 1))
        yield " ".join(tokens) if tokeniser is None else tokeniser.join(tokens)


def sample_sentences(corpus: Corpus, split: str, count: int, seed: int) -> list[tuple[int, str]]:
    """Up to `count` sentences of a split at random, with their numbers from 0, in the order of the text."""
    total = corpus[split].sentence_count
    numbers = sorted(random.Random(seed).sample(range(total), min(count, total)))
    return list(zip(numbers, iterate_sentences(corpus, split, numbers), strict=True))


def export_text(corpus: Corpus, folder: Path, format: ExportFormat = "text") -> list[Path]:
    """Write each split as a file of its name into a folder; returns the files.

    Words outside of the vocabulary are `<unk>`, and annotations are left out. Raises StorageError where a
    file exists or cannot be written; then no part of the text stays.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for split in corpus.splits:
            path = folder / f"{split}{_SUFFIXES[format]}"
            with path.open("xb") as file:
                written.append(path)
                _write_split(iterate_sentences(corpus, split), file, format)
    except OSError as error:
        for path in written:
            path.unlink()
        if isinstance(error, FileExistsError):
            raise StorageError(f"{error.filename} exists; remove it, or export to another folder") from None
        raise StorageError(f"cannot write to {folder}: {error.strerror}; choose another place") from None
    return written


def _write_split(sentences: Iterator[str], file: BinaryIO, format: ExportFormat) -> None:
    if format == "parquet":
        schema = pa.schema({"text": pa.string()})
        with pq.ParquetWriter(file, schema) as writer:
            while group := list(islice(sentences, _ROWS_PER_GROUP)):
                writer.write_table(pa.table({"text": group}, schema))
        return
    for sentence in sentences:
        line = json.dumps({"text": sentence}, ensure_ascii=False) if format == "jsonl" else sentence
        file.write(f"{line}\n".encode())
