"""Configurations as values: frozen, comparable, without unknown names, and identified by a digest."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import PydanticKnownError, from_json
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function

from memtune.errors import ConfigurationError, did_you_mean, suggest_nearest

T = TypeVar("T")
Place = str | Callable[[str], str]
"""Where data come from, in messages; a function returns it for a field by its dotted name."""
UNION_LABEL = re.compile(r"(constrained-)?(str|int|float|bool)|[a-z-]+\[.*\]")
"""What pydantic puts into a location for a member of a union without tags, such as "literal['papers']"."""
ENUM_MEMBER = re.compile(r"<\w+\.\w+: ('[^']*')>")
"""How pydantic writes a member of an enumeration, which files name by its value."""
SIZE_ERRORS = ("byte_size", "byte_size_unit")
SCALAR_ERRORS = ("int_type", "float_type", "string_type", "bool_type", "literal_error", *SIZE_ERRORS)
"""Pydantic's errors for a list or a table in place of one value."""

TABLE_ERRORS = ("dict_type", "model_type", "model_attributes_type", "union_tag_not_found")
"""Pydantic's errors for a value that is no table, and for a table without the name of its kind."""

UNCHANGED_PARTS = ("default", "metadata", "serialization")
"""Parts of pydantic's schemas that are no schemas."""

MAX_SHOWN_PROBLEMS = 20
"""Lines of one error; a file of thousands of unknown names would take minutes to describe."""
MAX_SHOWN_CHARACTERS = 200
"""Largest length of an invalid value in an error message."""


def _check_kind(error: Literal["int_type", "float_type"], value: object) -> object:
    if isinstance(value, bool | str | bytes):
        raise PydanticKnownError(error)
    return value


_check_integer, _check_number = partial(_check_kind, "int_type"), partial(_check_kind, "float_type")


def _refuse_conversions(schema: Any) -> Any:
    """A copy of a schema of pydantic whose numbers refuse truth values and texts.

    Pydantic's own strict mode would refuse more: lists for tuples, and 1e6 for an integer.
    """
    if isinstance(schema, list | tuple):
        return type(schema)(_refuse_conversions(part) for part in schema)
    if not isinstance(schema, dict):
        return schema
    match schema.get("type"):
        case "int":
            return no_info_before_validator_function(_check_integer, schema)
        case "float":
            return no_info_before_validator_function(_check_number, schema)
        case "bool":
            return {**schema, "strict": True}
        case "function-before" if schema["function"]["function"] in (_check_integer, _check_number):
            return schema  # of a nested value
    return {
        name: part if name in UNCHANGED_PARTS else _refuse_conversions(part) for name, part in schema.items()
    }


class Value(BaseModel):
    """Base of every configuration: keyword-only and frozen; unknown keys are errors.

    Numbers are numbers: neither `true` nor the text "8" is one, and no number is a truth value. A class whose
    fields are read from texts, such as tags, has `strict=False` in its `model_config`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema of the class, in which no field converts a truth value or a text to a number."""
        schema = handler(source)
        return schema if cls.model_config.get("strict") is False else _refuse_conversions(schema)


class UserValue(Value):
    """Base of the values that users construct in Python: mistakes are reported as in files."""

    def __init__(self, /, *values: object, **fields: Any) -> None:
        """Raises ConfigurationError with one line per problem, as `parse` does."""
        kind = type(self)
        if values:
            got, known = _abbreviate(values[0]), ", ".join(kind.model_fields)
            raise ConfigurationError(f"{kind.__name__} takes fields by name, got {got}; known: {known}")
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ConfigurationError(_format_problems(error, kind, fields, kind.__name__)) from None

    # Without this mark pydantic would call __init__ for nested values too, whose errors then have no place.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def parse(schema: Any, data: object, where: Place) -> Any:
    """`data` validated as `schema`, a Value or a union of Values.

    Raises ConfigurationError with one line per problem: `where`, the dotted name and the problem. The line of
    an unknown name suggests the nearest known one.
    """
    try:
        return TypeAdapter(schema).validate_python(data)
    except ValidationError as error:
        raise ConfigurationError(_format_problems(error, schema, data, where)) from None


def _format_problems(error: ValidationError, schema: Any, data: object, where: Place) -> str:
    """A line for each of the first problems: where, the dotted name and the problem."""
    problems = _merge_union_problems(error.errors(include_url=False), data)
    lines = [
        f"{_find_place(where, schema, each)}: {_format_problem(schema, each)}"
        for each in problems[:MAX_SHOWN_PROBLEMS]
    ]
    if len(problems) > MAX_SHOWN_PROBLEMS:
        lines.append(f"and {len(problems) - MAX_SHOWN_PROBLEMS:,} more problems")
    return "\n".join(lines)


def _merge_union_problems(problems: Iterable[Any], data: object) -> list[Any]:
    """The problems with one for each value of a union, for which pydantic has one per member.

    The problem of a whole value is left out where the value fits another member but for a part of it, and
    where it is too short because its parts have problems.
    """
    found: list[Any] = []
    of_unions: dict[tuple[str | int, ...], Any] = {}
    for problem in problems:
        place = _drop_union_labels(problem["loc"], data)
        if place in of_unions:
            message = f"{of_unions[place]['msg']}, or {problem['msg'].removeprefix('Input should be ')}"
            of_unions[place] |= {"msg": message, "type": "union"}
            continue
        found.append({**problem, "loc": place})
        if len(place) < len(problem["loc"]):
            of_unions[place] = found[-1]
    places = {problem["loc"] for problem in found}
    wholes = {*of_unions, *(problem["loc"] for problem in found if problem["type"] == "too_short")}
    covered = {place for place in wholes if any(place == other[: len(place)] != other for other in places)}
    return [problem for problem in found if problem["loc"] not in covered]


def _drop_union_labels(location: Iterable[str | int], data: object) -> tuple[str | int, ...]:
    """A location without the labels of members of unions, which are no names of the data."""
    kept: list[str | int] = []
    for part in location:
        is_name = isinstance(data, Mapping) and part in data
        if is_name or not (isinstance(part, str) and UNION_LABEL.fullmatch(part)):
            kept.append(part)
            is_item = isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
            data = data[part] if is_name or is_item else None  # type: ignore[index]
    return tuple(kept)


def _find_place(where: Place, schema: Any, problem: Any) -> str:
    if isinstance(where, str):
        return where
    return where(_locate_field(schema, [str(part) for part in problem["loc"]]).name)


def parse_json(data: bytes | str) -> Any:
    """The value of a JSON document.

    Raises ValueError for any other text, for more than 200 nested brackets, for numbers over 4,300 digits and
    for lone surrogates. Python's own parser raises RecursionError or returns text that cannot be encoded for
    some of these.
    """
    return from_json(data)


def _format_problem(schema: Any, problem: Any) -> str:
    """One line about a problem that pydantic reports."""
    name, tags, siblings, own = _locate_field(schema, [str(part) for part in problem["loc"]])
    members = f" ({', '.join(tags)})" if tags else ""
    if problem["type"] == "extra_forbidden":
        table, dot, field = name.rpartition(".")
        root = _generate_json_schema(schema)
        tables = [other for other, node in siblings.items() if field in _list_fields_of_tables(root, node)]
        deeper = f"{table}{dot}{tables[0]}.{field}" if tables else ""
        near = f'did you mean "{deeper}"?' if deeper else suggest_nearest(field, siblings)
        if not near and table and field in root.get("properties", {}):
            near = f'write "{field}" above the first [table], or in a table of its own'
        if table.rpartition(".")[2] == field and isinstance(problem["input"], Mapping):
            near = f'below [{table}], its fields are written without "{field}."'
        return f'unknown name "{name}"{members}; {near or did_you_mean(field, siblings)}'
    if problem["type"] == "missing":
        return f"{name}{members} is missing"
    if problem["type"] == "union_tag_invalid":
        kinds = [tag.strip(" '") for tag in problem["ctx"]["expected_tags"].split(",")]
        discriminator = problem["ctx"]["discriminator"].strip("'")
        place = f"{name}.{discriminator}" if name else discriminator
        return f'{place}: no "{problem["ctx"]["tag"]}"; {did_you_mean(problem["ctx"]["tag"], kinds)}'
    if problem["type"] in TABLE_ERRORS:
        table = _describe_table(_resolve_schema(_generate_json_schema(schema), own), problem["input"])
        return f"{name}{members}: {table}" if name else table
    message = ENUM_MEMBER.sub(r"\1", str(problem["msg"]).removeprefix("Value error, "))
    got = "" if problem["type"] == "value_error" else f", got {_abbreviate(problem['input'])}"
    if problem["type"] in ("tuple_type", "list_type") and isinstance(problem["input"], str):
        message, got = f'must be a list; write ["{_abbreviate(problem["input"])[1:-1]}"]', ""
    elif problem["type"] in SCALAR_ERRORS:
        got += _suggest_value(problem["type"], problem["input"])
    return f"{name}{members}: {message}{got}" if name else f"{message}{got}"


def _describe_table(schema: Any, value: object) -> str:
    """What to write in place of a value that is no table, or that lacks the name of its kind."""
    got, union = f"got {_abbreviate(value)}", schema.get("discriminator")
    if union is None:
        fields = ", ".join(schema.get("properties", ()))
        return f"must be a table, {got}" + (f"; its fields are {fields}" if fields else "")
    tag, kinds = union["propertyName"], sorted(union["mapping"])
    if isinstance(value, Mapping):
        return f"{tag} is missing; {did_you_mean('', kinds)}"
    kind, known = (value, "") if value in kinds else (kinds[0], f"; known: {', '.join(kinds)}")
    return f'must be a table such as {{ {tag} = "{kind}" }}, {got}{known}'


def _suggest_value(error: str, value: object) -> str:
    """What to write in place of a value of another type.

    For a list or a table in place of one value, how a study or a space samples it.
    """
    if error in ("int_type", "float_type") and isinstance(value, bool):
        return "; write a number"
    if error in ("int_type", "float_type") and isinstance(value, str):
        with suppress(ValueError):
            float(value)
            return f"; write {value.strip()} without quotation marks"
    if error == "bool_type" and not isinstance(value, list | Mapping):
        return "; write true or false without quotation marks"
    if error in SIZE_ERRORS:
        return '; a size is a number and a unit such as "24GB" or "80GiB"'
    if isinstance(value, list):
        return f"; to sample one of them, a study or a space has {{ choice = {_abbreviate(value)} }}"
    if isinstance(value, Mapping):
        kinds = "{ int = [1, 4] }, { float = [0.1, 0.5] } or { choice = [1, 2] }"
        return f"; a parameter of a study or a space is {kinds}"
    return ""


def _list_fields_of_tables(schema: Any, field: Any) -> set[str]:
    """The fields of the table that a field holds, or of all tables of its union."""
    node = _resolve_schema(schema, field)
    members = [_resolve_schema(schema, member) for member in node.get("oneOf", [node])]
    return {name for member in members for name in member.get("properties", {})}


def _abbreviate(value: object) -> str:
    """`repr` of at most MAX_SHOWN_CHARACTERS; a description for an integer that Python refuses to print."""
    try:
        text = repr(value)
    except ValueError:  # integers over 4,300 digits
        return "a number with thousands of digits"
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."


class _LocatedField(NamedTuple):
    name: str
    """Dotted, as in the user's file."""
    tags: list[str]
    """The members of unions on its path."""
    siblings: dict[str, Any]
    """The schemas of the fields of its table."""
    schema: Any


def _locate_field(kind: Any, path: list[str]) -> _LocatedField:
    schema = _generate_json_schema(kind)
    names: list[str] = []
    tags: list[str] = []
    siblings: dict[str, Any] = {}
    node: Any = schema
    for part in path:
        node = _resolve_schema(schema, node)
        options = node.get("discriminator", {}).get("mapping", {})
        if part in options:
            node = {"$ref": options[part]}
            tags.append(part)
            continue
        names.append(part)
        siblings, others = node.get("properties", {}), node.get("additionalProperties")
        node = siblings.get(part) or (others if isinstance(others, dict) else {})
    return _LocatedField(".".join(names), tags, siblings, node)


@lru_cache(maxsize=16)
def _generate_json_schema(kind: Any) -> dict[str, Any]:
    """The JSON schema of a type; that of all families takes 0.1 s, and a check repeats one mistake often."""
    return TypeAdapter(kind).json_schema()


def forget_schemas() -> None:
    """Generate the schemas for messages anew: a plug-in has added a member to a union."""
    _generate_json_schema.cache_clear()


def _resolve_schema(schema: Any, node: Any) -> Any:
    """The schema with references followed; of a table that may be null or a name, that of the table."""
    while True:
        options = [option for option in node.get("anyOf", ()) if option.get("type") not in ("null", "string")]
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        elif len(options) == 1:
            node = options[0]
        else:
            return node


def digest(*parts: object) -> str:
    """Hexadecimal SHA-256 of the canonical JSON of the parts; a Value includes all its defaults."""
    canonical = json.dumps([to_plain(part) for part in parts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def to_plain(part: object) -> object:
    """A Value as JSON-compatible data; anything else as it is."""
    return part.model_dump(mode="json") if isinstance(part, Value) else part


def shorten_field(field: str) -> str:
    """The last part of a dotted name; `kind` is named by its table.

    >>> shorten_field("training.optimiser.kind")
    'optimiser'
    """
    parent, _, last = field.rpartition(".")
    return parent.rpartition(".")[2] if last == "kind" and parent else last


def flatten(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, leaf) for every leaf of nested mappings, in order.

    >>> dict(flatten({"model": {"layers": 2}}))
    {'model.layers': 2}
    """
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
