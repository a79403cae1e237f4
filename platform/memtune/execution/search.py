"""A whole search: everything checked, the study's trials run, the best model registered."""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from rich.console import Console

from memtune.errors import StudyError
from memtune.execution.assignment import Assignment
from memtune.execution.champions import crown, is_evaluable
from memtune.execution.clock import Clock
from memtune.execution.director import Director, Trial
from memtune.execution.display import Display
from memtune.execution.records import StudyRecords
from memtune.execution.repeats import best_outcomes, repeated
from memtune.execution.settings import Settings
from memtune.execution.study import ReadyStudy, Study, load_study, prepare
from memtune.execution.wording import counted
from memtune.search import Lease, Outcome, Proposals, SuccessiveHalving
from memtune.spaces import RandomChooser
from memtune.storage import Folder
from memtune.tracking import Decision, Recorder, check_tracking
from memtune.training import TrialConfig

__all__ = ["SearchResult", "dry_run", "search"]

DRY_SAMPLES = 5


@dataclass(frozen=True)
class SearchResult:
    """What a search came to."""

    ready: ReadyStudy
    outcomes: list[Outcome]
    repeats: list[Outcome] = field(default_factory=list)
    interrupted: list[Trial] = field(default_factory=list)
    crowning: Decision | None = None
    recorded: bool = True
    """Whether the tracking store has everything; if not, a resume sends the rest."""

    @property
    def test(self) -> bool:
        """Whether the corpus has a test split for these trials."""
        sample = self.ready.sample(RandomChooser(self.ready.study.seed))
        return is_evaluable(self.ready.corpus, sample, "test")


def dry_run(
    path: str | Path, overrides: dict[str, Any] | None = None, settings: Settings | None = None
) -> tuple[ReadyStudy, list[TrialConfig]]:
    """Check a study as `search` would and draw five of its configurations; nothing is started.

    Raises what `search` raises before it starts.
    """
    path = Path(path)
    ready = preflight(path, load_study(path, overrides), settings or Settings.read())
    samples = [
        ready.sample(RandomChooser(seed)) for seed in range(ready.study.seed, ready.study.seed + DRY_SAMPLES)
    ]
    return ready, samples


def preflight(path: Path, study: Study, settings: Settings) -> ReadyStudy:
    """Everything that can go wrong before a trial starts; raises the MemtuneError that says what."""
    ready = checked(path, study, settings)
    check_tracking(settings.tracking)
    return ready


def checked(path: Path, study: Study, settings: Settings, address: str | None = None) -> ReadyStudy:
    """The study, and whether it can run here or at `address`; the tracking store is left to be asked."""
    ready = prepare(path, study, settings)
    elsewhere = address or os.environ.get("RAY_ADDRESS")
    if study.resources.gpus_per_trial and not (torch.cuda.is_available() or elsewhere):
        raise StudyError(
            f"{path} asks for GPUs (gpus_per_trial = {study.resources.gpus_per_trial}) and this machine has "
            "none; submit it to a cluster, or run with --gpus-per-trial 0"
        )
    cores = os.cpu_count() or 1
    if study.resources.cpus_per_trial > cores and not elsewhere:
        raise StudyError(
            f"{path} asks for {study.resources.cpus_per_trial} cores a trial and this machine has {cores}; "
            "lower cpus_per_trial, or submit it to a cluster"
        )
    return ready


def search(
    path: str | Path,
    overrides: dict[str, Any] | None = None,
    *,
    resume: bool = False,
    replace_champion: bool = False,
    address: str | None = None,
    settings: Settings | None = None,
    console: Console | None = None,
) -> SearchResult:
    """Run a study, or go on with it, and register its best model.

    `overrides` are put over the study's file by dotted name. `replace_champion` registers the best model even
    where the champion's figure, of another protocol or text, does not compare. `address` is a Ray cluster's;
    without it (and without RAY_ADDRESS) a private instance is started on this machine. Progress goes to
    `console`.
    Raises a MemtuneError before anything starts when the study cannot run; StudyError when it has begun and
    `resume` is not set, or when another driver holds it.
    """
    path, settings = Path(path), settings or Settings.read()
    ready = checked(path, load_study(path, overrides), settings, address)
    shown = console or Console(quiet=True)
    with (
        Lease(settings.proposals, ready.id, tell=shown.print) as lease,
        _Search(ready, lease, shown, address) as running,
    ):
        return running.run(path, resume, replace_champion)


class _Search:
    """One driver's run of one study."""

    def __init__(self, ready: ReadyStudy, lease: Lease, console: Console, address: str | None) -> None:
        self._ready, self._lease = ready, lease
        self._console, self._address = console, address
        self._study = ready.study
        self._records, self._connection, self._connected = ExitStack(), ExitStack(), False
        self._beside = ThreadPoolExecutor(1, "memtune-beside")
        self._gpu_bytes: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._beside, self._records:
            self._connection.close()

    def run(self, path: Path, resume: bool, replace: bool) -> SearchResult:
        proposals = self._ready.proposals(self._lease.check)
        self._clock = Clock(proposals, self._study.budget.time)
        self._check_standing(path, proposals, resume)
        self._recorder = self._start(proposals)
        Folder.at(f"{self._ready.settings.studies}/{self._ready.id}").write_json(
            "study.json", self._study.model_dump(mode="json")
        )
        records = StudyRecords(self._recorder, self._ready)
        if resume:
            records.resume(proposals.finished())
        interrupted = self._trials(proposals, records)
        repeats: list[Outcome] = []
        if not interrupted and self._study.repeats.best:
            repeats, interrupted = self._repeats(proposals, records)
        proposals.confirm()
        left = self._leave()
        crowning = (
            None
            if interrupted
            else crown(self._ready, self._recorder, proposals.outcomes() + repeats, replace)
        )
        records.close(interrupted=bool(interrupted))
        left.result()
        return SearchResult(
            self._ready, proposals.outcomes(), repeats, interrupted, crowning, self._recorder.flush(60)
        )

    def _start(self, proposals: Proposals) -> Recorder:
        """The recorder, once the store has answered; Ray starts meanwhile, for both take seconds."""
        opening = self._beside.submit(self._open_recorder)
        if self._clock.left != 0 and len(proposals.finished()) < self._study.budget.trials:
            self._connect()
        return opening.result()

    def _open_recorder(self) -> Recorder:
        check_tracking(self._ready.settings.tracking)
        recorder = Recorder(self._ready.settings.tracking, self._ready.corpus.name, guard=self._lease.check)
        return self._records.enter_context(recorder)

    def _leave(self) -> Future[None]:
        """End Ray beside what is still to be done without it."""
        return self._beside.submit(self._connection.close)

    def _check_standing(self, path: Path, proposals: Proposals, resume: bool) -> None:
        outcomes, budget = proposals.outcomes(), self._study.budget.trials
        open_trials = len(proposals.unfinished())
        if resume and not outcomes:
            raise StudyError(
                f"no study {self._ready.id} has begun: {path} with other terms (space, corpus, "
                "training, sampler, halving) is another study; start it without --resume"
            )
        if outcomes:
            ended = len(outcomes) - open_trials
            self._console.print(f"study {self._ready.id}: {ended} of {counted(budget, 'trial')} ended before")
        if self._clock.left == 0:
            self._console.print("its time budget is spent; --time-budget with --resume gives it more")
        elif outcomes and not resume and (open_trials or len(outcomes) < budget):
            raise StudyError(
                f"study {self._ready.id} has begun: {len(outcomes) - open_trials} of "
                f"{counted(budget, 'trial')} ended; go on with: memtune search {path} --resume"
            )

    def _trials(self, proposals: Proposals, records: StudyRecords) -> list[Trial]:
        halving = self._study.halving
        rule = SuccessiveHalving(halving, self._ready.trial_tokens) if halving else None
        return self._run(
            proposals, records, self._study.budget.trials, rule, self._study.question, self._ready.searched
        )

    def _repeats(self, proposals: Proposals, records: StudyRecords) -> tuple[list[Outcome], list[Trial]]:
        best = best_outcomes(proposals.outcomes(), self._study.repeats.best)
        if not best:
            return [], []
        seeds = range(self._study.seed + 1, self._study.seed + self._study.repeats.seeds)
        space = repeated(best, seeds)
        again = self._ready.proposals(self._lease.check, repeats=space)
        title = f"the best {len(best)} under {len(seeds)} more seeds"
        told = (*self._ready.searched, "seed")
        interrupted = self._run(again, records, len(best) * len(seeds), None, title, told)
        return again.outcomes(), interrupted

    def _run(
        self,
        proposals: Proposals,
        records: StudyRecords,
        budget: int,
        rule: SuccessiveHalving | None,
        title: str,
        searched: Sequence[str],
    ) -> list[Trial]:
        """Run trials up to the budget; the trials left open when it was interrupted."""
        from memtune.execution.tuning import run_trials

        manifest = self._ready.corpus.manifest
        ideal = manifest.ideal.get("valid") if manifest.ideal else None
        with Display(self._console, title, budget, ideal, searched) as display:
            director = Director(proposals, records, budget, rule, [display, self._clock.tick])
            if not director.finished and self._clock.left != 0:
                self._connect()
                typical = self._ready.typical_gpus(self._gpu_bytes)
                left, tell = self._clock.left, self._console.print
                run_trials(director, self._assignment, self._study.resources, typical, left, tell)
                self._clock.tick()
            if self._clock.left == 0:
                director.close("the study's time was up")
            return director.interrupt()

    def _connect(self) -> None:
        """Connect to Ray, once for all that this driver runs."""
        from memtune.execution.cluster import connected

        if not self._connected:
            resources, trials = self._study.resources, self._study.budget.trials
            most = min(resources.max_concurrent or trials, trials)
            self._connection.enter_context(connected(self._address, resources.cpus_per_trial, most))
            self._connected = True
            self._gpu_bytes = self._find_gpu_bytes()

    def _find_gpu_bytes(self) -> int | None:
        """The memory of one GPU, where trials are fitted to it: as the study says, or as the nodes do."""
        from memtune.execution.nodes import smallest_gpu

        resources = self._study.resources
        if resources.gpus_per_trial != "fit":
            return None
        found = resources.gpu_memory or smallest_gpu()
        if found is None:
            raise StudyError(
                'gpus_per_trial = "fit" has to know the memory of a GPU, and no node is there that has one; '
                'say it under [resources], such as gpu_memory = "24GB"'
            )
        return found

    def _assignment(self, trial: Trial) -> Assignment:
        ready = self._ready
        return Assignment(
            number=trial.proposal.number,
            identity=trial.proposal.identity,
            config=trial.config,
            corpus=ready.corpus.name,
            corpus_digest=ready.corpus.digest,
            store=ready.settings.store,
            checkpoints=ready.checkpoints,
            device=ready.device(trial.config),
            threads=ready.study.resources.cpus_per_trial,
            gpus=ready.gpus(trial.config, self._gpu_bytes),
            checkpoint_seconds=ready.study.resources.checkpoint_every,
        )
