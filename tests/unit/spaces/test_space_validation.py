from typing import Annotated, Literal, Self

import pytest
from pydantic import Field, model_validator

from memtune.errors import SpaceError
from memtune.spaces import check_space, combine_spaces, read_space
from memtune.training import TrialConfig
from memtune.values import Value


class Sgd(Value):
    kind: Literal["sgd"] = "sgd"
    learning_rate: float = Field(1.0, gt=0)


class Adam(Value):
    kind: Literal["adam"] = "adam"
    learning_rate: float = Field(1e-3, gt=0, le=0.1)


class Lstm(Value):
    family: Literal["lstm"] = "lstm"
    width: int = Field(8, ge=1, le=512)


class Memory(Value):
    family: Literal["memory"] = "memory"
    width: int = Field(8, ge=1)
    memory_size: int = Field(15, ge=1)
    heads: int = Field(1, ge=1)
    composition: Literal["gate", "sum"] = "gate"

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"heads must divide width, got {self.heads} and {self.width}")
        return self


class Trial(Value):
    model: Annotated[Lstm | Memory, Field(discriminator="family")]
    optimiser: Annotated[Sgd | Adam, Field(discriminator="kind")] = Sgd()


LSTM = '[model]\nfamily = "lstm"\n'
MEMORY = '[model]\nfamily = "memory"\n'
OPTIMISER = (
    '[optimiser]\none_of = "kind"\n'
    "[optimiser.sgd]\nlearning_rate = { float = [0.1, 2.0] }\n"
    "[optimiser.adam]\nlearning_rate = { float = [0.001, 0.1] }\n"
)


def find_problems(text: str) -> list[str]:
    try:
        check_space(read_space(text, "s.toml"), Trial)
    except SpaceError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize("text", [LSTM, LSTM + "width = { int = [1, 512] }\n", LSTM + OPTIMISER, MEMORY])
def test_a_space_of_known_names_and_bounds_passes(text):
    assert find_problems(text) == []


def test_an_unknown_parameter_is_refused_with_the_nearest_name():
    assert find_problems(MEMORY + "memory_sise = { int = [1, 20] }\n") == [
        's.toml: unknown name "model.memory_sise" (memory); did you mean "memory_size"?'
    ]


def test_a_low_bound_outside_the_schema_is_refused():
    assert find_problems(MEMORY + "memory_size = { int = [0, 20] }\n") == [
        "s.toml: [model.memory_size] = 0: model.memory_size (memory): "
        "Input should be greater than or equal to 1, got 0"
    ]


def test_a_high_bound_outside_the_schema_is_refused():
    (problem,) = find_problems(LSTM + "width = { int = [8, 513] }\n")
    assert problem.startswith("s.toml: [model.width] = 513: ")


def test_a_choice_outside_the_schema_is_refused():
    (problem,) = find_problems(MEMORY + 'composition = { choice = ["gate", "summ"] }\n')
    assert problem.startswith("s.toml: [model.composition] = 'summ': ")


def test_two_choices_that_are_one_configuration_are_refused():
    model = 'family = "mixer_blocks"\nmixer = { choice = ["attention window=4", "attention  window=4"] }\n'
    space = read_space(f"[model]\n{model}[training]\nepochs = 1\n", "s.toml")
    problem = "= 'attention  window=4' is the same as 'attention window=4'; leave one of them out$"
    with pytest.raises(SpaceError, match=problem):
        check_space(space, TrialConfig)


def test_a_step_from_one_end_of_a_range_to_the_other_is_no_repeated_choice():
    step = '[optimiser]\nkind = "sgd"\nlearning_rate = { float = [0.1, 0.2], step = 0.1 }\n'
    assert find_problems(LSTM + step) == []


def test_a_constant_outside_the_schema_is_refused():
    (problem,) = find_problems(LSTM + "width = 0\n")
    assert problem.startswith("s.toml: model.width (lstm): Input should be greater")


def test_numbers_between_whole_ones_do_not_pass_for_integers():
    (problem,) = find_problems(LSTM + "width = { float = [1.0, 4.0] }\n")
    assert "model.width (lstm): Input should be a valid integer" in problem


def test_whole_numbers_on_a_grid_pass_for_integers():
    assert find_problems(LSTM + "width = { float = [1.0, 4.0], step = 1.0 }\n") == []


def test_every_option_of_a_branch_is_visited():
    found = find_problems(LSTM + OPTIMISER.replace("0.1]", "0.2]"))
    assert found == [
        "s.toml: [optimiser.learning_rate] = 0.2: optimiser.learning_rate (adam): "
        "Input should be less than or equal to 0.1, got 0.2"
    ]


def test_an_unknown_option_is_reported_once():
    (problem,) = find_problems(LSTM + OPTIMISER.replace("adam", "adamm"))
    assert problem.startswith("s.toml: [optimiser.kind] = 'adamm': ")


def test_all_bounds_out_of_range_are_reported_together():
    found = find_problems(MEMORY + "memory_size = { int = [0, 20] }\nwidth = { int = [0, 20] }\n")
    assert len(found) == 2


def test_a_value_that_only_some_samples_forbid_passes():
    """3 heads divide a width of 3, 6 and 9, and no other of the range."""
    assert find_problems(MEMORY + "heads = { int = [1, 3] }\nwidth = { int = [2, 9] }\n") == []


def test_a_value_that_every_sample_forbids_is_refused():
    (problem,) = find_problems(MEMORY + "heads = { int = [1, 3] }\nwidth = 8\n")
    assert problem.startswith("s.toml: [model.heads] = 3: ")
    assert "heads must divide width" in problem


def test_every_family_of_a_combined_space_is_visited():
    texts = {"a.toml": LSTM, "b.toml": MEMORY + "memory_size = { int = [0, 20] }\n"}
    with pytest.raises(SpaceError, match=r"\[model.memory_size\] = 0"):
        check_space(combine_spaces([read_space(text, name) for name, text in texts.items()]), Trial)


def test_a_caller_may_name_the_space():
    with pytest.raises(SpaceError, match=r"^study\.toml: "):
        check_space(read_space(LSTM + "width = 0\n", "s.toml"), Trial, "study.toml")


def test_a_fitted_field_is_checked_with_the_count_it_is_fitted_by():
    space = read_space(LSTM + "width = { fit_parameters = 1_000 }\n", "s.toml")
    check_space(space, Trial, measure_size=lambda configuration, kind: 4 * configuration["model"]["width"])
    with pytest.raises(SpaceError, match=r"model.width \(lstm\): .* got 1000"):
        check_space(space, Trial, measure_size=lambda configuration, kind: configuration["model"]["width"])
