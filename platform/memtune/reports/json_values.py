"""Values as JSON can have them."""

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["replace_non_finite"]


def replace_non_finite(data: Any) -> Any:
    """The data with None for every number that is not finite, such as the perplexity of a diverged trial.

    >>> replace_non_finite({"perplexity": float("inf"), "tokens": [10, float("nan")]})
    {'perplexity': None, 'tokens': [10, None]}
    """
    if isinstance(data, Mapping):
        return {name: replace_non_finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [replace_non_finite(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data
