"""The process of a command: how it starts, and how stop signals end it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import memtune
from tests.presence import require
from tests.unit.cli.invocation import read_output, run_process


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "memtune", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert shown.stdout == read_output("--version")


def test_an_interpreter_without_docstrings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    done = run_process("corpus", "list")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: Ray and Altair do not load without docstrings, which -OO and")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    ("module", "program"),
    [
        ("typer", "from memtune.cli import main\nmain()"),
        ("slow", "@app.command()\ndef work(): import slow\nrun_command()"),
        ("", "@app.command()\ndef work(): signal.raise_signal(signal.NUMBER)\nrun_command()"),
        ("", "@app.command()\ndef work(): atexit.register(signal.raise_signal, signal.NUMBER)\nmain()"),
    ],
    ids=["while the commands are imported", "while one imports", "in one", "after one"],
)
def test_a_stop_signal_ends_a_command_with_a_line(
    module: str, program: str, number: str, tmp_path: Path
) -> None:
    """Modules such as NumPy, which imports parts of itself on demand, do not survive an exception there."""
    raises = f"import signal\nsignal.raise_signal(signal.{number})\n"
    (tmp_path / f"{module or 'other'}.py").write_text(
        f"try:\n    exec({raises!r})\nexcept BaseException: pass\n"
    )
    # A shell may have it ignored.
    start = "import atexit, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    if module != "typer":
        start += "from memtune.cli import main\nfrom memtune.cli.command_line import app, run_command\n"
    command = [sys.executable, "-c", start + program.replace("NUMBER", number), "work"]
    done = subprocess.run(
        command, env=make_environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (1, "interrupted\n", "")


def make_environment(*folders: Path) -> dict[str, str]:
    """Variables of a process that finds modules in folders, then memtune."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [*folders, Path(memtune.__file__).parents[1]])),
    }


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
@pytest.mark.parametrize("module", ["memtune", "memtune.cli"])
def test_a_process_that_loads_its_commands_ends_with_a_line(
    module: str, number: signal.Signals, tmp_path: Path
) -> None:
    """The stop of a job, Ctrl-C and the end of a terminal, from outside."""
    loading = "import sys\nprint('loading', flush=True)\nsys.stdin.read()\n"
    (tmp_path / "typer.py").write_text(loading)
    command = [sys.executable, "-P", "-m", module, "--help"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=make_environment(tmp_path), text=True, stdin=pipe, stdout=pipe, stderr=pipe
    ) as process:
        require(process.stdout).readline()
        process.send_signal(number)
        _, error = process.communicate()
    assert (process.returncode, error) == (1, "interrupted\n")


def test_little_is_loaded_before_stop_signals_end_a_process_with_a_line() -> None:
    """Python prints a traceback for a signal while it loads what comes first."""
    program = "import sys\nbefore = set(sys.modules)\nimport memtune.cli\nprint(*set(sys.modules) - before)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=make_environment(), capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {name for name in loaded if name.startswith("memtune")} == {
        *("memtune", "memtune.cli", "memtune.stop_signals")
    }
    assert loaded.isdisjoint(("argparse", "inspect", "json", "logging", "re", "typing"))
