"""A study as all that reads it sees it: opened once, with its trials, its ranking and what follows from them.

Tables, JSON, reports, MLflow's texts and the functions of `import memtune` render what a view has.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import Any

from memtune.arguments import check_type
from memtune.corpora import Corpus
from memtune.errors import (
    ConfigurationError,
    CorpusError,
    MissingSourceError,
    PluginError,
    StorageError,
    StudyError,
    did_you_mean,
    refuse_shared_name,
)
from memtune.objective import Objective
from memtune.results.one_text import open_stored
from memtune.results.study.ranking import Configuration, Ranking, rank_trials
from memtune.results.study.study_trials import StudyTrial
from memtune.search import StoredStudy, StoredTrial, StudyReader
from memtune.settings import Settings
from memtune.spaces import FAMILY_FIELD
from memtune.storage.folder import Folder
from memtune.studies.budgets import StudyCost, compute_study_cost
from memtune.studies.checkpoint_store import list_trained, warn_of_lost_trials
from memtune.studies.definition.study_terms import (
    StoredTerms,
    name_alternative,
    name_value,
    read_stored_terms,
)
from memtune.studies.seed_repeats import TrialNames
from memtune.tasks.classification import ClassificationConfig
from memtune.training import TrainingConfig, TrialSizes, compute_sizes
from memtune.values import flatten, parse

log = logging.getLogger(__name__)


class StudyView:
    """A stored study. Every property is computed on first use."""

    def __init__(self, stored: StoredStudy, settings: Settings, corpus: Corpus | None = None) -> None:
        """`corpus` is the study's where the caller has it open.

        Raises ConfigurationError for trials of another version of memtune.
        """
        self.stored, self.settings = stored, settings
        if corpus is not None:
            self.corpus = corpus
        for outcome in stored.trials:
            try:
                outcome.config  # noqa: B018
            except ConfigurationError as error:
                raise ConfigurationError(f"study {stored.id}, {error}") from None

    @property
    def id(self) -> str:
        """The study's id."""
        return self.stored.id

    @property
    def name(self) -> str:
        """The id without its digest."""
        return self.id.rpartition("-")[0]

    @property
    def checkpoint_root(self) -> str:
        """The folder of the checkpoints of the study's trials."""
        return self.settings.name_checkpoint_root(self.id)

    @cached_property
    def terms(self) -> StoredTerms:
        """The terms as the study's last driver stored them."""
        return read_stored_terms(self.settings.studies_folder, self.id)

    @cached_property
    def corpus(self) -> Corpus | None:
        """The text that the trials read; None where the store lacks it or it cannot be read."""
        stored = open_stored(self.terms.corpus, self.settings)
        return stored if stored is not None and self.has_read(stored.digest) else None

    def has_read(self, digest: str) -> bool:
        """Whether the trials may have read the text of a digest, which is part of their identities.

        Those of versions without a format had other identities, and a family's default values, which are part
        of them, are not known without its source.
        """
        outcomes = [] if self.terms.format == 1 else self.stored.trials
        loaded = [outcome for outcome in outcomes if outcome.config.is_loaded]
        return not loaded or any(outcome.config.identity(digest) == outcome.identity for outcome in loaded)

    @property
    def objective(self) -> Objective:
        """What compares the trials; perplexity before the first trial."""
        trials = self.stored.trials
        return trials[0].config.task.objective if trials else Objective.PERPLEXITY

    @property
    def label(self) -> str:
        """Protocol and task: figures compare only under one label. Empty before the first trial."""
        trials = self.stored.trials
        return trials[0].config.label if trials else ""

    @property
    def ideal(self) -> float | None:
        """The validation perplexity that no model can beat, where it is known."""
        if self.corpus is None or not self.objective.has_ideal:
            return None
        return (self.corpus.manifest.ideal or {}).get("valid")

    @cached_property
    def chance(self) -> float | None:
        """The accuracy of the best constant answer to labelled examples; None for other tasks, and without
        corpus."""
        config = self.stored.trials[0].config
        if not isinstance(config.task, ClassificationConfig) or self.corpus is None:
            return None
        return config.task.open(self.corpus, config.protocol).chance

    @cached_property
    def epoch_tokens(self) -> int | None:
        """The tokens of an epoch; None without the corpus or the source of the task, and before a trial."""
        if self.corpus is None or not self.stored.trials:
            return None
        config = self.stored.trials[0].config
        if not config.task.is_loaded:
            return None
        return config.task.open(self.corpus, config.protocol).epoch_tokens

    @cached_property
    def trials(self) -> tuple[StudyTrial, ...]:
        """Every trial by number, and then the repeats, each named after the trial that it repeats."""
        names = TrialNames(self.stored.outcomes)
        fields = {
            outcome.identity: dict(flatten(outcome.config.model_dump(mode="json")))
            for outcome in self.stored.trials
        }
        varying = _find_varying_fields(list(fields.values()))

        def make_trial(outcome: StoredTrial, is_repeat: bool) -> StudyTrial:
            config, own = outcome.config, fields[outcome.identity]
            original = names.find_original(config) if is_repeat else None
            number = outcome.number if original is None else original
            suffix = "" if original is None else f" seed {config.seed}"
            alternative = name_alternative(config, self.terms.compare)
            trial = StudyTrial(
                number=number,
                name=f"{alternative} #{number}{suffix}",
                family=outcome.family,
                alternative=alternative,
                seed=config.seed,
                is_repeat=is_repeat,
                identity=outcome.identity,
                state=outcome.state,
                reason="" if outcome.end is None else str(outcome.end),
                has_diverged=outcome.has_diverged,
                curve=outcome.curve,
                fields={name: own[name] for name in varying if name in own},
                objective=config.task.objective,
                study=self.id,
                config=config,
                usage=outcome.usage,
                stored_sizes=outcome.sizes,
                planned_tokens=self._plan_tokens(config.training),
            )
            trial._find_place, trial._measure = self.find_place, self.measure
            return trial

        searched = [make_trial(outcome, is_repeat=False) for outcome in self.stored.outcomes]
        return (*searched, *(make_trial(outcome, is_repeat=True) for outcome in self.stored.repeats))

    def _plan_tokens(self, training: TrainingConfig | None) -> int | None:
        if training is None or not (training.tokens or self.epoch_tokens):
            return None
        return training.count_tokens(lambda: self.epoch_tokens or 0)

    @cached_property
    def by_state(self) -> dict[str, list[StoredTrial]]:
        """The trials of the search by state in words; a repeat is none of them, whatever its state."""
        searched = sorted(self.stored.outcomes, key=lambda outcome: outcome.state.label)
        return {state: [*group] for state, group in groupby(searched, lambda outcome: outcome.state.label)}

    @cached_property
    def refusals(self) -> dict[str, list[str]]:
        """Why samples were refused, for each alternative without a trial: all of its samples were.

        Those that were refused before their alternative was known are under "".
        """
        reasons: dict[str, list[str]] = {}
        untried = {*self.terms.alternatives} - {trial.alternative for trial in self.trials}
        for outcome in self.stored.refused if untried else ():
            reasons.setdefault(self._name_refused(outcome), []).append(outcome.remark or "")
        return {alternative: found for alternative, found in reasons.items() if alternative in {"", *untried}}

    def _name_refused(self, outcome: StoredTrial) -> str:
        """The alternative of a refused sample, whose fields may exclude each other or be missing."""
        field = self.terms.compare
        with suppress(ConfigurationError):
            return name_alternative(outcome.config, field)
        values = dict(flatten(outcome.configuration))
        name = name_value(field, values[field]) if field in values else outcome.family
        return name if name in self.terms.alternatives else ""

    @cached_property
    def ranking(self) -> Ranking[StudyTrial] | None:
        """The ranking of the trials and repeats; None before the first validation."""
        return rank_trials(self.trials)

    @cached_property
    def _places(self) -> dict[str, int | None]:
        ranked = self.ranking.ranked if self.ranking else ()
        return {trial.identity: found.place for found in ranked for trial in found.trials}

    def find_place(self, trial: StudyTrial) -> int | None:
        """The place of a trial's configuration in the ranking; None for one that is not ranked."""
        return self._places.get(trial.identity)

    def measure(self, trial: StudyTrial) -> TrialSizes | None:
        """The sizes of a trial: those that it has stored where its source is not loaded.

        None without the corpus, and where such a trial has none.
        """
        if self.corpus is None:
            return None
        with suppress(MissingSourceError):
            return compute_sizes(trial.config, self.corpus)
        return parse(TrialSizes, trial.stored_sizes, trial.name) if trial.stored_sizes else None

    @cached_property
    def eligible(self) -> Ranking[StudyTrial] | None:
        """The ranking within the limits of [champion]; of all where none is within, or sizes are unknown."""
        limits = self.terms.champion
        if self.ranking is None or not limits.is_set or self.corpus is None:
            return self.ranking

        def is_within(trial: StudyTrial) -> bool:
            return trial.sizes is None or limits.are_met(trial.sizes, trial.usage.tokens_per_second)

        return self.ranking.filter(is_within) or self.ranking

    @property
    def best(self) -> Configuration[StudyTrial] | None:
        """The best configuration by the study's rule; None before the first validation."""
        return None if self.eligible is None else self.eligible.winner

    def find_bests(
        self, key: Callable[[StudyTrial], str] = lambda trial: trial.alternative
    ) -> list[Configuration[StudyTrial]]:
        """The best configuration of each alternative, or each `key`, best first; then those that ended early.

        It is within the limits of [champion], as in the verdict; alternatives without one come last.
        """
        if self.ranking is None or self.eligible is None:
            return []
        within, anywhere = self.eligible.find_bests(key), self.ranking.find_bests(key)
        return [*within.values(), *(found for name, found in anywhere.items() if name not in within)]

    @property
    def champion_rule(self) -> str:
        """How the study chooses its best configuration, in words."""
        limits = self.terms.champion
        if not limits.is_set:
            return "the best value"
        if self.ranking is None or self.eligible is not self.ranking:
            return f"the best value within [champion] {limits}"
        why = "no sizes are known for" if self.corpus is None else "no configuration is within"
        return f"the best value, because {why} [champion] {limits}"

    def compute_cost(self) -> StudyCost:
        """What the study has spent and what early stopping has saved.

        Raises CorpusError where a full length is in epochs and the text is not in the store any more.
        """

        def count_epoch_tokens() -> int:
            if self.epoch_tokens is None:
                raise CorpusError(
                    f'the text of corpus "{self.terms.corpus}" that study {self.id} read is not in the store'
                )
            return self.epoch_tokens

        return compute_study_cost(
            self.id,
            {**self.by_state, "repeats": self.stored.repeats},
            self.stored.seconds,
            self.terms.prices,
            lambda outcome: outcome.config.count_tokens(count_epoch_tokens),
        )


def open_view(study: str, settings: Settings | None = None) -> StudyView:
    """A study by its id or, where that names one study only, by its name. Raises StudyError.

    Studies that have not begun count only where no other has the name.
    """
    check_type("study", study, str, 'the id or the name of a study, such as "demo"')
    settings = Settings.resolve(settings)
    reader = StudyReader(settings.study_database)
    known = reader.list_ids()
    named = [found for found in known if study in (found, found.rpartition("-")[0])]
    if len(named) > 1:
        named = [found for found in named if reader.has_begun(found)] or named
    if len(named) == 1:
        root, trained = settings.name_checkpoint_root(named[0]), list[str]()
        with suppress(StorageError):  # checkpoints are not needed, and an object store may take long to fail
            trained = list_trained(root) if Folder.open(root).local_path else []
        stored = reader.read(named[0])
        warn_of_lost_trials(stored.id, trained, [trial.identity for trial in stored.trials])
        return StudyView(stored, settings)
    if named:
        raise StudyError(refuse_shared_name(study, named))
    raise StudyError(f'no study "{study}"; {did_you_mean(study, known)}; list them with: memtune study list')


def list_views(settings: Settings) -> list[StudyView]:
    """The studies of a home with a trial, the one with the latest activity first.

    A study that this version of memtune cannot read is left out with a warning.
    """
    reader = StudyReader(settings.study_database)
    found: list[StudyView] = []
    for name in reader.list_ids():
        try:
            stored = reader.read(name)
            if stored.outcomes:
                view = StudyView(stored, settings)
                view.terms  # noqa: B018
                found.append(view)
        except (ConfigurationError, PluginError, StudyError) as error:
            log.warning("study %s is not listed: %s", name, error)
    return sorted(found, key=lambda view: view.stored.last_activity or datetime.min, reverse=True)


def _find_varying_fields(configurations: Sequence[dict[str, Any]]) -> list[str]:
    """The fields, without family and seed, that two trials have with different values."""
    values: dict[str, list[Any]] = {}
    for fields in configurations:
        for name, value in fields.items():
            known = values.setdefault(name, [])
            if value not in known:
                known.append(value)
    return [name for name, known in values.items() if len(known) > 1 and name not in (FAMILY_FIELD, "seed")]
