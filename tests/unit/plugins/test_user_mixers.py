"""A user's mixer from one file: named in a study in place of a table, and compared with built-in ones."""

from pathlib import Path

import pytest

from memtune.errors import MissingSourceError, PluginError
from memtune.experiments.single_trial import load_trial
from memtune.model_checks import describe_family, find_family
from memtune.models import MixerBlocksConfig
from memtune.models.mixers.mixer_registry import MIXERS
from memtune.plugins import load_plugin_file
from memtune.results.study.study_detail import format_trial_file
from memtune.results.study.study_view import StudyView
from memtune.search import StudyReader
from memtune.settings import Settings
from memtune.spaces import RandomChooser
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.trial_limits import make_trial_config
from memtune.values import parse
from tests.presence import require
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


@pytest.mark.parametrize(
    "mixer",
    [
        'mixer = { choice = ["moving_average", "gla"] }',
        'mixer = { one_of = "kind", moving_average = {}, min_gru = {} }',
        'mixer = "moving_average"',
        'mixer = { choice = ["moving_average decay=0.5", "gla"] }',
    ],
)
def test_a_study_with_a_users_mixer_is_read_without_its_source(
    mixer: str, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_mixer.py").write_text(EXAMPLE.read_text())
    names = 'mixer = { choice = ["moving_average", "gla", "mesa"] }'
    text = STUDY_TOML.replace(names, mixer).replace('compare = "model.mixer"\n', "")
    (tmp_path / "study.toml").write_text(text)
    resolved = resolve(tmp_path / "study.toml", settings)
    proposals = resolved.open_proposals()
    for number in range(4):
        trial = require(proposals.ask())
        proposals.report(trial.number, 900, 1.0 + number)
        proposals.complete(trial.number, 1.0 + number)
    for entries in ("_loaded", "_class_by_source"):
        monkeypatch.setattr(MIXERS, entries, {})
    outcomes = StudyView(StudyReader(settings.study_database).read(resolved.id), settings).stored.trials
    models = [outcome.config.model for outcome in outcomes]
    (own, *_) = [model for model in models if not model.is_loaded]
    assert str(own.describe()["mixer"]).partition(" ")[0] == "moving_average"
    with pytest.raises(MissingSourceError, match='the mixer "moving_average" of the source'):
        own.parameter_count(10)


def test_the_file_of_a_trial_names_the_file_of_its_mixer(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "my_mixer.py").write_text(EXAMPLE.read_text())
    (tmp_path / "study.toml").write_text(STUDY_TOML.replace('"gla", "mesa"]', "]"))
    resolved = resolve(tmp_path / "study.toml", settings)
    resolved.store_terms()
    trial = require(resolved.open_proposals().ask())
    (tmp_path / "trial.toml").write_text(format_trial_file(resolved.id, trial.number, settings))
    loaded = load_trial(tmp_path / "trial.toml")
    assert loaded.trial == make_trial_config(trial.configuration)


def test_a_users_mixer_is_described_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "my_mixer.py").write_text(EXAMPLE.read_text())
    described = describe_family(find_family(str(tmp_path / "my_mixer.py")), None, 10)
    assert (described.name, described.title) == ("moving_average", "The mixer moving_average of mixer_blocks")


def test_a_users_mixer_that_extends_a_built_in_one_keeps_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "from typing import Literal\n"
        "from memtune.models.mixers.attention import AttentionConfig\n\n"
        "class Loud(AttentionConfig):\n"
        '    kind: Literal["loud"] = "loud"\n'
        "    gains: tuple[float, ...] = (1.0,)\n"
        '    note: str = ""\n'
    )
    load_plugin_file(tmp_path / "loud.py")
    text = 'loud window=8 gains=[1.0,2.0] note="a 1"'
    named = parse(MixerBlocksConfig, {"mixer": text}, "test")
    assert named.describe()["mixer"] == text
    assert named.mixer.kind == "loud"
    assert parse(MixerBlocksConfig, {"mixer": 'loud note="1"'}, "test").describe()["mixer"] == 'loud note="1"'
