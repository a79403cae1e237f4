"""A study's journal file: one line per change, without incomplete lines, and never created twice.

A killed writer or a full disk may leave an incomplete line, which would make the journal unreadable. And
Optuna creates the file again when it was deleted under a running study: the driver would write into an empty
journal, and every result of the study would be lost without an error.
"""

import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, BinaryIO

from optuna.storages.journal import JournalFileBackend

from memtune.errors import StorageError, StudyError
from memtune.search.compatibility import JournalLock

__all__ = ["MISSING_LIMIT_SECONDS", "CrashSafeJournal"]

MISSING_LIMIT_SECONDS = 30.0
"""Seconds that the file may be missing, as while a network file system is remounted; then it is deleted."""

MAX_SHOWN_CHARACTERS = 80


class CrashSafeJournal(JournalFileBackend):
    """The journal at a path, created when it is new.

    Reading and writing raise FileNotFoundError while the file is missing, which an outage buffer treats as an
    unavailable storage, and StudyError once it counts as deleted or is shorter than it was.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the journal and cut off an incomplete last line.

        Raises StorageError for anything but a file: a device never ends, and a pipe never answers.
        """
        if path.exists() and not path.is_file():
            raise StorageError(f"the journal of studies {path} is not a regular file; name another path")
        self._journal_path, self._own_lock, self._clock = path, JournalLock(str(path)), clock
        super().__init__(str(path), self._own_lock)
        self._missing_since: float | None = None
        self._min_size = 0
        self._cut_incomplete_line()
        self._may_have_incomplete_line = False

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """The changes from a number on. Raises StudyError for a line that Optuna did not write."""
        self._check_file()
        try:
            for change in super().read_logs(log_number_from):
                if not (isinstance(change, dict) and isinstance(change.get("op_code"), int)):
                    raise self._make_damage_error(f"a change is {str(change)[:MAX_SHOWN_CHARACTERS]}")
                yield change
        except (ValueError, RecursionError) as error:  # also numbers over 4,300 digits, and deep brackets
            raise self._make_damage_error(str(error)) from None

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add changes, each as a whole line or not at all."""
        self._check_file()
        if self._may_have_incomplete_line:
            self._cut_incomplete_line()
        self._may_have_incomplete_line = True
        super().append_logs(logs)
        # The larger one, because a file that is deleted between the check and the write is created anew.
        self._min_size = max(self._min_size, self._journal_path.stat().st_size)
        self._may_have_incomplete_line = False

    def _make_damage_error(self, reason: str) -> StudyError:
        return StudyError(f"the journal of studies {self._journal_path} is damaged: {reason}; restore it")

    def _check_file(self) -> None:
        """Raise unless the file holds at least what this process has written to it."""
        try:
            size = self._journal_path.stat().st_size
        except FileNotFoundError:
            self._check_missing_time()
            raise
        self._missing_since = None
        if size < self._min_size:  # not the inode, which some network file systems change
            raise StudyError(
                f"the study's journal {self._journal_path} has {size:,} bytes, and had {self._min_size:,}: "
                "it was replaced or truncated while the study was running; restore it and continue with "
                "--resume"
            )

    def _check_missing_time(self) -> None:
        if self._missing_since is None:
            self._missing_since = self._clock()
        if self._clock() - self._missing_since >= MISSING_LIMIT_SECONDS:
            raise StudyError(
                f"the study's journal {self._journal_path} was deleted while the study was running; "
                "restore it and continue with --resume, or start the study again"
            ) from None

    def _cut_incomplete_line(self) -> None:
        self._own_lock.acquire()
        try:
            with self._journal_path.open("r+b") as file:
                size = end = file.seek(0, os.SEEK_END)
                while end > 0 and not _is_line_end(file, end):
                    end -= 1
                if end < size:
                    file.truncate(end)
                self._min_size = min(self._min_size, end)
        finally:
            self._own_lock.release()


def _is_line_end(file: BinaryIO, position: int) -> bool:
    file.seek(position - 1)
    return file.read(1) == b"\n"
