"""The terminal prints users' texts literally."""

import io
import json
import os
import re
import subprocess
import sys

import pytest
from rich.table import Table

from memtune.cli.terminal import out
from memtune.reports.live.live_display import LiveDisplay
from memtune.reports.text_console import TextConsole, show_control_characters
from memtune.studies.study_run import TrialPhase
from tests.presence import require

NARROW_OUTPUT = """
from memtune.reports.text_console import TextConsole
console = TextConsole()
console.print("caf\u00e9 \u2013 \u4e2d")
console.print_json(data={"word": "caf\u00e9 \u2013"})
"""
TEXT = "Is [/b] [red]good[/red] :smile: {x}?"


@pytest.fixture
def console() -> TextConsole:
    return TextConsole(file=io.StringIO(), width=100, force_terminal=True, color_system="standard")


def read_output(console: TextConsole) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_markup_and_emoji_codes_in_a_text_are_printed_literally(console: TextConsole) -> None:
    console.print(TEXT)
    assert TEXT in read_output(console)


def test_markup_in_a_cell_and_a_title_is_printed_literally(console: TextConsole) -> None:
    table = Table(title=f"title {TEXT}")
    table.add_column("column [/b]")
    table.add_row(f"cell {TEXT}")
    console.print(table)
    for text in (f"title {TEXT}", f"cell {TEXT}", "column [/b]"):
        assert text in read_output(console)


def test_an_escape_sequence_is_written_out_instead_of_executed(console: TextConsole) -> None:
    console.print("word \x1b]0;title\x07 \x9b31m \r end")
    assert r"word \x1b]0;title\x07 \x9b31m \x0d end" in read_output(console)


def test_tabs_and_line_ends_are_not_escaped() -> None:
    assert show_control_characters("a\tb\nc") == "a\tb\nc"


def test_commands_print_to_a_text_console() -> None:
    assert isinstance(out, TextConsole)


def test_a_question_with_markup_is_the_title_of_a_live_display(console: TextConsole) -> None:
    console.print(LiveDisplay(console, TrialPhase(TEXT, 3)))
    assert TEXT in read_output(console)


@pytest.mark.parametrize("word", ["a\x1b[31m", "a\x9b31m", "ünï"])
@pytest.mark.parametrize("is_text", [True, False])
def test_json_holds_no_control_character(word: str, is_text: bool) -> None:
    console = TextConsole(file=io.StringIO(), width=100)
    console.print_json(json.dumps([word])) if is_text else console.print_json(data=[word])
    printed = read_output(console)
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", printed) is None
    assert json.loads(printed) == [word]
    assert ("ünï" in printed) == (word == "ünï")


def print_table(monkeypatch: pytest.MonkeyPatch, columns: str | None) -> str:
    """A table with a long cell, in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    console = TextConsole(file=io.StringIO())
    table = Table(title="title")
    table.add_column("first")
    table.add_column("second", justify="right")
    table.add_row("word " * 40, "7")
    console.print(table)
    return read_output(console)


def test_a_pipe_gets_tables_without_lines_and_one_line_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = print_table(monkeypatch, None)
    assert printed.isascii()
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f]", printed) is None
    assert [line.split()[-1] for line in printed.splitlines()] == ["title", "second", "7"]


@pytest.mark.parametrize("columns", ["60", "200"])
def test_a_pipe_is_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    lines = print_table(monkeypatch, columns).splitlines()
    assert max(len(line) for line in lines) <= int(columns)
    assert (len(lines) > 4) == (columns == "60")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_number_wider_than_its_column_is_broken_and_not_cut(is_terminal: bool) -> None:
    console = TextConsole(file=io.StringIO(), width=20, force_terminal=is_terminal, no_color=True)
    table = Table()
    for name in ("a", "b", "c"):
        table.add_column(name, justify="right")
    table.add_row(*["1,234,567,890"] * 3)
    console.print(table)
    digits = re.sub(r"\x1b\[[0-9;]*m|[^0-9]", "", read_output(console))
    assert sorted(digits) == sorted("1234567890" * 3)


@pytest.mark.parametrize(("width", "is_list"), [(40, True), (59, False), (80, False)])
def test_no_word_of_a_table_is_broken_on_a_narrow_output(width: int, is_list: bool) -> None:
    console = TextConsole(file=io.StringIO(), width=width)
    table = Table(title="studies")
    for name in ("study", "parameters\ntokens", "last activity"):
        table.add_column(name)
    table.add_row("ptb_recurrent_memory-1a2b3c4d", "1,234,567\n89,000", "2026-11-26", style="bold")
    table.add_row("demo", "", "2026-11-25")
    console.print(table)
    shown = read_output(console)
    assert {"ptb_recurrent_memory-1a2b3c4d", "1,234,567", "89,000", "2026-11-26"} <= {*shown.split()}
    assert ("tokens 89,000" in shown) is is_list
    assert max(map(len, shown.splitlines())) <= width


@pytest.mark.parametrize("handler", ["SIG_DFL", "SIG_IGN"])
def test_an_output_that_nobody_reads_asks_the_process_to_end(handler: str) -> None:
    """Also under nohup, which ignores SIGHUP."""
    program = (
        "from memtune.cli.terminal import out\n"
        "from memtune.stop_signals import interrupt_on_stop_signals\n"
        "import signal, sys\n"
        f"signal.signal(signal.SIGHUP, signal.{handler})\n"
        "with interrupt_on_stop_signals():\n"
        "    try:\n"
        "        for _ in range(100_000): out.print('line')\n"
        "    except KeyboardInterrupt:\n"
        "        sys.exit(7)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        require(process.stdout).close()
        assert process.wait(timeout=120) == 7


@pytest.mark.parametrize(
    ("encoding", "line"),
    [
        ("latin-1", "caf\u00e9 \\u2013 \\u4e2d"),
        ("ascii", "caf\\xe9 \\u2013 \\u4e2d"),
        ("utf-8", "caf\u00e9 \u2013 \u4e2d"),
    ],
)
def test_a_character_that_the_output_cannot_encode_is_printed_as_an_escape(encoding: str, line: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", NARROW_OUTPUT], env=environment, capture_output=True, check=True
    )
    first, *document = done.stdout.decode(encoding).splitlines()
    assert first == line
    assert json.loads("".join(document)) == {"word": "caf\u00e9 \u2013"}
