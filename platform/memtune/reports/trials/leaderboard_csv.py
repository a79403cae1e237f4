"""The leaderboard of a corpus as CSV, for spreadsheets and data frames."""

import csv
from collections.abc import Sequence
from io import StringIO

from memtune.results.comparison import describe_row
from memtune.tracking import LeaderboardRow

__all__ = ["format_leaderboard_csv"]


def format_leaderboard_csv(rows: Sequence[LeaderboardRow], ideal: float | None) -> str:
    """One line per trial under a header, in the order of the rows, with the columns of `describe_row`.

    The recorded parameters follow by their dotted names. A value that a trial lacks is empty.
    """
    records = [describe_row(row, ideal) for row in rows]
    parameters = sorted({name for row in rows for name in row.parameters})
    written = StringIO()
    writer = csv.DictWriter(written, [*(records[0] if records else ()), *parameters], lineterminator="\n")
    writer.writeheader()
    for row, record in zip(rows, records, strict=True):
        writer.writerow(record | row.parameters)
    return written.getvalue()
