"""A check that an optional value is present."""

from typing import TypeVar

__all__ = ["require"]

T = TypeVar("T")


def require(value: T | None) -> T:
    """The value. Raises AssertionError for None."""
    assert value is not None
    return value
