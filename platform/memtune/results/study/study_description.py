"""The description of a concluded study, as Markdown: its question, its answer, its best trial per family."""

from collections.abc import Iterable, Sequence

from memtune.corpora import Corpus
from memtune.number_format import format_parameters
from memtune.results.study.ranking import DIGITS, Configuration
from memtune.results.study.study_leaderboard import describe_model, make_entry, name_by_alternative
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView
from memtune.results.study.verdicts import Verdict
from memtune.spaces import FAMILY_FIELD
from memtune.studies.budgets import StudyCost
from memtune.tracking import RegisteredVersion, Registration, describe_registered, make_version_link
from memtune.training import TrialConfig
from memtune.values import Value

SELECTION_RULE = (
    "The champion of a protocol and task is the configuration with the best mean over seeds on the "
    "validation split at full length. The registered weights are those of its best-validated seed. The test "
    "split does not select."
)


class StudyAnswer(Value):
    """What a study says of its winner, in words."""

    question: str
    answer: str


def describe_registration(
    tracking_uri: str,
    corpus: Corpus,
    registration: Registration,
    config: TrialConfig,
    answer: StudyAnswer | None = None,
) -> None:
    """Describe a registered version, and its corpus's model where the version is its champion.

    Raises TrackingError when the store does not answer.
    """
    version = registration.champion or registration.version
    if version is None:
        return
    # The model is that of the main label; its other champions are described by their versions.
    is_main = registration.champion is not None and registration.champion.alias == "champion"
    of_model = describe_models_of(corpus, version, answer) if is_main else None
    best = answer.answer.replace("**", "") if answer else f"{version.family}: {version.summary}."
    of_corpus = f"Best: {best} Protocol: {version.protocol}." if is_main else None
    of_version = describe_version(corpus, version, config, answer)
    describe_registered(tracking_uri, version, of_version, of_model, of_corpus)


def describe_models_of(corpus: Corpus, champion: RegisteredVersion, answer: StudyAnswer | None) -> str:
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
    words = describe_model(config.model)
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


def describe_conclusion(
    view: StudyView, answer: StudyAnswer, statements: Sequence[str], registration: Registration | None
) -> str:
    """The question, the answer with interval and tests, the best of each alternative, and the cost."""
    alternative = "family" if view.terms.compare == FAMILY_FIELD else "alternative"
    return "\n\n".join(
        [
            f"**Question.** {answer.question}",
            f"**Answer.** {answer.answer}",
            *(["\n".join(f"- {statement}" for statement in statements)] if statements else []),
            describe_champion(registration),
            f"#### The best trial of each {alternative}",
            format_alternatives(view),
            "#### Trials by state, repeats, and what they used",
            format_states(view.compute_cost()),
            f"More: `memtune compare --corpus {view.terms.corpus} --study {view.id}`, "
            f"`memtune study show {view.id}`",
        ]
    )


def describe_answer(view: StudyView, verdict: Verdict, winner: Configuration[StudyTrial]) -> str:
    """The best model, by how much, at what size and cost; then the verdict, and the ideal.

    In this order and in short forms, because MLflow's pages show the first line: 96 characters of it in a
    window of 1,000 pixels.
    """
    objective, entry = view.objective, make_entry(view, winner)
    margin = verdict.comparisons[0].margin if verdict.comparisons else None
    prices = view.terms.prices
    gpu = f" and {entry.gpu_hours:.3g} GPU h" if entry.gpu_hours else ""
    money = f", {entry.money:.3g} {prices.currency}" if prices and entry.money is not None else ""
    first = [
        f"**{name_by_alternative(entry)}**: {objective} {objective.format_figure(entry.figure, DIGITS)}",
        *([f"margin {margin:.1f} {objective.margin_unit}"] if margin is not None else []),
        format_parameters(entry.sizes.parameters if entry.sizes else 0, is_short=True),
        f"{entry.cpu_hours:.3g} core h{gpu}{money}",
    ]
    above = entry.above_ideal
    ideal = "" if above is None else f" {100 * above:,.1f} % above the ideal perplexity."
    return f"{'Undecided. ' if verdict.is_undecided else ''}{', '.join(first)}. {verdict.text}{ideal}"


def describe_champion(registration: Registration | None) -> str:
    """What the registry decided, with a link to the version; None where no trial has a checkpoint."""
    if registration is None:
        return "**Registry.** No new version: no trial with a validation has a checkpoint."
    version = registration.champion or registration.version
    if version is None:
        return f"**Registry.** No new version: {registration.reason}."
    link = f"[{version.uri}]({make_version_link(version.corpus, version.version)})"
    role = "registered, and the champion stays"
    if registration.champion:
        role = f"the champion `models:/{version.corpus}@{version.alias}`"
    return f"**Registry.** {link} is {role}: {registration.reason}."


def format_alternatives(view: StudyView) -> str:
    """The best trial of each alternative: figure, distance to the ideal, sizes, use, seeds and end."""
    objective, prices = view.objective, view.terms.prices
    unit = view.trials[0].unit
    header = ["trial", "model", f"validation {objective} ({objective.direction} is better)"]
    header += ["above ideal"] if view.ideal is not None else []
    header += ["parameters", "carried state", unit, "core hours", "GPU hours"]
    header += [f"cost, {prices.currency}"] if prices else []
    header += ["seeds", "ended"]
    rows = []
    for found in view.find_bests():
        entry = make_entry(view, found)
        row = [name_by_alternative(entry), entry.model]
        row += [entry.estimate.format(objective, DIGITS)]
        row += [] if entry.above_ideal is None else [f"{100 * entry.above_ideal:,.1f} %"]
        row += [f"{entry.sizes.parameters:,}", f"{entry.sizes.state:,}"] if entry.sizes else ["", ""]
        row += [f"{entry.tokens:,}", f"{entry.cpu_hours:.4g}", f"{entry.gpu_hours:.4g}"]
        row += [] if entry.money is None else [f"{entry.money:.4g}"]
        rows.append([*row, str(entry.estimate.seeds), found.best.state.label])
    return format_markdown_table(header, rows)


def format_states(cost: StudyCost) -> str:
    """The trials by state, then the repeats, and what they used."""
    header = ["state", "trials", cost.unit, "core hours", "GPU hours"]
    header += [f"cost, {cost.currency}"] if cost.currency else []
    rows = []
    for row in (*cost.by_state, cost.total):
        cells = [row.group, f"{row.trials:,}", f"{row.tokens:,}", f"{row.cpu_hours:.4g}"]
        rows.append([*cells, f"{row.gpu_hours:.4g}", *([] if row.money is None else [f"{row.money:.4g}"])])
    return format_markdown_table(header, rows)


def format_markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; a vertical bar in a cell is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
