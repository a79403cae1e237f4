"""What torch.compile leaves as it is."""

import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def leave_uncompiled(function: Callable[..., Result]) -> Callable[..., Result]:
    """torch.compiler.disable for a function, without the two seconds in which it imports the compiler.

    A process in which nothing has imported the compiler compiles nothing.
    """
    disable = cache(lambda: torch.compiler.disable(function))  # type: ignore[no-untyped-call]

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Result:
        return (disable() if "torch._dynamo" in sys.modules else function)(*arguments, **options)

    return call
