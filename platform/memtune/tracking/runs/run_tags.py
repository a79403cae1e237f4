"""The tags, parameters and metrics by which runs are found and read."""

from collections.abc import Mapping

from memtune.objective import Objective

NO_STUDY = "alone"
"""The study under which trials without a study are recorded."""
STUDY = "memtune.study"
TRIAL = "memtune.trial"
ROLE = "memtune.role"
CODE = "memtune.code"
"""The version of the code that recorded a run."""
STATE = "memtune.state"
STOP_REASON = "memtune.stop_reason"
REASON = "memtune.reason"
OBJECTIVE = "memtune.objective"
PROTOCOL = "memtune.protocol"
"""The label of a trial: protocol and task."""
FAMILY = "memtune.family"
ALTERNATIVE = "memtune.alternative"
"""The answer to its study's question that a trial belongs to, such as "mixer kda", or its family."""
ALTERNATIVE_PARAMETER = "alternative"
"""The parameter with the alternative, for charts. A resumed study may compare another field, and MLflow
refuses to change a parameter: the tag is what memtune reads."""
SIZE_PARAMETER = "parameters"
"""The parameter that holds the number of trained parameters of a model."""
STATE_PARAMETER = "carried_state"
"""The parameter that holds the numbers that a model carries from word to word."""
CONFIGURATION = "memtune.configuration"
"""The identity of a trial's configuration, without its seed."""
STUDY_NAME = "memtune.name"
NUMBER = "memtune.number"
"""A trial's name within its study: its number, with the seed of a repeat."""
VALIDATED_TOKENS = "memtune.validated_tokens"
"""Of an ended trial: tokens at its last report with a validation."""
PARENT = "mlflow.parentRunId"
USER = "mlflow.user"
"""Who created a run, as MLflow's pages show it."""
STATUS = "memtune.status"
"""The state of a trial, for readers: "complete", "stopped at 300,000 tokens", "failed: the disk is full"."""
IDEAL = "memtune.ideal_perplexity"
"""The validation perplexity that no model can beat, of a corpus for which it is known."""
RANK, FIGURE = "memtune.rank", "memtune.figure"
"""The place of a trial's configuration in its study, and its figure in words; set when the study ends."""
BEST_OF_FAMILY = "memtune.best_of_family"
"""Is "yes" on the best trial of each alternative of a study; its name is that of earlier versions."""
COLOUR = "mlflow.runColor"
"""The colour of a run in MLflow's tables and charts: that of its alternative in its study."""
COLOURS = (
    *("#0072B2", "#D55E00", "#00875F", "#B8588F", "#2F8FC4", "#A87400", "#555555"),
    *("#7030C0", "#7A0F22", "#4F5F00", "#1B2A80"),
)
"""Of alternatives in alphabetical order. Okabe and Ito (2008), distinguishable for colour-blind readers,
without their yellow. The pale ones are darkened to a contrast of 3 to 1 with white, as WCAG 2.2 asks of
graphics; four dark ones follow."""
NOTE = "mlflow.note.content"
"""The description that MLflow's pages show as Markdown."""
RANKING_METRIC = "best_validation"
"""The best validation figure up to each report, in every task: MLflow's tables show a metric's last value."""
ABOVE_IDEAL_METRIC = "above_ideal_percent"
TOKENS_METRIC, HOURS_METRIC, MONEY_METRIC = "tokens", "hours", "spent_money"
"""What a trial has seen and used up to its last report."""


def name_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as they are stored, as `memtune.<name>`; those of MLflow keep their names."""
    return {name if name.startswith("mlflow.") else f"memtune.{name}": tags[name] for name in tags}


def read_alternative(tags: Mapping[str, str]) -> str:
    """The alternative of a trial by the tags of its run: its family in runs of earlier versions."""
    return tags.get(ALTERNATIVE) or tags.get(FAMILY, "")


def read_objective(tags: Mapping[str, str]) -> Objective:
    """The objective of a run by its tags."""
    return Objective.ACCURACY if tags.get(OBJECTIVE) == Objective.ACCURACY else Objective.PERPLEXITY
