"""Counts and other numbers as text, in one format for all messages."""

SHORT_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
TIME_UNITS = (("hours", 1), ("minutes", 60), ("seconds", 3600))
"""Units of time, and how many are an hour."""


def format_count(number: int, noun: str) -> str:
    """A count with thousands separators and its noun, in the plural unless the count is 1.

    >>> format_count(1, "trial"), format_count(2000, "trial")
    ('1 trial', '2,000 trials')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_p(p: float) -> str:
    """What follows the letter of a p-value.

    >>> format_p(0.03), format_p(1e-5)
    ('= 0.030', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def format_short_count(number: float) -> str:
    """A number with three significant digits, for lines with little room.

    >>> format_short_count(950), format_short_count(596_645), format_short_count(999_900)
    ('950', '597k', '1M')
    """
    for unit, sign in SHORT_UNITS:
        if float(f"{number:.3g}") >= unit:
            return f"{float(f'{number:.3g}') / unit:.3g}{sign}"
    return f"{number:.3g}"


def format_duration(seconds: float) -> str:
    """Minutes and seconds, or hours and minutes.

    >>> format_duration(3725)
    '1h 02m'
    """
    minutes, left = divmod(int(seconds), 60)
    return f"{minutes // 60}h {minutes % 60:02d}m" if minutes >= 60 else f"{minutes}m {left:02d}s"


def choose_time_unit(hours: float) -> tuple[str, int]:
    """The largest unit in which a time is at least 1, and how many of it are an hour.

    >>> choose_time_unit(2.0), choose_time_unit(0.1), choose_time_unit(1e-6)
    (('hours', 1), ('minutes', 60), ('seconds', 3600))
    """
    return next((each for each in TIME_UNITS if each[1] * hours >= 1), TIME_UNITS[-1])


def format_amount(amount: float, digits: int = 2) -> str:
    """An amount of time or money: so many significant digits, and a whole number where it has as many.

    >>> format_amount(0.0124), format_amount(1234.5), format_amount(12.34, 3)
    ('0.012', '1,234', '12.3')
    """
    return f"{amount:,.0f}" if abs(amount) >= 10 ** (digits - 1) else f"{amount:.{digits}g}"


def format_parameters(number: int, *, is_short: bool = False) -> str:
    """The size of a model in words; a model that learns by counting has no trained parameters.

    >>> format_parameters(596_645), format_parameters(596_645, is_short=True), format_parameters(0)
    ('596,645 parameters', '597k parameters', 'no trained parameters')
    """
    if number == 0:
        return "no trained parameters"
    return f"{format_short_count(number)} parameters" if is_short else format_count(number, "parameter")
