"""Tokenisers split sentences of words into tokens, and join tokens to text.

Conventions, as in Mikolov's character-level Penn Treebank: a blank is the token `_`, and `<eos>` stands for
the end of a line. A literal `_` is the token `\\_`, so that joining gives the text back. A byte outside of
printable ASCII is `<0xE9>`. The text of a sentence is its words joined by one blank.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal

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


_LETTERS = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTE_BY_LETTER = {chr(byte): byte for byte in _LETTERS} | {
    chr(0x100 + number): byte for number, byte in enumerate(sorted({*range(0x100)} - {*_LETTERS}))
}
"""The byte of each letter in the subwords of GPT-2 and its successors."""


def show_subword(token: str) -> str:
    """A subword whose letters stand for bytes as its text; a part of a character as its bytes.

    >>> show_subword("Ġæ¨¡åŀĭ"), show_subword("åŀ")
    ('_模型', '<0xE5><0x9E>')
    """
    numbers = [_BYTE_BY_LETTER[letter] for letter in token if letter in _BYTE_BY_LETTER]
    if len(numbers) < len(token):
        return token
    try:
        return "".join(map(name_character, bytes(numbers).decode()))
    except UnicodeDecodeError:
        return "".join(map(name_byte, numbers))


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
