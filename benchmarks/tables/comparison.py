"""Runs of search methods on a landscape, and what they cost to come near its best configuration.

A search has reached a goal once the configuration with the lowest reported cost is as good as that without
the noise of its seed; a lucky seed does not count. ERT is the expected running time of Hansen et al. (2009):
tokens that all runs spent, up to the goal or to the end of their budget, over the number of runs that
reached it. Tokens are counted in full trainings.
"""

import json
import math
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.tables.curve_table import FOLDER, Curve, CurveTable, read_table
from benchmarks.tables.landscape import Landscape
from benchmarks.tables.methods import METHODS, SearchTask
from benchmarks.tables.simulation import Observation, Simulation
from memtune.spaces import Space, combine_spaces
from memtune.studies.definition.study import Study
from memtune.studies.definition.study_loader import check_spaces
from memtune.values import digest

__all__ = [
    "GOALS",
    "Run",
    "compute_ert",
    "estimate_ratio",
    "identify_configurations",
    "open_landscape",
    "rank_curves",
    "rank_known_curves",
    "read_runs",
    "run_all",
]

GOALS = (0.01, 0.005)
"""Relative distances to the best cost."""
WORKERS = 4
RESAMPLES = 2000


@dataclass(frozen=True)
class Run:
    """One search on one landscape."""

    method: str
    seed: int
    trainings_to_goal: tuple[float, ...]
    """Tokens to each of GOALS in full trainings; infinite for a goal that was not reached."""
    seconds_to_goal: tuple[float, ...]
    """Simulated seconds to each goal; infinite likewise."""
    regret: float
    """Cost of the final choice above the best, in nats, without the noise of its seed."""
    trials: int
    complete: int


def open_landscape(path: Path) -> tuple[CurveTable, Landscape]:
    """The table in a file, and the landscape of its space."""
    table = read_table(path)
    return table, Landscape(table, make_space(table, path))


def make_space(table: CurveTable, path: Path) -> Space:
    """The space of the study whose trainings a table has; errors name the path."""
    return combine_spaces(check_spaces(path, Study.model_validate(table.study), table.vocabulary_size))


@cache
def _open_landscape_once(path: Path) -> Landscape:
    return open_landscape(path)[1]


def run_all(
    path: Path,
    methods: Sequence[str],
    seeds: int,
    max_trainings: int,
    runs_file: Path,
    processes: int,
    notify: Callable[[str], object],
) -> None:
    """Run every method with every seed, and add the runs to `runs_file`; runs that it has are not repeated.

    Seeds come first, so that an interrupted comparison has all methods under the same seeds.
    """
    known = {(run.method, run.seed) for run in read_runs(runs_file)}
    wanted = [(method, seed) for seed in range(seeds) for method in methods]
    missing = [each for each in wanted if each not in known]
    with ProcessPoolExecutor(processes) as pool, runs_file.open("a") as file:
        futures = [pool.submit(run_method, path, *each, max_trainings) for each in missing]
        for done, future in enumerate(as_completed(futures), 1):
            run = future.result()
            file.write(json.dumps(asdict(run)) + "\n")
            file.flush()
            notify(f"{done}/{len(missing)} {run}")


def read_runs(runs_file: Path) -> list[Run]:
    """The runs in a file; none if it does not exist."""
    lines = runs_file.read_text().splitlines() if runs_file.exists() else []
    return [_restore_run(json.loads(line)) for line in lines]


def _restore_run(fields: dict) -> Run:
    goals = {name: tuple(fields[name]) for name in ("trainings_to_goal", "seconds_to_goal")}
    return Run(**(fields | goals))


def run_method(path: Path, method: str, seed: int, max_trainings: int) -> Run:
    """Run one search until it has spent the tokens of `max_trainings` full trainings."""
    landscape = _open_landscape_once(path)
    trial_tokens = landscape.report_tokens[-1]
    simulation = Simulation(
        lambda parameters: landscape.draw_curve(parameters, seed),
        landscape.report_tokens,
        WORKERS,
        max_trainings * trial_tokens,
    )
    task = SearchTask(landscape.space, landscape.report_tokens, seed, max_trainings, rank_known_curves(path))
    with METHODS[method](task) as search:
        observations = simulation.run(search)
    return summarise(method, seed, observations, landscape.best_cost, trial_tokens)


@cache
def rank_known_curves(path: Path) -> tuple[Curve, ...]:
    """The trainings of the other tables of this folder, as `rank_curves` orders them.

    Configurations that the table at `path` has too are left out. Tables of the same families have the same
    random points, so a prior with them would hold the best configurations of the searched table.
    """
    others = [read_table(other) for other in sorted(FOLDER.glob("*.arrow")) if other != path.resolve()]
    return rank_curves(others, left_out=identify_configurations(read_table(path)))


def identify_configurations(table: CurveTable) -> frozenset[str]:
    """The configurations of a table, by their sampled parameters: other fields depend on the version."""
    return frozenset(digest(curve.parameters) for curve in table.curves)


def rank_curves(tables: Iterable[CurveTable], left_out: Container[str] = ()) -> tuple[Curve, ...]:
    """The trainings of tables that did not diverge, by their rank among those of their own table."""
    ranked: list[tuple[float, Curve]] = []
    for table in tables:
        curves = [c for c in table.curves if c.seed == 0 and digest(c.parameters) not in left_out]
        ended = sorted((c for c in curves if math.isfinite(c.final_cost)), key=lambda c: c.final_cost)
        ranked += [(place / len(ended), curve) for place, curve in enumerate(ended)]
    return tuple(curve for _, curve in sorted(ranked, key=lambda found: found[0]))


def summarise(
    method: str, seed: int, observations: Sequence[Observation], best_cost: float, trial_tokens: int
) -> Run:
    """When the search's choice came within each goal, and how good the last choice is."""
    choice = observations[0]
    reached: dict[float, Observation] = {}
    for observation in observations:
        if observation.cost <= choice.cost:
            choice = observation
        for goal in GOALS:
            if choice.mean_cost <= best_cost * (1 + goal):
                reached.setdefault(goal, observation)
    lengths = {observation.number: observation.report for observation in observations}
    return Run(
        method=method,
        seed=seed,
        trainings_to_goal=tuple(
            reached[goal].tokens / trial_tokens if goal in reached else math.inf for goal in GOALS
        ),
        seconds_to_goal=tuple(reached[goal].seconds if goal in reached else math.inf for goal in GOALS),
        regret=choice.mean_cost - best_cost,
        trials=len(lengths),
        complete=sum(length == max(lengths.values()) for length in lengths.values()),
    )


def compute_ert(trainings: Sequence[float], max_trainings: int) -> float:
    """Expected trainings to a goal, which is infinite for a run that missed it."""
    values = np.asarray(trainings)
    return float(_compute_erts(values[None, :], max_trainings)[0])


def _compute_erts(values_RN: np.ndarray, max_trainings: int) -> np.ndarray:
    """One ERT per row of runs."""
    successes = np.isfinite(values_RN).sum(axis=1)
    spent = np.minimum(values_RN, max_trainings).sum(axis=1)
    return np.where(successes > 0, spent / np.maximum(successes, 1), np.inf)


def estimate_ratio(
    first: Sequence[float], second: Sequence[float], max_trainings: int
) -> tuple[float, float, float]:
    """The ratio of two ERTs with its bootstrap 95 % interval over runs."""
    ratio = _divide(compute_ert(first, max_trainings), compute_ert(second, max_trainings))
    random = np.random.default_rng(0)
    erts = [
        _compute_erts(random.choice(np.asarray(values), (RESAMPLES, len(values))), max_trainings)
        for values in (first, second)
    ]
    ratios = sorted(_divide(*pair) for pair in zip(*erts, strict=True) if not math.isnan(_divide(*pair)))
    if not ratios:
        return math.nan, math.nan, math.nan
    return ratio, ratios[int(0.025 * len(ratios))], ratios[min(int(0.975 * len(ratios)), len(ratios) - 1)]


def _divide(first: float, second: float) -> float:
    """The ratio of two ERTs; NaN where neither method reached the goal."""
    if math.isinf(second):
        return math.nan if math.isinf(first) else 0.0
    return float(first / second)
