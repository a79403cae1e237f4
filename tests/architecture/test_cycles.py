"""Neither modules nor parts of a package import in a cycle, nor through their own package's __init__."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.architecture.source import PATHS, SOURCE, Import, list_imports, parse

MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PATHS
}


def find_imported_modules(imports: Iterable[Import]) -> Iterator[str]:
    """The modules of memtune that imports name."""
    for node in imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif node.module in MODULES:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in MODULES else node.module


def iterate_module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements outside of functions and of TYPE_CHECKING blocks."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from iterate_module_level(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from iterate_module_level(node.body)
        else:
            yield node


def find_cycle(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """A chain of imports from a module back to itself; empty if there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        chain: list[str] = error.args[1]
        return chain
    return []


@pytest.fixture(scope="module")
def imports_at_start() -> dict[str, set[str]]:
    """The modules of memtune that each module imports when it is itself imported."""
    statements = {name: iterate_module_level(parse(path).body) for name, path in MODULES.items()}
    return {
        name: set(find_imported_modules(node for node in body if isinstance(node, Import)))
        for name, body in statements.items()
    }


def test_no_module_imports_itself_through_others(imports_at_start: dict[str, set[str]]) -> None:
    assert find_cycle(imports_at_start) == []


def test_no_module_imports_a_package_that_it_is_part_of(imports_at_start: dict[str, set[str]]) -> None:
    """Such an import would work or fail with the order of the lines in the package's __init__."""
    found = {
        (name, package)
        for name, path in MODULES.items()
        if not path.stem.startswith("__")
        for package in imports_at_start[name] - {"memtune"}
        if name.startswith(f"{package}.")
    }
    assert found == set()


def test_the_parts_of_a_package_import_each_other_one_way() -> None:
    """Modules and sub-packages, in functions too."""
    imports = {name: set(find_imported_modules(list_imports(path))) for name, path in MODULES.items()}
    packages = [name for name, path in MODULES.items() if path.stem == "__init__" and "." in name]
    cycles = {package: find_cycle(list_part_imports(package, imports)) for package in packages}
    assert {package: cycle for package, cycle in cycles.items() if cycle} == {}


def list_part_imports(package: str, imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Which parts of a package import which others."""
    prefix, found = f"{package}.", dict[str, set[str]]()
    for name, others in imports.items():
        if name.startswith(prefix):
            part = name.removeprefix(prefix).split(".")[0]
            parts = {other.removeprefix(prefix).split(".")[0] for other in others if other.startswith(prefix)}
            found.setdefault(part, set()).update(parts - {part})
    return found
