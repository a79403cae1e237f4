"""The leaderboard of a study: configurations of full length with every seed, and what they take."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from memtune.corpora import Corpus
from memtune.estimate import Estimate
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.results.descriptions.study_description import describe_model
from memtune.results.insight.pareto import find_front
from memtune.results.ranking.selection import RankedConfiguration, RankedTrial, Ranking
from memtune.search import SIZE_UNITS, Outcome, compute_coordinate
from memtune.studies.definition.study_terms import Prices
from memtune.training import TrialConfig, TrialSizes, compute_sizes
from memtune.trial_state import TrialState
from memtune.usage import add_usages
from memtune.values import Value

__all__ = [
    "TRADE_OFFS",
    "LeaderboardEntry",
    "SeedResult",
    "ShortEntry",
    "StudyLeaderboard",
    "TradeOff",
    "compare_quantities",
    "join_leaderboards",
    "make_leaderboard",
    "make_trade_off",
]

EQUAL_RATIO, EQUAL_SIZES_RATIO = 1.05, 1.1
"""Budgets and sizes whose largest is at most this multiple of the smallest are equal: a size that is solved
for a width misses its target by some per cent, because the width is an integer."""
TRADE_OFFS: Mapping[str, str] = {
    **{str(size): unit for size, unit in SIZE_UNITS.items()},
    "cpu_hours": "core hours per seed",
    "gpu_hours": "GPU hours per seed",
}
"""The quantities that are compared with the figure, and their units."""


class SeedResult(Value):
    """One training of a configuration."""

    name: str
    seed: int
    cost: float
    figure: float
    """Perplexity or accuracy at full length."""
    cpu_hours: float


class LeaderboardEntry(Value):
    """A configuration of full length."""

    place: int | None
    """None where it lacks seeds that others have."""
    number: int
    name: str
    family: str
    model: str
    """The fields that distinguish it within its family."""
    estimate: Estimate
    figure: float
    """The mean over seeds: perplexity or accuracy."""
    interval: tuple[float, float] | None
    """Its 95 % interval; None for a single seed."""
    above_ideal: float | None
    """How far a perplexity is above the ideal one, as a share of it; None where no ideal is known."""
    seeds: tuple[SeedResult, ...]
    """The best first."""
    sizes: TrialSizes | None
    """None where the corpus is not in the store any more."""
    tokens: int
    """Of each seed."""
    cpu_hours: float
    """Of all seeds, as the GPU hours and the money."""
    gpu_hours: float
    money: float | None
    """None without prices."""
    note: str
    """Why it has no place."""
    identity: str
    """Of its best-validated trial."""
    is_counted: bool
    """Whether it learns by counting: it reads the text once and has no budget in tokens."""

    def measure(self, quantity: str) -> float | None:
        """The amount of a quantity of TRADE_OFFS; None where it is not known, or nothing."""
        seeds = len(self.seeds)
        if quantity == "tokens_per_second":
            return self.tokens * seeds / (3600 * self.cpu_hours) if self.cpu_hours else None
        if quantity in SIZE_UNITS:
            return (getattr(self.sizes, quantity) or None) if self.sizes else None
        return getattr(self, quantity) / seeds or None


class ShortEntry(Value):
    """A trial that ended before full length, which does not compare with the others."""

    number: int
    name: str
    family: str
    state: TrialState
    tokens: int
    cost: float
    figure: float
    """The best up to these tokens."""
    last_figure: float
    """At these tokens, which early stopping compares."""
    leader_figure: float
    """That of the best trial of full length at the same tokens."""
    sizes: TrialSizes | None
    reason: str


class TradeOff(Value):
    """The figure against one quantity over all trained configurations of full length that have it."""

    quantity: str
    unit: str
    is_equal: bool
    """Whether the quantity is the same within 10 %, so that figures compare at equal amounts."""
    lowest: float
    highest: float
    front: tuple[int, ...]
    """The numbers of the configurations that no other beats in both, in the order of their figure."""

    def describe(self) -> str:
        """The range in words.

        >>> trade_off.describe()
        'equal parameters: 250,102 to 251,800'
        """
        low, high = (_format_amount(amount) for amount in (self.lowest, self.highest))
        if self.is_equal:
            return f"equal {self.unit}: {low}" + (f" to {high}" if low != high else "")
        return f"{self.unit} from {low} to {high}, a factor of {_format_amount(self.highest / self.lowest)}"


class StudyLeaderboard(Value):
    """Who competes, who does not, and whether they compete at equal amounts."""

    tokens: int | None
    """Full length; None before the first validation."""
    entries: tuple[LeaderboardEntry, ...]
    """Those with a place first, the best first."""
    short: tuple[ShortEntry, ...]
    trade_offs: tuple[TradeOff, ...]

    @property
    def trained_tokens(self) -> int | None:
        """Full length of models that are trained; None where all of them count."""
        return self.tokens if any(not entry.is_counted for entry in self.entries) else None

    @property
    def ended_early(self) -> tuple[LeaderboardEntry, ...]:
        """Trained configurations that ended before full length by their own rule, such as divergence."""
        trained = [entry for entry in self.entries if not entry.is_counted]
        longest = max((entry.tokens for entry in trained), default=0)
        return tuple(entry for entry in trained if EQUAL_RATIO * entry.tokens < longest)


def make_leaderboard(
    ranking: Ranking | None,
    outcomes: Iterable[Outcome],
    numbers: Mapping[str, int],
    objective: Objective,
    corpus: Corpus | None,
    prices: Prices | None,
) -> StudyLeaderboard:
    """The leaderboard of a study's trials and repeats; empty without a ranking."""
    if ranking is None:
        return StudyLeaderboard(tokens=None, entries=(), short=(), trade_offs=())
    maker = _EntryMaker(
        {outcome.identity: outcome for outcome in outcomes}, numbers, objective, corpus, prices
    )
    entries = tuple(maker.make_entries(ranking))
    return StudyLeaderboard(
        tokens=round(ranking.tokens),
        entries=entries,
        short=tuple(maker.make_short_entries(ranking)),
        trade_offs=tuple(compare_quantities(entries)),
    )


def join_leaderboards(
    leaderboards: Sequence[tuple[str, StudyLeaderboard]],
) -> tuple[StudyLeaderboard, tuple[LeaderboardEntry, ...]]:
    """One leaderboard over several studies by name, and the best of each study that does not compete.

    Configurations compete at the largest full length of a study; a study of models that count has none, and
    competes with every other. Their names end with the study's, which a chart may cut off, and they have new
    numbers. Those that lack seeds in their study come last, without a place.
    """
    longest = max((found.trained_tokens or 0 for _, found in leaderboards), default=0)
    full_length = longest or max((found.tokens or 0 for _, found in leaderboards), default=0)
    competing, shorter = list[LeaderboardEntry](), list[LeaderboardEntry]()
    for study, found in leaderboards:
        named = [entry.model_copy(update={"name": f"{entry.name} ({study})"}) for entry in found.entries]
        if found.trained_tokens is None or longest <= EQUAL_RATIO * found.trained_tokens:
            competing += named
        else:
            shorter += named[:1]
    unique = _drop_repeated(competing)
    ordered = sorted(unique, key=lambda entry: (entry.place is None, entry.estimate.cost))
    entries = tuple(
        entry.model_copy(update={"place": entry.place and number, "number": number})
        for number, entry in enumerate(ordered, start=1)
    )
    trade_offs = tuple(compare_quantities(entries))
    joined = StudyLeaderboard(tokens=full_length or None, entries=entries, short=(), trade_offs=trade_offs)
    return joined, tuple(shorter)


def _drop_repeated(entries: Iterable[LeaderboardEntry]) -> list[LeaderboardEntry]:
    """Each trial once: a study takes the results of another one for equal configurations."""
    found: dict[str, LeaderboardEntry] = {}
    for entry in entries:
        known = found.get(entry.identity)
        if known is None or len(entry.seeds) > len(known.seeds):
            found[entry.identity] = entry
    return list(found.values())


class _EntryMaker:
    """Makes entries of ranked trials with what a study knows of them."""

    def __init__(
        self,
        outcome_by_identity: Mapping[str, Outcome],
        numbers: Mapping[str, int],
        objective: Objective,
        corpus: Corpus | None,
        prices: Prices | None,
    ) -> None:
        self._outcomes, self._numbers, self._objective = outcome_by_identity, numbers, objective
        self._corpus, self._prices = corpus, prices
        ideal = (corpus.manifest.ideal or {}).get("valid") if corpus else None
        self._ideal = ideal if objective.has_ideal else None

    def make_entries(self, ranking: Ranking) -> Iterator[LeaderboardEntry]:
        """The configurations of full length, those with a place first."""
        for place, found in enumerate(ranking.configurations, start=1):
            has_place = place <= len(ranking.ranked)
            seeds = format_count(found.estimate.seeds, "seed")
            yield self._make_entry(
                found, place if has_place else None, "" if has_place else f"{seeds}, fewer than others"
            )

    def _make_entry(self, found: RankedConfiguration, place: int | None, note: str) -> LeaderboardEntry:
        best, cost = found.best, found.estimate.cost
        config = self._read_config(best)
        usage = add_usages(self._outcomes[trial.identity].usage for trial in found.trials)
        figure = self._objective.compute_figure(cost)
        return LeaderboardEntry(
            place=place,
            number=self._numbers[best.identity],
            name=f"{best.family} #{self._numbers[best.identity]}",
            family=best.family,
            model=describe_model(config),
            estimate=found.estimate,
            figure=figure,
            interval=found.estimate.compute_interval(self._objective),
            above_ideal=None if self._ideal is None else figure / self._ideal - 1,
            seeds=tuple(
                self._make_seed(trial, own) for trial, own in zip(found.trials, found.costs, strict=True)
            ),
            sizes=self._measure(config),
            tokens=max(best.curve),
            cpu_hours=usage.cpu_seconds / 3600,
            gpu_hours=usage.gpu_seconds / 3600,
            money=None if self._prices is None else self._prices.compute_usage_money(usage),
            note=note,
            identity=best.identity,
            is_counted=not config.model.is_trained_by_gradient,
        )

    def _make_seed(self, trial: RankedTrial, cost: float) -> SeedResult:
        return SeedResult(
            name=f"{trial.family} {trial.name}",
            seed=trial.seed,
            cost=cost,
            figure=self._objective.compute_figure(cost),
            cpu_hours=self._outcomes[trial.identity].usage.cpu_seconds / 3600,
        )

    def make_short_entries(self, ranking: Ranking) -> Iterator[ShortEntry]:
        """The trials that ended before full length, those that came furthest first."""
        for short in ranking.short:
            trial, outcome = short.trial, self._outcomes[short.trial.identity]
            yield ShortEntry(
                number=self._numbers[trial.identity],
                name=f"{trial.family} {trial.name}",
                family=trial.family,
                state=trial.state,
                tokens=short.tokens,
                cost=short.cost,
                figure=self._objective.compute_figure(short.cost),
                last_figure=self._objective.compute_figure(trial.curve[short.tokens]),
                leader_figure=self._objective.compute_figure(short.leader_cost),
                sizes=self._measure(self._read_config(trial)),
                reason="" if outcome.end is None else str(outcome.end),
            )

    def _read_config(self, trial: RankedTrial) -> TrialConfig:
        return TrialConfig.model_validate(self._outcomes[trial.identity].configuration)

    def _measure(self, config: TrialConfig) -> TrialSizes | None:
        return None if self._corpus is None else compute_sizes(config, self._corpus)


def compare_quantities(entries: Sequence[LeaderboardEntry]) -> Iterator[TradeOff]:
    """The quantities that two configurations have."""
    for quantity in TRADE_OFFS:
        # A model that counts has read the whole text: its amounts are of another budget.
        measured = [
            (entry.number, entry.estimate.cost, amount)
            for entry in entries
            if not entry.is_counted and (amount := entry.measure(quantity))
        ]
        if len(measured) >= 2:
            yield make_trade_off(quantity, measured)


def make_trade_off(quantity: str, measured: Sequence[tuple[int, float, float]]) -> TradeOff:
    """The trade-off of a quantity of TRADE_OFFS over (number, cost, amount) of each configuration."""
    amounts = [amount for _, _, amount in measured]
    coordinates = [(cost, _find_coordinate(quantity, amount)) for _, cost, amount in measured]
    return TradeOff(
        quantity=quantity,
        unit=TRADE_OFFS[quantity],
        is_equal=max(amounts) <= EQUAL_SIZES_RATIO * min(amounts),
        lowest=min(amounts),
        highest=max(amounts),
        front=tuple(measured[place][0] for place in find_front(coordinates)),
    )


def _find_coordinate(quantity: str, amount: float) -> float:
    """Lower is better; `compute_coordinate` would take all hours below 1 for equal."""
    if quantity == "tokens_per_second":
        return compute_coordinate("tokens_per_second", amount)
    return amount


def _format_amount(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"
