"""The files from which a family starts, an own or a built-in one: a small network that passes every check."""

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from memtune.errors import PluginError
from memtune.models import MODELS

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


def write_new_family(name: str, folder: Path) -> list[Path]:
    """Write a family, its space, its oracle, its test and a study; returns the files.

    Raises PluginError for an unsuitable name, the name of another family, and a file that exists.
    """
    return _fill_templates(name, folder, TEMPLATES)


def write_built_in_family(name: str, clone: Path) -> list[Path]:
    """Write a family, its space, its oracle and its test into a clone, and register it; returns the files.

    Raises PluginError as `write_new_family`, and for a folder that is not a clone.
    """
    registry = clone / "platform" / "memtune" / "models" / "registry.py"
    if not registry.exists():
        raise PluginError(f"{clone} is not a clone of memtune; leave --built-in out")
    written = _fill_templates(name, clone, BUILT_IN_TEMPLATES)
    lines = registry.read_text(encoding="utf-8").splitlines(keepends=True)
    imports = [line for line in lines if line.startswith("from memtune.models.families.")]
    start, class_name = lines.index(imports[0]), _get_class_name(name)
    added = f"from memtune.models.families.{name} import {class_name}Config\n"
    lines[start : start + len(imports)] = sorted([*imports, added])
    end = lines.index(")\n", lines.index("BUILT_IN: tuple[type[LanguageModelConfig], ...] = (\n"))
    lines.insert(end, f"    {class_name}Config,\n")
    registry.write_text("".join(lines), encoding="utf-8")
    spaces = clone / "search_spaces" / "all_families.toml"
    text = spaces.read_text(encoding="utf-8").rstrip().removesuffix("]")
    spaces.write_text(f'{text}  "{name}",\n]\n', encoding="utf-8")
    return [*written, registry, spaces]


def _get_class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


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
        path.parent.mkdir(parents=True, exist_ok=True)
        text = text.replace("my_family", name).replace("MyFamily", _get_class_name(name))
        path.write_text(text, encoding="utf-8")
    return list(paths.values())
