"""The check of arguments of public functions: a value of a wrong type is named with what to write instead."""

from memtune.errors import ArgumentError

CORPUS_NAME = 'the name of a corpus, such as "ptb"'
"""What a message says that a corpus is given by."""
MAX_SHOWN_CHARACTERS = 60


def check_type(name: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Raise ArgumentError unless a value is of one of the kinds; `expected` says what to write, in words.

    True and False are no integers.

    >>> check_type("study", "demo", str, 'the name of a study, such as "demo"')
    """
    is_flag = isinstance(value, bool) and bool not in (kinds if isinstance(kinds, tuple) else (kinds,))
    if is_flag or not isinstance(value, kinds):
        raise ArgumentError(f"{name} must be {expected}; got {describe_value(value)}")


def describe_value(value: object) -> str:
    """A value in a message: its text with its type, or the type alone for a long text.

    >>> describe_value(3), describe_value(None), describe_value([0] * 100)
    ('3 (int)', 'None', 'a value of type list')
    """
    text, kind = repr(value), type(value).__name__
    if value is None:
        return text
    if len(text) > MAX_SHOWN_CHARACTERS or "\n" in text:
        return f"a value of type {kind}"
    return f"{text} ({kind})"
