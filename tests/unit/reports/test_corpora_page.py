"""The page on corpora names every format as it is."""

from pathlib import Path

import pytest

from memtune.corpora.grammar.tasks import TASKS
from memtune.reports.corpora import format_rows

PAGE = (Path(__file__).parents[3] / "docs" / "corpora.md").read_text()


@pytest.mark.parametrize(("name", "summary", "annotations", "options"), list(format_rows()))
def test_the_page_has_a_row_for_each_format(name: str, summary: str, annotations: str, options: str) -> None:
    shown = " ".join(f"`{option}`" for option in options.split()) if options != "-" else "-"
    assert f"| `{name}` | {summary} | {annotations} | {shown} |" in PAGE


@pytest.mark.parametrize("task", TASKS)
def test_the_page_says_what_each_task_of_the_grammar_asks(task: str) -> None:
    assert f"**{task}**" in PAGE
