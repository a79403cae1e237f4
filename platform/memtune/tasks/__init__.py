"""What a model is asked: a task owns its data, its head, its loss, its metrics and its objective."""

from memtune.tasks.continuous_cache import CacheGrid, ContinuousCache, evaluate_with_cache, tune_cache
from memtune.tasks.interface import AnyTask, Batch, Metrics, Plan, Task, TaskConfig, build, open_task
from memtune.tasks.language_modelling import LanguageModelling, LanguageModellingConfig, perplexity

__all__ = [
    "TASKS",
    "AnyTask",
    "AnyTaskConfig",
    "Batch",
    "CacheGrid",
    "ContinuousCache",
    "LanguageModelling",
    "LanguageModellingConfig",
    "Metrics",
    "Plan",
    "Task",
    "TaskConfig",
    "build",
    "evaluate_with_cache",
    "open_task",
    "perplexity",
    "tune_cache",
]

Tasks = LanguageModellingConfig
AnyTaskConfig = Tasks
TASKS: dict[str, type[TaskConfig]] = {"language_modelling": LanguageModellingConfig}
"""Task name -> its configuration."""
