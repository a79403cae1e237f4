"""JSON Schema of studies, trials, search spaces and papers' tables, for completion and checks in editors.

In a study and in a space every value of a trial may be a parameter, such as `{ int = [1, 4] }`, and every
table a branch; `_allow_sampling` adds both to the schema of a trial.

They are read from the source when a schema is made. With pydantic's own option every import of memtune would
read them, which takes 0.8 s.
"""

import ast
import inspect
from copy import deepcopy
from functools import cache
from textwrap import dedent
from typing import Any, Literal, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import override

from memtune.experiments.published_tables import Paper
from memtune.spaces.space_tree import SIZE_NOUNS, Confidence
from memtune.studies.definition.study import Study
from memtune.training import TrialConfig


def describe_field(config: type[BaseModel], name: str) -> str:
    """The description of a field, else the docstring below it, in one line; "" without both."""
    field = config.model_fields.get(name)
    if field is not None and field.description:
        return field.description
    for base in config.__mro__:
        if text := _read_docstrings(base).get(name):
            return text
    return ""


@cache
def _read_docstrings(config: type) -> dict[str, str]:
    """The docstrings of a class's own fields, by name; none where its source is not at hand."""
    if not issubclass(config, BaseModel) or config is BaseModel:
        return {}
    try:
        (tree,) = ast.parse(dedent(inspect.getsource(config))).body
    except (OSError, TypeError):
        return {}
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[field.target.id] = " ".join(below.value.value.split())
    return found


SchemaKind = Literal["study", "trial", "space", "paper"]
PARAMETER, BRANCH, PRIORS = "#/$defs/Parameter", "#/$defs/Branch", "#/$defs/Priors"
STEP = {"type": "number", "exclusiveMinimum": 0, "description": "distance of the values; not with log"}
LOG = {"type": "boolean", "default": False, "description": "whether equal ratios are equally likely"}


SCALAR = {"type": ["string", "number", "boolean"]}
PRIOR = {
    "prior": {**SCALAR, "description": "a value that is believed to be good"},
    "confidence": {
        "enum": list(get_args(Confidence)),
        "default": "medium",
        "description": "how firmly, with prior",
    },
}
RANGE = {"type": "array", "minItems": 2, "maxItems": 2}
PARAMETER_KINDS: dict[str, dict[str, Any]] = {
    **{
        kind: {
            kind: {**RANGE, "items": {"type": number}, "description": meaning},
            "step": STEP,
            "log": LOG,
            **PRIOR,
        }
        for kind, number, meaning in (
            ("int", "integer", "lowest and highest value, both included"),
            ("float", "number", "lowest and highest value"),
        )
    },
    "choice": {
        "choice": {
            "type": "array",
            "items": SCALAR,
            "minItems": 1,
            "description": "values that differ: texts, numbers or true and false",
        },
        **PRIOR,
    },
    **{
        f"fit_{size}": {
            f"fit_{size}": {
                "type": "integer",
                "minimum": 1,
                "description": f"the field is solved so that every model has this many {noun}",
            }
        }
        for size, noun in SIZE_NOUNS.items()
    },
}
"""The fields of a parameter, by the field that names its kind."""
BRANCH_SCHEMA = {
    "description": "One of several tables.",
    "type": "object",
    "properties": {
        "one_of": {"type": "string", "description": 'the field that names the table, such as "kind"'},
        **PRIOR,
    },
    "required": ["one_of"],
    "additionalProperties": {"type": "object"},
}
PRIORS_SCHEMA = {
    "description": "Priors of what a space searches, whose ranges stay.",
    "type": "object",
    "properties": PRIOR,
    "additionalProperties": {"$ref": PRIORS},
}


def make_schema(kind: SchemaKind) -> dict[str, Any]:
    """The JSON Schema of a kind of file."""
    makers = {"study": _make_study_schema, "trial": _make_trial_schema, "space": _make_space_schema}
    schema = makers[kind]() if kind in makers else _generate(Paper)
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": f"memtune {kind}", **schema}


class _DescribedSchema(GenerateJsonSchema):
    """Describes fields by the docstrings below them."""

    @override
    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        for name, field in found.get("properties", {}).items():
            field.pop("title", None)
            if description := describe_field(schema["cls"], name):
                field["description"] = description
            elif "const" in field:
                field["description"] = "chooses this table"
        found.pop("title", None)
        return found


def _generate(config: Any) -> dict[str, Any]:
    schema: dict[str, Any] = TypeAdapter(config).json_schema(schema_generator=_DescribedSchema)
    return schema


def _make_study_schema() -> dict[str, Any]:
    schema, trial = _generate(Study), _allow_sampling(_generate(TrialConfig))
    schema["required"].remove("name")  # the name of the file
    sampler = schema["properties"]["sampler"]
    sampler["anyOf"] = sampler.pop("oneOf")  # a table without `kind` is one of several
    for name in ("task", "model", "protocol", "training"):  # a study replaces them, and a space samples them
        meaning = schema["properties"][name]["description"]
        schema["properties"][name] = {**trial["properties"][name], "description": meaning}
        schema["properties"][name].pop("default", None)  # that of the spaces
    schema["$defs"] |= trial["$defs"] | {"Priors": PRIORS_SCHEMA}
    for name in ("Parameter", "Branch"):
        schema["$defs"][name] = {"anyOf": [trial["$defs"][name], {"$ref": PRIORS}]}
    _allow_several_families(schema["properties"]["model"], schema["$defs"])
    return schema


def _allow_several_families(table: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Let a table without `family` have fields of several families: each applies to those that have it."""
    fields: dict[str, list[dict[str, Any]]] = {}
    for option in table["anyOf"]:
        for name, field in definitions[option["$ref"].rpartition("/")[2]].get("properties", {}).items():
            if name != "family" and field not in fields.setdefault(name, []):
                fields[name].append(field)
    properties = {name: {"anyOf": options} for name, options in fields.items()}
    table["anyOf"].append({"type": "object", "properties": properties, "additionalProperties": False})


def _make_trial_schema() -> dict[str, Any]:
    schema, study = _generate(TrialConfig), _generate(Study)
    _require_tags(schema)
    named = {name: study["properties"][name] for name in ("question", "corpus", "models")}
    schema["properties"] = {**named, **schema["properties"]}
    schema["required"] = ["corpus", *schema["required"]]
    return schema


def _make_space_schema() -> dict[str, Any]:
    schema, study = _allow_sampling(_generate(TrialConfig)), _generate(Study)
    schema["description"] = "The configurations among which a study searches."
    schema["properties"] = {
        "question": study["properties"]["question"],
        "spaces": {
            "type": "array",
            "items": {"type": "string"},
            "description": "files of this folder, without suffix, whose spaces this file combines",
        },
        "points": {
            "type": "array",
            "items": {"type": "object"},
            "description": "settings of papers, as values by dotted field",
        },
        "prior_points": {
            "type": "array",
            "items": {"type": "object"},
            "description": "configurations that are believed to be good, the best first",
        },
        **schema["properties"],
    }
    return schema


def _require_tags(schema: dict[str, Any]) -> None:
    """Require `kind` or `family` in the members of unions; a validator ignores `discriminator`."""
    for node in _walk(schema):
        if "discriminator" not in node:
            continue
        tag = node["discriminator"]["propertyName"]
        for reference in node["discriminator"]["mapping"].values():
            member = schema["$defs"][reference.rpartition("/")[2]]
            member["required"] = sorted({*member.get("required", ()), tag})


def _allow_sampling(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a trial in which every field may be left out or sampled, and every table be a branch."""
    for node in _walk(schema):
        node.pop("required", None)
        if "oneOf" in node:  # tables without `kind` are parts of several members
            node["anyOf"] = [*node.pop("oneOf"), {"$ref": BRANCH}]
            node.pop("discriminator", None)
    for config in (schema, *schema["$defs"].values()):
        for name, field in config.get("properties", {}).items():
            if config is not schema or name == "seed":
                about = {key: field.pop(key) for key in ("description", "default") if key in field}
                options = [*field.get("anyOf", [field]), {"$ref": PARAMETER}]
                config["properties"][name] = {"anyOf": options, **about}
    kinds = [
        {"type": "object", "properties": fields, "required": [kind], "additionalProperties": False}
        for kind, fields in PARAMETER_KINDS.items()
    ]
    parameter = {"description": "A value that a study samples or solves.", "oneOf": kinds}
    schema["$defs"] |= {"Parameter": parameter, "Branch": deepcopy(BRANCH_SCHEMA)}
    return schema


def _walk(node: Any) -> list[dict[str, Any]]:
    """All tables of a schema; those that describe a default are not part of it."""
    if isinstance(node, list):
        return [found for item in node for found in _walk(item)]
    if not isinstance(node, dict):
        return []
    return [node, *(found for name, item in node.items() if name != "default" for found in _walk(item))]
