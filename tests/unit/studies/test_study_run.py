"""What one driver's run gives to its executor, its display, its records and its repeats."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memtune.cli.command_line import app
from memtune.corpora import import_corpus
from memtune.errors import StudyError
from memtune.results.study.study_view import open_view
from memtune.search import Lease, StorageUnavailableError, StudyReader
from memtune.search.database import outage_buffer, study_lease
from memtune.settings import Settings
from memtune.studies import study_run
from memtune.studies.definition.study_terms import read_stored_terms
from memtune.studies.director import DirectedTrial, Watcher
from memtune.studies.executor import ExecutorRun, InProcessExecutor
from memtune.studies.study_run import StudyHooks, StudyResult, TrialPhase, run_study
from memtune.studies.trial_worker import Assignment
from memtune.training import TrialConfig
from memtune.trial_state import TrialState
from tests.conftest import write_study
from tests.presence import require
from tests.unit.studies.study_files import resolve
from tests.unit.studies.test_result_cache import find_runs

GB = 10**9
REPEATED: dict[str, Any] = {
    "budget.trials": 1,
    "repeats.best": 1,
    "repeats.seeds": 3,
    "early_stopping.kind": "none",
    "resources.cpus_per_trial": 2,
}
"""One trial, and two repeats of it."""


class RecordingExecutor(InProcessExecutor):
    """Records how the driver connects it."""

    def __init__(self) -> None:
        self.connections: list[tuple[int, int | None]] = []

    def connect(self, cpus_per_trial: int, max_concurrent_trials: int | None) -> None:
        self.connections.append((cpus_per_trial, max_concurrent_trials))


class PackingExecutor(RecordingExecutor):
    """Starts one trial, which it leaves open, on a node whose GPU has this memory."""

    def __init__(self, gpu_bytes: int | None = None) -> None:
        super().__init__()
        self._gpu_bytes = gpu_bytes
        self.assignments: list[Assignment] = []
        self.average_gpus: list[float] = []

    def find_gpu_bytes(self) -> int | None:
        return self._gpu_bytes

    def run_trials(self, run: ExecutorRun) -> None:
        trial = require(run.director.take_next_trial())
        self.assignments.append(run.make_assignment(trial))
        self.average_gpus.append(run.average_gpus)
        run.director.on_started(trial.proposal.number)


class ExpiringExecutor(InProcessExecutor):
    """Lets another driver take the study over before the phase of this number."""

    def __init__(self, settings: Settings, study: str, phase: int, patch: pytest.MonkeyPatch) -> None:
        self._settings, self._study, self._phases_left, self._patch = settings, study, phase, patch

    def run_trials(self, run: ExecutorRun) -> None:
        if self._phases_left == 0:
            take_over(self._settings, self._study, self._patch)
        self._phases_left -= 1
        super().run_trials(run)


def take_over(settings: Settings, study: str, patch: pytest.MonkeyPatch) -> None:
    """Expire the lease of the study's driver, whose next check is due at once."""
    with Lease(settings.study_database, study, timeout_seconds=0.0):
        patch.setattr(study_lease, "read_clock_seconds", lambda: float("inf"))


def run(
    study_file: Path,
    settings: Settings,
    terms: dict[str, Any],
    executor: InProcessExecutor | None = None,
    *,
    phases: list[TrialPhase] | None = None,
    conclude: Callable[[], None] = lambda: None,
    resume: bool = False,
    track: Watcher = lambda trial: None,
) -> StudyResult:
    """Run the study; `phases` and `track` receive what a display is told; `conclude` is called at the end."""

    @contextmanager
    def watch(phase: TrialPhase) -> Iterator[Watcher]:
        if phases is not None:
            phases.append(phase)
        yield track

    hooks = StudyHooks(
        (watch, lambda phase: nullcontext(track)),
        lambda *given: conclude(),
        lambda message: None,
    )
    resolved = resolve(study_file, settings, **terms)
    return run_study(resolved, executor or InProcessExecutor(), hooks, resume=resume)


def list_numbers(settings: Settings, result: StudyResult) -> list[str]:
    """The numbers of a study's trials and repeats in MLflow."""
    return sorted(run.data.tags["memtune.number"] for run in find_runs(settings, result.resolved.id, "trial"))


@dataclass(frozen=True)
class RepeatedStudy:
    """A study of REPEATED that has ended, and what its executor and its displays were told."""

    file: Path
    settings: Settings
    result: StudyResult
    phases: list[TrialPhase]
    tracked: list[tuple[str, TrialState, dict[int, float]]]
    executor: RecordingExecutor


@pytest.fixture(scope="module")
def repeated(
    tmp_path_factory: pytest.TempPathFactory, module_settings: Settings, without_report: None
) -> RepeatedStudy:
    """No test changes it but those that run it again, after which it is as before."""
    file, executor = write_study(tmp_path_factory.mktemp("repeated")), RecordingExecutor()
    phases: list[TrialPhase] = []
    tracked = []

    def track(trial: DirectedTrial) -> None:
        curve = {each.tokens: require(each.cost) for each in trial.reports}
        tracked.append((trial.proposal.identity, trial.state, curve))

    result = run(file, module_settings, REPEATED, executor, phases=phases, track=track)
    return RepeatedStudy(file, module_settings, result, phases, tracked, executor)


def test_a_repeat_has_the_number_of_its_trial_and_its_seed(repeated: RepeatedStudy) -> None:
    assert list_numbers(repeated.settings, repeated.result) == ["0", "0 seed 1", "0 seed 2"]
    configs = [TrialConfig.model_validate(repeat.configuration) for repeat in repeated.result.repeats]
    phases = repeated.phases
    assert [(phase.noun, phase.trial_tokens) for phase in phases] == [("trial", 900), ("repeat", 900)]
    assert [phase.has_repeats_after for phase in phases] == [True, False]
    names = [phases[1].names.name(number, config) for number, config in enumerate(configs)]
    assert sorted(names) == ["#0 seed 1", "#0 seed 2"]


def test_another_tracker_beside_the_display_sees_every_trial_with_its_curve(repeated: RepeatedStudy) -> None:
    (outcome,) = repeated.result.outcomes
    assert repeated.tracked.count((outcome.identity, outcome.state, outcome.curve)) == 2


def test_a_resume_records_the_trials_and_repeats_that_the_tracking_store_lost(
    repeated: RepeatedStudy, tmp_path: Path, empty_store: Path
) -> None:
    shutil.copyfile(empty_store, tmp_path / "empty.db")
    empty = repeated.settings.model_copy(update={"tracking_uri": f"sqlite:///{tmp_path}/empty.db"})
    result = run(repeated.file, empty, REPEATED, resume=True)
    assert list_numbers(empty, result) == ["0", "0 seed 1", "0 seed 2"]


def test_a_finished_study_that_is_run_again_keeps_its_counts(repeated: RepeatedStudy) -> None:
    for _ in range(2):
        (study,) = find_runs(repeated.settings, repeated.result.resolved.id, "study")
        assert study.data.metrics["trials_complete"] == 3
        run(repeated.file, repeated.settings, REPEATED)


def test_the_cost_of_a_study_includes_its_repeats(repeated: RepeatedStudy) -> None:
    (study,) = find_runs(repeated.settings, repeated.result.resolved.id, "study")
    outcomes = [*repeated.result.outcomes, *repeated.result.repeats]
    assert study.data.metrics["spent_tokens"] == sum(outcome.usage.tokens for outcome in outcomes)


def test_only_configurations_within_the_limits_of_the_champion_are_repeated(
    study_file: Path, settings: Settings
) -> None:
    space = study_file.with_name("space.toml")
    text = space.read_text().replace("{ int = [1, 2] }", "1")
    space.write_text(text.replace("{ float = [0.1, 1.0], log = true }", "0.5"))
    terms = {"sampler.kind": "grid", "repeats.best": 2, "repeats.seeds": 2}
    limits = {"budget.trials": 2, "champion.max_state": 8, "early_stopping.kind": "none"}
    result = run(study_file, settings, {**terms, **limits})
    assert {read_width(outcome.configuration) for outcome in result.outcomes} == {4, 8}
    assert [read_width(repeat.configuration) for repeat in result.repeats] == [4]


def run_until_decided(
    study_file: Path, settings: Settings, terms: dict[str, Any], *, resume: bool = False
) -> set[tuple[int, int]]:
    """Train two widths, with seeds until one is decided; returns (width, seed) of the repeats."""
    space = study_file.with_name("space.toml")
    text = space.read_text().replace("{ int = [1, 2] }", "1")
    space.write_text(text.replace("{ float = [0.1, 1.0], log = true }", "0.5"))
    until = {"compare": "model.width", "repeats.until": "decided", "repeats.indifference": 1e-9}
    fixed = {"sampler.kind": "grid", "budget.trials": 2, "early_stopping.kind": "none"}
    repeats = run(study_file, settings, {**until, **fixed, **terms}, resume=resume).repeats
    return {(read_width(repeat.configuration), int(repeat.configuration["seed"])) for repeat in repeats}


FIRST_ROUND = {(width, seed) for width in (4, 8) for seed in (1, 2, 3)}


def test_both_alternatives_get_the_same_seeds_up_to_the_largest_number(
    study_file: Path, settings: Settings
) -> None:
    repeated = run_until_decided(study_file, settings, {"repeats.max_seeds": 5})
    assert repeated in (FIRST_ROUND, FIRST_ROUND | {(width, seed) for width in (4, 8) for seed in (4, 5)})


def test_a_budget_that_ends_within_a_round_leaves_the_rest_of_it_to_a_resume(
    study_file: Path, settings: Settings
) -> None:
    """Two trials and two of six repeats are within 3,500 tokens. Within the indifference no seeds follow."""
    terms = {"repeats.indifference": 1e3}
    cut = run_until_decided(study_file, settings, {**terms, "budget.tokens": 3_500})
    assert 0 < len(cut) < len(FIRST_ROUND)
    for _ in range(2):
        assert run_until_decided(study_file, settings, terms, resume=True) == FIRST_ROUND


def read_width(configuration: dict[str, Any]) -> int:
    return int(configuration["model"]["width"])


def test_repeats_have_the_precision_of_their_terms(study_file: Path, settings: Settings) -> None:
    """A trial of another precision is repeated under its own seed, too."""
    result = run(study_file, settings, {**REPEATED, "repeats.precision": "bfloat16"})
    configs = [TrialConfig.model_validate(repeat.configuration) for repeat in result.repeats]
    found = sorted((config.seed, config.gradient_training.precision) for config in configs)
    assert found == [(seed, "bfloat16") for seed in range(3)]


def test_a_study_that_has_begun_has_its_terms_in_its_folder(study_file: Path, settings: Settings) -> None:
    terms = {"question": "Is it open?", "budget.trials": 1}
    result = run(study_file, settings, terms, PackingExecutor())
    assert read_stored_terms(settings.studies_folder, result.resolved.id).question == "Is it open?"


def test_an_executor_is_connected_once_for_trials_and_repeats(repeated: RepeatedStudy) -> None:
    assert len(repeated.result.repeats) == 2
    assert repeated.executor.connections == [(2, 3)]


@pytest.mark.parametrize(
    ("terms", "at_once"),
    [
        ({"resources.max_concurrent": 2}, 2),
        ({"resources.max_concurrent": 5}, 4),
        ({"repeats.best": 2}, 8),
        ({"repeats.until": "decided"}, None),
    ],
)
def test_an_executor_is_connected_for_as_many_trials_or_repeats_as_may_run_at_once(
    study_file: Path, settings: Settings, terms: dict[str, Any], at_once: int | None
) -> None:
    executor = PackingExecutor()
    run(study_file, settings, terms, executor)
    assert executor.connections == [(1, at_once)]


@pytest.mark.parametrize(
    ("terms", "gpu_bytes", "share"),
    [
        ({"gpus_per_trial": "fit", "gpu_memory": "6GB"}, 12 * GB, 0.5),
        ({"gpus_per_trial": "fit"}, 6 * GB, 0.5),
        ({"gpus_per_trial": 0.25}, None, 0.25),
    ],
)
def test_a_trial_gets_the_share_of_a_gpu_that_it_needs(
    study_file: Path, settings: Settings, terms: dict[str, Any], gpu_bytes: int | None, share: float
) -> None:
    space = study_file.with_name("space.toml")
    space.write_text(
        space.read_text().replace("{ choice = [4, 8] }", "4000").replace("{ int = [1, 2] }", "1")
    )
    executor = PackingExecutor(gpu_bytes)
    run(study_file, settings, {f"resources.{name}": value for name, value in terms.items()}, executor)
    assert [assignment.gpus for assignment in executor.assignments] == [share]
    assert executor.average_gpus == [share]


def test_trials_that_fit_a_gpu_of_unknown_memory_are_refused(study_file: Path, settings: Settings) -> None:
    with pytest.raises(StudyError, match=r'no node has a GPU now; set it under .*gpu_memory = "24GB"'):
        run(study_file, settings, {"resources.gpus_per_trial": "fit"}, PackingExecutor())


def test_a_study_with_an_open_trial_is_not_run_again_without_resume(
    study_file: Path, settings: Settings
) -> None:
    run(study_file, settings, {"budget.trials": 1}, PackingExecutor())
    with pytest.raises(StudyError, match="has begun: 0 of 1 trial ended; continue with: memtune search"):
        run(study_file, settings, {"budget.trials": 1})
    assert len(run(study_file, settings, {"budget.trials": 1}, resume=True).outcomes) == 1


def test_a_refused_resume_creates_no_study(study_file: Path, settings: Settings) -> None:
    first = run(study_file, settings, {"budget.trials": 1})
    with pytest.raises(StudyError, match=r"changed since study .*: training.tokens .*900 to 600"):
        run(study_file, settings, {"budget.trials": 1, "training.tokens": 600}, resume=True)
    assert StudyReader(settings.study_database).list_ids() == [first.resolved.id]


class FailingExecutor(InProcessExecutor):
    """Does not connect; before it fails, another process looks at the study."""

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look

    def connect(self, cpus_per_trial: int, max_concurrent_trials: int | None) -> None:
        self._look()
        raise StudyError("no node has a core")


def test_a_study_whose_start_failed_was_never_there_and_hides_no_other(
    study_file: Path, settings: Settings
) -> None:
    changed = {"training.tokens": 600}
    started = resolve(study_file, settings, **changed).id
    seen = list[str]()

    def look() -> None:
        done = CliRunner().invoke(app, ["study", "show", started])
        seen.append(str(done.exception))

    with pytest.raises(StudyError, match="no node has a core"):
        run(study_file, settings, changed, FailingExecutor(look))
    assert seen[0].startswith(f'no study "{started}"')
    assert StudyReader(settings.study_database).list_ids() == []
    finished = run(study_file, settings, {"budget.trials": 1})
    assert open_view("layers", settings).id == finished.resolved.id
    assert len(run(study_file, settings, {**changed, "budget.trials": 1}).outcomes) == 1


@pytest.mark.parametrize("phase", [0, 1])
def test_a_driver_whose_study_was_taken_over_starts_no_trial_and_no_repeat(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, phase: int
) -> None:
    resolved = resolve(study_file, settings, **REPEATED)
    with pytest.raises(StudyError, match="was taken over"):
        run(study_file, settings, REPEATED, ExpiringExecutor(settings, resolved.id, phase, monkeypatch))
    stored = StudyReader(settings.study_database).read(resolved.id)
    assert (len(stored.outcomes), stored.repeats) == (phase, [])


def test_a_driver_whose_study_was_taken_over_leaves_the_end_of_its_run_to_the_other_driver(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = {"budget.trials": 1}
    resolved = resolve(study_file, settings, **terms)
    run(study_file, settings, terms, conclude=lambda: take_over(settings, resolved.id, monkeypatch))
    (study,) = find_runs(settings, resolved.id, "study")
    assert study.info.status == "RUNNING"


class InterveningExecutor(InProcessExecutor):
    """Something happens before, or after, its trials run."""

    def __init__(
        self, before: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None
    ) -> None:
        self._before, self._after = before, after

    def run_trials(self, run: ExecutorRun) -> None:
        self._before()
        super().run_trials(run)
        self._after()


def test_a_study_whose_corpus_was_replaced_meanwhile_is_to_be_started_again_and_not_resumed(
    study_file: Path, settings: Settings
) -> None:
    def replace_corpus() -> None:
        splits = dict.fromkeys(("train", "valid", "test"), [["another", "text"]] * 20)
        import_corpus("tiny", splits, settings.corpus_store, replace=True)

    with pytest.raises(StudyError, match=r"ends, its corpus was replaced .*; start a new study"):
        run(study_file, settings, {"budget.trials": 1}, InterveningExecutor(before=replace_corpus))


def test_records_are_not_waited_for_where_the_study_database_has_not_answered_for_the_limit(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be sent only while it says that the driver has the study."""
    journal = Path(settings.study_database.removeprefix("journal://"))

    def lose_database() -> None:
        for file in (journal, journal.with_name(f"{journal.name}.drivers")):
            file.rename(f"{file}.away")
        monkeypatch.setattr(outage_buffer, "OUTAGE_LIMIT_SECONDS", 0.0)
        monkeypatch.setattr(study_lease, "read_clock_seconds", lambda: float("inf"))

    start = time.monotonic()
    with pytest.raises(StorageUnavailableError, match="has not answered"):
        run(study_file, settings, {"budget.trials": 1}, InterveningExecutor(after=lose_database))
    assert time.monotonic() - start < study_run.FLUSH_SECONDS / 2


def test_a_trial_that_a_truncated_journal_has_lost_is_named(
    study_file: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    terms = {"budget.trials": 2, "early_stopping.kind": "none"}
    lost = run(study_file, settings, terms).outcomes[-1]
    journal = Path(settings.study_database.removeprefix("journal://"))
    lines = journal.read_bytes().splitlines(keepends=True)
    last_creation = max(number for number, line in enumerate(lines) if b'"op_code":4' in line)
    assert not caplog.messages
    journal.write_bytes(b"".join(lines[:last_creation]))
    study = open_view("layers", settings)
    message = f"has checkpoints of 1 trial that its study database lacks ({lost.identity})"
    assert f"study {study.id} {message}" in caplog.text
    caplog.clear()
    Path(settings.name_checkpoint_root(study.id), ".hidden").mkdir()
    assert run(study_file, settings, terms, resume=True).outcomes[-1].curve == lost.curve
    assert message in caplog.text
    caplog.clear()
    assert open_view("layers", settings).stored.outcomes[-1].curve == lost.curve
    assert not caplog.messages
    folder = Path(settings.name_checkpoint_root(study.id))
    folder.rename(folder.with_name("moved"))
    folder.touch()
    assert open_view("layers", settings).stored.outcomes, "which needs no checkpoints"
