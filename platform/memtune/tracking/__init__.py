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
from memtune.tracking.runs.conclusion_records import record_conclusion
from memtune.tracking.runs.leaderboard import LeaderboardRow, find_varying_parameters, read_leaderboard
from memtune.tracking.runs.recorder import Recorder
from memtune.tracking.runs.run_commands import NO_STUDY
from memtune.tracking.runs.run_deletion import delete_study_runs
from memtune.tracking.runs.run_entries import CorpusInput
from memtune.tracking.runs.run_writer import DrawFigures
from memtune.tracking.runs.split_accesses import count_test_accesses, record_test_access
from memtune.tracking.runs.trial_runs import TrialRun, find_trial_run, is_trial_name
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
    "TrialRun",
    "check_tracking",
    "comparison_link",
    "count_test_accesses",
    "delete_study_runs",
    "experiment_link",
    "find_champion",
    "find_trial_run",
    "find_varying_parameters",
    "is_server",
    "is_trial_name",
    "list_champions",
    "load_registered",
    "read_leaderboard",
    "record_conclusion",
    "record_evaluation",
    "record_test_access",
    "register_if_better",
    "require_registered",
    "serve_pages",
    "sqlite_uri",
]
