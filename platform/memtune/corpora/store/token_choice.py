"""What a token of a corpus is, as an import is asked for it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
    """The choice that a text such as `characters`, `bpe:8000` or FILE.json names. Raises ValueError."""
    if text in _SIMPLE:
        return _SIMPLE[text]
    found = _TRAINED.fullmatch(text)
    if found:
        size = int(found[2])
        if not _MIN_SIZE <= size <= _MAX_SIZE:
            raise ValueError(
                f"{text}: the size must be from {_MIN_SIZE} (256 of them are bytes) to "
                f"{_MAX_SIZE:,}, got {size:,}"
            )
        return TokenChoice("bpe" if found[1] == "bpe" else "unigram", size)
    if text.endswith(".json"):
        return TokenChoice("file", path=Path(text))
    raise ValueError(f"{text} is none of words, characters, bytes, bpe:8000, unigram:8000 and FILE.json")
