"""Tasks: each defines its data, its head, its loss, its metrics and its objective."""

from typing import Annotated

from memtune.corpora.batching.batches import TaskPlan
from memtune.plugins import ConfigRegistry
from memtune.tasks.agreement import Agreement, AgreementConfig
from memtune.tasks.completion import Completion, CompletionConfig
from memtune.tasks.continuous_cache import CacheGrid, ContinuousCache, evaluate_with_cache, tune_cache
from memtune.tasks.inference import InferenceConfig
from memtune.tasks.item_costs import ItemCosts, compute_text_nats, compute_token_nats
from memtune.tasks.language_modelling import (
    LanguageModelling,
    LanguageModellingConfig,
    TreeLanguageModelling,
    nats_by_sentence,
    perplexity,
)
from memtune.tasks.probe import ProbeConfig, ProbeTask
from memtune.tasks.questions import Answers, QuestionTask, QuestionTaskConfig
from memtune.tasks.sentiment import SentimentConfig
from memtune.tasks.task import AnyTask, Metrics, Task, TaskBatch, TaskConfig, build_task_model

QUESTION_CONFIGS: tuple[type[QuestionTaskConfig], ...] = (CompletionConfig, AgreementConfig)
TASKS: ConfigRegistry[TaskConfig] = ConfigRegistry(
    "task",
    "memtune.tasks",
    "kind",
    TaskConfig,  # type: ignore[type-abstract]
    (LanguageModellingConfig, *QUESTION_CONFIGS, SentimentConfig, InferenceConfig, ProbeConfig),
    {"prediction_unit": "tokens"},
)
"""Task kind -> its configuration."""
AnyTaskConfig = Annotated[TaskConfig, TASKS]
"""The configuration of a task of the registry, chosen by `kind`."""
QUESTION_TASKS: dict[str, type[QuestionTaskConfig]] = {
    config.model_fields["kind"].default: config for config in QUESTION_CONFIGS
}
"""Kind -> configuration of the tasks in which a language model answers questions."""
