"""One trial's learning, with no cluster in sight: loop, optimisers, schedules, checkpoints, evaluation."""

from memtune.training.checkpoint import Record, load_best_model, read_checkpoint
from memtune.training.configuration import TrainingConfig, TrialConfig
from memtune.training.devices import find_device
from memtune.training.evaluation import evaluate
from memtune.training.learner import Learner
from memtune.training.learners import AnyLearner, new_learner, restore_learner
from memtune.training.memory import MemoryEstimate, available_bytes, estimate, largest_batch, longest_row
from memtune.training.optimisers import AdamConfig, AdamWConfig, NTASGDConfig, RMSpropConfig, SGDConfig
from memtune.training.reports import Progress, Report, best_report
from memtune.training.schedules import ConstantSchedule, InverseSchedule, PlateauSchedule, StepSchedule
from memtune.training.weights import load_model, save_model

__all__ = [
    "AdamConfig",
    "AdamWConfig",
    "AnyLearner",
    "ConstantSchedule",
    "InverseSchedule",
    "Learner",
    "MemoryEstimate",
    "NTASGDConfig",
    "PlateauSchedule",
    "Progress",
    "RMSpropConfig",
    "Record",
    "Report",
    "SGDConfig",
    "StepSchedule",
    "TrainingConfig",
    "TrialConfig",
    "available_bytes",
    "best_report",
    "estimate",
    "evaluate",
    "find_device",
    "largest_batch",
    "load_best_model",
    "load_model",
    "longest_row",
    "new_learner",
    "read_checkpoint",
    "restore_learner",
    "save_model",
]
