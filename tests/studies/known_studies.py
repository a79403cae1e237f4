"""Studies whose truth is known, and what their answers have to say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.studies.drawn_studies import DrawnStudy
from tests.studies.simulated_training import Truth

DECIDED = {"until": "decided", "max_seeds": 6}


@dataclass(frozen=True)
class Known:
    """A study of known truth."""

    truth: str
    """In words, for a table."""
    best: str
    """The alternative that is best; empty where none is."""
    says: Sequence[str]
    """Parts of its answer."""
    drawn: DrawnStudy


def _make(
    families: str,
    costs: dict[str, float],
    *,
    trials: int = 4,
    ends: Sequence[tuple[str, int]] = (),
    truth: dict[str, Any] | None = None,
    **document: Any,
) -> DrawnStudy:
    """A study of small trials in which each configuration of an alternative is as good as the others."""
    budget = {"trials": trials, **document.pop("budget", {})}
    spaces = [f"{family}.toml" for family in families.split()]
    training = {} if spaces == ["kneser_ney.toml"] else {"training": {"tokens": 900, "report_every": 300}}
    named = {"question": "Which is best?", "corpus": "asked", "spaces": spaces, **training}
    rule = {"early_stopping": {"kind": "none"}, "sampler": {"kind": "random", "seed": 1}}
    compare = document.get("compare", "model.family")
    known = Truth(1, compare, **{"costs": costs, "spread": 0.0, "noise": 0.005, **(truth or {})})
    return DrawnStudy("", {**named, **rule, "budget": budget, **document}, known, 1, list(ends))


STUDIES = (
    Known(
        "one alternative is better",
        "lstm",
        ["lstm #", " is best", "and the difference is significant"],
        _make("lstm rnn", {"lstm": 3.0, "rnn": 3.5}, repeats=DECIDED),
    ),
    Known(
        "one alternative is better; the driver is killed, and stopped, and resumed",
        "lstm",
        ["lstm #", " is best", "and the difference is significant"],
        _make("lstm rnn", {"lstm": 3.0, "rnn": 3.5}, ends=[("kill", 5), ("signal", 14)], repeats=DECIDED),
    ),
    Known(
        "a higher accuracy",
        "rnn",
        ["rnn #", "percentage points better than lstm #", "and the difference is significant"],
        _make(
            "lstm rnn",
            {"lstm": 3.5, "rnn": 3.0},
            truth={"unit": 0.1},
            task={"kind": "sentiment"},
            repeats=DECIDED,
        ),
    ),
    Known(
        "a tie; seeds until decided",
        "",
        [" are equal within 0.5 %"],
        _make("lstm rnn", {"lstm": 3.0, "rnn": 3.0}, truth={"noise": 0.0005}, repeats=DECIDED),
    ),
    Known(
        "a tie; four seeds",
        "",
        ["but the difference is not significant"],
        _make("lstm rnn", {"lstm": 3.0, "rnn": 3.0}, repeats={"best": 2, "seeds": 4}),
    ),
    Known(
        "a tie; the seeds of `max_seeds` do not decide",
        "",
        ["all that [repeats] allows", " may be best"],
        _make(
            "lstm rnn",
            {"lstm": 3.0, "rnn": 3.0},
            truth={"noise": 0.05},
            repeats={"until": "decided", "max_seeds": 4},
        ),
    ),
    Known(
        "a tie; the budget ends before the seeds decide",
        "",
        ["Seeds have not decided yet", " may be best"],
        _make(
            "lstm rnn",
            {"lstm": 3.0, "rnn": 3.0},
            truth={"noise": 0.05},
            budget={"tokens": 7_000},
            repeats=DECIDED,
        ),
    ),
    Known(
        "the better alternative was cut by the clock while it led",
        "rnn",
        ["Undecided: rnn #", " leads with ", "Without a trial of full length: rnn."],
        _make("lstm rnn", {"lstm": 3.5, "rnn": 3.0}, trials=2, budget={"time": 14}),
    ),
    Known(
        "the better alternative learns late, and is trained to the end",
        "rnn",
        ["rnn #", " is best"],
        _make(
            "lstm rnn",
            {"lstm": 3.2, "rnn": 3.4},
            trials=6,
            truth={"late": 0.5, "noise": 0.0},
            early_stopping={"kind": "successive_halving"},
        ),
    ),
    Known(
        "the better value of the search is one lucky seed",
        "lstm",
        ["lstm #", " is best", "and the difference is significant"],
        _make("lstm rnn", {"lstm": 3.0, "rnn": 3.5}, truth={"lucky": {"rnn": 0.8}}, repeats=DECIDED),
    ),
    Known(
        "the second alternative diverges under each new seed",
        "lstm",
        ["lstm #", " is best", "seeds diverged)"],
        _make(
            "lstm rnn",
            {"lstm": 3.0, "rnn": 3.1},
            truth={"unstable": frozenset({"rnn"})},
            repeats={"best": 2, "seeds": 4},
        ),
    ),
    Known(
        "the better value of the search diverges under each new seed",
        "lstm",
        ["lstm #", "but lacks seeds", "Unstable: rnn #"],
        _make(
            "lstm rnn",
            {"lstm": 3.0, "rnn": 2.9},
            truth={"unstable": frozenset({"rnn"})},
            repeats=DECIDED,
        ),
    ),
    Known(
        "all trials of an alternative fail",
        "rnn",
        ["nothing compares with it", "Without a trial of full length: rnn."],
        _make("lstm rnn", {"lstm": 3.0, "rnn": 2.9}, truth={"broken": frozenset({"rnn"})}),
    ),
    Known(
        "an alternative without a trial",
        "",
        ["nothing compares with it", "Not tried: "],
        _make("lstm rnn", {"lstm": 3.0, "rnn": 3.1}, trials=1),
    ),
    Known(
        "an alternative known by one configuration, another by many",
        "",
        ["Far fewer configurations than the "],
        _make("lstm scrn", {"lstm": 3.0, "scrn": 3.1}, trials=8),
    ),
    Known(
        "alternatives with unequal settings",
        "",
        [
            "also differ in what one or both alternatives have tried at one value only: model.dropout, "
            "model.tie_output."
        ],
        _make("lstm stack_lstm", {"lstm": 3.0, "stack_lstm": 3.5}, repeats=DECIDED),
    ),
    Known(
        "a network against a model that counts, which is worse",
        "lstm",
        ["lstm #", " is best", "and the difference is significant"],
        _make("lstm kneser_ney", {"lstm": 3.0, "kneser_ney": 3.5}, repeats=DECIDED),
    ),
    Known(
        "a network against a model that counts, which is better",
        "kneser_ney",
        ["kneser_ney #", " is best", "and the difference is significant"],
        _make("lstm kneser_ney", {"lstm": 3.5, "kneser_ney": 3.0}, repeats=DECIDED),
    ),
    Known(
        "two models that count",
        "",
        ["both learn by counting, so a seed changes nothing"],
        _make("kneser_ney", {"kneser_ney": 3.0}, truth={"spread": 0.3}),
    ),
    Known(
        "one family; `compare` names another field",
        "layers 2",
        ["layers 2", " is best", "and the difference is significant"],
        _make(
            "lstm",
            {"layers 1": 3.5, "layers 2": 3.0},
            compare="model.layers",
            sampler={"kind": "qmc"},
            repeats=DECIDED,
        ),
    ),
)
for _place, _known in enumerate(STUDIES):
    _known.drawn.name = f"known{_place}"
