"""Words of a count, the same in all that a user reads."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from memtune.tasks import TaskConfig

__all__ = ["counted", "unit"]


def unit(task: "TaskConfig") -> Literal["tokens", "examples"]:
    """What a task's predictions are counted in: words of a text, or a classifier's examples."""
    from memtune.tasks.language_modelling import TextTaskConfig

    return "tokens" if isinstance(task, TextTaskConfig) else "examples"


def counted(number: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "trial"), counted(2000, "trial")
    ('1 trial', '2,000 trials')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
