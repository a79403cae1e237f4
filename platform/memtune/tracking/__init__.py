"""Records in MLflow: runs, the data they used, and the registry of the best models.

The only package that imports MLflow. It does so on first use.
"""

from memtune.tracking.mlflow_connection import check_tracking, is_server, sqlite_uri
from memtune.tracking.mlflow_ui import ServedPages, serve_pages
from memtune.tracking.registry.evaluation_records import record_evaluation
from memtune.tracking.registry.model_package import ModelCard, ModelResult
from memtune.tracking.registry.model_registry import Promotion, register_if_better
from memtune.tracking.registry.model_versions import (
    RegisteredVersion,
    find_champion,
    list_champions,
    require_registered,
)
from memtune.tracking.registry.registered_model import DownloadedModel, load_registered
from memtune.tracking.runs.leaderboard import LeaderboardRow, find_varying_parameters, read_leaderboard
from memtune.tracking.runs.recorder import NO_STUDY, Recorder
from memtune.tracking.runs.run_deletion import delete_study_runs
from memtune.tracking.runs.run_entries import CorpusInput
from memtune.tracking.runs.run_writer import DrawFigures
from memtune.tracking.ui_links import comparison_link, experiment_link

__all__ = [
    "NO_STUDY",
    "CorpusInput",
    "DownloadedModel",
    "DrawFigures",
    "LeaderboardRow",
    "ModelCard",
    "ModelResult",
    "Promotion",
    "Recorder",
    "RegisteredVersion",
    "ServedPages",
    "check_tracking",
    "comparison_link",
    "delete_study_runs",
    "experiment_link",
    "find_champion",
    "find_varying_parameters",
    "is_server",
    "list_champions",
    "load_registered",
    "read_leaderboard",
    "record_evaluation",
    "register_if_better",
    "require_registered",
    "serve_pages",
    "sqlite_uri",
]
