"""A user's family in a study: compared with the LSTM, on workers, in the records, and in the registry."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow.tracking._tracking_service import utils as tracking_service_utils

from memtune.api import judge, run_search, train
from memtune.errors import ArgumentError, MissingSourceError, PluginError, StudyError
from memtune.models import MODELS
from memtune.ray_backend.jobs.job_submission import STUDY_FOLDER, collect_study_files, write_package
from memtune.results.loaded_models import load
from memtune.results.model_evaluation import evaluate
from memtune.results.study.study_detail import show_study
from memtune.search import StudyReader
from memtune.settings import Settings
from memtune.studies.definition.study_loader import load_study
from memtune.studies.executor import InProcessExecutor
from memtune.studies.study_run import StudyResult
from memtune.studies.trial_worker import Assignment, TrialWorker
from memtune.tracking.mlflow_connection import connect
from memtune.training import TrialConfig
from tests.assignments import assign_first_trial
from tests.conftest import import_tiny_corpus, open_home
from tests.registries import isolate_registries
from tests.unit.plugins.user_files import write_family, write_study
from tests.unit.studies.study_files import resolve

pytestmark = pytest.mark.usefixtures("without_report")

FAMILY = "models:/tiny@best-my_memory"
TRIAL_OF_A_USERS_FAMILY = """
corpus = "tiny"
models = ["my_memory.py"]
model.family = "my_memory"
model.width = 4
training.tokens = 300
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> tuple[Path, StudyResult]:
    """A folder with a home in which the study has ended, and its result; the file of its family is gone."""
    folder = tmp_path_factory.mktemp("searched")
    study = write_study(folder, marker=folder / "executed")
    with open_home(folder, empty_store) as settings, isolate_registries():
        import_tiny_corpus(settings)
        result = run_search(study, settings=settings, executor=InProcessExecutor())
    (folder / "my_memory.py").unlink()
    return folder, result


@pytest.fixture(scope="module")
def searched_folder(ended: tuple[Path, StudyResult]) -> Path:
    return ended[0]


@pytest.fixture
def executed(searched_folder: Path) -> Path:
    """The file that an execution of the ended study's family makes."""
    mark = searched_folder / "executed"
    mark.unlink(missing_ok=True)
    return mark


@pytest.fixture
def searched(searched_folder: Path, executed: Path, settings: Settings) -> str:
    """The id of a study that another process ran in the home: nothing of it is loaded, its file is gone."""
    shutil.copytree(searched_folder / "home", settings.home, dirs_exist_ok=True)
    # As in a new process: MLflow remembers the folder of each run.
    tracking_service_utils._artifact_repos_cache.clear()
    assert "my_memory" not in MODELS
    return next((settings.home / "studies").iterdir()).name


def test_the_source_decides_which_study_it_is(study: Path, settings: Settings) -> None:
    first = resolve(study, settings).id
    other = study.with_name("copy.toml")
    other.write_text(study.read_text().replace("my_memory.py", "./my_memory.py"))
    assert resolve(other, settings, name="memories").id == first
    write_family(study.with_name("my_memory.py"), before="# changed\n")
    assert resolve(study, settings).id != first


def test_a_study_is_resumed_with_its_family(
    searched: str, executed: Path, tmp_path: Path, settings: Settings
) -> None:
    study = write_study(tmp_path, marker=executed)
    result = run_search(
        study, {"budget.trials": 5}, settings=settings, executor=InProcessExecutor(), resume=True
    )
    assert (result.resolved.id, len(result.outcomes)) == (searched, 5)


def test_a_users_family_competes_with_the_built_in_ones_and_its_source_is_recorded(
    ended: tuple[Path, StudyResult], searched: str, settings: Settings
) -> None:
    _, result = ended
    assert {outcome.family for outcome in result.outcomes} == {"lstm", "my_memory"}
    own = [o.configuration["model"] for o in result.outcomes if o.family == "my_memory"]
    (source,) = result.resolved.sources
    assert all(model["source"] == source.digest for model in own)

    client = connect(settings.tracking_uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "params.`model.family` = 'my_memory'")
    assert runs
    for run in runs:
        assert run.data.params["model.source"] == source.digest
        assert "source/my_memory.py" in [f.path for f in client.list_artifacts(run.info.run_id, "source")]


@pytest.mark.parametrize("open_any", [evaluate, load], ids=lambda function: function.__name__)
def test_a_registered_model_needs_consent_before_its_source_is_executed(
    open_any: Callable[..., object], searched: str, settings: Settings, executed: Path
) -> None:
    with pytest.raises(PluginError, match=r"my_memory\.py, sha256 \w{64}, .* repeat with --trust-code"):
        open_any(FAMILY, settings=settings)
    with pytest.raises(ArgumentError, match=r"trust_code must be True or False; got 'no' \(str\)"):
        open_any(FAMILY, settings=settings, trust_code="no")
    assert not executed.exists()
    assert open_any(FAMILY, settings=settings, trust_code=True)
    assert executed.exists()


def test_a_trial_needs_consent_and_its_table_does_not(
    searched: str, settings: Settings, executed: Path
) -> None:
    detail = show_study(searched, settings)
    number = next(trial.number for trial in detail.trials if trial.family == "my_memory")
    own = [trial for trial in detail.trials if trial.family == "my_memory"]
    assert all(trial.sizes and trial.sizes.parameters > 9 and trial.sizes.state for trial in own)
    assert detail.front is not None
    assert detail.front.unmeasured == ()
    with pytest.raises(PluginError, match=r"my_memory\.py"):
        evaluate(f"{searched}#{number}", settings=settings)
    assert not executed.exists()
    assert evaluate(f"{searched}#{number}", settings=settings, trust_code=True)


def test_the_models_of_built_in_families_need_no_consent(searched: str, settings: Settings) -> None:
    assert evaluate("models:/tiny@best-lstm", settings=settings)


def test_an_altered_source_is_refused_with_consent(searched: str, settings: Settings, executed: Path) -> None:
    (stored,) = (settings.home / "studies" / searched / "sources").iterdir()
    document = json.loads(stored.read_text())
    document["files"]["my_memory.py"] += "\n# altered\n"
    stored.write_text(json.dumps(document))
    number = next(t.number for t in show_study(searched, settings).trials if t.family == "my_memory")
    with pytest.raises(PluginError, match="it was altered"):
        evaluate(f"{searched}#{number}", settings=settings, trust_code=True)
    assert not executed.exists()


def test_a_configuration_without_its_source_keeps_its_identity(study: Path, settings: Settings) -> None:
    with isolate_registries():
        resolved = resolve(study, settings)
        source = resolved.sources[0].digest
        config = TrialConfig.model_validate(
            {"model": {"family": "my_memory", "source": source}, "training": {"tokens": 9}}
        )
        identity, stored = config.identity("corpus"), config.model_dump(mode="json")
    read = TrialConfig.model_validate(stored)
    assert read.identity("corpus") == identity
    with pytest.raises(MissingSourceError, match="not loaded"):
        read.parameter_count(9)


def write_assignment(study: Path, settings: Settings) -> str:
    """The assignment of a trial of the user's family as the driver sends it."""
    with isolate_registries():
        resolved = resolve(study, settings)
        configuration = {"model": {"family": "my_memory", "width": 4}, "training": {"tokens": 90}}
        return assign_first_trial(resolved, configuration).model_dump_json()


def test_a_worker_without_the_file_trains_from_the_assignment(
    study: Path, settings: Settings, tmp_path: Path
) -> None:
    assignment = write_assignment(study, settings)
    (tmp_path / "my_memory.py").unlink()
    report = TrialWorker(Assignment.model_validate_json(assignment)).step()
    assert report.error is None
    assert report.environment_fault is None
    assert report.is_finished


def test_an_import_that_fails_on_a_worker_is_the_workers_fault(
    study: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial stays open, and the study stops with the name of the module."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "library_of_the_driver.py").write_text("x = 1\n")
    write_family(tmp_path / "my_memory.py", before="import library_of_the_driver\n")
    with monkeypatch.context() as driver:
        driver.syspath_prepend(str(tmp_path / "library"))
        assignment = write_assignment(study, settings)
    monkeypatch.delitem(__import__("sys").modules, "library_of_the_driver")
    report = TrialWorker(Assignment.model_validate_json(assignment)).step()
    assert report.environment_fault is not None
    assert "my_memory.py" in report.environment_fault
    assert "No module named 'library_of_the_driver'" in report.environment_fault


def test_one_trial_of_a_users_family_is_trained_and_registered(
    family_file: Path, settings: Settings, tmp_path: Path
) -> None:
    trial = tmp_path / "trial.toml"
    trial.write_text(
        'corpus = "tiny"\nmodels = ["my_memory.py"]\n[model]\nfamily = "my_memory"\nwidth = 4\n'
        "[training]\ntokens = 900\n"
    )
    with isolate_registries():
        trained = train(trial, settings=settings)
    assert trained.registration is not None
    with pytest.raises(PluginError, match="--trust-code"):
        evaluate("models:/tiny@champion", settings=settings)
    assert evaluate("models:/tiny@champion", settings=settings, trust_code=True)


@pytest.mark.parametrize(
    ("wrong", "right", "named"),
    [
        ("state_size(self) -> int:\n        return self.width", "", "Error"),
        ("+ self.width**2 + output", "+ output", "it has .* parameters, and parameter_count gives"),
        ("return hidden_BTH, {", "return hidden_BTH[:, :1], {", "its logits have shape"),
        ("config.alpha * context_BH", "config.beta * context_BH", "AttributeError"),
        ("torch.stack(contexts, dim=1))", "torch.stack(contexts, dim=1) * torch.nan)", "are not numbers"),
        ("torch.stack(contexts, dim=1))", "torch.stack(contexts, 1).roll(-1, 1))", "depend on later words"),
        ('{"context": context_BH}', '{"context": context_BH * 0}', "the state lacks what they need"),
    ],
)
def test_a_family_that_does_not_work_stops_the_study_before_it_starts(
    wrong: str, right: str, named: str, study: Path, settings: Settings
) -> None:
    file = study.with_name("my_memory.py")
    file.write_text(file.read_text().replace(wrong, right or wrong.replace("self.width", "self.wdth")))
    with pytest.raises((PluginError, AttributeError), match=named):
        resolve(study, settings)


FAILING = {
    5: ("multiply_adds(self, vocabulary_size: int) -> int", "{}[0]"),
    6: ("multiply_adds(self, vocabulary_size: int) -> int", "float('nan')"),
    7: ("parameter_count(self, vocabulary_size: int) -> int", "'many'"),
    9: ("state_size(self) -> int", "1 // 0"),
    10: ("describe(self) -> dict[str, str | int | float]", "{}[0]"),
    11: ("describe(self) -> dict[str, str | int | float]", "{'width': [self.width]}"),
}
"""A method of a family and what it returns, by the width at which it fails."""


def test_a_configuration_whose_formulas_fail_is_refused_and_the_search_continues(
    study: Path, settings: Settings
) -> None:
    """The first check of a family samples some configurations only, so a study meets others."""
    file, space = study.with_name("my_memory.py"), study.with_name("my_memory.toml")
    for width, (method, result) in FAILING.items():
        head = f"    def {method}:\n"
        failing = f"{head}        if self.width == {width}:\n            return {result}\n"
        file.write_text(file.read_text().replace(head, failing))
    space.write_text(space.read_text().replace("[4, 8]", f"{[4, 8, *FAILING]}"))
    point = '{ "model.family" = "my_memory", "model.width" = 4 }'
    points = ", ".join(point.replace("4", str(width)) for width in FAILING)
    study.write_text(study.read_text().replace(point, points))
    found = run_search(study, {"budget.trials": 2}, settings=settings, executor=InProcessExecutor())
    widths = [outcome.configuration["model"]["width"] for outcome in found.outcomes]
    assert len(widths) == 2
    assert not FAILING.keys() & set(widths)
    refused = StudyReader(settings.study_database).read(found.resolved.id).refused
    assert FAILING.keys() <= {trial.configuration["model"]["width"] for trial in refused}


@pytest.mark.parametrize("models", ['"my_memory.py"', "[1]", "{ a = 1 }"])
def test_models_must_be_a_list_of_names(models: str, study: Path) -> None:
    study.write_text(study.read_text().replace('["my_memory.py"]', models))
    with pytest.raises(StudyError, match="models must be a list of Python files"):
        load_study(study)


def test_a_submitted_study_takes_its_model_file_and_the_space_beside_it(
    study: Path, settings: Settings, tmp_path: Path
) -> None:
    files = collect_study_files(study, load_study(study))
    assert set(files.texts) == {"memories.toml", "space.toml", "my_memory.py", "my_memory.toml"}
    write_package(files, tmp_path / "package")
    packaged = tmp_path / "package" / STUDY_FOLDER / files.study
    here = resolve(study, settings).id
    assert resolve(packaged, settings).id == here


def test_two_versions_of_a_familys_file_are_two_configurations(tmp_path: Path, settings: Settings) -> None:
    trials = []
    for version, before in (("first", ""), ("second", "# a second version\n")):
        (folder := tmp_path / version).mkdir()
        write_family(folder / "my_memory.py", before=before)
        (trial := folder / "trial.toml").write_text(TRIAL_OF_A_USERS_FAMILY)
        trials.append(trial)
    judged = judge(*trials, indifference=100.0, settings=settings, progress=False)
    assert judged.outcome == "equal"
    assert (judged.baseline, judged.candidate) == (str(trials[0]), str(trials[1]))
    same = judge(trials[0], trials[0], settings=settings, progress=False)
    assert same.outcome == "same configuration"
