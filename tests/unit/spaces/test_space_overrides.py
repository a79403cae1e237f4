import pytest

from memtune.errors import SpaceError
from memtune.spaces import RandomChooser, Real, combine_spaces, override_space, read_space
from tests.presence import require

TEXT = """
[model]
family = "lstm"
width = { int = [8, 64] }
layers = { int = [1, 3] }
[training.optimiser]
one_of = "kind"
[training.optimiser.sgd]
learning_rate = { float = [0.1, 2.0] }
[training.optimiser.adam]
learning_rate = { float = [0.001, 0.1] }
"""


@pytest.fixture
def space():
    return read_space(TEXT, "s.toml")


def list_names(space) -> list[str]:
    return [leaf.name for leaf in space.parameters()]


def test_a_fixed_parameter_is_no_longer_sampled(space):
    fixed = override_space(space, {"model": {"width": 16}})
    assert "model.width" not in list_names(fixed)
    assert fixed.sample(RandomChooser(0))["model"]["width"] == 16


def test_what_is_not_named_stays(space):
    assert "model.layers" in list_names(override_space(space, {"model": {"width": 16}}))


def test_an_entry_that_the_space_lacks_is_added(space):
    assert override_space(space, {"seed": 3}).sample(RandomChooser(0))["seed"] == 3


def test_a_range_may_be_narrowed(space):
    fixed = override_space(space, {"model": {"width": {"int": [8, 9]}}})
    assert {fixed.sample(RandomChooser(seed))["model"]["width"] for seed in range(20)} == {8, 9}


def test_naming_an_option_chooses_it_and_keeps_sampling_its_parameters(space):
    fixed = override_space(space, {"training": {"optimiser": {"kind": "adam"}}})
    assert list_names(fixed)[-1] == "training.optimiser.learning_rate"
    optimiser = fixed.sample(RandomChooser(0))["training"]["optimiser"]
    assert optimiser["kind"] == "adam"
    assert 0.001 <= optimiser["learning_rate"] <= 0.1


def test_naming_another_option_replaces_the_branch(space):
    entry = {"kind": "rmsprop", "learning_rate": 0.01}
    fixed = override_space(space, {"training": {"optimiser": entry}})
    assert fixed.sample(RandomChooser(0))["training"]["optimiser"] == entry


def test_an_entry_without_an_option_holds_for_all(space):
    fixed = override_space(space, {"training": {"optimiser": {"weight_decay": 0.1}}})
    for kind in ("sgd", "adam"):
        chooser = RandomChooser(0, {"training.optimiser.kind": kind})
        assert fixed.sample(chooser)["training"]["optimiser"]["weight_decay"] == 0.1


def test_the_table_of_an_option_without_a_choice_is_refused_with_both_ways_to_write_it(space, tmp_path):
    """They differ in the ranges of the space that stay open."""
    study = tmp_path / "study.toml"
    study.write_text("[training.optimiser.sgd]\nmomentum = 0.9\n")
    table = {"momentum": 0.9}
    with pytest.raises(SpaceError) as raised:
        override_space(space, {"training": {"optimiser": {"sgd": table}}}, str(study))
    message = str(raised.value)
    assert message.startswith(f"{study}, line 1: [training.optimiser.sgd] is an option")
    assert 'write there one_of = "kind"' in message
    assert 'or kind = "sgd" with these fields' in message
    alone = override_space(space, {"training": {"optimiser": {"one_of": "kind", "sgd": table}}})
    assert list_names(alone)[2:] == ["training.optimiser.kind"]
    others = override_space(space, {"training": {"optimiser": {"kind": "sgd", **table}}})
    assert list_names(others)[2:] == ["training.optimiser.learning_rate"]


def find_priors(space) -> dict[str, tuple[object, str]]:
    leaves = {each.name: getattr(each.leaf, "prior", None) for each in space.parameters()}
    return {name: (prior.value, prior.confidence) for name, prior in leaves.items() if prior}


def test_a_prior_may_be_stated_without_the_range(space, tmp_path):
    """What a table leaves out stays: the range, the choices, the prior and its confidence."""
    study = tmp_path / "study.toml"
    study.write_text("[training.optimiser]\nprior = 'adam'\nadam.learning_rate.prior = 0.003\n")
    stated = override_space(
        space,
        {
            "model": {"layers": {"prior": 2, "confidence": "high"}},
            "training": {"optimiser": {"prior": "adam", "adam": {"learning_rate": {"prior": 0.003}}}},
        },
        str(study),
    )
    assert stated.describe() == space.describe()
    rate = "training.optimiser.adam.learning_rate"
    assert find_priors(stated) == {
        "model.layers": (2, "high"),
        "training.optimiser.kind": ("adam", "medium"),
        rate: (0.003, "medium"),
    }
    (leaf,) = (each.leaf for each in stated.parameters() if each.name == rate)
    assert isinstance(leaf, Real)
    assert require(leaf.prior).place == f"{study}, line 3"
    firmer = override_space(stated, {"model": {"layers": {"confidence": "low"}}})
    assert find_priors(firmer)["model.layers"] == (2, "low")
    chosen = {"kind": "adam", "learning_rate": {"prior": 0.01}}
    adam = override_space(space, {"training": {"optimiser": chosen}})
    assert find_priors(adam) == {"training.optimiser.learning_rate": (0.01, "medium")}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"training": {"optimiser": {"learning_rate": {"prior": 0.003}}}},
            r"learning_rate\] prior is not a value .* allowed value is 0\.1\), got 0\.003, where the space "
            r"has \{'float': \[0\.1, 2\.0\].*; the space is s\.toml$",
        ),
        (
            {"model": {"dropout": {"prior": 0.1}}},
            r"^study\.toml: \[model\.dropout\] has a prior, but",
        ),
        ({"model": {"layers": {"confidence": "low"}}}, "says how firm a prior is; add prior"),
    ],
)
def test_a_prior_of_what_the_space_does_not_hold_is_refused(space, table, message):
    with pytest.raises(SpaceError, match=message):
        override_space(space, table, "study.toml")


def test_entries_of_a_combined_space_hold_for_every_family(space):
    other = read_space(TEXT.replace('"lstm"', '"memory"'), "other.toml")
    fixed = override_space(combine_spaces([space, other]), {"model": {"width": 16}})
    for family in ("lstm", "memory"):
        model = fixed.sample(RandomChooser(0, {"family": family}))["model"]
        assert (model["family"], model["width"]) == (family, 16)


def test_no_entries_change_nothing(space):
    assert override_space(space, {}) is space


def test_errors_about_entries_name_their_source(space):
    with pytest.raises(SpaceError, match=r"^study\.toml: \[model\.width\] low must be below high"):
        override_space(space, {"model": {"width": {"int": [9, 8]}}}, "study.toml")
