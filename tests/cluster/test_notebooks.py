"""The notebooks and the guide to Python run as they are written, in a folder of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import memtune

pytestmark = [pytest.mark.cluster, pytest.mark.long]

DOCS = Path(memtune.__file__).parents[2] / "docs"
SOURCE = Path(memtune.__file__).parents[1]
NOTEBOOKS = DOCS / "notebooks"
CELL_SECONDS = 300
"""Of a cell on a busy machine; all cells together take about a minute on an idle one."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder of a user, whose home is in it."""
    return tmp_path_factory.mktemp("user")


@pytest.fixture(scope="module")
def environment(folder: Path) -> dict[str, str]:
    """Variables under which processes of the user run."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("MEMTUNE_", "RAY_"))}
    return {
        **others,
        "MEMTUNE_CACHE": str(folder / "cache"),
        "PYTHONPATH": str(SOURCE),
        "IPYTHONDIR": str(folder),
    }


def execute(name: str, folder: Path, environment: dict[str, str]) -> list[Any]:
    """The executed cells of a notebook. Raises CellExecutionError with the traceback of a cell."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    client = NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    return list(client.execute(env=environment).cells)


def find_html(cells: list[Any], source: str) -> str:
    """What the cell that starts so shows as HTML."""
    (cell,) = [cell for cell in cells if cell.source.startswith(source)]
    return "".join(output.data.get("text/html", "") for output in cell.outputs if "data" in output)


@pytest.fixture(scope="module")
def first_search(folder: Path, environment: dict[str, str]) -> list[Any]:
    """The cells of the first notebook, whose home the others use."""
    return execute("first_search.ipynb", folder, environment)


def test_the_first_notebook_has_no_hints_at_missing_widgets(first_search: list[Any]) -> None:
    printed = [output.get("text", "") for cell in first_search for output in cell.get("outputs", [])]
    assert not [text for text in printed if "widgets" in text]


def test_the_first_notebook_shows_progress_tables_and_figures(first_search: list[Any]) -> None:
    searched = find_html(first_search, "result = memtune.run_search")
    assert " of 6 trials ended, " in searched  # the others are paused
    assert searched.count("trials ended") == 1, "the table is updated in place"
    assert "best configuration" in searched
    assert "data:image/svg+xml" in find_html(first_search, "figures = ")
    assert "ideal 12.9" in find_html(first_search, "memtune.compare")


@pytest.mark.usefixtures("first_search")
def test_the_second_notebook_uses_the_model_of_the_first(folder: Path, environment: dict[str, str]) -> None:
    cells = execute("registered_model.ipynb", folder, environment)
    assert "models:/grammar@champion" in find_html(cells, "import memtune")
    (last,) = cells[-1].outputs
    assert last.data["text/plain"].count("'") == 10, "five words"


@pytest.mark.usefixtures("first_search")
def test_the_examples_of_the_guide_run(folder: Path, environment: dict[str, str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(examples)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert 'the study: unknown name "budget.trails"; did you mean "trials"?' in done.stdout
    assert "2 of 2 trials ended" in done.stdout
    assert (folder / "curves.png").exists()
