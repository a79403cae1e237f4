"""docs/corpora.md lists every format with its options."""

from pathlib import Path

import pytest

from memtune.corpora.grammar.task_corpora import GRAMMAR_TASKS
from memtune.reports.corpus_tables import make_formats_table

PAGE = (Path(__file__).parents[3] / "docs" / "corpora.md").read_text()
ROWS = [*zip(*(map(str, column.cells) for column in make_formats_table().columns), strict=True)]


@pytest.mark.parametrize(("name", "summary", "annotations", "options"), ROWS)
def test_the_page_has_a_row_for_each_format(name: str, summary: str, annotations: str, options: str) -> None:
    cell = " ".join(f"`{option}`" for option in options.split()) if options != "-" else "-"
    assert f"| `{name}` | {summary} | {annotations} | {cell} |" in PAGE


@pytest.mark.parametrize("task", GRAMMAR_TASKS)
def test_the_page_describes_each_task_of_the_grammar(task: str) -> None:
    assert f"**{task}**" in PAGE
