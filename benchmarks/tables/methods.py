"""The searches that are compared, by name."""

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.tables.curve_table import Curve
from benchmarks.tables.memtune_search import open_director
from benchmarks.tables.simulation import DirectorSearch, Search
from benchmarks.tables.space_priors import Points, add_prior_points, list_good_points
from benchmarks.tables.syne_tune_search import SyneTuneSearch
from memtune.search import SAMPLERS, EarlyStopping, Proposals, SamplerConfig
from memtune.search.early_stopping import RULES
from memtune.search.proposals import Candidates
from memtune.search.samplers.prior_trials import MAX_PRIOR_POINTS
from memtune.search.warm_start import make_prior_points
from memtune.spaces import FAMILY_FIELD, Space, adapt_point, draw_prior_points
from memtune.values import digest, flatten

__all__ = ["METHODS", "SearchTask"]

MAX_TRIALS = 10**6
"""More than the tokens of a search allow."""


@dataclass(frozen=True)
class SearchTask:
    """What a method searches: a space, the reports of a trial, the seed and the budget of the search."""

    space: Space
    report_tokens: tuple[int, ...]
    seed: int
    max_trainings: int
    """Budget of the search in full trainings."""
    known: tuple[Curve, ...] = ()
    """Trainings on other tables of configurations that this one has not, by rank there, the best first."""

    @property
    def trial_tokens(self) -> int:
        """Tokens of a full training."""
        return self.report_tokens[-1]


ListPrior = Callable[[SearchTask], Points]
OpenSearch = Callable[[SearchTask], AbstractContextManager[Search]]


def use_memtune(
    rule: str = "successive_halving",
    first_rung: float | None = None,
    list_prior: ListPrior = lambda task: (),
    **settings: Any,
) -> OpenSearch:
    """memtune with an early-stopping rule; settings of the sampler start with "sampler_".

    `first_rung` is a share of a trial's tokens; None: the default of the rule. `list_prior` gives the points
    of the prior.
    """
    sampler = _select(settings, "sampler_")
    stopping = {name: value for name, value in settings.items() if not name.startswith("sampler_")}

    @contextmanager
    def open_search(task: SearchTask) -> Iterator[Search]:
        grace = {} if first_rung is None else {"grace": max(1, math.ceil(first_rung * task.trial_tokens))}
        config = RULES[rule].model_validate({"kind": rule, **grace, **stopping})
        config = config.fill_defaults(task.report_tokens[0], task.trial_tokens)
        with tempfile.TemporaryDirectory(prefix="memtune-replay-", dir=_find_memory_folder()) as folder:
            sampled = SAMPLERS[sampler.get("kind", "tpe")](seed=task.seed, **sampler)
            proposals = _open_proposals(folder, task, sampled, list_prior(task))
            yield _open_director_search(proposals, config, task)

    return open_search


def _find_memory_folder() -> str | None:
    """A folder in memory, or None: syncing a journal that nothing reads later takes half of a replay."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _select(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): v for name, v in settings.items() if name.startswith(prefix)}


def _list_best_tenth(task: SearchTask) -> Points:
    return [point for curve in _take_tenth(task.known) for point in _make_points(task, curve)]


def _list_worst_tenth(task: SearchTask) -> Points:
    return [point for curve in _take_tenth(task.known[::-1]) for point in _make_points(task, curve)]


def _list_configurations(task: SearchTask) -> Points:
    """The best tenth with what it says of the models."""
    searched, points = {FAMILY_FIELD, *(found.field for found in task.space.parameters())}, list[Any]()
    for curve in _take_tenth(task.known):
        fields = {name: value for name, value in flatten(curve.configuration) if name in searched}
        whole = adapt_point(task.space, fields)
        points += [whole if point.items() <= whole.items() else point for point in _make_points(task, curve)]
    return points


def _take_tenth(ranked: Sequence[Curve]) -> Sequence[Curve]:
    return ranked[: len(ranked) // 10]


def _make_points(task: SearchTask, curve: Curve) -> Points:
    """As of a trial of an earlier study; of those it needs what a curve has too."""
    outcome: Any = curve
    return make_prior_points(outcome, task.space, {curve.family for curve in task.known})


def _draw_from_priors_of_spaces(task: SearchTask, known: Sequence[Curve] | None = None) -> Points:
    points = list_good_points([task.space], known or task.known)
    return draw_prior_points(add_prior_points(task.space, points), MAX_PRIOR_POINTS)


def _draw_from_wrong_priors_of_spaces(task: SearchTask) -> Points:
    return _draw_from_priors_of_spaces(task, task.known[::-1])


def _open_proposals(folder: str, task: SearchTask, sampler: SamplerConfig, prior: Points) -> Proposals:
    return Proposals(
        f"journal://{folder}/study.log",
        "replay",
        Candidates(
            task.space,
            sampler,
            identify=lambda configuration: digest(configuration)[:16],
            get_refusal_reason=lambda configuration: None,
            list_prior_points=lambda: prior,
        ),
    )


def _open_director_search(proposals: Proposals, rule: EarlyStopping, task: SearchTask) -> DirectorSearch:
    director = open_director(proposals, rule, task.trial_tokens, MAX_TRIALS)
    return DirectorSearch(director, task.report_tokens)


def use_ray_tune(factor: int) -> OpenSearch:
    """OptunaSearch and ASHA with a reduction factor."""

    @contextmanager
    def open_search(task: SearchTask) -> Iterator[Search]:
        # Imported here: Ray takes seconds to import, and the other methods do not need it.
        from benchmarks.tables.ray_tune_search import RayTuneSearch

        yield RayTuneSearch(task.space, len(task.report_tokens), task.seed, factor)

    return open_search


def use_syne_tune(method: str) -> OpenSearch:
    """A scheduler of Syne Tune."""
    return lambda task: SyneTuneSearch(task.space, len(task.report_tokens), task.seed, method)


SOBOL: dict[str, Any] = {"sampler_startup": "sobol", "sampler_startup_trials": 20}
EXTRAPOLATED: dict[str, Any] = {"sampler_stopped_trials": "extrapolated"}
METHODS: dict[str, OpenSearch] = {
    "random": use_memtune("none", sampler_kind="random"),
    "Ray Tune, factor 3": use_ray_tune(3),
    "Ray Tune, factor 4": use_ray_tune(4),
    "Syne Tune ASHA, stopping": use_syne_tune("asha-stopping"),
    "Syne Tune ASHA, promotion": use_syne_tune("asha-promotion"),
    "memtune: TPE, promotion from a quarter": use_memtune("promotion"),
    "memtune: TPE, halving from a quarter": use_memtune(),
    "prior of the other tables": use_memtune(list_prior=_list_best_tenth),
    "configurations of the other tables": use_memtune(list_prior=_list_configurations),
    "priors of the spaces": use_memtune(list_prior=_draw_from_priors_of_spaces),
    "wrong priors of the spaces": use_memtune(list_prior=_draw_from_wrong_priors_of_spaces),
    "wrong prior": use_memtune(list_prior=_list_worst_tenth),
    "TPE, halving from a quarter, cap 4": use_memtune(max_survivors=4),
    "TPE, halving from a quarter, shared rungs": use_memtune(per_family=False),
    "TPE, halving from a quarter, Sobol 20": use_memtune(**SOBOL),
    "TPE, halving from a quarter, extrapolated": use_memtune(**EXTRAPOLATED),
    "TPE, halving from a third": use_memtune(first_rung=1 / 3),
    "TPE, halving from a half": use_memtune(first_rung=1 / 2),
    "TPE, halving from a sixth": use_memtune(first_rung=1 / 6),
    "TPE, halving from the first report": use_memtune(first_rung=0.0),
    "TPE, Hyperband": use_memtune("hyperband"),
    "TPE, Hyperband, no cap": use_memtune("hyperband", max_survivors=None),
    "TPE, Hyperband, shared rungs": use_memtune("hyperband", per_family=False),
    "TPE, promotion of halves, no cap": use_memtune("promotion", factor=2, max_survivors=None),
    "TPE, no early stopping": use_memtune("none"),
    "random, halving from a quarter": use_memtune(sampler_kind="random"),
    "Sobol, halving from a quarter": use_memtune(sampler_kind="qmc"),
    "GP, halving from a quarter": use_memtune(sampler_kind="gp"),
    "Syne Tune MOBSTER": use_syne_tune("mobster-stopping"),
}
