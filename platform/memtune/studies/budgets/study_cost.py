"""What a study has spent, by state and family of its trials, and what early stopping has saved."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from memtune.data_frames import make_frame, render_table
from memtune.search import Outcome
from memtune.studies.definition.study_terms import Prices
from memtune.trial_state import StopReason
from memtune.usage import Usage, add_usages
from memtune.values import Value


class CostRow(Value):
    """What a group of trials has spent."""

    group: str
    trials: int
    tokens: int
    cpu_hours: float
    gpu_hours: float
    money: float | None
    """In the currency of the study's prices; None without prices."""


class StudyCost(Value):
    """What a study has spent and saved, repeats included."""

    study: str
    total: CostRow
    by_state: tuple[CostRow, ...]
    by_family: tuple[CostRow, ...]
    seconds: float
    """Wall-clock seconds of all drivers."""
    full_tokens: int
    """Tokens that all trials together would have trained on at full length."""
    saved_tokens: int
    """Tokens that trials ended by early stopping have not trained on."""
    currency: str | None

    @property
    def saved_share(self) -> float:
        """The saved tokens as a share of the tokens of all trials at full length."""
        return self.saved_tokens / self.full_tokens if self.full_tokens else 0.0

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each state, each family, and all trials together."""
        groups = {"state": self.by_state, "family": self.by_family, "total": (self.total,)}
        return make_frame({"by": by, **row.model_dump()} for by, rows in groups.items() for row in rows)

    def __repr__(self) -> str:
        """The study with its trials, tokens and hours."""
        total = self.total
        hours = f"{total.cpu_hours:.3g} CPU hours, {total.gpu_hours:.3g} GPU hours"
        return f"StudyCost({self.study}: {total.trials:,} trials, {total.tokens:,} tokens, {hours})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        money = f"; money in {self.currency}" if self.currency else ""
        saved = f"early stopping saved {self.saved_share:.1%} of the tokens at full length"
        title = f"study {self.study}: {self.seconds:,.0f} s of drivers; {saved}{money}"
        return render_table(title, self.to_frame())

    def list_figures(self) -> dict[str, float]:
        """The totals by name, for a tracking store."""
        total = self.total
        figures = {
            "spent_tokens": float(total.tokens),
            "spent_cpu_hours": total.cpu_hours,
            "spent_gpu_hours": total.gpu_hours,
            "spent_seconds": self.seconds,
            "saved_tokens": float(self.saved_tokens),
        }
        return figures if total.money is None else {**figures, "spent_money": total.money}


def compute_study_cost(
    study: str,
    outcomes: Sequence[Outcome],
    seconds: float,
    prices: Prices | None,
    count_full_tokens: Callable[[Outcome], int],
) -> StudyCost:
    """The cost of a study's trials; `count_full_tokens` returns the tokens of a trial at full length."""

    def make_row(group: str, members: Iterable[Outcome]) -> CostRow:
        usages: list[Usage] = [outcome.usage for outcome in members]
        total = add_usages(usages)
        return CostRow(
            group=group,
            trials=len(usages),
            tokens=total.tokens,
            cpu_hours=total.cpu_seconds / 3600,
            gpu_hours=total.gpu_seconds / 3600,
            money=None if prices is None else prices.compute_usage_money(total),
        )

    def make_rows(get_group: Callable[[Outcome], str]) -> tuple[CostRow, ...]:
        groups = sorted({get_group(outcome) for outcome in outcomes})
        return tuple(make_row(name, [o for o in outcomes if get_group(o) == name]) for name in groups)

    stopped = [o for o in outcomes if o.end is not None and o.end.reason is StopReason.EARLY_STOPPING]
    return StudyCost(
        study=study,
        total=make_row("all", outcomes),
        by_state=make_rows(lambda outcome: outcome.state.label),
        by_family=make_rows(lambda outcome: outcome.family),
        seconds=seconds,
        full_tokens=sum(count_full_tokens(outcome) for outcome in outcomes),
        saved_tokens=sum(max(0, count_full_tokens(o) - max(o.curve, default=0)) for o in stopped),
        currency=None if prices is None else prices.currency,
    )
