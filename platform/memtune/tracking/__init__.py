"""What happened: runs, lineage, the registry of best models.

The only home of MLflow, which is imported on first use.
"""

from memtune.tracking.card import Card, Result
from memtune.tracking.champions import Champion, best, list_champions
from memtune.tracking.connection import check_tracking, is_server, sqlite_uri
from memtune.tracking.entries import CorpusInput
from memtune.tracking.evaluations import record_evaluation
from memtune.tracking.leaderboard import Row, leaderboard, varying
from memtune.tracking.loading import RegisteredModel, load_registered
from memtune.tracking.pages import comparison_link, experiment_link, serve_pages
from memtune.tracking.recorder import ALONE, Recorder, Status
from memtune.tracking.registry import Decision, register_champion

__all__ = [
    "ALONE",
    "Card",
    "Champion",
    "CorpusInput",
    "Decision",
    "Recorder",
    "RegisteredModel",
    "Result",
    "Row",
    "Status",
    "best",
    "check_tracking",
    "comparison_link",
    "experiment_link",
    "is_server",
    "leaderboard",
    "list_champions",
    "load_registered",
    "record_evaluation",
    "register_champion",
    "serve_pages",
    "sqlite_uri",
    "varying",
]
