"""What a model is asked: a task owns its data, its head, its loss, its metrics and its objective."""

from typing import Annotated, get_args

from pydantic import Field

from memtune.tasks.agreement import Agreement, AgreementConfig
from memtune.tasks.completion import Completion, CompletionConfig
from memtune.tasks.continuous_cache import CacheGrid, ContinuousCache, evaluate_with_cache, tune_cache
from memtune.tasks.inference import InferenceConfig
from memtune.tasks.interface import AnyTask, Batch, Metrics, Plan, Task, TaskConfig, build, open_task
from memtune.tasks.language_modelling import LanguageModelling, LanguageModellingConfig, perplexity
from memtune.tasks.questions import Answers, QuestionTask, QuestionTaskConfig, choose
from memtune.tasks.sentiment import SentimentConfig
from memtune.tasks.tree_modelling import TreeModelling, nats_by_sentence

__all__ = [
    "TASKS",
    "Agreement",
    "AgreementConfig",
    "Answers",
    "AnyTask",
    "AnyTaskConfig",
    "Batch",
    "CacheGrid",
    "Completion",
    "CompletionConfig",
    "ContinuousCache",
    "InferenceConfig",
    "LanguageModelling",
    "LanguageModellingConfig",
    "Metrics",
    "Plan",
    "QuestionTask",
    "QuestionTaskConfig",
    "SentimentConfig",
    "Task",
    "TaskConfig",
    "TreeModelling",
    "build",
    "choose",
    "evaluate_with_cache",
    "nats_by_sentence",
    "open_task",
    "perplexity",
    "tune_cache",
]

Tasks = LanguageModellingConfig | CompletionConfig | AgreementConfig | SentimentConfig | InferenceConfig
AnyTaskConfig = Annotated[Tasks, Field(discriminator="kind")]
TASKS: dict[str, type[TaskConfig]] = {
    config.model_fields["kind"].default: config for config in get_args(Tasks)
}
"""Task name -> its configuration."""
