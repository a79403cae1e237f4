"""Whose fault an error is: the environment's or that of what was asked for; and errors in a notebook."""

import errno

import pytest
from IPython.core.interactiveshell import InteractiveShell

from memtune.errors import (
    CheckpointError,
    ConfigurationError,
    StorageError,
    TrialError,
    WorkerError,
    explain_system_error,
    is_environment_fault,
)


@pytest.mark.parametrize(
    "number",
    [
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ESTALE,
    ],
)
def test_what_the_system_cannot_do_is_a_fault_of_the_environment_with_a_fix(number: int) -> None:
    error = OSError(number, "it failed", "/data/file")
    assert is_environment_fault(error)
    place, fix = explain_system_error(error).split("; ")
    assert place.startswith("/data/file: ")
    assert fix


@pytest.mark.parametrize("error", [StorageError("store"), WorkerError("GPU"), MemoryError()])
def test_a_storage_a_worker_and_host_memory_belong_to_the_environment(error: Exception) -> None:
    assert is_environment_fault(error)
    assert explain_system_error(error)


@pytest.mark.parametrize(
    "error",
    [
        TrialError("out of GPU memory"),
        ConfigurationError("no such optimiser"),
        CheckpointError("damaged"),
        FileNotFoundError(errno.ENOENT, "a file of a plug-in"),
        PermissionError(errno.EACCES, "a file of a plug-in"),
        RuntimeError("raised by a plug-in"),
    ],
)
def test_what_a_configuration_or_a_plug_in_does_is_no_fault_of_the_environment(error: Exception) -> None:
    assert not is_environment_fault(error)


def test_a_notebook_shows_the_users_own_lines_and_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    shell = InteractiveShell()
    shell.run_cell("import memtune\ndef start():\n    return memtune.dry_run(3)\nstart()")
    printed = capsys.readouterr().out.splitlines()
    assert {"start()", "return memtune.dry_run(3)"} <= {line.strip() for line in printed}
    assert printed[-1].startswith("ArgumentError: study must be a TOML file")
    assert sum("File " in line for line in printed) == 2
