"""The conclusion of a study: its ranking, the tests of the winner, and what is registered and recorded."""

import logging
from collections.abc import Iterator, Sequence

import torch

from memtune.errors import CheckpointError, CorpusError, StorageError
from memtune.estimate import Estimate
from memtune.results.descriptions.registry_descriptions import StudyAnswer
from memtune.results.descriptions.study_description import describe_answer, describe_study, list_family_bests
from memtune.results.insight.champion_rule import apply_limits, describe_rule
from memtune.results.insight.ranked_trials import list_ranked_trials
from memtune.results.promotion import register_trial_model, wait_for_records
from memtune.results.ranking.paired_tests import compare_items
from memtune.results.ranking.seed_tests import compare_configurations
from memtune.results.ranking.selection import RankedConfiguration, RankedTrial, Ranking, rank_trials
from memtune.results.reporting.stored_costs import read_stored_costs, write_stored_costs
from memtune.results.reporting.verdicts import judge_winner
from memtune.search import Outcome
from memtune.storage.folder import Folder
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.study_run import Conclusion
from memtune.tasks import ItemCosts, open_task
from memtune.tracking import PromotionResult, Recorder, list_champions, record_conclusion
from memtune.training import load_best_model, read_checkpoint

__all__ = ["conclude_study", "rank_outcomes"]

DEFAULT_BASELINE = "lstm"
MAX_TAGGED = 20
"""Configurations whose runs are tagged with their rank: each run takes a request."""
DIGITS = 3

log = logging.getLogger(__name__)


def conclude_study(
    study: ResolvedStudy, recorder: Recorder, outcomes: Sequence[Outcome], repeats: Sequence[Outcome]
) -> Conclusion | None:
    """Rank a study's trials and repeats, test the winner, register the best models and record all of it.

    None when no trial with a validation has a checkpoint. The winner becomes the champion of its label if it
    is better than the present one; the best trial of every other family is registered as the best of it.
    """
    ranking = rank_outcomes(study, outcomes, repeats)
    if ranking is None:
        return None
    limits = study.study.champion
    eligible = apply_limits(ranking, limits, [*outcomes, *repeats], study.corpus)
    wait_for_records(recorder, study.settings)
    trials = [*outcomes, *repeats]
    answer = StudyAnswer(question=study.study.question, answer=describe_answer(study, eligible, trials))
    promotion = _register_winner(study, eligible, answer)
    if promotion is None:
        return None
    _register_families(study, ranking, eligible.winner.best.family)
    statements = tuple(_judge_and_test_winner(study, eligible))
    if limits.is_set:
        rule = describe_rule(limits, are_met=eligible is not ranking)
        statements = (f"{eligible.winner.title} is the study's best: {rule}", *statements)
    _log_figures(study, recorder, eligible, trials)
    description = describe_study(study, answer, ranking, trials, statements, promotion)
    _record(study, ranking, eligible.winner, statements, description)
    return Conclusion(promotion, statements)


def _register_winner(study: ResolvedStudy, ranking: Ranking, answer: StudyAnswer) -> PromotionResult | None:
    """Offer the winner to the registry, or the next trial that has a checkpoint; None where none has one."""
    # The registered weights are those of the best-validated seed, because a user wants the best model; the
    # number that is reported everywhere is the mean over seeds, because it is what the configuration gives.
    seeds = [(trial, found.estimate) for found in ranking.configurations for trial in found.trials]
    short = [(found.trial, Estimate(cost=found.cost)) for found in ranking.short]
    for trial, estimate in seeds + short:
        if promotion := _register(study, trial, estimate, answer):
            return promotion
        if _is_champion(study, trial):
            reason = f"it is trial {trial.name}, whose checkpoint is missing"
            return PromotionResult(champion=None, reason=reason)
    return None


def _is_champion(study: ResolvedStudy, trial: RankedTrial) -> bool:
    """Whether the trial's model is a champion already: the registry has its own copy of the weights."""
    champions = list_champions(study.settings.tracking_uri, study.corpus.name)
    return (study.id, trial.identity) in {(champion.study, champion.trial) for champion in champions}


def _register(
    study: ResolvedStudy, trial: RankedTrial, estimate: Estimate, answer: StudyAnswer | None
) -> PromotionResult | None:
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


def rank_outcomes(
    study: ResolvedStudy, outcomes: Sequence[Outcome], repeats: Sequence[Outcome] = ()
) -> Ranking | None:
    """The ranking of a study's trials and repeats; None when none has a finite validation."""
    epoch_tokens = study.open_task().epoch_tokens
    return rank_trials(list_ranked_trials(study.id, outcomes, repeats, lambda config: epoch_tokens))


def _register_families(study: ResolvedStudy, ranking: Ranking, registered: str) -> None:
    """Register the best trial of each family other than the one that is registered already."""
    for family, (trial, estimate) in _find_family_bests(ranking).items():
        if family != registered:
            _register(study, trial, estimate, None)


def _find_family_bests(ranking: Ranking) -> dict[str, tuple[RankedTrial, Estimate]]:
    """The best trial of each family with its estimate; the furthest one where none has full length."""
    found: dict[str, tuple[RankedTrial, Estimate]] = {}
    for configuration in ranking.configurations:
        found.setdefault(configuration.best.family, (configuration.best, configuration.estimate))
    for short in ranking.short:
        found.setdefault(short.trial.family, (short.trial, Estimate(cost=short.cost)))
    return found


def _judge_and_test_winner(study: ResolvedStudy, ranking: Ranking) -> tuple[str, ...]:
    """The verdict, as in the study's report, and the tests that it rests on."""
    tests = tuple(_test_winner(study, ranking))  # first, because they store the costs that the verdict reads
    verdict = judge_winner(ranking, study.open_task().objective, study.checkpoint_root)
    return (f"{verdict.headline} {verdict.advice}".strip(), *tests)


def _test_winner(study: ResolvedStudy, ranking: Ranking) -> Iterator[str]:
    """The tests of the winner against the runner-up and the baseline, in words."""
    winner, compared = ranking.winner, _find_compared(study, ranking)
    for role, other in compared.items():
        objective = study.open_task().objective
        if by_seeds := compare_configurations(winner, other):
            yield f"{winner.title} against the {role} {other.title}: {by_seeds.describe(objective)}"
        subject = f"{_get_title(winner)} against the {role} {_get_title(other)}"
        try:
            first, second = (_load_item_costs(study, found.best) for found in (winner, other))
            yield f"{subject}: {compare_items(first, second).describe(objective)}"
        except (CheckpointError, StorageError, CorpusError) as error:
            log.warning("%s: not tested: %s", subject, error)


def _find_compared(study: ResolvedStudy, ranking: Ranking) -> dict[str, RankedConfiguration]:
    """The configurations that the winner is tested against, by their role."""
    compared = {"runner-up": ranking.runner_up}
    baseline = ranking.find_best(study.study.baseline or DEFAULT_BASELINE)
    if baseline not in (ranking.winner, ranking.runner_up):
        compared["baseline"] = baseline
    return {role: other for role, other in compared.items() if other is not None}


def _load_item_costs(study: ResolvedStudy, trial: RankedTrial) -> ItemCosts:
    """The costs of the validation split's items under a trial's best weights, computed once."""
    folder = Folder.open(study.checkpoint_root) / trial.identity
    cost = min(trial.curve.values())
    if stored := read_stored_costs(folder, cost):
        return stored
    found = _compute_item_costs(study, trial)
    write_stored_costs(folder, cost, found)
    return found


def _compute_item_costs(study: ResolvedStudy, trial: RankedTrial) -> ItemCosts:
    checkpoints = Checkpoints(study.checkpoint_root, trial.identity)
    with checkpoints.open_newest(max(trial.curve)) as folder:
        config, model = read_checkpoint(folder).record.config, load_best_model(folder)
    device = study.select_device(config) if torch.cuda.is_available() else "cpu"
    task = open_task(config.task, study.corpus, config.protocol)
    return task.compute_item_costs(model.to(device), "valid", device)


def _get_title(configuration: RankedConfiguration) -> str:
    return f"{configuration.best.family} {configuration.best.name}"


def _log_figures(
    study: ResolvedStudy, recorder: Recorder, ranking: Ranking, outcomes: Sequence[Outcome]
) -> None:
    """Record the winner's figure and its margin among the metrics of the study's run."""
    objective, winner = study.open_task().objective, ranking.winner
    figures = {f"winner_valid_{objective}": objective.compute_figure(winner.estimate.cost)}
    if interval := winner.estimate.compute_interval(objective):
        low, high = interval
        figures |= {f"winner_valid_{objective}_low": low, f"winner_valid_{objective}_high": high}
    if other := ranking.runner_up:
        costs = winner.estimate.cost, other.estimate.cost
        figures["margin_percent"] = objective.compute_margin(*costs)
    recorder.log_study_figures(figures, sum(outcome.usage.tokens for outcome in outcomes))


def _record(
    study: ResolvedStudy,
    ranking: Ranking,
    winner: RankedConfiguration,
    statements: Sequence[str],
    description: str,
) -> None:
    """Store the conclusion on the runs of the study and of its trials."""
    objective = study.open_task().objective
    tags = {
        "winner": _get_title(winner),
        "winner_trial": winner.best.identity,
        "winner_figure": winner.estimate.describe(objective, DIGITS),
        "tests": "\n".join(statements),
    }
    record_conclusion(
        study.settings.tracking_uri,
        study.corpus.name,
        study.id,
        tags,
        dict(_make_trial_tags(study, ranking)),
        description,
    )


def _make_trial_tags(study: ResolvedStudy, ranking: Ranking) -> Iterator[tuple[str, dict[str, str]]]:
    """The rank and the figure of each trial, and whether it is the best of its family, by its identity."""
    objective = study.open_task().objective
    bests = {trial.identity: {"best_of_family": "yes"} for trial, _, _ in list_family_bests(ranking)}
    for place, configuration in enumerate(ranking.configurations[:MAX_TAGGED], start=1):
        rank = str(place) if place <= len(ranking.ranked) else "fewer seeds"
        figure = configuration.estimate.describe(objective, DIGITS)
        for trial in configuration.trials:
            yield trial.identity, {"rank": rank, "figure": figure, **bests.pop(trial.identity, {})}
    for short in ranking.short[:MAX_TAGGED]:
        figure = short.describe(objective, DIGITS)
        tags = {"rank": "ended early", "figure": figure, **bests.pop(short.trial.identity, {})}
        yield short.trial.identity, tags
    yield from bests.items()
