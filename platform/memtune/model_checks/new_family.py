"""The files from which a user's own family starts: a small network that passes every check."""

import re
from importlib.resources import files
from pathlib import Path

from memtune.errors import PluginError
from memtune.models import MODELS

__all__ = ["write_new_family"]

NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]*")
TEMPLATES = {
    "family.py.template": "{name}.py",
    "space.toml.template": "{name}.toml",
    "own_oracle.py.template": "{name}_oracle.py",
    "own_test.py.template": "test_{name}.py",
    "own_study.toml.template": "{name}_study.toml",
}
"""The file that each template becomes."""


def write_new_family(name: str, folder: Path) -> list[Path]:
    """Write a family, its space, its oracle, its test and a study; returns the files.

    Raises PluginError for an unsuitable name, the name of another family, and a file that exists.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise PluginError(
            f'the name "{name}" has other characters than small letters, digits and underscores, or starts '
            "with a digit; choose one such as my_memory"
        )
    if name in MODELS.list_names():
        raise PluginError(f'there is a model family "{name}" already; choose another name')
    paths = {template: folder / target.format(name=name) for template, target in TEMPLATES.items()}
    for path in paths.values():
        if path.exists():
            raise PluginError(f"{path} exists; choose another name, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    class_name = "".join(part.capitalize() for part in name.split("_"))
    for template, path in paths.items():
        text = (files("memtune.model_checks") / "templates" / template).read_text(encoding="utf-8")
        path.write_text(text.replace("my_family", name).replace("MyFamily", class_name), encoding="utf-8")
    return list(paths.values())
