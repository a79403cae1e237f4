"""Search spaces from TOML files, and what a study overrides.

Errors name the file, the [path], the value and the fix.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from memtune.errors import SpaceError, did_you_mean
from memtune.spaces import space_tree as tree
from memtune.spaces.space import Space, combine_spaces
from memtune.spaces.space_points import describe_allowed, find_nearest_value, pin_point
from memtune.toml_text import locate_field, parse_toml, read_toml_text
from memtune.values import flatten

_Searched = tree.Categorical | tree.Integer | tree.Real
FITS: Mapping[str, tree.SizeKind] = {f"{tree.FIT_PREFIX}{kind}": kind for kind in tree.SIZE_NOUNS}
PRIOR_KEYS = PRIOR_KEY, CONFIDENCE_KEY = ("prior", "confidence")
LEAF_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "int": ("step", "log", *PRIOR_KEYS),
    "float": ("step", "log", *PRIOR_KEYS),
    "choice": PRIOR_KEYS,
    **dict.fromkeys(FITS, ()),
}
FOREIGN_KINDS = {
    "uniform": "{ float = [0.0, 0.5] } or { int = [1, 4] }",
    "loguniform": "{ float = [1e-4, 1e-2], log = true }",
    "log_uniform": "{ float = [1e-4, 1e-2], log = true }",
    "randint": "{ int = [1, 4] }",
    "int_uniform": "{ int = [1, 4] }",
    "categorical": "{ choice = [1, 2] }",
    "values": "{ choice = [1, 2] }",
}
"""What to write for the kinds of other libraries; no configuration has fields of these names."""
BRANCH_KEY = "one_of"
QUESTION_KEY = "question"
POINTS_KEY, PRIOR_POINTS_KEY = "points", "prior_points"
SPACES_KEY = "spaces"


def load_space(path: str | Path) -> Space:
    """The space of a file, or of those that it lists together; raises SpaceError for an invalid file."""
    question, spaces = _load_listed(path)
    return replace(combine_spaces(spaces), source=str(path), question=question)


def load_spaces(path: str | Path) -> list[Space]:
    """The spaces that a file lists, `spaces = ["lstm", "rnn"]`, from its folder; else its own space."""
    return _load_listed(path)[1]


def list_space_files(path: str | Path) -> list[Path]:
    """The file of a space and all files that it lists; raises SpaceError for a missing file."""
    listed = _load_tables(path).get(SPACES_KEY, [])
    nested = [list_space_files(Path(path).parent / f"{name}.toml") for name in listed]
    return [Path(path), *(file for files in nested for file in files)]


def _load_listed(path: str | Path) -> tuple[str, list[Space]]:
    """The question of a file, and the spaces that it lists or its own space; each file is read once."""
    tables = _load_tables(path)
    question = tables.pop(QUESTION_KEY, "")
    if SPACES_KEY not in tables:
        return question, [_build_space(tables, str(path), question)]
    names = tables.pop(SPACES_KEY)
    if tables or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SpaceError(
            f"{path}: a file with {SPACES_KEY}, a list of names, can hold only a question besides"
        )
    return question, [load_space(Path(path).parent / f"{name}.toml") for name in names]


def _load_tables(path: str | Path) -> dict[str, Any]:
    try:
        text = read_toml_text(Path(path))
    except FileNotFoundError:
        near = did_you_mean(Path(path).stem, [found.stem for found in Path(path).parent.glob("*.toml")])
        raise SpaceError(f"no search space {path}; {near}") from None
    except (OSError, ValueError) as error:
        raise SpaceError(f"{path} cannot be read: {error}") from None
    return _parse_toml(text, str(path))


def read_space(text: str, source: str) -> Space:
    """The space of a TOML text; errors name it `source`."""
    tables = _parse_toml(text, source)
    return _build_space(tables, source, tables.pop(QUESTION_KEY, ""))


def _build_space(tables: dict[str, Any], source: str, question: str) -> Space:
    points, prior_points = (_pop_points(tables, key, source) for key in (POINTS_KEY, PRIOR_POINTS_KEY))
    if not tables:
        raise SpaceError(f"{source} holds no parameter; start with a table such as [model]")
    root = read_tree(tables, source)
    if tree.count_fitted(root) > 1:
        raise SpaceError(
            f"{source}: one field of a configuration can be fitted; keep one of {', '.join(FITS)}"
        )
    space = Space(source, root, question, points, prior_points)
    for key, listed in ((POINTS_KEY, points), (PRIOR_POINTS_KEY, prior_points)):
        for number, point in enumerate(listed, 1):
            pin_point(space, point, f"{source}: {key}, point {number}")
    return space


def _pop_points(tables: dict[str, Any], key: str, source: str) -> tuple[dict[str, Any], ...]:
    listed = tables.pop(key, [])
    if not isinstance(listed, list) or not all(isinstance(point, dict) for point in listed):
        raise SpaceError(f"{source}: {key} must be tables [[{key}]], got {listed!r}")
    return tuple(dict(flatten(point)) for point in listed)


def _parse_toml(text: str, source: str) -> dict[str, Any]:
    """The tables of a text, whose question is a text if it has one."""
    try:
        tables = parse_toml(text)
    except ValueError as error:
        raise SpaceError(f"{source} is not TOML: {error}") from None
    if not isinstance(question := tables.get(QUESTION_KEY, ""), str):
        raise SpaceError(f"{source}: [{QUESTION_KEY}] must be a text, got {question!r}")
    return tables


def read_tree(tables: Mapping[str, Any], source: str, place: str = "") -> tree.Group | tree.Branch:
    """The typed tree of tables at a `place` of their file; raises SpaceError for an invalid parameter."""
    root = _TableReader(source).read_node(tables, place)
    if not isinstance(root, tree.Group | tree.Branch):
        raise SpaceError(
            f"{source} must be a tree of tables such as [model] and [training], not one parameter"
        )
    return root


class _TableReader:
    """Reads tables as nodes. The methods besides `read_node` raise ValueError for an invalid parameter."""

    def __init__(self, source: str) -> None:
        self._source = source

    def read_node(self, node: Any, place: str) -> tree.Node:
        if not isinstance(node, Mapping):
            return tree.Constant(node)
        try:
            if BRANCH_KEY in node:
                return self._read_branch(node, place)
            if kinds := [kind for kind in LEAF_OPTIONS if kind in node]:
                return self._read_leaf(kinds[0], node, place)
            _check_misspelt_kind(node)
        except ValueError as error:
            raise SpaceError(f"{self._locate(place)} {error}") from None
        return self._read_group(node, place)

    def _locate(self, place: str) -> str:
        return f"{locate_field(self._source, place)}: [{place}]"

    def _read_group(self, table: Mapping[str, Any], place: str) -> tree.Group:
        return tree.Group(
            {key: self.read_node(value, tree.join_name(place, key)) for key, value in table.items()}
        )

    def _read_branch(self, table: Mapping[str, Any], place: str) -> tree.Branch:
        key = table[BRANCH_KEY]
        if not isinstance(key, str) or not key:
            raise _refuse(f'{BRANCH_KEY} names the field that holds the chosen option, such as "family"', key)
        written = {n: v for n, v in table.items() if n in PRIOR_KEYS and not isinstance(v, dict)}
        options = {n: v for n, v in table.items() if n != BRANCH_KEY and n not in written}
        if not options:
            example = tree.join_name(place, "adam")
            raise _refuse(f"a branch needs options: sub-tables such as [{example}]", table)
        for name, option in options.items():
            if not isinstance(option, dict):
                own = tree.join_name(place, name)
                raise SpaceError(f"{self._locate(own)} a branch holds only its options, each a table")
        groups = {n: self._read_group(option, tree.join_name(place, n)) for n, option in options.items()}
        choice = _add_prior(tree.Categorical(tuple(groups)), written, self._source, place)
        return tree.Branch(key, groups, prior=choice.prior)

    def _read_leaf(self, kind: str, table: Mapping[str, Any], place: str) -> tree.Leaf:
        for name in table:
            if name != kind and name in LEAF_OPTIONS:
                raise _refuse(f"a parameter is of one kind, not both {kind} and {name}", table)
            if name != kind and name not in LEAF_OPTIONS[kind]:
                near = did_you_mean(name, (kind, *LEAF_OPTIONS[kind]))
                raise ValueError(f'unknown name "{name}" next to {kind}; {near}')
        if kind in FITS:
            return self._read_fitted(kind, table[kind], place)
        leaf = _read_categorical(table["choice"]) if kind == "choice" else _read_range(kind, table)
        return _add_prior(leaf, table, self._source, place)

    def _read_fitted(self, kind: str, target: Any, place: str) -> tree.FittedSize:
        if not _is_integer(target) or target < 1:
            noun = tree.SIZE_NOUNS[FITS[kind]]
            raise _refuse(f"{kind} must be a positive whole number of {noun}", target)
        return tree.FittedSize(FITS[kind], target, locate_field(self._source, place))


def _add_prior(leaf: _Searched, table: Mapping[str, Any], source: str, place: str) -> _Searched:
    if PRIOR_KEY not in table:
        if CONFIDENCE_KEY in table:
            raise _refuse(f"{CONFIDENCE_KEY} says how firm a {PRIOR_KEY} is; add {PRIOR_KEY}", table)
        return leaf
    value, confidence = table[PRIOR_KEY], table.get(CONFIDENCE_KEY, tree.Prior(None).confidence)
    if confidence not in get_args(tree.Confidence):
        known = ", ".join(f'"{name}"' for name in get_args(tree.Confidence))
        raise _refuse(f"{CONFIDENCE_KEY} must be one of {known}", confidence)
    nearest = find_nearest_value(leaf, value)
    if nearest != value:
        allowed = describe_allowed(leaf, nearest)
        raise _refuse(f"{PRIOR_KEY} is not a value of the parameter ({allowed})", value)
    stated = locate_field(source, tree.join_name(place, PRIOR_KEY))
    return replace(leaf, prior=tree.Prior(nearest, confidence, stated))


def _read_categorical(choices: Any) -> tree.Categorical:
    if not isinstance(choices, list) or not choices:
        raise _refuse('choice must be a list such as ["adam", "sgd"]', choices)
    for index, choice in enumerate(choices):
        if not isinstance(choice, str | int | float):
            raise _refuse("a choice is a text, a number or true/false; for tables use one_of", choice)
        if choice in choices[:index]:
            raise _refuse("the choices must differ", choices)
    return tree.Categorical(tuple(choices))


def _read_range(kind: str, table: Mapping[str, Any]) -> tree.Integer | tree.Real:
    bounds, step, log = table[kind], table.get("step"), table.get("log", False)
    fits = _is_integer if kind == "int" else _is_number
    if not isinstance(bounds, list) or len(bounds) != 2 or not all(map(fits, bounds)):
        example = "[1, 20]" if kind == "int" else "[0.0, 0.5]"
        raise _refuse(f"{kind} must be two finite bounds such as {example}", bounds)
    low, high = bounds
    if low >= high:
        raise ValueError(f"low must be below high, got low = {low}, high = {high}")
    if not math.isfinite(float(high) - float(low)):
        raise _refuse("the range is wider than the largest floating-point number", bounds)
    if not isinstance(log, bool):
        raise _refuse("log must be true or false", log)
    if log and low <= 0:
        raise _refuse("a logarithmic range must start above 0", low)
    if step is not None:
        if not fits(step) or step <= 0:
            raise _refuse("step must be a positive number of the parameter's kind", step)
        if log:
            raise _refuse("a logarithmic range has no step; leave one of the two out", step)
        _check_step(step, low, high)
    if kind == "int":
        return tree.Integer(low, high, step or 1, log)
    return tree.Real(float(low), float(high), None if step is None else float(step), log)


def _check_step(step: float, low: float, high: float) -> None:
    steps = (high - low) / step
    # Decimal steps such as 0.1 do not divide a range exactly; 1e-9 is far above the rounding error.
    is_whole = math.isfinite(steps) and math.isclose(steps, round(steps), abs_tol=1e-9)
    if not is_whole or round(steps) < 1:
        raise _refuse(f"step must divide the range from {low} to {high}", step)


def _check_misspelt_kind(table: Mapping[str, Any]) -> None:
    """Raise ValueError for { flaot = [0, 1] }, which would otherwise be a group with a constant list."""
    for name in FOREIGN_KINDS.keys() & table.keys():
        raise ValueError(f'no kind "{name}" of parameter; write {FOREIGN_KINDS[name]}')
    names = [name for name, value in table.items() if isinstance(value, list)]
    is_range = len(names) == 1 and set(table) <= {names[0], *LEAF_OPTIONS["int"]}
    if is_range and get_close_matches(names[0], LEAF_OPTIONS):
        raise ValueError(f'unknown kind "{names[0]}"; {did_you_mean(names[0], LEAF_OPTIONS)}')


def _refuse(problem: str, got: Any) -> ValueError:
    return ValueError(f"{problem}, got {got!r}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def override_space(
    space: Space, overrides: Mapping[str, Any], source: str | None = None, place: str = ""
) -> Space:
    """The space with entries replaced by `overrides`, nested tables in the format of a space file.

    Overrides of a branch that name an option (`optimiser = { kind = "adam" }`) choose the option and override
    its parameters. Overrides with an unknown option replace the branch; overrides without an option apply to
    every option. An override that states a prior alone (`{ prior = 3e-3 }`) leaves the parameter's range, and
    may be in the table of one option. Overrides of a combined space apply to every family. Errors about the
    overrides name `source` (default: the space's file) and the `place` of the tables in it.

    >>> from memtune.spaces import read_space
    >>> space = read_space("[model]\\nlayers = { int = [1, 3] }\\nwidth = { int = [8, 16] }", "example")
    >>> [each.name for each in override_space(space, {"model": {"layers": 2}}).parameters()]
    ['model.width']
    """
    if not overrides:
        return space
    over = read_tree(overrides, source or space.source, place)
    try:
        root = _merge_nodes(space.root, over, source or space.source, place)
    except SpaceError as error:
        raise SpaceError(f"{error}; the space is {space.source}") from None
    assert isinstance(root, tree.Group | tree.Branch)
    return replace(space, root=root)


def _merge_nodes(node: "tree.Node | None", over: tree.Node, source: str, place: str) -> tree.Node:
    if not isinstance(over, tree.Group):
        return over
    if isinstance(node, tree.Group):
        return _merge_group(node, over, source, place)
    if _states_prior(over):
        return _override_prior(node, over, source, place)
    if not isinstance(node, tree.Branch):
        return over
    chosen = over.members.get(node.key) if node.is_key_written else None
    if chosen is None:
        return _merge_options(node, over, source, place)
    if isinstance(chosen, tree.Constant) and chosen.value in node.options:
        return _merge_group(node.options[chosen.value], over, source, place)
    return over


def _states_prior(over: tree.Node) -> bool:
    """Whether a table states a prior, or its confidence, and nothing else."""
    return isinstance(over, tree.Group) and bool(over.members) and over.members.keys() <= {*PRIOR_KEYS}


def _states_priors(over: tree.Node) -> bool:
    """Whether the tables in a table state priors and nothing else."""
    if _states_prior(over):
        return True
    tables = [*over.members.values()] if isinstance(over, tree.Group) else []
    return bool(tables) and all(map(_states_priors, tables))


def _override_prior(node: "tree.Node | None", over: tree.Group, source: str, place: str) -> tree.Node:
    """The parameter, or the branch, with another prior; what `over` leaves out stays."""
    where = f"{locate_field(source, place)}: [{place}]"
    searched = tree.Categorical(tuple(node.options), node.prior) if isinstance(node, tree.Branch) else node
    if not isinstance(searched, _Searched):
        raise SpaceError(
            f"{where} has a prior, but neither the study nor the space searches it; give it a range, such as "
            "{ float = [0.0, 0.5], prior = 0.1 }, or state the prior for one family under [families.NAME]"
        )
    known = searched.prior
    table = {} if known is None else {PRIOR_KEY: known.value, CONFIDENCE_KEY: known.confidence}
    try:
        prior = _add_prior(searched, {**table, **over.describe()}, source, place).prior
    except ValueError as error:
        raise SpaceError(f"{where} {error}, where the space has {searched.describe()}") from None
    assert isinstance(node, tree.Branch | _Searched)
    return replace(node, prior=prior)


def _merge_options(branch: tree.Branch, over: tree.Group, source: str, place: str) -> tree.Node:
    """Override every option of a branch, and the priors of one option or of the choice itself."""
    own = {
        name: member
        for name, member in over.members.items()
        if name in PRIOR_KEYS or (name in branch.options and _states_priors(member))
    }
    shared = tree.Group({name: member for name, member in over.members.items() if name not in own})
    _refuse_option(branch, shared, source, place)
    options = {name: _merge_group(group, shared, source, place) for name, group in branch.options.items()}
    for name, table in own.items():
        if isinstance(table, tree.Group):
            options[name] = _merge_group(options[name], table, source, tree.join_name(place, name))
    merged = replace(branch, options=options)
    choice = tree.Group({name: member for name, member in own.items() if name in PRIOR_KEYS})
    return _override_prior(merged, choice, source, place) if choice.members else merged


def _refuse_option(branch: tree.Branch, over: tree.Group, source: str, place: str) -> None:
    """Raise SpaceError for the table of an option without what chooses it, which would be a field of all."""
    for name, member in over.members.items():
        if branch.is_key_written and name in branch.options and isinstance(member, tree.Group):
            own = tree.join_name(place, name)
            raise SpaceError(
                f"{locate_field(source, own)}: [{own}] is an option of [{place}]; write there one_of = "
                f'"{branch.key}" to search the fields of this table alone, or {branch.key} = "{name}" with '
                "these fields next to it, to search the other fields of the space too"
            )


def _merge_group(group: tree.Group, over: tree.Group, source: str, place: str) -> tree.Group:
    merged = {
        key: _merge_nodes(group.members.get(key), node, source, tree.join_name(place, key))
        for key, node in over.members.items()
    }
    return tree.Group({**group.members, **merged})
