"""Studies of a user's output layer or task are read where its source is not loaded."""

from pathlib import Path

import pytest

from memtune.errors import MissingSourceError
from memtune.results.study.study_catalogue import list_studies
from memtune.results.study.study_detail import show_study
from memtune.results.study.study_view import open_view
from memtune.settings import Settings
from memtune.training import TrialConfig
from tests.presence import require
from tests.registries import isolate_registries
from tests.unit.plugins.user_files import ROOT
from tests.unit.studies.study_files import resolve

EXAMPLES = ROOT / "docs" / "examples" / "plugins" / "memtune_examples"
USES = {
    "low_rank": 'tie_output = false\noutput = { kind = "low_rank", rank = 4 }',
    "smoothed_task": '[task]\nkind = "smoothed_language_modelling"',
}
STUDY_TOML = """question = "Is it read?"
corpus = "tiny"
models = ["{name}.py"]
spaces = ["lstm"]
[training]
{length}
[model]
width = 8
{use}
"""


def end_trial(name: str, folder: Path, settings: Settings, length: str = "tokens = 900") -> str:
    """A study of an example with one complete trial; the example is not loaded any more."""
    (folder / f"{name}.py").write_text((EXAMPLES / f"{name}.py").read_text())
    (folder / "study.toml").write_text(STUDY_TOML.format(name=name, use=USES[name], length=length))
    with isolate_registries():
        resolved = resolve(folder / "study.toml", settings)
        resolved.store_terms()
        proposals = resolved.open_proposals()
        trial = require(proposals.ask())
        proposals.report(trial.number, 900, 1.0)
        proposals.complete(trial.number, 1.0)
    return resolved.id


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("length", ["tokens = 900", "epochs = 2"])
def test_a_study_is_listed_and_shown_with_the_objective_of_its_task(
    name: str, length: str, tmp_path: Path, settings: Settings
) -> None:
    study = end_trial(name, tmp_path, settings, length)
    assert [found.id for found in list_studies(settings)] == [study]
    best = require(show_study(study, settings).best)
    assert best.figure == pytest.approx(2.718281828)
    config = open_view(study, settings).stored.trials[0].config
    assert not config.is_loaded
    with pytest.raises(MissingSourceError, match="of the source with sha256"):
        config.parameter_count(10)


def test_a_task_whose_objective_is_not_stored_leaves_its_study_out_of_the_list(
    tmp_path: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """As earlier versions stored it."""
    study = end_trial("smoothed_task", tmp_path, settings)
    journal = Path(settings.study_database.removeprefix("journal://"))
    stored = journal.read_text()
    journal.write_text(stored.replace(',"objective":"perplexity"', ""))
    assert journal.read_text() != stored
    assert list_studies(settings) == []
    assert f"study {study} is not listed: the task" in caplog.text


def test_a_task_of_a_source_that_is_not_loaded_builds_no_model() -> None:
    task = {"kind": "mine", "source": "0" * 64, "objective": "accuracy"}
    config = TrialConfig.model_validate(
        {"model": {"family": "lstm"}, "task": task, "training": {"tokens": 9}}
    )
    assert config.label == "sentence, mine"
    with pytest.raises(MissingSourceError, match='the task "mine"'):
        config.task.build(config.model, 10)
