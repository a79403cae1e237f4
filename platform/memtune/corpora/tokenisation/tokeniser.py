"""Tokenisers split sentences of words into tokens, and join tokens to text.

Conventions, as in Mikolov's character-level Penn Treebank: a blank is the token `_`, and `<eos>` stands for
the end of a line. A literal `_` is the token `\\_`, so that joining gives the text back. A byte outside of
printable ASCII is `<0xE9>`. The text of a sentence is its words joined by one blank.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
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


class CharacterTokeniser(Tokeniser):
    """Every character is a token."""

    kind = "characters"
    document = json.dumps({"kind": "characters"})

    def split(self, words: Sequence[str]) -> list[str]:
        """The characters of the words, with a blank between two words."""
        return [name_character(character) for character in " ".join(words)]

    def join(self, tokens: Sequence[str]) -> str:
        """The characters of tokens."""
        return "".join(_spell(token) for token in tokens)


class ByteTokeniser(Tokeniser):
    """Every byte of the UTF-8 text is a token."""

    kind = "bytes"
    document = json.dumps({"kind": "bytes"})

    def split(self, words: Sequence[str]) -> list[str]:
        """The bytes of the words, with a blank between two words."""
        return [name_byte(byte) for byte in " ".join(words).encode()]

    def join(self, tokens: Sequence[str]) -> str:
        """The text of the bytes; bytes that are not UTF-8 become U+FFFD."""
        content = b"".join(_BYTE_BY_TOKEN.get(token, token.encode()) for token in tokens)
        return content.decode(errors="replace")


_BYTE_BY_TOKEN = {name_byte(byte): bytes([byte]) for byte in range(256)}


def _spell(token: str) -> str:
    return {BLANK: " ", _LITERAL_UNDERSCORE: "_"}.get(token, token)
