"""Which family of a study wins at a larger budget."""

from memtune.arguments import check_type
from memtune.errors import StudyError
from memtune.objective import Objective
from memtune.results.insight.scaling_laws import ScalingReport, compare_scaling
from memtune.results.insight.study_catalogue import (
    find_study,
    get_objective,
    number_trials,
    open_study_corpus,
)
from memtune.results.insight.study_trials import list_study_trials
from memtune.settings import Settings
from memtune.studies.definition.study_terms import read_stored_terms
from memtune.training import TrialConfig

__all__ = ["extrapolate_study"]


def extrapolate_study(study: str, factor: float = 10.0, settings: Settings | None = None) -> ScalingReport:
    """Loss against size and data of a study's families, and their comparison at `factor` times its compute.

    Raises StudyError for an unknown study, and for one without at least three sizes of each family, three
    reports of a training, a constant schedule and perplexity as its objective.

    >>> extrapolate_study("ladder").families[0].family
    """
    check_type("factor", factor, (int, float), "a number, such as 10 for ten times the compute")
    if not factor >= 1:
        raise StudyError(f"factor must be at least 1, got {factor}")
    settings = Settings.resolve(settings)
    stored = find_study(study, settings)
    objective = get_objective(stored)
    if objective is not Objective.PERPLEXITY:
        raise StudyError(f"{stored.id} has accuracies; a scaling law is fitted to perplexities")
    for outcome in stored.outcomes:
        training = TrialConfig.model_validate(outcome.configuration).training
        if training is not None and training.schedule.kind != "constant":
            raise StudyError(
                f'{stored.id}, trial {outcome.number}: with schedule.kind = "{training.schedule.kind}" '
                'its reports are not shorter trainings; train with schedule = { kind = "constant" }'
            )
    terms = read_stored_terms(settings.studies_folder, stored.id)
    corpus = open_study_corpus(terms.corpus, settings)
    if corpus is None:
        raise StudyError(f"the corpus {terms.corpus} of {stored.id} is not in the store; import it again")
    trials = list_study_trials(stored, None, number_trials(stored), objective, corpus)
    return compare_scaling([trial for trial in trials if trial.curve], factor)
