from collections.abc import Mapping

import pytest

from memtune.errors import SpaceError
from memtune.spaces import (
    Branch,
    Categorical,
    Constant,
    FittedSize,
    Group,
    Integer,
    Real,
    load_space,
    read_space,
)

MODEL = '[model]\nfamily = "lstm"\n'


def read_members(text: str) -> Mapping[str, object]:
    root = read_space(MODEL + text, "space.toml").root
    assert isinstance(root, Group)
    model = root.members["model"]
    assert isinstance(model, Group)
    return model.members


def test_plain_values_are_constants():
    assert read_members("sizes = [1, 2]\n") == {"family": Constant("lstm"), "sizes": Constant([1, 2])}


@pytest.mark.parametrize(
    ("written", "leaf"),
    [
        ("{ int = [1, 20] }", Integer(1, 20)),
        ("{ int = [2, 20], step = 2 }", Integer(2, 20, step=2)),
        ("{ int = [1, 64], log = true }", Integer(1, 64, log=True)),
        ("{ float = [0, 0.5] }", Real(0.0, 0.5)),
        ("{ float = [0.0, 0.5], step = 0.1 }", Real(0.0, 0.5, step=0.1)),
        ("{ float = [1e-4, 1e-2], log = true }", Real(1e-4, 1e-2, log=True)),
        ('{ choice = ["gate", "sum"] }', Categorical(("gate", "sum"))),
        ("{ choice = [true, false] }", Categorical((True, False))),
        ("{ fit_parameters = 1_000 }", FittedSize("parameters", 1000)),
        ("{ fit_multiply_adds = 1_000 }", FittedSize("multiply_adds", 1000)),
        ("{ fit_state = 64 }", FittedSize("state", 64)),
    ],
)
def test_each_kind_of_parameter_is_read(written, leaf):
    assert read_members(f"field = {written}\n")["field"] == leaf


def test_a_table_with_one_of_is_a_branch():
    text = '[model.cell]\none_of = "kind"\n[model.cell.gru]\n[model.cell.lstm]\npeepholes = true\n'
    options = {"gru": Group({}), "lstm": Group({"peepholes": Constant(True)})}
    assert read_members(text)["cell"] == Branch("kind", options)


def test_the_question_is_not_a_parameter():
    space = read_space('question = "Why?"\n' + MODEL, "space.toml")
    assert space.question == "Why?"
    assert space.root == Group({"model": Group({"family": Constant("lstm")})})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "field = { float = [0.1, 0.01] }",
            "space.toml: [model.field] low must be below high, got low = 0.1, high = 0.01",
        ),
        (
            "field = { int = [1, 2.5] }",
            "space.toml: [model.field] int must be two finite bounds such as [1, 20]",
        ),
        ("field = { int = [false, true] }", "int must be two finite bounds"),
        (
            "field = { float = [0.0, inf] }",
            "float must be two finite bounds such as [0.0, 0.5], got [0.0, inf]",
        ),
        ("field = { float = [nan, 1.0] }", "float must be two finite bounds"),
        ("field = { int = [1, 2, 3] }", "int must be two finite bounds"),
        ("field = { int = 3 }", "int must be two finite bounds"),
        (
            "field = { float = [0.0, 1.0], log = true }",
            "[model.field] a logarithmic range must start above 0",
        ),
        ("field = { float = [0.1, 1.0], log = 1 }", "log must be true or false, got 1"),
        ("field = { float = [1.0, 2.0], step = 0.5, log = true }", "a logarithmic range has no step"),
        ("field = { float = [0.0, 1.0], step = 0.3 }", "step must divide the range from 0.0 to 1.0, got 0.3"),
        (
            "field = { int = [1, 10], step = 0 }",
            "step must be a positive number of the parameter's kind, got 0",
        ),
        ("field = { int = [1, 10], step = 1.5 }", "step must be a positive number of the parameter's kind"),
        ("field = { int = [1, 10], stepp = 2 }", 'unknown name "stepp" next to int; did you mean "step"?'),
        ("field = { choice = [1, 2], step = 1 }", 'unknown name "step" next to choice'),
        (
            "field = { int = [1, 9], prior = 12 }",
            "prior is not a value of the parameter (the nearest",
        ),
        ("field = { choice = [1, 2], prior = 3 }", "prior is not a value of the parameter (allowed: 1, 2)"),
        ("field = { int = [1, 9], prior = 2, confidence = 1 }", 'confidence must be one of "low", "medium"'),
        ("field = { int = [1, 9], confidence = 'low' }", "confidence says how firm a prior is; add prior"),
        (
            "field = { one_of = 'kind', prior = 'sgd', adam = {}, asgd = {} }",
            "[model.field] prior is not a value of the parameter (allowed: 'adam', 'asgd'), got 'sgd'",
        ),
        ("field = { int = [1, 2], float = [1, 2] }", "of one kind, not both int and float"),
        ("field = { flaot = [0.0, 1.0] }", '[model.field] unknown kind "flaot"; did you mean "float"?'),
        ("field = { choices = [1, 2] }", 'unknown kind "choices"; did you mean "choice"?'),
        ("field = { choice = [] }", 'choice must be a list such as ["adam", "sgd"], got []'),
        ("field = { choice = [[1], [2]] }", "for tables use one_of, got [1]"),
        ("field = { choice = [1, 2, 1] }", "the choices must differ, got [1, 2, 1]"),
        (
            "field = { fit_parameters = 0 }",
            "fit_parameters must be a positive whole number of parameters, got 0",
        ),
        ("a = { fit_parameters = 9 }\nb = { fit_state = 9 }", "one field of a configuration can be fitted"),
        ("cell = { one_of = 3 }", "[model.cell] one_of names the field that holds the chosen option"),
        ('cell = { one_of = "kind" }', "a branch needs options: sub-tables such as [model.cell.adam]"),
        (
            'cell = { one_of = "kind", gru = 1 }',
            "[model.cell.gru] a branch holds only its options, each a table",
        ),
        ("field = { int = [1, 2] ]", "space.toml is not TOML"),
    ],
)
def test_an_error_names_file_path_value_and_fix(text, message):
    with pytest.raises(SpaceError) as raised:
        read_members(text + "\n")
    assert str(raised.value).startswith("space.toml")
    assert message in str(raised.value)


def test_options_of_a_branch_may_each_fit_one_field():
    width = "width = { fit_parameters = 9 }\n"
    text = f'[model.cell]\none_of = "kind"\n[model.cell.gru]\n{width}[model.cell.lstm]\n{width}'
    assert [leaf.name for leaf in read_space(MODEL + text, "s").parameters()][1:] == [
        "model.cell.gru.width",
        "model.cell.lstm.width",
    ]


def test_a_space_without_parameters_is_refused():
    with pytest.raises(SpaceError, match="holds no parameter"):
        read_space('question = "Why?"', "space.toml")


def test_a_question_is_a_text():
    with pytest.raises(SpaceError, match=r"\[question\] must be a text, got 3"):
        read_space("question = 3\n" + MODEL, "space.toml")


def test_a_missing_file_is_refused_with_the_nearest_name(tmp_path):
    (tmp_path / "lstm.toml").write_text(MODEL)
    with pytest.raises(SpaceError, match=r'lstn\.toml; did you mean "lstm"\?'):
        load_space(tmp_path / "lstn.toml")


def test_a_binary_file_is_refused(tmp_path):
    (tmp_path / "lstm.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpaceError, match=r"lstm\.toml cannot be read"):
        load_space(tmp_path / "lstm.toml")


def test_a_file_that_lists_others_is_their_combination(tmp_path):
    for family in ("lstm", "rnn"):
        (tmp_path / f"{family}.toml").write_text(
            f'[model]\nfamily = "{family}"\nwidth = {{ int = [1, 9] }}\n'
        )
    (tmp_path / "both.toml").write_text('question = "Which?"\nspaces = ["lstm", "rnn"]\n')
    space = load_space(tmp_path / "both.toml")
    assert space.question == "Which?"
    assert [parameter.name for parameter in space.parameters()] == [
        "family",
        "lstm.model.width",
        "rnn.model.width",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('spaces = ["lstm", "rnnn"]\n', 'no search space .*rnnn.toml; did you mean "rnn"'),
        ('spaces = ["lstm"]\n[model]\nwidth = 3\n', "can hold only a question besides"),
        ("spaces = 3\n", "a list of names"),
    ],
)
def test_an_invalid_list_of_files_is_refused(tmp_path, text, message):
    for family in ("lstm", "rnn"):
        (tmp_path / f"{family}.toml").write_text(f'[model]\nfamily = "{family}"\n')
    (tmp_path / "both.toml").write_text(text)
    with pytest.raises(SpaceError, match=message):
        load_space(tmp_path / "both.toml")
