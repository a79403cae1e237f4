"""A user's mixer from one file: named in a study in place of a table, and compared with built-in ones."""

from pathlib import Path

import pytest

from memtune.errors import PluginError
from memtune.settings import Settings
from memtune.spaces import RandomChooser
from memtune.studies.definition.resolved_study import ResolvedStudy
from tests.unit.plugins.user_files import ROOT
from tests.unit.studies.study_files import resolve

EXAMPLE = ROOT / "docs" / "examples" / "plugins" / "memtune_examples" / "moving_average.py"
STUDY_TOML = """question = "Is my mixer better than GLA?"

corpus = "tiny"
models = ["my_mixer.py"]
spaces = ["mixer_blocks"]
compare = "model.mixer"

[model]
width = 8
layers = 1
mixer = { choice = ["moving_average", "gla", "mesa"] }

[training]
tokens = 900
report_every = 300
"""


@pytest.fixture
def resolved(tmp_path: Path, settings: Settings) -> ResolvedStudy:
    (tmp_path / "my_mixer.py").write_text(EXAMPLE.read_text())
    (tmp_path / "study.toml").write_text(STUDY_TOML)
    return resolve(tmp_path / "study.toml", settings)


def test_a_mixer_that_does_not_work_stops_the_study_before_it_starts(
    tmp_path: Path, settings: Settings
) -> None:
    wrong = EXAMPLE.read_text().replace('[state["average"]]', '[state["mean"]]')
    (tmp_path / "my_mixer.py").write_text(wrong)
    (tmp_path / "study.toml").write_text(STUDY_TOML)
    with pytest.raises(PluginError, match=r"my_mixer\.py .* line 71: KeyError: 'mean'; memtune model check"):
        resolve(tmp_path / "study.toml", settings)


def test_a_users_mixer_is_an_alternative_by_its_name_and_its_trials_have_its_source(
    resolved: ResolvedStudy,
) -> None:
    models = [resolved.sample(RandomChooser(seed)).model_dump()["model"] for seed in range(20)]
    (source,) = resolved.sources
    assert {model["mixer"]["kind"]: model["mixer"].get("source") for model in models} == {
        "moving_average": source.digest,
        "matrix_memory": None,
        "mesa": None,
    }


def test_a_kind_whose_defaults_are_published_is_the_published_alternative(resolved: ResolvedStudy) -> None:
    """Else its trials would count for an alternative that the study does not have."""
    assert [*resolved.alternatives] == ["mixer moving_average", "mixer gla", "mixer mesanet"]


def test_the_source_of_a_mixer_decides_which_study_it_is(
    resolved: ResolvedStudy, tmp_path: Path, settings: Settings
) -> None:
    assert resolve(tmp_path / "study.toml", settings).id == resolved.id
    (tmp_path / "my_mixer.py").write_text(EXAMPLE.read_text() + "# changed\n")
    assert resolve(tmp_path / "study.toml", settings).id != resolved.id
