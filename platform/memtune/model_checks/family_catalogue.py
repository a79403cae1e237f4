"""The model families that this installation knows, one of them or a mixer, and the files of a new family.

A family, an own or a built-in one, starts from a small network that passes every check.
"""

import re
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from memtune.errors import ConfigurationError, PluginError
from memtune.models import MODELS, LanguageModelConfig, MixerBlocksConfig
from memtune.models.mixers.mixer import MixerConfig
from memtune.models.mixers.mixer_registry import MIXERS, SOURCES, list_mixer_names, list_settings
from memtune.plugins import ConfigRegistry
from memtune.plugins.source_modules import SOURCE_FIELD
from memtune.storage.local_files import write_whole
from memtune.values import Value, parse

BUILT_IN = "built in"
NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]*")
TEMPLATES = {
    "family.py.template": "{name}.py",
    "space.toml.template": "{name}.toml",
    "own_oracle.py.template": "{name}_oracle.py",
    "own_test.py.template": "test_{name}.py",
    "own_study.toml.template": "{name}_study.toml",
}
"""The file that each template becomes."""
BUILT_IN_TEMPLATES = {
    "family.py.template": "platform/memtune/models/families/{name}.py",
    "space.toml.template": "search_spaces/{name}.toml",
    "oracle.py.template": "tests/oracles/{name}.py",
    "test_family.py.template": "tests/unit/models/test_{name}.py",
}
"""The file below the root of a clone that each template becomes in a built-in family."""


class FamilyEntry(Value):
    """A row of the list of families."""

    name: str
    origin: str
    """"built in", or the package and the digest of its source."""
    title: str = ""
    problem: str | None = None
    """Why the package of the family cannot be used."""


class FamilyField(Value):
    """A field of the configuration of a family or a mixer."""

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
    state_grows: bool
    """Whether the state grows with the text; `state` is then that after a mean sentence."""


class FamilyDescription(Value):
    """What `memtune model show` prints."""

    name: str
    origin: str
    title: str
    equations: str
    """The source and the equations, from the documentation of the module."""
    fields: tuple[FamilyField, ...]
    sizes: FamilySizes
    mixers: tuple[str, ...] = ()
    """The names of mixers that the family takes in place of a table."""


def list_entries() -> list[FamilyEntry]:
    """All families, those of installed packages after the built-in ones."""
    entries = []
    for name in MODELS.list_names():
        try:
            title, _ = _read_documentation(MODELS[name])
            entries.append(FamilyEntry(name=name, origin=_find_origin(MODELS, name), title=title))
        except PluginError as error:
            entries.append(FamilyEntry(name=name, origin="package", problem=str(error)))
    return entries


def describe_family(
    table: Mapping[str, Any], width: int | None = None, words: int = 10_000
) -> FamilyDescription:
    """The family of a table [model], or its mixer: the fields, the source of its equations, and its sizes.

    `width` replaces the default of the field of that name. Raises PluginError for an unknown family and
    ConfigurationError for a family without a width.
    """
    config = MODELS[table["family"]]
    if width is not None and "width" not in config.model_fields:
        raise ConfigurationError(f'family = "{table["family"]}" has no field width; leave --width out')
    size = {} if width is None else {"width": width}
    place = str(table.get("mixer", table["family"]))
    chosen: LanguageModelConfig = parse(config, {**table, **size}, place)
    title, equations = _read_documentation(config)
    described: dict[str, Any] = {
        "name": chosen.family,
        "origin": _find_origin(MODELS, chosen.family),
        "title": title,
        "equations": equations,
        "fields": _list_fields(config),
        "mixers": list_mixer_names() if issubclass(config, MixerBlocksConfig) else (),
    }
    if "mixer" in table:
        assert isinstance(chosen, MixerBlocksConfig)
        described = _describe_mixer(table["mixer"], chosen.mixer)
    return FamilyDescription(
        **described,
        sizes=FamilySizes(
            configuration=chosen.model_dump(mode="json", exclude={"family", SOURCE_FIELD}),
            words=words,
            parameters=chosen.parameter_count(words),
            multiply_adds=chosen.multiply_adds(words),
            state=chosen.state_size(),
            state_grows=chosen.state_grows,
        ),
    )


def _describe_mixer(named: Any, mixer: MixerConfig) -> dict[str, Any]:
    """The entries of a description that do not depend on the family; `named` is the name or the table."""
    title, equations = _read_documentation(type(mixer))
    settings, name = ", ".join(list_settings(mixer)), named if isinstance(named, str) else mixer.kind
    return {
        "name": name,
        "origin": _find_origin(MIXERS, mixer.kind),
        "title": f"The mixer {mixer.kind} of mixer_blocks" + (f" with {settings}" if settings else ""),
        "equations": "\n\n".join(filter(None, [SOURCES.get(name.partition(" ")[0]), title, equations])),
        "fields": _list_fields(type(mixer), mixer),
    }


def _list_fields(config: type[Value], named: Value | None = None) -> list[FamilyField]:
    """The fields of a configuration, with the values of the `named` one in place of the defaults."""
    fields = []
    for field, info in config.model_fields.items():
        if field in ("family", "kind", SOURCE_FIELD):
            continue
        default = getattr(named, field, None if info.default is PydanticUndefined else info.default)
        shown = default.model_dump(mode="json") if isinstance(default, Value) else default
        kind = info.annotation.__name__ if isinstance(info.annotation, type) else str(info.annotation)
        kind, description = re.sub(r"(\w+\.)+(?=[A-Z])", "", kind), info.description or ""
        fields.append(FamilyField(name=field, type=kind, default=shown, description=description))
    return fields


def _find_origin(registry: ConfigRegistry[Any], name: str) -> str:
    source = registry.get_source(name)
    return BUILT_IN if source is None else str(source)


def _read_documentation(config: type[Value]) -> tuple[str, str]:
    """The first paragraph of the module's documentation, and the others."""
    text = (sys.modules[config.__module__].__doc__ or config.__doc__ or "").strip()
    title, _, rest = text.partition("\n\n")
    return " ".join(title.split()), rest


def write_new_family(name: str, folder: Path) -> list[Path]:
    """Write a family, its space, its oracle, its test and a study; returns the files.

    Raises PluginError for an unsuitable name, the name of another family, and a file that exists.
    """
    return _fill_templates(name, folder, TEMPLATES)


def write_built_in_family(name: str, clone: Path) -> list[Path]:
    """Write a family, its space, its oracle and its test into a clone, and list its space; returns the files.

    Raises PluginError as `write_new_family`, and for a folder that is not a clone.
    """
    if not (clone / "platform" / "memtune").is_dir():
        raise PluginError(f"{clone} is not a clone of memtune; leave --built-in out")
    written = _fill_templates(name, clone, BUILT_IN_TEMPLATES)
    spaces = clone / "search_spaces" / "all_families.toml"
    text = spaces.read_text(encoding="utf-8").rstrip().removesuffix("]")
    spaces.write_text(f'{text}  "{name}",\n]\n', encoding="utf-8")
    return [*written, spaces]


def _fill_templates(name: str, folder: Path, targets: Mapping[str, str]) -> list[Path]:
    if not NAME_PATTERN.fullmatch(name):
        raise PluginError(
            f'the name "{name}" has other characters than small letters, digits and underscores, or starts '
            "with a digit; choose one such as my_memory"
        )
    if name in MODELS.list_names():
        raise PluginError(f'there is a model family "{name}" already; choose another name')
    paths = {template: folder / target.format(name=name) for template, target in targets.items()}
    for path in paths.values():
        if path.exists():
            raise PluginError(f"{path} exists; choose another name, or remove it")
    for template, path in paths.items():
        text = (files("memtune.model_checks") / "templates" / template).read_text(encoding="utf-8")
        class_name = "".join(part.capitalize() for part in name.split("_"))
        text = text.replace("my_family", name).replace("MyFamily", class_name)
        write_whole(path, text.encode())
    return list(paths.values())
