"""The conclusion of a study: tests of the winner, what is registered and recorded, and its description."""

import logging
from collections.abc import Callable, Iterable, Sequence

import torch

from memtune.errors import CheckpointError, CorpusError, StorageError
from memtune.number_format import format_parameters
from memtune.results.registration import StudyAnswer, register_trial_model, wait_for_records
from memtune.results.study.alternative_comparison import select_compared
from memtune.results.study.ranking import DIGITS, Configuration, Ranking
from memtune.results.study.study_leaderboard import make_entry
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView
from memtune.results.study.verdicts import Verdict, judge_study
from memtune.seed_statistics import Estimate
from memtune.spaces import FAMILY_FIELD
from memtune.storage.folder import Folder
from memtune.studies.budgets import StudyCost
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.study_run import Conclusion
from memtune.tasks import ItemCosts
from memtune.tracking import Recorder, Registration, list_champions, make_version_link, record_conclusion

log = logging.getLogger(__name__)

MAX_TAGGED = 20
"""Configurations whose runs are tagged with their rank: each run takes a request."""
MANY_COMPARED = 4
"""More alternatives take a while to evaluate."""


def conclude_study(
    study: ResolvedStudy, view: StudyView, recorder: Recorder, notify: Callable[[str], object]
) -> Conclusion | None:
    """Rank a study's trials and repeats, test the winner, register the best models and record all of it.

    None when no trial has a validation. The winner becomes the champion of its label if it
    is better than the present one; the best trial of every other family is registered as the best of it.
    What takes long is told to `notify` before.
    """
    eligible = view.eligible
    if eligible is None:
        return None
    wait_for_records(recorder, study.settings)
    verdict, tests = _judge_and_test(study, view, eligible, notify)
    text = describe_answer(view, verdict, eligible.winner)
    answer = StudyAnswer(question=study.study.question, answer=text)
    has_winner = eligible.winner.place is not None and not verdict.is_undecided
    registration = _register_winner(study, eligible, answer if has_winner else None)
    for found in view.find_bests(lambda trial: trial.family):
        if found.best.family != eligible.winner.best.family:
            _register(study, found.best, found.estimate, None)
    rule = f"{eligible.winner.title} is the study's best: {view.champion_rule}"
    rules = (rule,) if study.study.champion.is_set else ()
    statements = (*rules, verdict.text, *tests)
    _log_figures(view, recorder, eligible.winner, verdict)
    description = describe_conclusion(view, answer, (*rules, *tests), registration)
    _record(view, verdict, statements, description)
    return Conclusion(registration, statements)


def _register_winner(
    study: ResolvedStudy, ranking: Ranking[StudyTrial], answer: StudyAnswer | None
) -> Registration | None:
    """Offer the winner, or the next trial with a checkpoint, as `_register` does; None where none has one."""
    # The registered weights are those of the best-validated seed, because a user wants the best model; the
    # number that is reported everywhere is the mean over seeds, because it is what the configuration gives.
    configurations = (*ranking.configurations, *ranking.short)
    for trial, estimate in ((trial, found.estimate) for found in configurations for trial in found.trials):
        if registration := _register(study, trial, estimate, answer):
            return registration
        champions = list_champions(study.settings.tracking_uri, study.corpus.name)
        if (study.id, trial.identity) in {(champion.study, champion.trial) for champion in champions}:
            reason = f"it is trial {trial.name}, whose checkpoint is missing"
            return Registration(champion=None, reason=reason)
    return None


def _register(
    study: ResolvedStudy, trial: StudyTrial, estimate: Estimate, answer: StudyAnswer | None
) -> Registration | None:
    """Offer a trial to the registry; None, with a warning, where its checkpoints are damaged or missing.

    With the study's `answer` it competes to be champion, otherwise to be the best of its family alone.
    """
    checkpoints, tokens = Checkpoints(study.checkpoint_root, trial.identity), max(trial.curve)
    try:
        return register_trial_model(
            study.settings,
            study.corpus,
            study.id,
            checkpoints,
            estimate,
            as_champion=answer is not None,
            max_tokens=tokens,
            answer=answer,
        )
    except CheckpointError as error:
        log.warning("the model of trial %s cannot be registered: %s", trial.name, error)
        return None


def _judge_and_test(
    study: ResolvedStudy, view: StudyView, ranking: Ranking[StudyTrial], notify: Callable[[str], object]
) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict, as in the study's report, and the tests that it rests on, in words."""
    compared = select_compared(ranking)
    if len(compared) > MANY_COMPARED:
        notify(f"evaluates the best of {len(compared)} alternatives on each item of the validation split")
    for found in compared:
        try:
            _store_item_costs(study, found.best)  # before the verdict, which reads them
        except (CheckpointError, StorageError, CorpusError) as error:
            log.warning("%s is not compared on validation items: %s", found.best.name, error)
    verdict = judge_study(view)
    assert verdict is not None, "a study with a ranking has a verdict"
    tests = tuple(
        f"{names}: {test.describe(view.objective)}"
        for other in verdict.comparisons
        for names, test in (
            (f"{ranking.winner.title} against {other.name}", other.by_seeds),
            (f"as trained models alone, {' against '.join(other.models)}", other.by_items),
        )
        if test is not None
    )
    return verdict, tests


def _store_item_costs(study: ResolvedStudy, trial: StudyTrial) -> None:
    """Store the costs of the validation split's items under a trial's best weights, computed once."""
    folder = Folder.open(study.checkpoint_root) / trial.identity
    cost = min(trial.curve.values())
    if ItemCosts.read(folder, cost) is not None:
        return
    checkpoint = Checkpoints(study.checkpoint_root, trial.identity).read(max(trial.curve))
    config, model = checkpoint.record.config, checkpoint.build_best_model()
    device = study.limits.select_device(config) if torch.cuda.is_available() else "cpu"
    task = config.task.open(study.corpus, config.protocol)
    task.compute_item_costs(model.to(device), "valid", device).store(folder, cost)


def _log_figures(
    view: StudyView, recorder: Recorder, winner: Configuration[StudyTrial], verdict: Verdict
) -> None:
    """Record the winner's figure and its margin among the metrics of the study's run."""
    objective = view.objective
    figures = {f"winner_valid_{objective}": objective.compute_figure(winner.estimate.cost)}
    if interval := winner.estimate.compute_interval(objective):
        low, high = interval
        figures |= {f"winner_valid_{objective}_low": low, f"winner_valid_{objective}_high": high}
    if verdict.comparisons and (margin := verdict.comparisons[0].margin) is not None:
        figures["margin_percent"] = margin
    tokens = sum(outcome.usage.tokens for outcome in view.stored.trials)
    recorder.log_reports(None, [{"tokens": tokens, **figures}])


def _record(view: StudyView, verdict: Verdict, statements: Sequence[str], description: str) -> None:
    """Store the conclusion on the runs of the study and of its trials."""
    winner = view.best
    assert winner is not None, "a study with a verdict has a best configuration"
    tags = {
        "winner": f"undecided: {winner.best.name}" if verdict.is_undecided else winner.best.name,
        "winner_trial": winner.best.identity,
        "winner_figure": winner.estimate.describe(view.objective, DIGITS, is_counted=winner.best.is_counted),
        "tests": "\n".join(statements),
    }
    record_conclusion(
        view.settings.tracking_uri,
        view.terms.corpus,
        view.id,
        tags,
        _make_trial_tags(view),
        description,
    )


def _make_trial_tags(view: StudyView) -> dict[str, dict[str, str]]:
    """The alternative of each trial, whether it is its best, and rank and figure, by the trial's identity."""
    ranking, objective = view.ranking, view.objective
    assert ranking is not None, "a study with a verdict has a ranking"
    tags = {trial.identity: {"alternative": trial.alternative} for trial in view.trials}
    for best in view.find_bests():
        tags[best.best.identity]["best_of_family"] = "yes"
    for found in ranking.configurations[:MAX_TAGGED]:
        rank = str(found.place) if found.place else "fewer seeds"
        figure = found.estimate.describe(objective, DIGITS, is_counted=found.best.is_counted)
        for trial in found.trials:
            tags[trial.identity] |= {"rank": rank, "figure": figure}
    for short in ranking.short[:MAX_TAGGED]:
        tags[short.best.identity] |= {"rank": "ended early", "figure": short.explain()}
    return tags


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
        f"**{entry.name}**: {objective} {objective.format_figure(entry.figure, DIGITS)}",
        *([f"margin {margin:z.1f} {objective.margin_unit}"] if margin is not None else []),
        format_parameters(entry.sizes.parameters if entry.sizes else 0, is_short=True),
        *([] if entry.cpu_hours is None else [f"{entry.cpu_hours:.3g} core h{gpu}{money}"]),
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
    if (version.alias or "").startswith("champion"):
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
        row = [entry.name, entry.model]
        row += [entry.estimate.format(objective, DIGITS)]
        row += [] if entry.above_ideal is None else [f"{100 * entry.above_ideal:,.1f} %"]
        row += [f"{entry.sizes.parameters:,}", f"{entry.sizes.state:,}"] if entry.sizes else ["", ""]
        amounts = [entry.cpu_hours, entry.gpu_hours, *([entry.money] if prices else [])]
        row += [f"{entry.tokens:,}", *("" if amount is None else f"{amount:.4g}" for amount in amounts)]
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
