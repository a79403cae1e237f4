"""Points by field: what a study tries first, and the settings of papers."""

import statistics
from dataclasses import replace
from typing import Any

import pytest

from memtune.errors import SpaceError
from memtune.spaces import (
    Scalar,
    adapt_point,
    combine_spaces,
    draw_prior_points,
    override_space,
    pin_point,
    read_space,
)

LSTM = """
[model]
family = "lstm"
width = { int = [32, 256], step = 16 }
dropout = { float = [0.0, 0.5], step = 0.05 }
tie = { choice = [false, true] }
layers = 1
[training.optimiser]
one_of = "kind"
[training.optimiser.sgd]
learning_rate = { float = [0.2, 2.0], log = true }
[training.optimiser.adam]
learning_rate = { float = [5e-4, 1e-2], log = true }
[training.schedule]
one_of = "kind"
[training.schedule.constant]
[training.schedule.plateau]
factor = { float = [0.2, 0.8] }
"""
RATE, KIND = "training.optimiser.learning_rate", "training.optimiser.kind"


def make_space(text: str = LSTM):
    return read_space(text, "lstm.toml")


def combine():
    return combine_spaces([make_space(), read_space(LSTM.replace('"lstm"', '"rnn"'), "rnn.toml")])


def test_a_point_gives_the_parameters_by_name():
    point: dict[str, Scalar] = {
        RATE: 1.0,
        KIND: "sgd",
        "model.width": 128,
        "model.layers": 1,
        "model.dropout": 0.35,
    }
    assert pin_point(make_space(), point, "study") == {
        "training.optimiser.kind": "sgd",
        "training.optimiser.sgd.learning_rate": 1.0,
        "model.width": 128,
        "model.dropout": 0.35,
    }


@pytest.mark.parametrize("field", ["model.width", "model.dropout", "training.schedule.factor"])
def test_a_value_that_is_not_a_number_is_refused_and_not_adapted(field: str):
    nan = {field: float("nan")}
    with pytest.raises(SpaceError, match=f"study: {field} = nan is not in the space; it takes a number"):
        pin_point(make_space(), nan, "study")
    assert adapt_point(make_space(), nan) == {}


def test_a_field_of_one_option_chooses_the_option():
    assert pin_point(make_space(), {"training.schedule.factor": 0.5}, "study") == {
        "training.schedule.kind": "plateau",
        "training.schedule.plateau.factor": 0.5,
    }


def test_the_family_of_a_combined_space_is_the_model_s():
    assert pin_point(combine(), {"model.width": 64, "model.family": "rnn"}, "study") == {
        "family": "rnn",
        "rnn.model.width": 64,
    }


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"model.width": 100}, r"model.width = 100 is not in the space; the nearest allowed value is 96"),
        ({"model.width": 999}, r"the nearest allowed value is 256"),
        ({"model.width": "wide"}, r"model.width = 'wide' is not in the space; it takes a number"),
        ({"model.width": None}, r"model.width = None is not in the space; it takes a number"),
        ({"model.tie": 1}, r"model.tie = 1 is not in the space; allowed: False, True"),
        ({KIND: "rmsprop"}, r"kind = 'rmsprop' is not in the space; allowed: 'sgd', 'adam'"),
        (
            {KIND: "sgd", RATE: 3.0},
            r"learning_rate = 3.0 is not in the space; the nearest allowed value is 2.0",
        ),
        ({RATE: 1.0}, r"learning_rate is in several branches; add training.optimiser.kind"),
        ({"model.widht": 64}, r'the space has no field model.widht; did you mean "model.width"\?'),
        ({"model.layers": 2}, r"model.layers = 2, and the space fixes it at 1"),
    ],
)
def test_an_error_names_the_field_the_value_and_what_is_allowed(point, message):
    with pytest.raises(SpaceError, match=f"^point 1: .*{message}"):
        pin_point(make_space(), point, "point 1")


def test_a_point_of_several_families_names_its_family():
    with pytest.raises(SpaceError, match=r"model.width is in several branches; add model.family"):
        pin_point(combine(), {"model.width": 64}, "study")


PAPER: dict[str, Scalar] = {KIND: "sgd", RATE: 3.0, "model.width": 650, "model.tie": True, "model.missing": 1}


def test_a_paper_s_setting_takes_the_nearest_values():
    assert adapt_point(make_space(), PAPER) == {
        "training.optimiser.kind": "sgd",
        "training.optimiser.sgd.learning_rate": 2.0,
        "model.width": 256,
        "model.tie": True,
    }


def test_a_fixed_branch_leaves_out_all_fields_of_the_paper_s_branch():
    adam = {"training": {"optimiser": {"kind": "adam", "learning_rate": {"float": [1e-3, 4e-3]}}}}
    assert adapt_point(override_space(make_space(), adam), PAPER) == {"model.width": 256, "model.tie": True}


POINT = '\n[[points]]\nmodel.width = 128\ntraining.optimiser.kind = "adam"\n'


def test_a_space_file_holds_settings_of_papers_under_its_family():
    space = combine_spaces([make_space(LSTM + POINT), read_space('[model]\nfamily = "rnn"\n', "rnn.toml")])
    assert space.paper_points == ({"model.family": "lstm", "model.width": 128, KIND: "adam"},)
    assert make_space(LSTM + POINT).describe() == make_space().describe()


@pytest.mark.parametrize("key", ["points", "prior_points"])
def test_a_point_outside_of_its_space_is_refused(key: str):
    with pytest.raises(
        SpaceError, match=rf"lstm.toml: {key}, point 1: model.width = 100 is not in the space"
    ):
        make_space(LSTM + POINT.replace("128", "100").replace("points", key))
    with pytest.raises(SpaceError, match=rf"lstm.toml: {key} must be tables"):
        make_space(f"{key} = 3\n{LSTM}")


def test_points_of_a_prior_are_itself_and_values_near_it():
    space = read_space(
        """
        [model]
        width = { int = [1, 100] }
        layers = { int = [1, 8], prior = 2, confidence = "high" }
        tie = { choice = [false, true], prior = true, confidence = "low" }
        [training]
        rate = { float = [1e-4, 1.0], log = true, prior = 1e-2 }
        [training.optimiser]
        one_of = "kind"
        prior = "sgd"
        confidence = "high"
        adam = {}
        sgd = {}
        """,
        "test",
    )
    points: list[dict[str, Any]] = draw_prior_points(space, 400)
    assert points[0] == {
        "model.layers": 2,
        "model.tie": True,
        "training.rate": 1e-2,
        "training.optimiser.kind": "sgd",
    }
    assert 0.9 < statistics.mean(point["training.optimiser.kind"] == "sgd" for point in points) < 0.98
    assert space.describe()["training"]["optimiser"] == {"one_of": "kind", "adam": {}, "sgd": {}}
    assert 1.8 < statistics.mean(point["model.layers"] for point in points) < 2.4
    assert 0.7 < statistics.mean(point["model.tie"] for point in points) < 0.8
    assert statistics.median(point["training.rate"] for point in points) == pytest.approx(1e-2, rel=0.3)
    assert all(1e-4 <= point["training.rate"] <= 1.0 for point in points)
    assert points == draw_prior_points(space, 400)


def test_the_median_of_draws_is_the_prior_at_the_end_of_a_range_too():
    space = read_space(
        "[training]\nrate = { float = [0.0, 1.0], prior = 0.95, confidence = 'low' }\n", "test"
    )
    rates: list[Any] = [point["training.rate"] for point in draw_prior_points(space, 20)]
    assert statistics.median(rates) == pytest.approx(0.95, abs=1e-9)
    assert min(rates) < 0.3
    assert max(rates) <= 1.0


PRIOR_POINTS = """
prior_points = [
    { model.width = 128, training.optimiser.kind = "adam" },
    { model.width = 256, training.optimiser.kind = "sgd", training.optimiser.learning_rate = 1.0 },
]
"""


def test_prior_points_of_families_are_joined_the_best_first_and_choose_no_family():
    other = read_space(LSTM.replace('"lstm"', '"rnn"') + POINT.replace("points", "prior_points"), "rnn.toml")
    space = combine_spaces([make_space(PRIOR_POINTS + LSTM), other])
    first, second = draw_prior_points(space, 20)
    assert first == {
        "lstm.model.width": 128,
        "lstm.training.optimiser.kind": "adam",
        "rnn.model.width": 128,
        "rnn.training.optimiser.kind": "adam",
    }
    assert second["lstm.training.optimiser.sgd.learning_rate"] == 1.0
    assert not [name for name in second if name.startswith("rnn")]
    assert space.describe() == combine_spaces([make_space(), replace(other, prior_points=())]).describe()


def test_prior_points_take_the_nearest_values_and_the_priors_that_parameters_have():
    space = make_space(PRIOR_POINTS + LSTM)
    stated = override_space(space, {"model": {"width": {"int": [32, 64], "prior": 48, "confidence": "high"}}})
    points = draw_prior_points(stated, 20)
    assert len(points) == 20
    assert points[0] == {"model.width": 48, "training.optimiser.kind": "adam"}
    assert [point["training.optimiser.kind"] for point in points[:4]] == ["adam", "sgd", "adam", "sgd"]
    narrowed = override_space(space, {"model": {"width": {"int": [32, 64]}}})
    assert [point["model.width"] for point in draw_prior_points(narrowed, 20)] == [64, 64]


def test_a_space_without_priors_has_no_points_of_a_prior():
    assert draw_prior_points(read_space("[model]\nwidth = { int = [1, 100] }\n", "test"), 5) == []
