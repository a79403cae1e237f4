"""Tokenisers split sentences of words into tokens, and join tokens to text.

Conventions, as in Mikolov's character-level Penn Treebank: a blank is the token `_`, and `<eos>` stands for
the end of a line. A literal `_` is the token `\\_`, so that joining gives the text back. A byte outside of
printable ASCII is `<0xE9>`. The text of a sentence is its words joined by one blank.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from memtune.errors import CorpusError

TokeniserKind = Literal["characters", "bytes", "subwords"]

BLANK = "_"
_LITERAL_UNDERSCORE = "\\_"
_PRINTABLE = range(0x21, 0x7F)


def name_character(character: str) -> str:
    """The token of a character."""
    return {" ": BLANK, "_": _LITERAL_UNDERSCORE}.get(character, character)


def name_byte(byte: int) -> str:
    """The token of a byte."""
    if byte == ord(" ") or byte in _PRINTABLE:
        return name_character(chr(byte))
    return f"<0x{byte:02X}>"


class Tokeniser(ABC):
    """How a sentence becomes tokens. `document` is all that is needed to make the same tokeniser again."""

    kind: TokeniserKind
    document: str

    @abstractmethod
    def split(self, words: Sequence[str]) -> list[str]:
        """The tokens of a sentence of words."""

    @abstractmethod
    def join(self, tokens: Sequence[str]) -> str:
        """The text of tokens; an incomplete character at the end is U+FFFD."""

    @property
    def tokens(self) -> list[str]:
        """All tokens of a tokeniser that determines the vocabulary; empty for the others."""
        return []

    def split_words(self, words: Sequence[str]) -> Iterator[list[str]]:
        """The tokens of each word, with the blank before it."""
        return (self.split(["", word]) for word in words)


class CharacterTokeniser(Tokeniser):
    """Every character, or every byte of the UTF-8 text, is a token."""

    def __init__(self, kind: Literal["characters", "bytes"]) -> None:
        self.kind, self.document = kind, json.dumps({"kind": kind})

    def split(self, words: Sequence[str]) -> list[str]:
        """The characters or bytes of the words, with a blank between two words."""
        text = " ".join(words)
        return list(map(name_byte, text.encode()) if self.kind == "bytes" else map(name_character, text))

    def join(self, tokens: Sequence[str]) -> str:
        """The text of the tokens; bytes that are not UTF-8 become U+FFFD."""
        content = b"".join(_BYTE_BY_TOKEN.get(token, token.encode()) for token in tokens)
        return content.decode(errors="replace")


_BYTE_BY_TOKEN = {name_byte(byte): bytes([byte]) for byte in range(256)}

_TRAINED = re.compile(r"(bpe|unigram):([0-9]{1,7})")
_MIN_SIZE, _MAX_SIZE = 300, 500_000


@dataclass(frozen=True)
class TokenChoice:
    """Words, characters, bytes, subwords that are trained to a size, or those of a tokenizer.json."""

    kind: Literal["words", "characters", "bytes", "bpe", "unigram", "file"]
    size: int = 0
    path: Path | None = None


_SIMPLE = {kind: TokenChoice(kind) for kind in ("words", "characters", "bytes")}


def parse_token_choice(text: str) -> TokenChoice:
    """The choice that a text such as `characters`, `bpe:8000` or FILE.json names. Raises CorpusError."""
    if text in _SIMPLE:
        return _SIMPLE[text]
    found = _TRAINED.fullmatch(text)
    if found:
        size = int(found[2])
        if not _MIN_SIZE <= size <= _MAX_SIZE:
            raise CorpusError(
                f"--tokens {text}: the size must be from {_MIN_SIZE} (256 of them are bytes) to "
                f"{_MAX_SIZE:,}, got {size:,}"
            )
        return TokenChoice("bpe" if found[1] == "bpe" else "unigram", size)
    if text.endswith(".json"):
        return TokenChoice("file", path=Path(text))
    raise CorpusError(
        f"--tokens {text} is none of words, characters, bytes, bpe:8000, unigram:8000 and FILE.json"
    )
