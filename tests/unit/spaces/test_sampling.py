import math

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtune.errors import SpaceError
from memtune.spaces import RandomChooser, combine_spaces, read_space

SPACE = """
[model]
family = "memory"
memory_size = { int = [1, 20] }
width = { int = [16, 64], step = 16 }
layers = { int = [1, 8], log = true }
dropout = { float = [0.0, 0.5], step = 0.1 }

[training]
clip_norm = { float = [1.0, 10.0], log = true }

[training.optimiser]
one_of = "kind"
[training.optimiser.sgd]
learning_rate = { float = [0.1, 2.0], log = true }
[training.optimiser.adam]
learning_rate = { float = [1e-4, 1e-2], log = true }
epsilon = { choice = [1e-8, 1e-6] }
"""
FINITE = """
[model]
family = "lstm"
layers = { int = [1, 2] }
[training.optimiser]
one_of = "kind"
[training.optimiser.sgd]
momentum = { float = [0.0, 0.9], step = 0.3 }
[training.optimiser.adam]
"""


@given(seed=st.integers(0, 2**32))
def test_samples_stay_inside_their_ranges(seed):
    configuration = read_space(SPACE, "s").sample(RandomChooser(seed))
    model, training = configuration["model"], configuration["training"]
    assert model["family"] == "memory"
    assert 1 <= model["memory_size"] <= 20
    assert model["width"] in (16, 32, 48, 64)
    assert 1 <= model["layers"] <= 8
    assert model["dropout"] in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    assert 1.0 <= training["clip_norm"] <= 10.0


@given(seed=st.integers(0, 2**32))
def test_only_the_chosen_option_is_sampled_and_its_name_is_written(seed):
    optimiser = read_space(SPACE, "s").sample(RandomChooser(seed))["training"]["optimiser"]
    if optimiser["kind"] == "sgd":
        assert set(optimiser) == {"kind", "learning_rate"}
        assert 0.1 <= optimiser["learning_rate"] <= 2.0
    else:
        assert set(optimiser) == {"kind", "learning_rate", "epsilon"}
        assert 1e-4 <= optimiser["learning_rate"] <= 1e-2


def test_a_logarithmic_integer_stands_for_the_interval_of_half_a_unit_around_it():
    """As in Optuna: the share of 1 in 1 to 2 is log(1.5 / 0.5) of log(2.5 / 0.5)."""
    space = read_space("[model]\nlayers = { int = [1, 2], log = true }", "s")
    chooser = RandomChooser(0)
    ones = sum(space.sample(chooser)["model"]["layers"] == 1 for _ in range(8000))
    assert ones / 8000 == pytest.approx(math.log(3) / math.log(5), abs=0.02)  # four standard errors


def test_options_never_share_a_parameter_name():
    names = [leaf.name for leaf in read_space(SPACE, "s").parameters()]
    assert "training.optimiser.sgd.learning_rate" in names
    assert "training.optimiser.adam.learning_rate" in names
    assert len(names) == len(set(names))


def test_a_parameter_holds_its_field_and_its_conditions():
    leaves = {leaf.name: leaf for leaf in read_space(SPACE, "s").parameters()}
    leaf = leaves["training.optimiser.adam.epsilon"]
    assert leaf.field == "training.optimiser.epsilon"
    assert leaf.conditions == {"training.optimiser.kind": "adam"}


def test_the_size_of_a_tree_is_the_product_of_its_groups_and_the_sum_of_its_branches():
    assert read_space(FINITE, "s").size() == 2 * (4 + 1)


def test_a_continuous_space_has_no_size():
    assert read_space(SPACE, "s").size() is None


def test_the_points_of_a_finite_space_are_all_of_its_configurations():
    space = read_space(FINITE, "s")
    points = list(space.points())
    configurations = [space.sample(RandomChooser(0, point)) for point in points]
    distinct = {repr(configuration) for configuration in configurations}
    assert len(points) == len(distinct) == space.size()
    assert distinct == {repr(space.sample(RandomChooser(seed))) for seed in range(300)}


def test_a_number_on_a_grid_is_the_same_for_every_chooser():
    """0.1 + 2 * 0.1 is not 0.3: without rounding, one configuration would have two identities."""
    space = read_space("[model]\ndropout = { float = [0.1, 0.7], step = 0.1 }", "s")
    drawn = {space.sample(RandomChooser(seed))["model"]["dropout"] for seed in range(200)}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    asked = {space.sample(study.ask())["model"]["dropout"] for _ in range(200)}
    assert drawn == asked == {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7}


def test_the_same_seed_draws_the_same_configuration():
    space = read_space(SPACE, "s")
    assert space.sample(RandomChooser(7)) == space.sample(RandomChooser(7))


def test_pinned_values_are_kept_and_the_others_recorded():
    chooser = RandomChooser(0, {"model.memory_size": 13, "training.optimiser.kind": "adam"})
    configuration = read_space(SPACE, "s").sample(chooser)
    assert configuration["model"]["memory_size"] == 13
    assert configuration["training"]["optimiser"]["kind"] == "adam"
    assert chooser.parameters["training.clip_norm"] == configuration["training"]["clip_norm"]


def test_equal_trees_are_described_equally_without_their_question():
    assert read_space(SPACE, "a").describe() == read_space('question = "?"\n' + SPACE, "b").describe()
    assert read_space(SPACE, "a").describe() != read_space(SPACE.replace("20]", "21]"), "a").describe()


def format_space(name: str, text: str = "width = { int = [1, 2] }") -> str:
    return f'question = "Is {name} good?"\n[model]\nfamily = "{name}"\n{text}\n'


def test_combined_families_are_chosen_first_and_share_no_parameter():
    space = combine_spaces(
        [read_space(format_space("lstm"), "a.toml"), read_space(format_space("memory"), "b.toml")]
    )
    assert [leaf.name for leaf in space.parameters()] == ["family", "lstm.model.width", "memory.model.width"]
    assert [leaf.field for leaf in space.parameters()] == ["model.family", "model.width", "model.width"]
    assert space.question == "Is lstm good? Is memory good?"
    assert space.source == "a.toml + b.toml"


def test_a_combined_space_samples_one_family_as_its_own_space_would():
    space = combine_spaces(
        [read_space(format_space("lstm"), "a.toml"), read_space(format_space("memory"), "b.toml")]
    )
    configuration = space.sample(RandomChooser(0, {"family": "memory", "memory.model.width": 2}))
    assert configuration == {"model": {"family": "memory", "width": 2}}


def test_one_space_combined_is_itself():
    space = read_space(SPACE, "s")
    assert combine_spaces([space]) is space


def test_two_spaces_of_one_family_are_not_combined():
    with pytest.raises(SpaceError, match=r'b\.toml: another space of the study is of family "lstm"'):
        combine_spaces(
            [read_space(format_space("lstm"), "a.toml"), read_space(format_space("lstm"), "b.toml")]
        )


def test_a_space_without_a_family_is_not_combined():
    with pytest.raises(SpaceError, match=r'b\.toml: .* such as family = "lstm" under \[model\]'):
        combine_spaces(
            [read_space(format_space("lstm"), "a.toml"), read_space("[model]\nwidth = 3", "b.toml")]
        )


def test_no_space_at_all_is_refused():
    with pytest.raises(SpaceError, match="at least one search space"):
        combine_spaces([])
