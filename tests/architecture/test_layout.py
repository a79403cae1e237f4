"""The tree is where tools and readers expect it."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(
    path for path in (ROOT / "platform" / "memtune").rglob("*") if path.is_dir() and list(path.glob("*.py"))
)


def test_platform_is_a_source_root_and_hides_no_standard_library() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()
    assert {path.name for path in (ROOT / "platform").iterdir()} <= {
        "memtune",
        "memtune.egg-info",
        "README.md",
    }


@pytest.mark.parametrize("script", sorted((ROOT / "jobs").glob("*.py")), ids=lambda path: path.name)
def test_no_job_has_the_name_of_a_standard_module(script: Path) -> None:
    assert script.stem not in sys.stdlib_module_names


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_package_says_what_it_is(package: Path) -> None:
    text = (package / "__init__.py").read_text()
    assert text.startswith('"""')


@pytest.mark.parametrize(
    "study", sorted((ROOT / "jobs" / "studies").glob("*.toml")), ids=lambda path: path.name
)
def test_every_study_opens_with_the_question_it_asks(study: Path) -> None:
    assert study.read_text().splitlines()[0].startswith("question = ")
