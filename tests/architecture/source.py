"""The modules of memtune and their imports; each file is parsed once."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "platform" / "memtune"
PATHS = sorted(SOURCE.rglob("*.py"))

Import = ast.Import | ast.ImportFrom


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file, which no caller changes."""
    return ast.parse(path.read_text())


@cache
def list_imports(path: Path) -> list[Import]:
    """The imports of a file, in functions too."""
    return [node for node in ast.walk(parse(path)) if isinstance(node, Import)]


def find_imported_names(path: Path) -> Iterator[str]:
    """What the imports of a file name: modules, and packages of which something is imported."""
    for node in list_imports(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            yield node.module or ""
