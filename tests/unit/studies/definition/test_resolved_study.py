"""A resolved study: its id, its configurations, and the limits within which they are tried."""

from dataclasses import replace
from pathlib import Path

import pytest

from memtune.errors import ConfigurationError, SpaceError, StudyError
from memtune.models import MixerBlocksConfig
from memtune.models.mixers.mixer_registry import PRESETS
from memtune.settings import Settings
from memtune.spaces import RandomChooser
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import open_study, resolve_study
from memtune.studies.seed_repeats import make_repeat_space
from tests.presence import require
from tests.unit.studies.study_files import resolve


def test_constants_of_the_study_override_the_space(study_file: Path, settings: Settings) -> None:
    study_file.write_text(study_file.read_text() + "\n[model]\nwidth = 6\n")
    found = resolve(study_file, settings)
    assert {found.sample(RandomChooser(seed)).model.describe()["width"] for seed in range(9)} == {6}


def test_the_same_content_is_the_same_study_whatever_its_budget(study_file: Path, settings: Settings) -> None:
    one, more = resolve(study_file, settings), resolve(study_file, settings, **{"budget.trials": 99})
    assert one.id == more.id


@pytest.mark.parametrize("change", [{"seed": 5}, {"sampler.kind": "random"}, {"training.tokens": 901}])
def test_other_terms_make_another_study(
    study_file: Path, settings: Settings, change: dict[str, object]
) -> None:
    assert resolve(study_file, settings).id != resolve(study_file, settings, **change).id


def test_another_space_makes_another_study(study_file: Path, settings: Settings) -> None:
    before = resolve(study_file, settings).id
    space = study_file.parent / "space.toml"
    space.write_text(space.read_text().replace("[1, 2]", "[1, 3]"))
    assert resolve(study_file, settings).id != before


POINTS = "points = [{ model.layers = 2 }, { model.layers = 1 }]\n"


def test_points_are_tried_first(study_file: Path, settings: Settings) -> None:
    study_file.write_text(POINTS + study_file.read_text())
    proposals = resolve(study_file, settings).open_proposals()
    layers = [require(proposals.ask()).configuration["model"]["layers"] for _ in range(2)]
    assert layers == [2, 1]


def test_a_point_outside_of_the_space_is_refused_before_anything_starts(
    study_file: Path, settings: Settings
) -> None:
    study_file.write_text(POINTS.replace("2", "7") + study_file.read_text())
    with pytest.raises(SpaceError, match=r"point 1: model.layers = 7 is not in the space.* value is 2"):
        resolve(study_file, settings)


def resolve_mixers(study_file: Path, settings: Settings, point: str, mixer: str = "") -> ResolvedStudy:
    """A study of mixers with an initial point, and with a table [model.mixer] of its own."""
    text = study_file.read_text().replace('["space.toml"]', '["mixer_blocks", "lstm"]')
    study_file.write_text(f"points = [{{ {point} }}]\n{text}\n{mixer}")
    return resolve(study_file, settings)


@pytest.mark.parametrize("name", PRESETS)
def test_a_point_may_name_any_published_mixer(study_file: Path, settings: Settings, name: str) -> None:
    found = resolve_mixers(study_file, settings, f'model.mixer = "{name}"')
    (point,) = found.list_initial_points()
    drawn = found.sample(RandomChooser(1, point)).model
    assert isinstance(drawn, MixerBlocksConfig)
    assert drawn.mixer == PRESETS[name]


def test_mixers_with_fields_are_alternatives_of_one_size(study_file: Path, settings: Settings) -> None:
    choice = 'mixer = { choice = ["gla", "attention window=8 heads=2"] }'
    text = study_file.read_text().replace('["space.toml"]', '["mixer_blocks"]')
    study_file.write_text(
        f'compare = "model.mixer"\n{text}\n[model]\nwidth = {{ fit_state = 400 }}\npattern = "m"\n{choice}\n'
    )
    found = resolve(study_file, settings)
    assert [*found.alternatives] == ["mixer gla", "mixer attention heads=2 window=8"]
    sizes = {sample.model.describe()["mixer"]: sample.model.state_size() for sample in found.draw(range(20))}
    assert sizes == dict.fromkeys(("gla", "attention heads=2 window=8"), pytest.approx(400, abs=60))


def test_configurations_that_differ_in_an_idle_field_alone_are_one(
    study_file: Path, settings: Settings
) -> None:
    """The packaged space searches the window of the alternate, which the pattern "m" lacks."""
    fixed = {
        "width": 8,
        "layers": 1,
        "pattern": "m",
        "convolution": 0,
        "output_gate": "none",
        "channel_ratio": 0.0,
        "dropout": 0.0,
        "tie_output": False,
        "mixer": "min_gru",
    }
    training = {"tokens": 900, "optimiser": {"kind": "muon", "learning_rate": 0.003, "weight_decay": 0.1}}
    study = {
        "name": "idle",
        "question": "?",
        "corpus": "tiny",
        "spaces": ["mixer_blocks"],
        "sampler": {"kind": "grid"},
        "model": fixed,
        "training": {**training, "schedule": {"kind": "constant"}},
    }
    path, opened = open_study(study)
    resolved = resolve_study(path, opened, settings)
    (trial,) = iter(resolved.open_proposals().ask, None)
    model = trial.configuration["model"]
    assert "alternate" not in model
    # Earlier versions have stored such fields: a repeat has them too, and so the identity of its trial.
    stored = replace(trial, configuration={**trial.configuration, "model": {**model, "alternate": "min_gru"}})
    repeat = require(resolved.open_proposals(repeats=make_repeat_space([stored], range(2))).ask())
    assert repeat.config.configuration_identity == stored.config.configuration_identity
    assert repeat.config.configuration_identity != trial.config.configuration_identity


TWO_AXES = """
[model.mixer]
one_of = "kind"
[model.mixer.matrix_memory]
decay = { choice = ["number", "vector"] }
"""


def test_a_named_mixer_has_the_defaults_of_the_fields_that_a_study_does_not_search(
    study_file: Path, settings: Settings
) -> None:
    found = resolve_mixers(study_file, settings, 'model.mixer = "kda"', TWO_AXES)
    (point,) = found.list_initial_points()
    assert point == {
        "family": "mixer_blocks",
        "mixer_blocks.model.mixer.kind": "matrix_memory",
        "mixer_blocks.model.mixer.matrix_memory.decay": "vector",
    }


@pytest.mark.parametrize(
    ("point", "mixer", "message"),
    [
        ('model.mixer = "kdaa"', "", 'no mixer "kdaa"; did you mean "kda"'),
        ('model.family = "lstm", model.mixer = "kda"', "", "no field model.mixer"),
        (
            'model.mixer = "gla"',
            TWO_AXES,
            r'model.mixer = "gla" has keys = "plain", which the space leaves at "unit"; '
            r'add keys = \{ choice = \["unit", "plain"\] \} to matrix_memory in \[model.mixer\]',
        ),
        ('model.mixer = "mesanet"', TWO_AXES, r"model.mixer.kind = 'mesa' is not in the space; allowed"),
        (
            'model.mixer = "deltanet"',
            TWO_AXES,
            r'"deltanet": model.mixer.decay = \'none\' is not in the space; allowed: \'number\', \'vector\'',
        ),
        (
            'model.mixer = "gla"',
            '[model]\nmixer = { choice = ["kda", "rwkv7"] }',
            r"model.mixer = 'gla' is not in the space; allowed: 'kda', 'rwkv7'",
        ),
    ],
)
def test_a_named_mixer_outside_of_the_space_is_refused_with_what_to_change(
    study_file: Path, settings: Settings, point: str, mixer: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        resolve_mixers(study_file, settings, point, mixer)


def test_the_settings_of_papers_are_tried_on_request(study_file: Path, settings: Settings) -> None:
    space = study_file.parent / "space.toml"
    space.write_text(space.read_text() + "\n[[points]]\nmodel.layers = 2\n")
    assert resolve(study_file, settings).list_initial_points() == []
    found = resolve(study_file, settings, points="papers")
    assert found.list_initial_points() == [{"model.layers": 2}]


def test_a_prior_from_papers_takes_the_families_in_turn_and_prefers_none(
    study_file: Path, settings: Settings
) -> None:
    """The sampler follows the first 20 points, and the study compares its families."""
    text = study_file.read_text().replace('["space.toml"]', '["mixer_blocks", "lstm", "rnn"]')
    study_file.write_text(text)
    points = resolve(study_file, settings, **{"sampler.prior": "papers"}).list_prior_points()
    families = [next(iter(point)).partition(".")[0] for point in points[:4]]
    assert families == ["mixer_blocks", "lstm", "rnn", "mixer_blocks"]
    assert not any("model.family" in point for point in points)


def test_a_budget_in_epochs_is_converted_to_tokens(study_file: Path, settings: Settings) -> None:
    study_file.write_text(study_file.read_text().replace("tokens = 900", "epochs = 2"))
    found = resolve(study_file, settings)
    assert found.trial_tokens == 2 * found.corpus["train"].token_count


def test_models_outside_the_parameter_budget_are_refused_with_their_sizes(
    study_file: Path, settings: Settings
) -> None:
    found = resolve(study_file, settings, **{"budget.max_parameters": 1_000})
    reasons = {
        found.limits.get_refusal_reason(found.sample(RandomChooser(seed)).model_dump(mode="json"))
        for seed in range(20)
    }
    assert None in reasons
    assert any("are more than max_parameters = 1,000" in reason for reason in reasons if reason)


def test_models_with_a_larger_state_than_the_budget_are_refused(study_file: Path, settings: Settings) -> None:
    """An LSTM of width 4 carries 8 numbers in each layer."""
    found = resolve(study_file, settings, **{"budget.max_state": 8})
    sample = found.sample(RandomChooser(0)).model_dump(mode="json")
    sample["model"] |= {"width": 4, "layers": 1}
    assert found.limits.get_refusal_reason(sample) is None
    sample["model"]["layers"] = 2
    reason = found.limits.get_refusal_reason(sample)
    assert reason == "a state of 16 numbers is more than max_state = 8"


def test_a_parameter_budget_that_no_model_meets_is_an_error_before_the_start(
    study_file: Path, settings: Settings
) -> None:
    with pytest.raises(StudyError, match=r"none of 200 sampled configurations .* max_parameters = 10"):
        resolve(study_file, settings, **{"budget.max_parameters": 10})


def test_gpus_that_fit_follow_each_trials_memory(study_file: Path, settings: Settings) -> None:
    space = study_file.parent / "space.toml"
    space.write_text(space.read_text().replace("[4, 8]", "[4, 4000]").replace("{ int = [1, 2] }", "1"))
    found = resolve(
        study_file, settings, **{"resources.gpus_per_trial": "fit", "resources.gpu_memory": "6GB"}
    )
    memory = found.study.resources.gpu_memory
    by_width = {
        config.model.describe()["width"]: found.limits.compute_gpus(config, memory)
        for config in (found.sample(RandomChooser(seed)) for seed in range(9))
    }
    assert by_width == {4: 0.1666, 4000: 0.5}


def test_a_trial_too_large_for_a_gpu_is_refused_with_its_size(study_file: Path, settings: Settings) -> None:
    found = resolve(
        study_file, settings, **{"resources.gpus_per_trial": "fit", "resources.gpu_memory": "6GB"}
    )
    sample = found.sample(RandomChooser(0)).model_dump(mode="json")
    sample["model"]["width"] = 20_000
    assert "MiB of a GPU, which has 5,722" in (found.limits.get_refusal_reason(sample) or "")


def test_a_study_may_name_the_family_of_its_spaces(study_file: Path, settings: Settings) -> None:
    study_file.write_text(study_file.read_text() + '\n[model]\nfamily = "lstm"\n')
    assert resolve(study_file, settings).sample(RandomChooser(0)).model.family == "lstm"
