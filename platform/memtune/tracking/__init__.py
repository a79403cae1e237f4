"""Records in MLflow: runs, the data they used, and the registry of the best models.

The only package that imports MLflow. It does so on first use.
"""

from memtune.tracking.code_version import read_code_version
from memtune.tracking.compatibility import make_version_link
from memtune.tracking.mlflow_connection import check_tracking
from memtune.tracking.mlflow_ui import ServedPages, serve_pages
from memtune.tracking.registry.model_package import (
    ModelPackage,
    ModelResult,
    is_package,
    load_registered,
    read_package,
    write_run_package,
)
from memtune.tracking.registry.model_registry import Registration, register_if_better
from memtune.tracking.registry.model_versions import (
    RegisteredVersion,
    describe_registered,
    list_champions,
    record_evaluation,
    require_registered,
)
from memtune.tracking.registry.text_rules import ReadText, TextReader, TextRules, find_text_rules
from memtune.tracking.runs.leaderboard import LeaderboardRow, read_leaderboard
from memtune.tracking.runs.recorded_runs import (
    RecordedEvaluation,
    TrialRun,
    count_test_accesses,
    delete_study_runs,
    find_evaluation,
    find_trial_run,
    is_trial_name,
    record_conclusion,
    record_test_access,
)
from memtune.tracking.runs.recorder import Recorder
from memtune.tracking.runs.run_store import CorpusInput
from memtune.tracking.runs.run_tags import NO_STUDY
from memtune.tracking.ui_links import LOCAL_PAGES_URL, CorpusPages, link_corpora, link_corpus
