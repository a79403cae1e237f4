"""Descriptions of fields from the docstrings below them.

They are read from the source when a schema is made. With pydantic's own option every import of memtune would
read them, which takes 0.8 s.
"""

import ast
import inspect
from functools import cache
from textwrap import dedent

from pydantic import BaseModel

__all__ = ["describe_field"]


def describe_field(config: type[BaseModel], name: str) -> str:
    """The description of a field, else the docstring below it, in one line; "" without both."""
    field = config.model_fields.get(name)
    if field is not None and field.description:
        return field.description
    for base in config.__mro__:
        if text := _read_docstrings(base).get(name):
            return text
    return ""


@cache
def _read_docstrings(config: type) -> dict[str, str]:
    """The docstrings of a class's own fields, by name; none where its source is not at hand."""
    if not issubclass(config, BaseModel) or config is BaseModel:
        return {}
    try:
        (tree,) = ast.parse(dedent(inspect.getsource(config))).body
    except (OSError, TypeError):
        return {}
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[field.target.id] = " ".join(below.value.value.split())
    return found
