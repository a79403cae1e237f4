"""A report holds what repeats its study: a file that is the same study again, and versions."""

from pathlib import Path

import pytest

from memtune.api import run_search
from memtune.results.study.study_report import report_study
from memtune.settings import Settings
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.studies.executor import InProcessExecutor
from memtune.tracking import read_code_version

pytestmark = pytest.mark.usefixtures("without_report")


def test_the_study_file_of_a_report_is_the_same_study(study_file: Path, settings: Settings) -> None:
    run_search(study_file, settings=settings, executor=InProcessExecutor())
    found = report_study("layers", settings)
    again = study_file.parent / "copy" / "layers.toml"
    again.parent.mkdir()
    (again.parent / "space.toml").write_text((study_file.parent / "space.toml").read_text())
    again.write_text(found.provenance.study_file)
    assert resolve_study(again, load_study(again), settings).id == found.detail.summary.id

    assert found.provenance.trained_with.keys() >= {"memtune", "torch", "python", "system", "processor"}
    assert found.provenance.written_with.keys() >= {"memtune", "torch", "ray", "optuna", "mlflow"}
    assert found.provenance.trained_with["memtune"] == read_code_version()
    assert found.provenance.corpus_digest
    assert found.provenance.version is not None
    commands = {row.purpose: row.command for row in found.provenance.commands}
    assert commands["evaluate the best model"] == "memtune evaluate models:/tiny/1"
