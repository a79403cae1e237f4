"""Points of a space from earlier studies: those to try first, and those of a prior.

Only their order within their study counts, so that study may have another corpus, task or budget.
"""

import logging
import math
from collections import Counter
from collections.abc import Collection

from memtune.errors import ConfigurationError, PluginError, StudyError
from memtune.number_format import format_count
from memtune.search.study_reader import StoredStudy, StudyReader
from memtune.search.trial_store import StoredTrial
from memtune.spaces import FAMILY_FIELD, Scalar, Space, adapt_point
from memtune.trial_state import TrialState
from memtune.values import digest, flatten

log = logging.getLogger(__name__)

BEST_PER_FAMILY = 3
PRIOR_SHARE = 0.1
"""The share of a study's complete trials that a prior takes."""


def list_warm_start_points(storage_url: str, study: str, space: Space) -> list[dict[str, Scalar]]:
    """The parameters, by name, of the best configurations of a study in the storage.

    Raises StudyError for an unknown study, and for one without a trial that fits the space.
    """
    points = select_best_points(StudyReader(storage_url).read(study), space)
    if not points:
        raise StudyError(
            f"warm_start: no trial of study {study} with a validation is of a family of {space.source}; "
            "choose another study, or leave warm_start out"
        )
    return points


def select_best_points(study: StoredStudy, space: Space) -> list[dict[str, Scalar]]:
    """The best three of each family in turn: complete trials first, then those that were stopped later."""
    seen, placed = Counter[str](), list[tuple[int, dict[str, Scalar]]]()
    for outcome in _order(study):
        family = outcome.family
        if seen[family] < BEST_PER_FAMILY and family in _list_families(space, family):
            placed.append((seen[family], _adapt(outcome, space)))
            seen[family] += 1
    points = [point for _, point in sorted(placed, key=lambda found: found[0]) if point]
    return [point for index, point in enumerate(points) if point not in points[:index]]


def list_prior_points(storage_url: str, space: Space, study: str) -> list[tuple[dict[str, Scalar], str]]:
    """Family and training of the best tenth of all studies in the storage but `study`, by their rank.

    Of equal rank, those of the newest study come first. Each point has parameters by name and its study, with
    how many of its complete trials are good. A study that this version of memtune cannot read is left out
    with a warning.
    """
    reader, ranked = StudyReader(storage_url), list[tuple[float, StoredTrial, str]]()
    for other in reversed(reader.list_ids()):
        if other == study:
            continue
        try:
            complete = [o for o in _order(reader.read(other)) if o.state is TrialState.COMPLETE]
            for outcome in complete:
                outcome.config  # noqa: B018
        except (ConfigurationError, PluginError, StudyError) as error:
            log.warning("study %s is left out of the prior: %s", other, error)
            continue
        shares = [place / len(complete) for place in range(len(complete))]
        taken = sum(share < PRIOR_SHARE for share in shares)
        source = f"{other} (the best {taken} of {format_count(len(complete), 'complete trial')})"
        ranked += [(share, o, source) for share, o in zip(shares, complete, strict=True)]
    ranked.sort(key=lambda each: each[0])
    known = {outcome.family for _, outcome, _ in ranked}
    good = [(outcome, source) for share, outcome, source in ranked if share < PRIOR_SHARE]
    once: dict[str, tuple[StoredTrial, str]] = {}
    for outcome, source in good:
        once.setdefault(outcome.identity, (outcome, source))  # other studies have reused it
    return [(p, source) for found, source in once.values() for p in make_prior_points(found, space, known)]


def make_prior_points(outcome: StoredTrial, space: Space, known: Collection[str]) -> list[dict[str, Scalar]]:
    """Family and training of a good outcome as points of the space; `known` are the families that were tried.

    The model is left out: the best one depends on the corpus more than the best training does. The families
    that were not tried take the training too, in a point that chooses no family, because nothing is known of
    how good these are.
    """
    training = {name: v for name, v in flatten(outcome.configuration) if name.startswith("training.")}
    own: dict[str, Scalar] = {}
    if outcome.family in _list_families(space, outcome.family):
        own = adapt_point(space, {FAMILY_FIELD: outcome.family, **training})
    lent: dict[str, Scalar] = {}
    for family in _list_families(space, ""):
        if family not in known:
            choice = adapt_point(space, {FAMILY_FIELD: family})
            point = adapt_point(space, {FAMILY_FIELD: family, **training})
            lent |= {name: value for name, value in point.items() if name not in choice}
    return [point for point in (own, lent) if point]


def _list_families(space: Space, family: str) -> list[Scalar]:
    """The families of a space; a space that does not fix its family may have any."""
    choices = [option for choice in space.family_choices() for option in choice.values()]
    return choices or [space.family or family]


def _adapt(outcome: StoredTrial, space: Space) -> dict[str, Scalar]:
    searched = {FAMILY_FIELD, *(parameter.field for parameter in space.parameters())}
    fields = {name: value for name, value in flatten(outcome.configuration) if name in searched}
    return adapt_point(space, fields)


def _order(study: StoredStudy) -> list[StoredTrial]:
    """The validated trials: complete ones first, best first, then those that were stopped later.

    A complete one that diverged, itself or in a repeat, comes after the others of its length.
    """
    diverged = {_identify_repeated(trial) for trial in study.trials if trial.has_diverged}

    def rank(outcome: StoredTrial) -> tuple[bool, int, bool, float, int]:
        tokens, value = list(outcome.curve.items())[-1]
        is_complete = outcome.state is TrialState.COMPLETE and outcome.value is not None
        final = outcome.value if is_complete and outcome.value is not None else value
        return (
            not is_complete,
            0 if is_complete else -tokens,
            _identify_repeated(outcome) in diverged,
            math.inf if math.isnan(final) else final,
            outcome.number,
        )

    return sorted((trial for trial in study.outcomes if trial.curve), key=rank)


def _identify_repeated(trial: StoredTrial) -> str:
    varied = ("seed", "training.precision")  # in which repeats differ from their trial
    return digest([[name, value] for name, value in flatten(trial.configuration) if name not in varied])
