"""Trials of a study with simulated costs in simulated time: a truth, a clock, and an executor.

The driver, the director, Optuna's storage, MLflow and every text are real; training alone is simulated. All
that happens to a trial follows from its configuration, its seed and the seed of the truth, so that a resumed
study meets the same trials.
"""

import heapq
import itertools
import math
import random
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from memtune.corpora import Corpus
from memtune.objective import Objective
from memtune.storage.folder import Folder
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.definition.study_terms import name_alternative
from memtune.studies.director import DirectedTrial
from memtune.studies.executor import ExecutorRun
from memtune.studies.trial_worker import WorkerReport
from memtune.tasks import ItemCosts
from memtune.training import Checkpoint, Report, TrialConfig, create_trainer
from memtune.training.checkpoint import CheckpointRecord
from memtune.training.training_loop import Position
from memtune.training.weight_files import copy_weights
from memtune.trial_state import StopReason, TrialEnd
from memtune.usage import NodeSeconds, Usage
from memtune.values import digest

ITEMS = 40
"""Validation items of which a simulated trial has stored costs."""


class SimulatedClock:
    """A monotonic clock that an executor sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclass(frozen=True)
class Truth:
    """What training would give, by alternative; costs are nats per token, or shares of wrong answers."""

    seed: int
    compare: str
    unit: float = 1.0
    """The size of a difference of costs: smaller for a share of wrong answers."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """The mean cost of the best configuration of an alternative; of others 3.0 to 4.0 times the unit."""
    spread: float = 0.3
    """Between configurations of an alternative."""
    noise: float = 0.02
    """Standard deviation between seeds."""
    late: float = 0.0
    """Share of alternatives that learn late: behind at first, and better at the end than they would be."""
    lucky: Mapping[str, float] = field(default_factory=dict)
    """By how much the seed of the search lowers the costs of an alternative."""
    unstable: frozenset[str] = frozenset()
    """Alternatives whose trainings diverge under the seeds of repeats."""
    broken: frozenset[str] = frozenset()
    """Alternatives whose trainings end with an error."""
    diverging: float = 0.0
    """Share of trainings that diverge, whatever they train."""
    failing: float = 0.0
    """Share of trainings that end with an error."""
    faulty: float = 0.0
    """Share of trainings that meet a fault of a node once."""

    def draw(self, *parts: object) -> float:
        """A number from 0 to 1 that follows from the truth's seed and the parts."""
        return int(digest([self.seed, *map(str, parts)])[:12], 16) / 16**12

    def is_late(self, alternative: str) -> bool:
        return self.draw("late", alternative) < self.late

    def find_final_cost(self, config: TrialConfig) -> float:
        """The cost at full length."""
        alternative = name_alternative(config, self.compare)
        base = self.costs.get(alternative, 3.0 + self.draw("alternative", alternative))
        model = config.configuration_identity
        cost = base - 0.4 * self.is_late(alternative) + self.spread * self.draw("configuration", model)
        if config.model.is_trained_by_gradient:
            luck = random.Random(digest([self.seed, model, config.seed]))
            cost += self.noise * luck.gauss(0, 1)
            cost -= self.lucky.get(alternative, 0.0) if config.seed == 0 else 0.0
        return self.unit * max(0.01, cost)

    def make_curve(self, config: TrialConfig, report_tokens: Sequence[int]) -> list[Report]:
        """The reports of a training; the last one says how it ends."""
        final, identity = self.find_final_cost(config), digest([config.configuration_identity, config.seed])
        alternative = name_alternative(config, self.compare)
        late = self.is_late(alternative)
        start, rate = (6.0 * self.unit, 1.5 if late else 5.0)
        if config.task.objective is Objective.ACCURACY:
            start = 0.9
        count, is_unstable = len(report_tokens), alternative in self.unstable and config.seed != 0
        diverges = is_unstable or self.draw("diverges", identity) < self.diverging
        end_at = 1 + int(self.draw("end", identity) * count)
        reports = []
        for place, tokens in enumerate(report_tokens, start=1):
            rest = (math.exp(-rate * place / count) - math.exp(-rate)) if place < count else 0.0
            cost: float | None = final + (start - final) * rest
            end = TrialEnd(reason=StopReason.BUDGET) if place == count else None
            if diverges and place == end_at:
                cost, end = None, TrialEnd(reason=StopReason.DIVERGED, detail="the training loss is nan")
            patience = config.training and config.training.patience
            if patience and end is None and place > patience and self.draw("stall", identity, place) < 0.2:
                cost, end = 1.01 * final + self.unit, TrialEnd(reason=StopReason.NO_IMPROVEMENT)
            reports.append(make_report(config, tokens, report_tokens[-1], cost, end))
            if end is not None:
                break
        return reports


def make_report(
    config: TrialConfig, tokens: int, length: int, cost: float | None, end: TrialEnd | None
) -> Report:
    is_accuracy = config.task.objective is Objective.ACCURACY
    loss = None if cost is None else min(700.0, cost)
    return Report(
        tokens=tokens,
        epoch=tokens / length,
        train_loss=loss,
        train_perplexity=None if loss is None else math.exp(loss),
        valid_loss=loss,
        valid_perplexity=None if loss is None else math.exp(loss),
        valid_accuracy=1 - cost if is_accuracy and cost is not None else None,
        objective=config.task.objective,
        gradient_norm=1.0,
        learning_rate=0.1,
        tokens_per_second=100.0,
        seconds=tokens / 100,
        peak_memory_bytes=10**8,
        end=end,
    )


class DriverKilledError(BaseException):
    """The driver's process dies."""


@dataclass
class SimulatedWorkers:
    """An executor of workers that report the curves of a truth; it outlives the drivers of a study."""

    truth: Truth
    corpus: Corpus
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    workers: int = 1
    tokens_per_second: float = 100.0
    ends: list[tuple[str, int]] = field(default_factory=list)
    """What ends a driver after so many reports: a "signal" or a "kill"."""
    reports: int = 0
    trained: dict[str, tuple[TrialConfig, list[Report]]] = field(default_factory=dict)
    """The stored curve of each training, by its identity."""
    _faulty: set[str] = field(default_factory=set)

    def connect(self, cpus_per_trial: int, max_concurrent_trials: int | None) -> None:
        """Nothing to connect to."""

    def find_gpu_bytes(self) -> int | None:
        """No GPU."""
        return None

    def close(self) -> None:
        """Nothing to release."""

    def run_trials(self, run: ExecutorRun) -> None:
        """Run trials until the director has no more, `run.stop` is set, or an end is due."""
        order, events, idle = itertools.count(), list[tuple[float, int, DirectedTrial]](), self.workers
        while not run.stop.is_set:
            while idle and (trial := run.director.take_next_trial()) is not None:
                run.director.on_started(trial.proposal.number)
                self._schedule(events, next(order), trial)
                idle -= 1
            if not events:
                return
            self.clock.now, _, trial = heapq.heappop(events)
            if run.stop.is_set:
                return
            self._end_driver()
            if self._report(run, trial):
                self._schedule(events, next(order), trial)
            else:
                idle += 1

    def _end_driver(self) -> None:
        self.reports += 1
        if self.ends and self.reports >= self.ends[0][1]:
            kind, _ = self.ends.pop(0)
            if kind == "kill":
                raise DriverKilledError
            signal.raise_signal(signal.SIGINT)

    def _schedule(
        self, events: list[tuple[float, int, DirectedTrial]], order: int, trial: DirectedTrial
    ) -> None:
        known = self._find_curve(trial.proposal.identity)
        curve = self._make_curve(trial.config)
        before = known[-1].tokens if known else 0
        tokens = curve[min(len(known), len(curve) - 1)].tokens - before
        heapq.heappush(events, (self.clock.now + tokens / self.tokens_per_second, order, trial))

    def _find_curve(self, identity: str) -> list[Report]:
        return self.trained[identity][1] if identity in self.trained else []

    def _make_curve(self, config: TrialConfig) -> list[Report]:
        epoch = config.task.open(self.corpus, config.protocol).epoch_tokens
        length = config.count_tokens(lambda: epoch)
        every = config.training.report_every or epoch if config.training else epoch
        count = max(1, length // every)
        return self.truth.make_curve(config, [length * place // count for place in range(1, count + 1)])

    def _report(self, run: ExecutorRun, trial: DirectedTrial) -> bool:
        """Report a trial's next point; return whether it continues."""
        number, identity, config = trial.proposal.number, trial.proposal.identity, trial.config
        if self.truth.draw("faulty", identity) < self.truth.faulty and identity not in self._faulty:
            self._faulty.add(identity)
            run.director.on_environment_fault(number, "on node-1: no space is left on the device")
            return False
        curve = self._make_curve(config)
        reported = curve[: len(self._find_curve(identity)) + 1]
        self.trained[identity] = (config, reported)
        error = None
        is_broken = name_alternative(config, self.truth.compare) in self.truth.broken
        fails = is_broken or self.truth.draw("fails", identity) < self.truth.failing
        if fails and len(reported) == len(curve):
            error = "TrialError: out of memory"
            reported = reported[:-1]
        is_finished = error is not None or len(reported) == len(curve)
        usage = make_usage(reported[-1].tokens if reported else 0, self.tokens_per_second)
        report = WorkerReport(reports=tuple(reported), usage=usage, error=error, is_finished=is_finished)
        continues = run.director.on_worker_report(number, report)
        if is_finished or not continues:
            run.director.on_ended(number)
        return continues and not is_finished

    def store_results(self, root: str, identities: Sequence[str], *, with_models: bool) -> None:
        """Store the costs of the validation items of trainings, and their checkpoints."""
        for identity in identities:
            config, curve = self.trained[identity]
            costs = [report.cost for report in curve if report.cost is not None]
            if costs:
                self._make_item_costs(min(costs)).store(Folder.open(root) / identity, min(costs))
            if costs and with_models:
                Checkpoints(root, identity).store(self._make_checkpoint(config, curve))

    def _make_checkpoint(self, config: TrialConfig, curve: Sequence[Report]) -> Checkpoint:
        trainer = create_trainer(config, self.corpus)
        if not config.model.is_trained_by_gradient:
            trainer.advance()
        weights = copy_weights(trainer.model)
        position = Position(tokens=curve[-1].tokens)
        usage = make_usage(curve[-1].tokens, self.tokens_per_second)
        record = CheckpointRecord(
            config=config,
            identity=config.identity(self.corpus.digest),
            corpus=self.corpus.name,
            corpus_digest=self.corpus.digest,
            vocabulary_size=len(self.corpus.vocabulary),
            position=position,
            curve=tuple(curve),
            versions={},
            usage=usage,
        )
        return Checkpoint(record, weights, weights, {})

    def _make_item_costs(self, cost: float) -> ItemCosts:
        """Costs of the same items for each trial, which add up to its cost."""
        hardness = 0.8 + 0.4 * np.random.default_rng(self.truth.seed).random(ITEMS)
        own = 1 + 0.02 * np.random.default_rng(int(cost * 1e9) % 2**32).random(ITEMS)
        counts, costs = np.full(ITEMS, 5), hardness * own
        return ItemCosts("sentences", costs * cost * counts.sum() / costs.sum(), counts)


def make_usage(tokens: int, tokens_per_second: float) -> Usage:
    return Usage(tokens=tokens, nodes={"": NodeSeconds(cpu=tokens / tokens_per_second)})
