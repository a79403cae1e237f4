"""What the registry's pages say: how a corpus's champion is chosen, and what a version's result is."""

from memtune.corpora import Corpus
from memtune.number_format import format_parameters
from memtune.studies.trial_records import format_value
from memtune.tracking import PromotionResult, RegisteredVersion, describe_registered
from memtune.training import TrialConfig
from memtune.values import Value

__all__ = ["StudyAnswer", "describe_promotion"]

SELECTION_RULE = (
    "The champion of a protocol and task is the configuration with the best mean over seeds on the "
    "validation split at full length. The registered weights are those of its best-validated seed. The test "
    "split does not select."
)


class StudyAnswer(Value):
    """What a study says of its winner, in words."""

    question: str
    answer: str


def describe_promotion(
    tracking_uri: str,
    corpus: Corpus,
    promotion: PromotionResult,
    config: TrialConfig,
    answer: StudyAnswer | None = None,
) -> None:
    """Describe a registered version, and its corpus's model where the version is its champion.

    Raises TrackingError when the store does not answer.
    """
    version = promotion.champion or promotion.version
    if version is None:
        return
    # The model is that of the main label; its other champions are described by their versions.
    is_main = promotion.champion is not None and promotion.champion.alias == "champion"
    of_model = describe_model(corpus, version, answer) if is_main else None
    of_corpus = describe_corpus(version, answer) if is_main else None
    of_version = describe_version(corpus, version, config, answer)
    describe_registered(tracking_uri, version, of_version, of_model, of_corpus)


def describe_corpus(champion: RegisteredVersion, answer: StudyAnswer | None) -> str:
    """The best model of a corpus in a few words, for the list of corpora."""
    found = answer.answer.replace("**", "") if answer else f"{champion.family}: {champion.summary}."
    return f"Best: {found} Protocol: {champion.protocol}."


def describe_model(corpus: Corpus, champion: RegisteredVersion, answer: StudyAnswer | None) -> str:
    """The description of a corpus's model, as Markdown."""
    splits = ", ".join(f"{name} {split.tokens:,}" for name, split in corpus.manifest.splits.items())
    parts = [
        f"Language models of **{corpus.name}**: {splits} tokens, {len(corpus.vocabulary):,} types.",
        *([f"**Question.** {answer.question}", f"**Answer.** {answer.answer}"] if answer else []),
        f"**Champion.** Version {champion.version}, {champion.family}, {champion.summary}.",
        f"**Protocol.** {champion.protocol}. Figures under another protocol or task do not compare.",
        f"**Selection.** {SELECTION_RULE}",
        f"`memtune best --corpus {corpus.name}` lists the champions of all protocols and tasks.",
    ]
    return "\n\n".join(parts)


def describe_version(
    corpus: Corpus, version: RegisteredVersion, config: TrialConfig, answer: StudyAnswer | None
) -> str:
    """The description of a version, as Markdown: its result first, then what it is and how to use it."""
    fields = {**config.model.describe(), **config.model.describe_output()}
    words = " ".join(f"{name}={format_value(value)}" for name, value in fields.items())
    size = format_parameters(config.parameter_count(len(corpus.vocabulary)))
    # Whatever a model counts, it counts the same under every seed.
    origin = f"weights of seed {config.seed}" if config.model.is_trained_by_gradient else "learns by counting"
    has_test = config.task.is_evaluable(corpus, config.protocol, "test")
    commands = [
        f"memtune evaluate {version.uri}{' --split test' if has_test else ''}",
        f'memtune generate {version.uri} --prompt "..."',
    ]
    parts = [
        version.summary,
        f"**{version.family}** {words}, {size}, protocol {version.protocol}, {origin}.",
        *([f"**Question.** {answer.question}"] if answer else []),
        "Use: " + ", ".join(f"`{command}`" for command in commands),
    ]
    return "\n\n".join(parts)
