"""Counts as text, in one format for all messages."""

__all__ = ["format_count"]


def format_count(number: int, noun: str) -> str:
    """A count with thousands separators and its noun, in the plural unless the count is 1.

    >>> format_count(1, "trial"), format_count(2000, "trial")
    ('1 trial', '2,000 trials')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
