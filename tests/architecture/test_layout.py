"""The layout of the tree: source root, sizes and names of modules, studies."""

import ast
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "platform" / "memtune"
PACKAGES = sorted(path for path in [SOURCE, *SOURCE.rglob("*")] if path.is_dir() and list(path.glob("*.py")))
MAX_MODULES = 16
"""More modules make a package hard to survey."""


def test_platform_is_a_source_root_and_does_not_shadow_the_standard_library() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()
    assert {path.name for path in (ROOT / "platform").iterdir()} <= {
        "memtune",
        "memtune.egg-info",
        "README.md",
    }


def test_text_files_are_read_and_written_in_a_named_encoding() -> None:
    """The locale's would make a file of one machine unreadable on another."""
    unnamed = [
        f"{path.relative_to(SOURCE)}, line {call.lineno}"
        for path in SOURCE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and uses_locale(call)
    ]
    assert unnamed == []


def uses_locale(call: ast.Call) -> bool:
    """Whether a call reads or writes text without an encoding."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    keywords = {keyword.arg for keyword in call.keywords}
    if "encoding" in keywords:
        return False
    is_path = isinstance(call.func, ast.Attribute) and name in ("read_text", "write_text")
    is_builtin = isinstance(call.func, ast.Name) and name == "open"
    modes = [ast.literal_eval(part) for part in call.args[1:2] if isinstance(part, ast.Constant)]
    is_process = name in ("run", "Popen", "check_output") and "text" in keywords
    return is_path or is_process or (is_builtin and "b" not in "".join(map(str, modes)))


def test_no_job_has_the_name_of_a_standard_module() -> None:
    assert {path.stem for path in (ROOT / "jobs").glob("*.py")}.isdisjoint(sys.stdlib_module_names)


def test_files_that_a_script_or_a_study_names_exist() -> None:
    """A moved test would fail each row of .ci/versions, and a job's comment would name no program."""
    texts = [ROOT / ".ci" / "versions", *ROOT.glob("jobs/**/*.toml"), *ROOT.glob("search_spaces/**/*.toml")]
    found = {
        name for path in texts for name in re.findall(r"\b(?:tests|jobs)/[\w/]+\.py\b", path.read_text())
    }
    assert "tests/contracts/test_formats.py" in found
    assert [name for name in sorted(found) if not (ROOT / name).exists()] == []


def test_every_package_has_a_docstring() -> None:
    texts = {path: (path / "__init__.py").read_text() for path in PACKAGES}
    assert [path for path, text in texts.items() if not text.startswith('"""')] == []


def test_no_package_has_too_many_modules() -> None:
    counts = {
        path: sum(not module.stem.startswith("__") for module in path.glob("*.py")) for path in PACKAGES
    }
    assert {path: count for path, count in counts.items() if count > MAX_MODULES} == {}


def test_the_tree_of_the_architecture_has_every_package() -> None:
    tree = (ROOT / "ARCHITECTURE.md").read_text().partition("## Packages")[2].partition("## Imports")[0]
    assert [path for path in PACKAGES if f"{path.name}/" not in tree] == []


def test_the_tree_of_the_architecture_has_every_module_of_the_root() -> None:
    tree = (ROOT / "ARCHITECTURE.md").read_text().partition("## Packages")[2].partition("## Imports")[0]
    modules = {path.stem for path in SOURCE.glob("*.py") if path.stem != "__main__"}
    assert modules <= set(re.findall(r"\w+", tree))


def test_every_path_and_module_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    paths = re.findall(r"`([a-z_]+/[\w/.]*)`", text)
    modules = re.findall(r"`([a-z_]+(?:\.[a-z_]+)*\.(?!(?:py|toml)`)\w+)`", text)
    assert len(paths) > 10
    assert len(modules) > 10
    missing = [path for path in paths if not any((root / path).exists() for root in (ROOT, SOURCE))]
    assert [*missing, *(name for name in modules if not has_module_or_name(name))] == []


def has_module_or_name(dotted: str) -> bool:
    """Whether a dotted name without `memtune.` is a package, a module, or a name that a module mentions."""
    path = SOURCE / dotted.replace(".", "/")
    found = [path, path.with_suffix(".py"), path.parent.with_suffix(".py"), path.parent / "__init__.py"]
    return any(place.exists() for place in found[:2]) or any(
        place.exists() and re.search(rf"\b{path.name}\b", place.read_text()) for place in found[2:]
    )


def test_no_two_modules_have_the_same_name() -> None:
    """Only a module named by convention may exist in several packages."""
    conventional = {"__init__", "__main__", "compatibility"}
    names = Counter(path.stem for path in SOURCE.rglob("*.py") if path.stem not in conventional)
    assert {name for name, count in names.items() if count > 1} == set()


def test_every_study_opens_with_its_question() -> None:
    studies = (ROOT / "jobs" / "studies").glob("*.toml")
    assert [path for path in studies if not path.read_text().startswith("question = ")] == []
