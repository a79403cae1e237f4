"""TOML texts of bounded size and depth, parsed to dictionaries.

The bound on the depth keeps recursive functions over such a dictionary within Python's recursion limit.
Integers have at most 64 bits, as TOML specifies.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TOML_FIXES = {
    "Cannot declare": "write all fields of a table below one header",
    "Cannot overwrite a value": "keep one of the two",
    "Cannot mutate immutable": "write all fields of a table at one place",
    "Invalid value": 'a text needs quotes, as in corpus = "ptb"',
}
"""What mends a file, by the start of tomllib's message."""
MAX_BYTES = 2**20
MAX_DEPTH = 32
INTEGERS = range(-(2**63), 2**63)
KEY_PATTERN = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
PATH_PATTERN = rf"{KEY_PATTERN}(?:\s*\.\s*{KEY_PATTERN})*"
HEADER_LINE = re.compile(rf"\s*\[\s*({PATH_PATTERN})\s*\]")
FIELD_LINE = re.compile(rf"\s*({PATH_PATTERN})\s*=")
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
DEEP_KEY = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){%d}""" % MAX_DEPTH  # noqa: UP031
)
"""A dotted key of more than 32 parts. tomllib takes quadratic time for it: minutes for 200 kB."""


def read_toml_text(path: Path) -> str:
    """The text of a file; raises OSError, UnicodeDecodeError, or ValueError for a file over 1 MiB."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
    return content.decode("utf-8").replace("\r\n", "\n")


def parse_toml(text: str) -> dict[str, Any]:
    """A TOML text as a dictionary.

    Raises ValueError for a text that is not TOML, tables nested more than 32 deep, and integers of more than
    64 bits.
    """
    if DEEP_KEY.search(text):
        raise ValueError(f"it has a dotted key nested more than {MAX_DEPTH} deep")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        fixes = [f"; {fix}" for start, fix in TOML_FIXES.items() if str(error).startswith(start)]
        raise ValueError("".join([str(error), *fixes])) from None
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from None
    _check_bounds(document)
    return document


def locate_field(path: str | Path, name: str) -> str:
    """A file and the line of a field of it, by its dotted name; the file alone where it has no such line.

    >>> locate_field("missing.toml", "budget.trials")
    'missing.toml'
    """
    try:
        line = find_line(read_toml_text(Path(path)), name)
    except (OSError, ValueError):
        line = None
    return str(path) if line is None else f"{path}, line {line}"


def find_line(text: str, name: str) -> int | None:
    """The line, from 1, of a field by its dotted name, or of the nearest table around it.

    tomllib tells no positions. A line within a text of several lines may be taken for a field.

    >>> find_line("seed = 1\\n[training]\\noptimiser = { kind = 5 }", "training.optimiser.kind")
    3
    """
    wanted, table = name.split("."), list[str]()
    found, found_depth = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER_LINE.match(line):
            path = table = _split_keys(header[1])
        elif field := FIELD_LINE.match(line):
            path = [*table, *_split_keys(field[1])]
        else:
            continue
        if len(path) > found_depth and path == wanted[: len(path)]:
            found, found_depth = number, len(path)
    return found


def _split_keys(path: str) -> list[str]:
    return [key.strip("\"'") for key in re.findall(KEY_PATTERN, path)]


def format_toml(document: Mapping[str, Any]) -> str:
    """A TOML text of a document of texts, numbers, flags, lists and tables, one field a line.

    Fields of tables have dotted keys; those that are None, and empty tables and lists, are left out.

    >>> format_toml({"corpus": "ptb", "model": {"layers": 1, "width": None}})
    'corpus = "ptb"\\nmodel.layers = 1\\n'
    """
    return "".join(f"{key} = {_format_value(value)}\n" for key, value in _list_fields(document, ()))


def _list_fields(table: Mapping[str, Any], parents: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        path = (*parents, name if BARE_KEY.fullmatch(name) else _format_value(name))
        if isinstance(value, Mapping):
            yield from _list_fields(value, path)
        elif value is not None and value != []:
            yield ".".join(path), value


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{key} = {_format_value(own)}" for key, own in _list_fields(value, ())) + " }"
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(_format_value(item) for item in value)}]"
    if isinstance(value, float):
        return repr(value)  # inf and nan are TOML
    # A JSON text is a TOML text, except for the one control character that only JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_bounds(document: dict[str, Any]) -> None:
    """Check depth and integers level by level; recursion would fail for deeply nested tables."""
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        parts = [part for part in level if isinstance(part, dict | list)]
        level = [child for part in parts for child in (part.values() if isinstance(part, dict) else part)]
        for value in level:
            if isinstance(value, int) and value not in INTEGERS:
                raise ValueError("it holds an integer of more than 64 bits")
    if any(isinstance(value, dict | list) for value in level):
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
