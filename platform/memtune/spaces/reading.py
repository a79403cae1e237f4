"""From a TOML file to a typed tree; whatever is wrong is told with file, [path], value and a way out."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from memtune.errors import SpaceError, did_you_mean
from memtune.spaces.leaves import Categorical, Constant, FittedParameters, Integer, Leaf, Real
from memtune.spaces.space import Space, combine
from memtune.spaces.tree import Branch, Group, Node, fitted_count, join

__all__ = ["load_space", "load_spaces", "read_space", "read_tree", "space_files"]

OPTIONS = {"int": ("step", "log"), "float": ("step", "log"), "choice": (), "fit_parameters": ()}
BRANCH = "one_of"
QUESTION = "question"
SPACES = "spaces"


def load_space(path: str | Path) -> Space:
    """The space of a file; SpaceError when it cannot be read, is no TOML, or holds what is no parameter.

    A file that lists others is those combined.
    """
    question, spaces = _listed(path)
    return replace(combine(spaces), source=str(path), question=question)


def load_spaces(path: str | Path) -> list[Space]:
    """The spaces that a file lists by the names of files beside it, `spaces = ["lstm", "rnn"]`; else its own.

    Raises what load_space raises, for each of them.
    """
    return _listed(path)[1]


def space_files(path: str | Path) -> list[Path]:
    """The file of a space and, where it lists others, theirs. Raises SpaceError for a missing one."""
    listed = _load(path).get(SPACES, [])
    below = [space_files(Path(path).parent / f"{name}.toml") for name in listed]
    return [Path(path), *(file for files in below for file in files)]


def _listed(path: str | Path) -> tuple[str, list[Space]]:
    """The question of a file, and the spaces it lists or is; each file is read once."""
    tables = _load(path)
    question = _question(tables, str(path))
    if SPACES not in tables:
        return question, [_space(tables, str(path), question)]
    names = tables.pop(SPACES)
    if tables or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SpaceError(f"{path}: beside a question and {SPACES}, a list of names, nothing can stand")
    return question, [load_space(Path(path).parent / f"{name}.toml") for name in names]


def _load(path: str | Path) -> dict[str, Any]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        near = did_you_mean(Path(path).stem, [found.stem for found in Path(path).parent.glob("*.toml")])
        raise SpaceError(f"no search space {path}; {near}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path} cannot be read: {error}") from None
    return _parsed(text, str(path))


def read_space(text: str, source: str) -> Space:
    """The space of a TOML text; `source` is what errors call it."""
    tables = _parsed(text, source)
    return _space(tables, source, _question(tables, source))


def _space(tables: Mapping[str, Any], source: str, question: str) -> Space:
    if not tables:
        raise SpaceError(f"{source} holds no parameter; start with a table such as [model]")
    root = read_tree(tables, source)
    if fitted_count(root) > 1:
        raise SpaceError(f"{source}: fit_parameters can solve one field of a configuration; keep one of them")
    return Space(source, root, question)


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpaceError(f"{source} is no TOML: {error}") from None


def _question(tables: dict[str, Any], source: str) -> str:
    """The question, taken out of the tables."""
    question = tables.pop(QUESTION, "")
    if not isinstance(question, str):
        raise SpaceError(f"{source}: [{QUESTION}] must be a text, got {question!r}")
    return question


def read_tree(tables: Mapping[str, Any], source: str) -> Group | Branch:
    """The typed tree of parsed tables; SpaceError where they hold what is no parameter."""
    root = _Reader(source).table(tables, "")
    if not isinstance(root, Group | Branch):
        raise SpaceError(
            f"{source} must be a tree of tables such as [model] and [training], not one parameter"
        )
    return root


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source

    def table(self, table: Mapping[str, Any], place: str) -> Node:
        if BRANCH in table:
            return self._branch(table, place)
        kinds = [kind for kind in OPTIONS if kind in table]
        if kinds:
            return self._leaf(kinds[0], table, place)
        self._refuse_misspelt_leaf(table, place)
        return self._group(table, place)

    def _group(self, table: Mapping[str, Any], place: str) -> Group:
        return Group({key: self._node(value, join(place, key)) for key, value in table.items()})

    def _node(self, value: Any, place: str) -> Node:
        return self.table(value, place) if isinstance(value, dict) else Constant(value)

    def _branch(self, table: Mapping[str, Any], place: str) -> Branch:
        key = table[BRANCH]
        if not isinstance(key, str) or not key:
            raise self._error(
                place, f'{BRANCH} names the field that tells the options apart, such as "family"', key
            )
        options = {name: value for name, value in table.items() if name != BRANCH}
        if not options:
            raise self._error(
                place, f"a branch needs options: sub-tables such as [{join(place, 'adam')}]", table
            )
        for name, option in options.items():
            if not isinstance(option, dict):
                raise self._error(join(place, name), "a branch holds only its options, each a table", option)
        return Branch(key, {name: self._group(option, join(place, name)) for name, option in options.items()})

    def _leaf(self, kind: str, table: Mapping[str, Any], place: str) -> Leaf:
        for name in table:
            if name != kind and name in OPTIONS:
                raise self._error(place, f"a parameter is of one kind, not both {kind} and {name}", table)
            if name != kind and name not in OPTIONS[kind]:
                near = did_you_mean(name, (kind, *OPTIONS[kind]))
                raise SpaceError(f'{self._source}: [{place}] unknown name "{name}" beside {kind}; {near}')
        if kind == "choice":
            return self._categorical(table["choice"], place)
        if kind == "fit_parameters":
            return self._fitted(table["fit_parameters"], place)
        return self._range(kind, table, place)

    def _categorical(self, choices: Any, place: str) -> Categorical:
        if not isinstance(choices, list) or not choices:
            raise self._error(place, 'choice must be a list such as ["adam", "sgd"]', choices)
        for index, choice in enumerate(choices):
            if not isinstance(choice, str | int | float):
                raise self._error(
                    place, "a choice is a text, a number or true/false; for tables use one_of", choice
                )
            if choice in choices[:index]:
                raise self._error(place, "the choices must differ", choices)
        return Categorical(tuple(choices))

    def _fitted(self, target: Any, place: str) -> FittedParameters:
        if not _is_integer(target) or target < 1:
            raise self._error(place, "fit_parameters must be a positive number of parameters", target)
        return FittedParameters(target)

    def _range(self, kind: str, table: Mapping[str, Any], place: str) -> Integer | Real:
        bounds, step, log = table[kind], table.get("step"), table.get("log", False)
        fits = _is_integer if kind == "int" else _is_number
        if not isinstance(bounds, list) or len(bounds) != 2 or not all(fits(bound) for bound in bounds):
            example = "[1, 20]" if kind == "int" else "[0.0, 0.5]"
            raise self._error(place, f"{kind} must be two finite bounds such as {example}", bounds)
        low, high = bounds
        if low >= high:
            raise SpaceError(
                f"{self._source}: [{place}] low must be below high, got low = {low}, high = {high}"
            )
        if not isinstance(log, bool):
            raise self._error(place, "log must be true or false", log)
        if log and low <= 0:
            raise self._error(place, "a logarithmic range must start above 0", low)
        if step is not None:
            self._check_step(step, fits(step), low, high, log, place)
        if kind == "int":
            return Integer(low, high, step or 1, log)
        return Real(float(low), float(high), None if step is None else float(step), log)

    def _check_step(self, step: Any, fits: bool, low: float, high: float, log: bool, place: str) -> None:
        if not fits or step <= 0:
            raise self._error(place, "step must be a positive number of the parameter's kind", step)
        if log:
            raise self._error(place, "a logarithmic range has no step; leave one of the two out", step)
        steps = (high - low) / step
        if not math.isclose(steps, round(steps), abs_tol=1e-9) or round(steps) < 1:
            raise self._error(place, f"step must divide the range from {low} to {high}", step)

    def _refuse_misspelt_leaf(self, table: Mapping[str, Any], place: str) -> None:
        """A table such as { flaot = [0, 1] } would pass for a group with a constant list."""
        names = [name for name, value in table.items() if isinstance(value, list)]
        if (
            len(names) == 1
            and set(table) <= {names[0], "step", "log"}
            and get_close_matches(names[0], OPTIONS)
        ):
            raise SpaceError(
                f'{self._source}: [{place}] unknown kind "{names[0]}"; {did_you_mean(names[0], OPTIONS)}'
            )

    def _error(self, place: str, problem: str, got: Any) -> SpaceError:
        return SpaceError(f"{self._source}: [{place}] {problem}, got {got!r}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))
