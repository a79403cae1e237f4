"""Configurations as values: frozen, closed, comparable, and named by their content."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from memtune.errors import ConfigurationError, did_you_mean

__all__ = ["Value", "digest", "flatten", "parse"]

T = TypeVar("T")


class Value(BaseModel):
    """Base of every configuration: keyword-only, frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


def parse(kind: Any, data: object, where: str) -> Any:
    """`data` as a `kind` (a Value, or a union of them), or a ConfigurationError that starts with `where`.

    Every problem is listed on a line of its own: the dotted name, what is wrong with it, and for an
    unknown name the nearest known one.
    """
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        problems = [_problem(kind, data, problem) for problem in error.errors(include_url=False)]
        raise ConfigurationError("\n".join(f"{where}: {problem}" for problem in problems)) from None


def _problem(kind: Any, data: object, problem: Any) -> str:
    name, tags, siblings = _place(kind, [str(part) for part in problem["loc"]])
    of = f" ({', '.join(tags)})" if tags else ""
    if problem["type"] == "extra_forbidden":
        return f'unknown name "{name}"{of}; {did_you_mean(name.rpartition(".")[2], siblings)}'
    if problem["type"] == "missing":
        return f"{name}{of} is missing"
    if problem["type"] == "union_tag_invalid":
        kinds = [tag.strip(" '") for tag in problem["ctx"]["expected_tags"].split(",")]
        discriminator = problem["ctx"]["discriminator"].strip("'")
        place = f"{name}.{discriminator}" if name else discriminator
        return f'{place}: no "{problem["ctx"]["tag"]}"; {did_you_mean(problem["ctx"]["tag"], kinds)}'
    message = str(problem["msg"]).removeprefix("Value error, ")
    got = "" if problem["type"] == "value_error" else f", got {problem['input']!r}"
    return f"{name}{of}: {message}{got}" if name else f"{message}{got}"


def _place(kind: Any, path: list[str]) -> tuple[str, list[str], list[str]]:
    """The dotted name a user wrote, the kinds chosen on the way to it, and the names known there."""
    schema = TypeAdapter(kind).json_schema()
    names: list[str] = []
    tags: list[str] = []
    siblings: list[str] = []
    node: Any = schema
    for part in path:
        node = _resolve(schema, node)
        options = node.get("discriminator", {}).get("mapping", {})
        if part in options:
            node = {"$ref": options[part]}
            tags.append(part)
            continue
        names.append(part)
        siblings = list(node.get("properties", {}))
        node = node.get("properties", {}).get(part, {})
    return ".".join(names), tags, siblings


def _resolve(schema: Any, node: Any) -> Any:
    """The schema behind references and behind "or nothing"."""
    while True:
        options = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        elif len(options) == 1:
            node = options[0]
        else:
            return node


def digest(*parts: object) -> str:
    """Hexadecimal SHA-256 of the canonical JSON of the parts; Values are written with all their defaults."""
    canonical = json.dumps([_plain(part) for part in parts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _plain(part: object) -> object:
    return part.model_dump(mode="json") if isinstance(part, Value) else part


def flatten(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, leaf) for every leaf of a tree of mappings, in its order.

    >>> dict(flatten({"model": {"layers": 2}}))
    {'model.layers': 2}
    """
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
