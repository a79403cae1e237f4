"""Every trial of a study as one value, for tables, figures and data frames."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from memtune.corpora import Corpus
from memtune.errors import MissingSourceError
from memtune.objective import Objective
from memtune.results.ranking.selection import Ranking
from memtune.search import Outcome, StoredStudy
from memtune.training import TrialConfig, TrialSizes, compute_sizes
from memtune.trial_state import StopReason, TrialState
from memtune.values import Value, flatten

__all__ = ["StudyTrial", "list_study_trials"]


class StudyTrial(Value):
    """A trial or a repeat of a study."""

    number: int
    """Of the trial that the search started; its repeats have the same."""
    name: str
    """Family, number and seed: "lstm #3", or "lstm #3 seed 1" for a repeat."""
    family: str
    seed: int
    is_repeat: bool
    identity: str
    state: TrialState
    reason: str
    """Why it ended, where the study or a fault ended it."""
    has_diverged: bool
    """Whether it ended because its loss, gradient or validation diverged."""
    place: int | None
    """The place of its configuration in the ranking; None for one that is not ranked."""
    curve: dict[int, float]
    """Validation cost by tokens seen, lower is better."""
    cost: float | None
    """The lowest validation cost; None before the first validation."""
    figure: float | None
    """The same as perplexity or accuracy."""
    tokens: int
    """At the last report."""
    cpu_hours: float
    gpu_hours: float
    tokens_per_second: float | None
    """Trained tokens per second of a reserved core; None where nothing was measured."""
    sizes: TrialSizes | None
    """None without the corpus in the store, and for a user's family whose source is not loaded."""
    fields: dict[str, Any]
    """The fields of the configuration, by dotted name, in which the study's trials differ."""

    @property
    def is_counted(self) -> bool:
        """Whether its model learns by counting; False where its sizes are not known."""
        return self.sizes is not None and not self.sizes.parameters


def list_study_trials(
    stored: StoredStudy,
    ranking: Ranking | None,
    numbers: Mapping[str, int],
    objective: Objective,
    corpus: Corpus | None,
) -> tuple[StudyTrial, ...]:
    """The trials of a study by number, then its repeats."""
    places = {} if ranking is None else _number_places(ranking)
    trials = [*stored.outcomes, *stored.repeats]
    varying = _find_varying_fields(trials)
    repeats = {outcome.identity for outcome in stored.repeats}

    def make_trial(outcome: Outcome) -> StudyTrial:
        config, number = TrialConfig.model_validate(outcome.configuration), numbers[outcome.identity]
        suffix = f" seed {config.seed}" if outcome.identity in repeats else ""
        cost = min(outcome.curve.values(), default=None)
        fields = dict(flatten(config.model_dump(mode="json")))
        return StudyTrial(
            number=number,
            name=f"{outcome.family} #{number}{suffix}",
            family=outcome.family,
            seed=config.seed,
            is_repeat=outcome.identity in repeats,
            identity=outcome.identity,
            state=outcome.state,
            reason="" if outcome.end is None else str(outcome.end),
            has_diverged=outcome.end is not None and outcome.end.reason is StopReason.DIVERGED,
            place=places.get(outcome.identity),
            curve=outcome.curve,
            cost=cost,
            figure=None if cost is None else objective.compute_figure(cost),
            tokens=max(outcome.curve, default=0),
            cpu_hours=outcome.usage.cpu_seconds / 3600,
            gpu_hours=outcome.usage.gpu_seconds / 3600,
            tokens_per_second=outcome.usage.tokens_per_second,
            sizes=_find_sizes(config, corpus),
            fields={name: fields[name] for name in varying if name in fields},
        )

    return tuple(make_trial(outcome) for outcome in trials)


def _find_sizes(config: TrialConfig, corpus: Corpus | None) -> TrialSizes | None:
    """The sizes of a trial; None without its corpus, and without the source of its family."""
    with suppress(MissingSourceError):
        return None if corpus is None else compute_sizes(config, corpus)
    return None


def _number_places(ranking: Ranking) -> dict[str, int]:
    return {
        trial.identity: place
        for place, configuration in enumerate(ranking.ranked, start=1)
        for trial in configuration.trials
    }


def _find_varying_fields(outcomes: Sequence[Outcome]) -> list[str]:
    """The fields, without family and seed, that two trials have with different values."""
    values: dict[str, list[Any]] = {}
    for outcome in outcomes:
        config = TrialConfig.model_validate(outcome.configuration)
        for name, value in flatten(config.model_dump(mode="json")):
            known = values.setdefault(name, [])
            if value not in known:
                known.append(value)
    return [name for name, known in values.items() if len(known) > 1 and name not in ("model.family", "seed")]
