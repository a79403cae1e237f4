"""Neither modules nor parts of a package import in a cycle, nor through their own package's __init__."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "platform"
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((SOURCE / "memtune").rglob("*.py"))
}


def find_imported_modules(name: str) -> Iterator[str]:
    """The modules of memtune that a module imports when it is itself imported."""
    for node in _iterate_module_level(ast.parse(MODULES[name].read_text()).body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in MODULES else node.module


def _iterate_module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements outside of functions and of TYPE_CHECKING blocks."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from _iterate_module_level(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _iterate_module_level(node.body)
        else:
            yield node


def find_cycle(start: str) -> list[str] | None:
    """A chain of imports from a module back to itself, or None."""
    pending = [[start]]
    seen = {start}
    while pending:
        chain = pending.pop()
        for name in find_imported_modules(chain[-1]):
            if name == start:
                return [*chain, name]
            if name not in seen:
                seen.add(name)
                pending.append([*chain, name])
    return None


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_does_not_import_itself_through_others(name: str) -> None:
    assert find_cycle(name) is None


@pytest.mark.parametrize(
    "name", sorted(name for name, path in MODULES.items() if not path.stem.startswith("__"))
)
def test_a_module_imports_no_package_that_it_is_part_of(name: str) -> None:
    """Such an import would work or fail with the order of the lines in the package's __init__."""
    own = {name.rsplit(".", count)[0] for count in range(1, name.count(".") + 1)} - {"memtune"}
    assert own.isdisjoint(find_imported_modules(name))


def list_part_imports(package: str) -> dict[str, set[str]]:
    """Which parts of a package, modules and sub-packages, import which others, in functions too."""
    prefix, imports = f"{package}.", dict[str, set[str]]()
    for name in MODULES:
        if not name.startswith(prefix):
            continue
        part = name.removeprefix(prefix).split(".")[0]
        found = (other for other in find_all_imports(name) if other.startswith(prefix))
        others = {other.removeprefix(prefix).split(".")[0] for other in found}
        imports.setdefault(part, set()).update(others - {part})
    return imports


def find_all_imports(name: str) -> Iterator[str]:
    """The modules of memtune that a module names in any import."""
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & set(MODULES)
            yield from submodules or {node.module}


@pytest.mark.parametrize(
    "package", sorted(name for name, path in MODULES.items() if path.stem == "__init__" and "." in name)
)
def test_the_parts_of_a_package_import_each_other_one_way(package: str) -> None:
    """Parts that nothing left imports are removed until none is left; those of a cycle remain."""
    imports = list_part_imports(package)
    while free := set(imports) - set().union(*imports.values()):
        imports = {part: others for part, others in imports.items() if part not in free}
    assert imports == {}
