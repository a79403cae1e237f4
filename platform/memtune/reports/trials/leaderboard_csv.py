"""The leaderboard of a corpus as CSV, for spreadsheets and data frames."""

import csv
from collections.abc import Sequence
from io import StringIO
from typing import Any

from memtune.tracking import LeaderboardRow

__all__ = ["format_leaderboard_csv"]


def format_leaderboard_csv(rows: Sequence[LeaderboardRow], ideal: float | None) -> str:
    """One line per trial under a header, in the order of the rows.

    `figure` is the validation perplexity (lower is better) or accuracy (higher is better) that ranks the
    trial, `low` and `high` the ends of its 95 % interval, `above_ideal` its relative distance from a known
    ideal. The recorded parameters follow by their dotted names. A value that a trial lacks is empty.
    """
    parameters = sorted({name for row in rows for name in row.parameters})
    written = StringIO()
    writer = csv.DictWriter(written, [*_list_columns(rows, ideal), *parameters], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(_make_record(row, ideal) | row.parameters)
    return written.getvalue()


def _list_columns(rows: Sequence[LeaderboardRow], ideal: float | None) -> list[str]:
    columns = ["place", "name", "family", "study", "run_id", "state", "protocol", "objective", "figure"]
    columns += ["low", "high", "above_ideal"] if ideal else ["low", "high"]
    return [*columns, "tokens", "hours", "peak_memory_bytes", "test_accesses", "note"]


def _make_record(row: LeaderboardRow, ideal: float | None) -> dict[str, Any]:
    """The values of a row; the number of its parameters is among the recorded parameters."""
    figure = row.ranked_figure
    low, high = row.interval or (None, None)
    record = row.model_dump(
        mode="json",
        include={
            "place",
            "name",
            "family",
            "study",
            "run_id",
            "state",
            "protocol",
            "objective",
            "tokens",
            "hours",
            "peak_memory_bytes",
            "test_accesses",
            "note",
        },
    )
    record |= {"figure": figure, "low": low, "high": high}
    if ideal:
        record["above_ideal"] = None if figure is None else figure / ideal - 1
    return record
