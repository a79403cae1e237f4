"""The model families that this installation knows, and one of them in detail."""

import sys
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from memtune.errors import ConfigurationError, PluginError
from memtune.models import MODELS, LanguageModelConfig
from memtune.plugins.source_modules import SOURCE_FIELD
from memtune.values import Value, parse

BUILT_IN = "built in"


class FamilyEntry(Value):
    """A row of the list of families."""

    name: str
    origin: str
    """"built in", or the package and the digest of its source."""
    title: str = ""
    problem: str | None = None
    """Why the package of the family cannot be used."""


class FamilyField(Value):
    """A field of a family's configuration."""

    name: str
    type: str
    default: Any
    description: str


class FamilySizes(Value):
    """The sizes of one model, by the formulas of its configuration."""

    configuration: dict[str, Any]
    words: int
    parameters: int
    multiply_adds: int
    """Per predicted token, forward pass."""
    state: int
    """Numbers carried from one word to the next."""


class FamilyDescription(Value):
    """What `memtune model show` prints."""

    name: str
    origin: str
    title: str
    equations: str
    """The source and the equations, from the documentation of the module."""
    fields: tuple[FamilyField, ...]
    sizes: FamilySizes


def list_entries() -> list[FamilyEntry]:
    """All families, those of installed packages after the built-in ones."""
    return [_make_entry(name) for name in MODELS.list_names()]


def _make_entry(name: str) -> FamilyEntry:
    try:
        config = MODELS[name]
    except PluginError as error:
        return FamilyEntry(name=name, origin="package", problem=str(error))
    return FamilyEntry(name=name, origin=_find_origin(name), title=_read_documentation(config)[0])


def describe_family(name: str, width: int | None = None, words: int = 10_000) -> FamilyDescription:
    """A family with its fields, the source of its equations, and its sizes.

    `width` replaces the default of the field of that name. Raises PluginError for an unknown family and
    ConfigurationError for a family without a width.
    """
    config = MODELS[name]
    if width is not None and "width" not in config.model_fields:
        raise ConfigurationError(f'family = "{name}" has no field width; leave --width out')
    chosen: LanguageModelConfig = parse(config, {} if width is None else {"width": width}, "--width")
    title, equations = _read_documentation(config)
    return FamilyDescription(
        name=name,
        origin=_find_origin(name),
        title=title,
        equations=equations,
        fields=tuple(
            _describe_field(field, info)
            for field, info in config.model_fields.items()
            if field not in ("family", SOURCE_FIELD)
        ),
        sizes=FamilySizes(
            configuration=chosen.model_dump(mode="json", exclude={"family", SOURCE_FIELD}),
            words=words,
            parameters=chosen.parameter_count(words),
            multiply_adds=chosen.multiply_adds(words),
            state=chosen.state_size(),
        ),
    )


def _find_origin(name: str) -> str:
    source = MODELS.get_source(name)
    return BUILT_IN if source is None else str(source)


def _read_documentation(config: type[LanguageModelConfig]) -> tuple[str, str]:
    """The first paragraph of the module's documentation, and the others."""
    text = (sys.modules[config.__module__].__doc__ or config.__doc__ or "").strip()
    title, _, rest = text.partition("\n\n")
    return " ".join(title.split()), rest


def _describe_field(name: str, info: FieldInfo) -> FamilyField:
    default = None if info.default is PydanticUndefined else info.default
    shown = default.model_dump(mode="json") if isinstance(default, Value) else default
    annotation = info.annotation
    kind = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return FamilyField(
        name=name,
        type=kind.replace("typing.", ""),
        default=shown,
        description=info.description or "",
    )
