"""Training of one trial, without Ray: loop, optimisers, schedules, checkpoints and evaluation."""

from memtune.training.checkpoint import Checkpoint, CheckpointRecord, read_checkpoint, write_checkpoint
from memtune.training.devices import open_device
from memtune.training.gradient_trainer import GradientTrainer
from memtune.training.memory_footprint import (
    MemoryEstimate,
    TrialSizes,
    compute_sizes,
    estimate_memory,
    find_largest_batch,
    find_longest_row,
    measure_available_bytes,
)
from memtune.training.optimisation.training_config import TrainingConfig
from memtune.training.optimisation.update_step import check_device
from memtune.training.trainers import (
    AnyTrainer,
    create_trainer,
    evaluate,
    measure_seconds_per_token,
    restore_trainer,
)
from memtune.training.trial_config import TrialConfig
from memtune.training.trial_report import DIVERGENCE_FACTOR, Progress, Report, find_best_report, make_report
from memtune.training.weight_files import load_model, save_model
