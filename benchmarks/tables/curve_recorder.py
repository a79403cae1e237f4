"""Record learning curves: train configurations of a study's space, each to its whole budget.

The first two thirds of the configurations are random points, one family after the other. The others are
near the best of those: they keep 70 % of the parameters of one of them and draw the rest at random, so that
the table is denser where methods differ. Then some configurations train under a second seed: the best ones,
and the rest at equal spacing of their ranks.

The same arguments give the same trainings, and another seed of the study gives other configurations. Each
training is appended to a file next to the table when it ends, so that an interrupted recording continues; the
number of processes may change.
"""

import itertools
import json
import math
import os
import platform
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.tables.curve_table import Curve, CurveTable, write_table
from memtune.settings import Settings
from memtune.spaces import RandomChooser, Scalar
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.training import TrialConfig, create_trainer
from memtune.values import digest

__all__ = ["RecordingPlan", "record_table"]

NEAR_SHARE = 1 / 3
PARENTS = 16
"""The best random configurations, around which the others are drawn."""
SPACE_FIELDS = {"question", "name", "corpus", "spaces", "task", "model", "protocol", "training", "seed"}
"""The fields of a study that define what is recorded."""
KEPT_SHARE = 0.7
"""Probability that a parameter keeps the parent's value."""
SEEDS_APART = 1_000_000
"""Distance of the first draws of two studies whose seeds are neighbours: more than a table draws."""


@dataclass(frozen=True)
class RecordingPlan:
    """What to record: a study's space, and how many configurations and second seeds."""

    study_file: Path
    configurations: int
    second_seeds: int


@dataclass(frozen=True)
class Training:
    """A configuration to train: pinned parameters, a seed for the others, and the seed of the training."""

    pinned: dict[str, Scalar]
    draw_seed: int
    seed: int

    @property
    def key(self) -> str:
        """Identifies the training in the file of finished ones."""
        return json.dumps([self.pinned, self.draw_seed, self.seed], sort_keys=True)


def record_table(plan: RecordingPlan, out: Path, processes: int, notify: Callable[[str], object]) -> None:
    """Record the table and write it to `out`."""
    resolved = _resolve(plan.study_file)
    progress = out.with_suffix(".partial.jsonl")
    train = partial(_train_all, plan.study_file, progress, processes, notify)
    near_count = round(plan.configurations * NEAR_SHARE)
    randoms = train(list(_draw_random(resolved, plan.configurations - near_count)))
    nears = train(list(_draw_near(resolved, randoms, near_count)))
    repeats = train(list(_select_second_seeds([*randoms, *nears], plan.second_seeds)))
    curves = tuple(curve for _, curve in [*randoms, *nears, *repeats])
    study = resolved.study.model_dump(mode="json", include=SPACE_FIELDS)
    write_table(CurveTable(curves, study, resolved.vocabulary_size, _describe(resolved)), out)
    total = sum(curve.seconds[-1] for curve in curves)
    notify(f"{out}: {len(curves)} curves, {total / 60:.1f} CPU minutes")


Trained = list[tuple[Training, Curve]]


def _draw_random(resolved: ResolvedStudy, count: int) -> Iterable[Training]:
    choices = resolved.space.family_choices()
    for number in range(count):
        yield Training(choices[number % len(choices)], _get_first_seed(resolved) + number, 0)


def _get_first_seed(resolved: ResolvedStudy) -> int:
    return resolved.study.seed * SEEDS_APART


def _draw_near(resolved: ResolvedStudy, randoms: Trained, count: int) -> Iterable[Training]:
    """Points near the best of `randoms`, all different."""
    parents = _sort_by_cost(randoms)[:PARENTS]
    seen = {digest(curve.parameters) for _, curve in randoms}
    first_seed = _get_first_seed(resolved)
    for number in range(count):
        curve = parents[number % len(parents)][1]
        for attempt in itertools.count():
            seed = first_seed + number + attempt * count
            training = Training(_keep_some(curve, seed), len(randoms) + seed, 0)
            drawn = digest(_choose(training, resolved)[1])
            if drawn not in seen:
                break
        seen.add(drawn)
        yield training


def _keep_some(curve: Curve, seed: int) -> dict[str, Scalar]:
    """The family and most other parameters of a configuration."""
    chooser = random.Random(seed)
    kept = {name: value for name, value in curve.parameters.items() if chooser.random() < KEPT_SHARE}
    return {**kept, "family": curve.family}


def _choose(training: Training, resolved: ResolvedStudy) -> tuple[TrialConfig, dict[str, Scalar]]:
    """The configuration of a training, and its parameters by name."""
    chooser = RandomChooser(training.draw_seed, training.pinned)
    config = resolved.sample(chooser).model_copy(update={"seed": training.seed})
    return config, dict(chooser.parameters)


def _select_second_seeds(trained: Trained, count: int) -> Iterable[Training]:
    ranked = _sort_by_cost(trained)
    best, rest = ranked[: count // 2], ranked[count // 2 :]
    spaced = rest[:: max(1, len(rest) // (count - len(best)))][: count - len(best)]
    return (replace(training, seed=1) for training, _ in [*best, *spaced])


def _sort_by_cost(trained: Trained) -> Trained:
    return sorted(trained, key=lambda pair: pair[1].final_cost)


def _train_all(
    study_file: Path,
    progress: Path,
    processes: int,
    notify: Callable[[str], object],
    trainings: Sequence[Training],
) -> Trained:
    """Train what the file of finished trainings lacks; return all curves, in the order of `trainings`."""
    finished = _read_finished(progress)
    missing = [training for training in trainings if training.key not in finished]
    with ProcessPoolExecutor(processes) as pool, progress.open("a") as file:
        futures = {pool.submit(_train, study_file, training): training for training in missing}
        for done, future in enumerate(as_completed(futures), 1):
            key, curve = futures[future].key, future.result()
            finished[key] = curve
            file.write(json.dumps([key, asdict(curve)]) + "\n")
            file.flush()
            notify(f"{done}/{len(missing)} {curve.family} {curve.final_cost:.3f} {curve.seconds[-1]:.1f} s")
    return [(training, finished[training.key]) for training in trainings]


def _read_finished(progress: Path) -> dict[str, Curve]:
    lines = progress.read_text().splitlines(keepends=True) if progress.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    return {key: _restore_curve(fields) for key, fields in records}


def _restore_curve(fields: dict[str, Any]) -> Curve:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    return Curve(**values)


def _train(study_file: Path, training: Training) -> Curve:
    """Train one configuration on one core, to its budget or its divergence."""
    torch.set_num_threads(1)
    resolved = _resolve(study_file)
    config, parameters = _choose(training, resolved)
    trainer = create_trainer(config, resolved.corpus)
    start = time.process_time()
    seconds = []
    while not trainer.is_finished:
        trainer.advance()
        seconds.append(time.process_time() - start)
    return _make_curve(config, parameters, trainer.curve, seconds)


def _make_curve(config: TrialConfig, parameters: dict, reports: Sequence, seconds: Sequence[float]) -> Curve:
    return Curve(
        configuration=config.model_dump(mode="json"),
        parameters=dict(parameters),
        family=config.model.family,
        seed=config.seed,
        tokens=tuple(report.tokens for report in reports),
        costs=tuple(math.nan if report.cost is None else report.cost for report in reports),
        seconds=tuple(seconds),
    )


_resolved_studies: dict[Path, ResolvedStudy] = {}


def _resolve(study_file: Path) -> ResolvedStudy:
    """The study with its corpus, opened once in each process."""
    if study_file not in _resolved_studies:
        settings = Settings.from_environment()
        _resolved_studies[study_file] = resolve_study(study_file, load_study(study_file), settings)
    return _resolved_studies[study_file]


def _describe(resolved: ResolvedStudy) -> dict[str, str]:
    return {
        "corpus": resolved.corpus.digest,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": _read_processor_name(),
    }


def _read_processor_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
