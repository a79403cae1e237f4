"""The tables of docs/reference.md: every field of studies, trials and spaces, from their JSON Schemas."""

import json
from typing import Any

from memtune.reports.json_schemas import PARAMETER, PARAMETER_KINDS, make_schema
from memtune.search import SAMPLERS, SamplerConfig

SPACES_HEADER = """## Search spaces

A space is a TOML file with the tables of a [trial](#trial), in which any value may be a parameter, such as
`width = { int = [32, 256], log = true }`. A table with `one_of` is a branch: its sub-tables are the options,
and `one_of` names the field that holds the name of the chosen one, such as `one_of = "kind"` above
`[training.optimiser.sgd]` and `[training.optimiser.adam]`. A study may write parameters and branches into its
own tables `task`, `model`, `protocol` and `training`.
"""
STUDY_TABLES = ("Budget", "Prices", "Price", "Resources", "Repeats", "ChampionLimits")
TITLES = {
    "Budget": "budget",
    "Prices": "prices",
    "Price": "prices.node_types",
    "Resources": "resources",
    "Repeats": "repeats",
    "ChampionLimits": "champion",
    "TrainingConfig": "training",
}
"""The table of a TOML file of a configuration, by its class."""


def render_tables() -> str:
    """A table for each table of these files, as Markdown."""
    study, trial, space = make_schema("study"), make_schema("trial"), make_schema("space")
    parts = [_render_section("Study", study, study)]
    parts += [_render_section(TITLES[name], study["$defs"][name], study) for name in STUDY_TABLES]
    parts += [_render_sampler(study)]
    parts += _render_union("early_stopping", study["properties"]["early_stopping"], study)
    parts += [_render_section("Trial", trial, trial)]
    training = trial["$defs"]["TrainingConfig"]
    parts += [_render_section("training", training, trial)]
    for name in ("optimiser", "schedule"):
        parts += _render_union(f"training.{name}", training["properties"][name], trial)
    for name in ("protocol", "task"):
        parts += _render_union(name, trial["properties"][name], trial)
    return "\n".join([*parts, SPACES_HEADER, *_render_space_fields(space)])


def _list_members(field: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [schema["$defs"][option["$ref"].rpartition("/")[2]] for option in _find_union(field)["oneOf"]]


def _find_union(field: dict[str, Any]) -> dict[str, Any]:
    """The union of a field that may be null, too."""
    return next(option for option in field.get("anyOf", [field]) if "oneOf" in option)


def _is_numeric(field: dict[str, Any]) -> bool:
    types = [option.get("type") for option in field.get("anyOf", [field])]
    return any(kind in ("integer", "number") for kind in types)


def _render_union(name: str, field: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """A section for each member of a union."""
    tag = _find_union(field)["discriminator"]["propertyName"]
    return [
        _render_section(f'{name}: {tag} = "{member["properties"][tag]["const"]}"', member, schema, tag)
        for member in _list_members(field, schema)
    ]


def _render_sampler(study: dict[str, Any]) -> str:
    """One section, because all samplers have the same fields."""
    kind = {"enum": [*SAMPLERS.built_in], "default": "tpe", "description": "the sampler"}
    fields = study["$defs"]["TpeConfig"]["properties"] | {"kind": kind}
    return _render_section("sampler", {"properties": fields, "description": SamplerConfig.__doc__}, study)


def _render_section(title: str, table: dict[str, Any], schema: dict[str, Any], without: str = "") -> str:
    """A heading, the description of a table, and its fields but `without`, which the heading names."""
    rows = [
        _render_row(name, field, name in table.get("required", ()))
        for name, field in table["properties"].items()
        if name != without
    ]
    about = table.get("description", "")
    header = ["| field | type | default | unit | meaning |", "|---|---|---|---|---|"]
    return "\n".join([f"## {title}\n", f"{about}\n", *([*header, *rows, ""] if rows else [])])


def _render_row(name: str, field: dict[str, Any], is_required: bool) -> str:
    default = "required" if is_required else _format_default(field)
    unit = field.get("unit", "1") if _is_numeric(field) else ""
    meaning = _capitalise(field.get("description", ""))
    cells = (f"`{name}`", format_type(field), default, unit, meaning)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:].removesuffix(".")


def _format_default(field: dict[str, Any]) -> str:
    default = field.get("default")
    if default is None:
        return "as described" if "default: " in field.get("description", "") else "none"
    if isinstance(default, dict):
        kind = default.get("kind")
        return f'`kind = "{kind}"`' if kind else "as below"
    return f"`{json.dumps(default)}`"


def format_type(field: dict[str, Any]) -> str:
    """The type of a field in words, such as `integer from 1`."""
    options = [option for option in field.get("anyOf", ()) if option.get("type") != "null"]
    if options:
        values = [option for option in options if option.get("$ref") != PARAMETER]
        names = dict.fromkeys(format_type(option) for option in values)
        return "table" if "table" in names else " or ".join(names)
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    kind = field.get("type")
    if kind == "array":
        return f"list of {format_type(field.get('items', {}))}"
    words = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false"}
    return f"{words[kind]}{_format_bounds(field)}" if kind in words else "table"


def _format_bounds(field: dict[str, Any]) -> str:
    """The bounds of a number that a user meets; those of 64 bits and the like are left out."""
    bounds = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    return "".join(
        f" {word} {field[name]:g}" for name, word in bounds.items() if name in field and field[name] < 1e9
    )


def _render_space_fields(space: dict[str, Any]) -> list[str]:
    rows = ["| field of a file | type | meaning |", "|---|---|---|"]
    for name in ("question", "spaces", "points"):
        field = space["properties"][name]
        rows.append(f"| `{name}` | {format_type(field)} | {_capitalise(field['description'])} |")
    rows += ["", "| parameter | field | meaning |", "|---|---|---|"]
    for kind, fields in PARAMETER_KINDS.items():
        rows += [
            f"| `{kind}` | `{name}` | {_capitalise(field['description'])} |" for name, field in fields.items()
        ]
    return [*rows, ""]
