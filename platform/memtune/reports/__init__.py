"""What people look at: tables for the terminal, and figures."""

from memtune.reports.corpora import corpus_table, describe_table
from memtune.reports.figures import leaderboard_figure
from memtune.reports.trials import family_table, leaderboard_table, sample_table, spread_table

__all__ = [
    "corpus_table",
    "describe_table",
    "family_table",
    "leaderboard_figure",
    "leaderboard_table",
    "sample_table",
    "spread_table",
]
