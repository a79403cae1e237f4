"""The leaderboard of a study: configurations of full length with every seed, and what they take."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from pydantic import Field

from memtune.models.architecture import LanguageModelConfig
from memtune.number_format import choose_time_unit, format_amount
from memtune.results.study.ranking import Configuration, ShortTrial
from memtune.results.study.study_front import are_equal_sizes, find_front
from memtune.results.study.study_trials import NamedTrial, StudyTrial
from memtune.results.study.study_view import StudyView
from memtune.search import QUANTITIES
from memtune.seed_statistics import Estimate
from memtune.spaces import FAMILY_FIELD
from memtune.studies.definition.study_terms import list_fields
from memtune.training import TrialConfig, TrialSizes
from memtune.usage import add_usages
from memtune.values import Value

EQUAL_RATIO = 1.05
"""Budgets whose largest is at most this multiple of the smallest are equal."""


class LeaderboardEntry(NamedTrial):
    """A configuration: of full length, or the furthest trial of a family that has none."""

    place: int | None = None
    """None where it has no rank, because it lacks seeds that others have or ended early."""
    model: str
    """The searched fields without the compared one; else those that distinguish it within its family."""
    estimate: Estimate
    """The mean cost over seeds with its 95 % interval, lower is better."""
    figure: float
    """The mean over seeds: perplexity or accuracy."""
    interval: tuple[float, float] | None = None
    """Its 95 % interval; None without an interval."""
    above_ideal: float | None = None
    """How far a perplexity is above the ideal one, as a share of it; None where no ideal is known."""
    cost_by_seed: dict[int, float]
    """At full length, the best first."""
    trainings: int
    """Those of its study alone, with the trial that repeats leave out of the estimate; others are reused."""
    sizes: TrialSizes | None
    """None where the corpus is not in the store any more."""
    tokens: int
    """At the last report of its best-validated seed."""
    cpu_hours: float | None
    """Of these trainings, as GPU hours and money; None where all are reused, in whole or in part."""
    gpu_hours: float | None
    money: float | None = None
    """None without prices, too."""
    tokens_per_second: float | None = None
    """Trained in its study, per core; None where nothing was."""
    note: str = ""
    """Why it has no place."""
    identity: str
    """Of its best-validated trial."""
    config: TrialConfig | None = Field(default=None, exclude=True)
    """Of its best-validated trial."""
    is_repeated: bool = False
    """Whether its figure is that of repeats, which leaves out the trial that was selected."""
    is_counted: bool = False
    """Whether it learns by counting: it reads the text once and has no budget in tokens."""

    def measure(self, quantity: str) -> float | None:
        """The amount of one of QUANTITIES; None where it is not known, or nothing, and of the value."""
        found = QUANTITIES[quantity]
        amount = getattr(self.sizes if found.is_size else self, quantity, None) or None
        return amount / self.trainings if amount and found.is_spent else amount


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
        time, factor = choose_time_unit(self.highest) if "hours" in self.unit else ("hours", 1)
        low, high = (format_amount(factor * amount, 3) for amount in (self.lowest, self.highest))
        unit = self.unit.replace("hours", time)
        if self.is_equal:
            return f"equal {unit}: {low}" + (f" to {high}" if low != high else "")
        return f"{unit} from {low} to {high}, a factor of {format_amount(self.highest / self.lowest, 3)}"


class StudyLeaderboard(Value):
    """Who competes, and whether they compete at equal amounts."""

    tokens: int | None
    """Full length; None before the first validation."""
    entries: tuple[LeaderboardEntry, ...]
    """Those with a place first, the best first."""
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


def make_leaderboard(view: StudyView) -> StudyLeaderboard:
    """The leaderboard of a study's trials and repeats; empty without a ranking."""
    if view.ranking is None:
        return StudyLeaderboard(tokens=None, entries=(), trade_offs=())
    entries = tuple(make_entry(view, found) for found in view.ranking.configurations)
    trade_offs = tuple(compare_quantities(entries, view.trials[0].unit))
    return StudyLeaderboard(tokens=round(view.ranking.tokens), entries=entries, trade_offs=trade_offs)


def make_entry(
    view: StudyView, found: Configuration[StudyTrial], *, has_sizes: bool = True
) -> LeaderboardEntry:
    """A ranked configuration, or a trial that ended early, with what its study knows of it.

    Without `has_sizes` nothing is read from the corpus.
    """
    best, cost, objective = found.best, found.estimate.cost, view.objective
    trained = [trial.usage for trial in found.trials if not trial.is_reused]
    usage = add_usages(trained) if trained else None
    figure = objective.compute_figure(cost)
    ideal = view.ideal if has_sizes else None
    return LeaderboardEntry(
        place=view.find_place(best),
        number=best.number,
        name=found.title,
        family=best.family,
        alternative=best.alternative,
        model=describe_settings(best.config, list_searched_fields(view, best), view.terms.compare),
        estimate=found.estimate,
        figure=figure,
        interval=found.estimate.compute_interval(objective),
        above_ideal=None if ideal is None else figure / ideal - 1,
        cost_by_seed=found.cost_by_seed,
        trainings=len(trained),
        sizes=best.sizes if has_sizes else None,
        tokens=best.tokens,
        cpu_hours=usage and usage.cpu_seconds / 3600,
        gpu_hours=usage and usage.gpu_seconds / 3600,
        money=usage and view.terms.prices and view.terms.prices.compute_usage_money(usage),
        tokens_per_second=add_usages(trial.usage for trial in found.trials).tokens_per_second,
        note=found.explain(),
        identity=best.identity,
        config=best.config,
        is_repeated=not isinstance(found, ShortTrial) and found.is_repeated,
        is_counted=best.is_counted,
    )


def list_searched_fields(view: StudyView, trial: StudyTrial) -> tuple[str, ...]:
    """The fields that a trial's study searches; of an earlier version, those in which its trials differ."""
    return view.terms.searched_fields or (FAMILY_FIELD, *trial.fields)


def describe_settings(config: TrialConfig, searched_fields: Collection[str], compared: str = "") -> str:
    """The searched fields that a configuration has, without the compared one; else `describe_model`."""
    values = list_fields(config)
    names = (name for name in searched_fields if name in values and name != compared)
    return " ".join(format_fields((name, values[name]) for name in names)) or describe_model(config.model)


def format_fields(fields: Iterable[tuple[str, object]]) -> list[str]:
    """Fields by dotted name as `name=value`, with names as short as they stay unambiguous.

    A family is its value alone.

    >>> format_fields([("task.fusion", "deep"), ("training.optimiser.learning_rate", 0.31622)])
    ['fusion=deep', 'learning_rate=0.316']
    """
    return [
        str(value)
        if name == FAMILY_FIELD
        else f"{_shorten_name(name)}={f'{value:.3g}' if isinstance(value, float) else value}"
        for name, value in fields
    ]


def _shorten_name(name: str) -> str:
    parent, _, last = name.rpartition(".")
    if last == "kind":
        return parent.removeprefix("training.").removeprefix("model.")
    return name.partition(".")[2].removeprefix("optimiser.") or name


def describe_model(config: LanguageModelConfig) -> str:
    """The fields that distinguish two models of a family, as `name=value` words with three digits."""
    fields = {**config.describe(), **config.describe_output()}
    # A number stays a float, so that 0.0 is not written as 0.
    rounded = {k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in fields.items()}
    return " ".join(f"{name}={value}" for name, value in rounded.items())


def join_leaderboards(
    leaderboards: Sequence[tuple[str, StudyLeaderboard]], unit: str
) -> tuple[StudyLeaderboard, tuple[LeaderboardEntry, ...]]:
    """One leaderboard over several studies by name, and the best of each study that does not compete.

    Configurations compete at the largest full length of a study; a study of models that count has none, and
    competes with every other. Their names end with the study's, which a chart may cut off, they have new
    numbers, and what describes them names the family where their alternative is another. Those that lack
    seeds in their study come last, without a place.
    """
    longest = max((found.trained_tokens or 0 for _, found in leaderboards), default=0)
    full_length = longest or max((found.tokens or 0 for _, found in leaderboards), default=0)
    competing, shorter = list[LeaderboardEntry](), list[LeaderboardEntry]()
    for study, found in leaderboards:
        named = [_name_in_corpus(entry, study) for entry in found.entries]
        if found.trained_tokens is None or longest <= EQUAL_RATIO * found.trained_tokens:
            competing += named
        else:
            shorter += named[:1]
    # Each trial once, of the study with the most seeds, or that trained it: others take its results.
    by_identity: dict[str, LeaderboardEntry] = {}
    for entry in sorted(competing, key=lambda own: (len(own.cost_by_seed), own.trainings), reverse=True):
        by_identity.setdefault(entry.identity, entry)
    ordered = sorted(by_identity.values(), key=lambda entry: (entry.place is None, entry.estimate.cost))
    entries = tuple(
        entry.model_copy(update={"place": entry.place and number, "number": number})
        for number, entry in enumerate(ordered, start=1)
    )
    trade_offs = tuple(compare_quantities(entries, unit))
    joined = StudyLeaderboard(tokens=full_length or None, entries=entries, trade_offs=trade_offs)
    return joined, tuple(shorter)


def _name_in_corpus(entry: LeaderboardEntry, study: str) -> LeaderboardEntry:
    has_family = entry.family in (entry.alternative, *entry.model.split())
    model = entry.model if has_family else f"{entry.family} {entry.model}"
    return entry.model_copy(update={"name": f"{entry.name} ({study})", "model": model})


def compare_quantities(entries: Sequence[LeaderboardEntry], unit: str) -> Iterator[TradeOff]:
    """The quantities that two configurations have, whose predictions are tokens or examples, the `unit`."""
    for quantity in QUANTITIES:
        # A model that counts has read the whole text: its amounts are of another budget.
        measured = [
            (entry.number, entry.estimate.cost, amount)
            for entry in entries
            if not entry.is_counted and (amount := entry.measure(quantity))
        ]
        if len(measured) >= 2:
            yield make_trade_off(quantity, measured, unit)


def make_trade_off(quantity: str, measured: Sequence[tuple[int, float, float]], unit: str) -> TradeOff:
    """The trade-off of one of QUANTITIES over (number, cost, amount) of each configuration."""
    found, amounts = QUANTITIES[quantity], [amount for _, _, amount in measured]
    coordinates = [(cost, found.compute_coordinate(amount)) for _, cost, amount in measured]
    return TradeOff(
        quantity=quantity,
        unit=found.name_unit(unit),
        is_equal=are_equal_sizes(amounts),
        lowest=min(amounts),
        highest=max(amounts),
        front=tuple(measured[place][0] for place in find_front(coordinates)),
    )
