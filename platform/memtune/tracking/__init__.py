"""What happened: runs, lineage, the registry of best models.

The only home of MLflow, which is imported on first use.
"""

from memtune.tracking.connection import check_tracking, sqlite_uri
from memtune.tracking.entries import CorpusInput
from memtune.tracking.recorder import Recorder, Status

__all__ = ["CorpusInput", "Recorder", "Status", "check_tracking", "sqlite_uri"]
