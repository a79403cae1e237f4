from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtune.errors import SpaceError
from memtune.spaces import (
    FittedSize,
    RandomChooser,
    SizeKind,
    check_space,
    combine_spaces,
    load_space,
    override_space,
    read_space,
)

SPACE = "[model]\nwidth = {{ fit_parameters = {} }}\nlayers = {{ int = [1, 4] }}\n"


def count_parameters(configuration: Mapping[str, Any], kind: SizeKind = "parameters") -> int:
    """Grows with the square of the width, like the layers of a network."""
    model = configuration["model"]
    return 4 * model["layers"] * (2 * model["width"] ** 2 + model["width"])


@given(target=st.integers(1, 10**7), linear=st.integers(1, 1000), square=st.integers(0, 50))
def test_the_solution_is_the_nearest_of_all_integers(target, linear, square):
    def count(width: int) -> int:
        return linear * width + square * width**2

    if count(1) > target:
        with pytest.raises(SpaceError, match="out of reach"):
            FittedSize("parameters", target).solve(count)
    else:
        width = FittedSize("parameters", target).solve(count)
        distance = abs(count(width) - target)
        assert distance < abs(count(width - 1) - target) or width == 1
        assert distance <= abs(count(width + 1) - target)


def test_of_two_equally_near_integers_the_smaller_is_chosen():
    assert FittedSize("parameters", 25).solve(lambda width: 10 * width) == 2


def test_sizes_are_equal_whatever_else_is_sampled():
    space = read_space(SPACE.format(1_000_000), "s")
    for seed in range(20):
        configuration = space.sample(RandomChooser(seed), count_parameters)
        assert count_parameters(configuration) == pytest.approx(1_000_000, rel=0.02)


def test_a_fitted_field_needs_a_count():
    with pytest.raises(
        SpaceError, match=r"s\.toml: \[width\] fit_parameters = 9 needs a function that measures"
    ):
        read_space(SPACE.format(9), "s.toml").sample(RandomChooser(0))


def test_a_target_below_the_smallest_model_is_refused():
    with pytest.raises(SpaceError, match=r"s\.toml: \[width\] fit_parameters = 5 .* out of reach: with 1 it"):
        read_space(SPACE.format(5), "s.toml").sample(RandomChooser(0), count_parameters)


def test_a_state_below_the_smallest_model_is_refused_with_the_part_that_no_width_shrinks():
    space = read_space("[model]\nwidth = { fit_state = 90 }", "s")
    with pytest.raises(SpaceError, match=r"with 1 it is 255 already; every word of a window counts"):
        space.sample(RandomChooser(0), lambda configuration, kind: 255 * configuration["model"]["width"])


def test_a_target_that_few_layers_exceed_builds_no_model_of_millions_of_layers():
    def count_layers(configuration, kind):
        layers = configuration["model"]["width"]
        assert layers <= 2_000
        return 10 * layers

    with pytest.raises(SpaceError, match="out of reach: with 1 it is 10 already"):
        read_space(SPACE.format(5), "s.toml").sample(RandomChooser(0), count_layers)


def test_a_target_out_of_reach_is_named_with_the_file_and_the_line_that_set_it(tmp_path):
    space_file, study_file = tmp_path / "space.toml", tmp_path / "study.toml"
    space_file.write_text(SPACE.format(1_000_000).replace("[model]", '[model]\nfamily = "lstm"'))
    study_file.write_text('question = "q"\n\n[model]\nwidth = { fit_parameters = 5 }\n')
    overrides = {"model": {"width": {"fit_parameters": 5}}}
    space = combine_spaces([override_space(load_space(space_file), overrides, str(study_file))])
    with pytest.raises(SpaceError) as raised:
        space.sample(RandomChooser(0), count_parameters)
    assert str(raised.value).startswith(f"{study_file}, line 4: [width] fit_parameters = 5 ")
    assert str(raised.value).endswith("change the target or the other fields of lstm")
    assert str(space_file) not in str(raised.value)


def test_the_check_of_a_space_names_the_place_of_a_target_out_of_reach_once(tmp_path):
    file = tmp_path / "space.toml"
    file.write_text(SPACE.format(5).replace("[model]", '[model]\nfamily = "lstm"'))
    with pytest.raises(SpaceError) as raised:
        check_space(load_space(file), dict, measure_size=count_parameters)
    assert str(raised.value).startswith(f"{file}, line 3: [width] fit_parameters = 5 ")


def test_the_check_of_a_space_names_the_value_with_which_a_target_is_out_of_reach(tmp_path):
    file = tmp_path / "space.toml"
    file.write_text(SPACE.format(40).replace("[model]", '[model]\nfamily = "lstm"'))
    with pytest.raises(SpaceError) as raised:
        check_space(load_space(file), dict, measure_size=count_parameters)
    assert f"[model.layers] = 4: {file}, line 3: [width] fit_parameters = 40 " in str(raised.value)


def test_a_field_that_changes_no_count_is_refused():
    with pytest.raises(SpaceError, match="the model has 3 parameters, whatever this field is"):
        read_space(SPACE.format(9), "s.toml").sample(RandomChooser(0), lambda configuration, kind: 3)


def test_the_size_that_is_fitted_is_the_one_that_is_named():
    space = read_space("[model]\nwidth = { fit_state = 90 }", "s")

    def measure(configuration: Mapping[str, Any], kind: SizeKind) -> int:
        width: int = configuration["model"]["width"]
        return {"parameters": width**2, "multiply_adds": 7 * width, "state": 3 * width}[kind]

    assert space.sample(RandomChooser(0), measure) == {"model": {"width": 30}}
