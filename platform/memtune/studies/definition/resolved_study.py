"""A study with its open corpus and its checked space, and what follows from them about its trials."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from memtune.corpora import Corpus
from memtune.errors import ConfigurationError
from memtune.models import MODELS
from memtune.number_format import format_count
from memtune.plugins import PluginSource, name_sources, store_sources
from memtune.search import (
    FORMAT_KEY,
    MAX_PRIOR_POINTS,
    QUANTITIES,
    REPEATS_SUFFIX,
    STUDY_FORMAT,
    Candidates,
    MultiObjective,
    Proposals,
    Rule,
    StoredTrial,
)
from memtune.search.early_stopping import EarlyStopping, NoEarlyStoppingConfig, PromotionConfig
from memtune.search.samplers import GridConfig
from memtune.search.warm_start import list_prior_points, list_warm_start_points
from memtune.seed_statistics import MIN_PAIRED_SEEDS
from memtune.settings import Settings
from memtune.spaces import (
    FAMILY_FIELD,
    Chooser,
    RandomChooser,
    Scalar,
    SizeKind,
    Space,
    adapt_point,
    draw_prior_points,
)
from memtune.storage.folder import Folder
from memtune.studies.definition.mixer_points import pin_named_point
from memtune.studies.definition.study import Study
from memtune.studies.definition.study_terms import (
    TERMS_FILE,
    SharedTerms,
    name_alternative,
)
from memtune.studies.definition.toml_files import name_place
from memtune.studies.definition.trial_limits import TrialLimits, make_trial_config
from memtune.tasks import AnyTask
from memtune.training import TrialConfig, compute_sizes
from memtune.trial_state import TrialState
from memtune.values import digest, parse

CHANGEABLE_TERMS = {"budget", "prices", "resources", "repeats", "champion", "compare", "name", "question"}
"""Terms that may differ between the runs of one study."""
BUDGET_SAMPLES = 200
GPU_REQUEST_SAMPLES = 32


@dataclass(frozen=True)
class ResolvedStudy:
    """A study with its open corpus and its checked space."""

    study: Study
    space: Space
    corpus: Corpus
    settings: Settings
    shared: SharedTerms
    sources: tuple[PluginSource, ...] = ()
    """The sources of the families that are not built in."""
    file: Path | None = None
    """The study's file; None for the study of a program."""

    def __repr__(self) -> str:
        trials = format_count(self.max_trials, "trial")
        return f"ResolvedStudy({self.id}: {self.corpus.name}, {trials})"

    @cached_property
    def limits(self) -> TrialLimits:
        """What the study lets its trials use."""
        return TrialLimits(self.study, self.corpus)

    @cached_property
    def task(self) -> AnyTask:
        """The study's task on its corpus. Raises CorpusError or ConfigurationError where it lacks data."""
        return self.shared.task.open(self.corpus, self.shared.protocol)

    @property
    def place(self) -> str:
        """The study's file as errors name it."""
        return name_place(self.file)

    @property
    def has_test_split(self) -> bool:
        """Whether the corpus has a test split for the study's task and protocol."""
        return self.shared.task.is_evaluable(self.corpus, self.shared.protocol, "test")

    @property
    def trial_tokens(self) -> int:
        """The training budget of one trial in predicted tokens."""
        return self.shared.training.count_tokens(lambda: self.task.epoch_tokens)

    @cached_property
    def early_stopping(self) -> EarlyStopping:
        """The settings of early stopping, with defaults that depend on the trials."""
        first_report = self.shared.training.report_every or self.task.epoch_tokens
        config = self.study.early_stopping
        if config is None:
            can_compare = len(self.study.objectives) == 1 and first_report < self.trial_tokens
            config = PromotionConfig() if can_compare else NoEarlyStoppingConfig()
        return config.fill_defaults(first_report, self.trial_tokens)

    def list_within_limits(self, outcomes: Sequence[StoredTrial]) -> list[StoredTrial]:
        """The complete outcomes within the limits of [champion]; all complete ones where none is."""
        limits = self.study.champion
        complete = [outcome for outcome in outcomes if outcome.state is TrialState.COMPLETE]
        within = [
            outcome
            for outcome in complete
            if limits.are_met(compute_sizes(outcome.config, self.corpus), outcome.usage.tokens_per_second)
        ]
        return within or complete

    def open_proposals(
        self, guard: Callable[[], None] = lambda: None, repeats: Space | None = None
    ) -> Proposals:
        """The trials of the study in its storage, or of its repeats; `guard` is called before every write."""
        name, space, sampler = self.id, self.space, self.study.sampler
        if repeats is not None:
            name, space, sampler = f"{self.id}{REPEATS_SUFFIX}", repeats, GridConfig()
        count = 1 if repeats is not None else len(self.study.objectives)
        candidates = Candidates(
            space,
            sampler,
            self.identify,
            self.limits.get_refusal_reason,
            measure_size=self.measure_size,
            list_initial_points=self.list_initial_points if repeats is None else tuple,
            objectives=MultiObjective(count, self.compute_objectives),
            list_prior_points=self.list_prior_points if repeats is None else tuple,
            is_grid_ordered=repeats is not None,
            compared=self.study.compare,
            compute_sizes=self.limits.compute_sizes_to_store,
            complete=self._complete if repeats is None else lambda configuration: configuration,
        )
        return Proposals(self.settings.study_database, name, candidates, guard)

    def _complete(self, configuration: dict[str, Any]) -> dict[str, Any]:
        """The configuration without idle fields, so that equal models are one, and with users' sources."""
        with suppress(ConfigurationError):  # which refuses the configuration when it is identified
            config = make_trial_config(configuration)
            for field in config.model.idle_fields:
                configuration["model"].pop(field, None)
            if not self.sources:
                return configuration
            complete = config.model_dump(mode="json")
            named = name_sources(configuration, complete)
            if "source" in complete["task"]:  # else its figures could not be read without its source
                named["task"]["objective"] = complete["task"]["objective"]
            return named
        return configuration

    def compute_objectives(self, outcome: StoredTrial) -> list[float]:
        """The objectives of a complete trial, lower is better (`Quantity.compute_coordinate`)."""
        sizes = compute_sizes(outcome.config, self.corpus)
        quantities = {
            **sizes.model_dump(),
            "value": outcome.value,
            "tokens_per_second": outcome.usage.tokens_per_second,
        }
        return [QUANTITIES[name].compute_coordinate(quantities[name]) for name in self.study.objectives]

    def list_initial_points(self) -> list[dict[str, Scalar]]:
        """The parameters, by name, of the configurations that are tried first.

        Raises SpaceError for a point outside of the space, and StudyError for a study to start from that is
        unknown or does not fit. Settings of papers and of other studies take the nearest values inside.
        """
        if self.study.points == "papers":
            points = [adapt_point(self.space, point) for point in self.space.paper_points]
        else:
            points = [
                pin_named_point(self.space, point, f"study {self.study.name}: point {number}")
                for number, point in enumerate(self.study.points, 1)
            ]
        if self.study.warm_start is None:
            return points
        other = list_warm_start_points(self.settings.study_database, self.study.warm_start, self.space)
        return points + other

    def list_prior_points(self) -> list[dict[str, Scalar]]:
        """Parameters by name that are believed to be good, the best first."""
        return [point for point, _ in self.list_sourced_points()]

    def list_sourced_points(self) -> list[tuple[dict[str, Scalar], str]]:
        """The points of the prior with their sources, the best first; those of papers by family in turn."""
        match self.study.sampler.prior:
            case "papers":
                by_family = defaultdict[str, list[tuple[dict[str, Scalar], str]]](list)
                for point in self.space.paper_points:
                    source = f"the papers of {point.get(FAMILY_FIELD, self.space.family)}"
                    by_family[source].append((adapt_point(self.space, point), source))
                points = [each for turn in zip_longest(*by_family.values()) for each in turn if each]
            case "studies":
                points = self.list_earlier_points()
                if self.study.compare == FAMILY_FIELD:  # which is good has been seen
                    return points
            case "none":
                return []
            case None:
                points = [(point, "the spaces") for point in draw_prior_points(self.space, MAX_PRIOR_POINTS)]
        # What a study compares is its question, of which no prior says the answer.
        asked = {p.name for p in self.space.parameters() if p.field == self.study.compare}
        said = [({n: v for n, v in point.items() if n not in asked}, source) for point, source in points]
        return [(point, source) for point, source in said if point]

    def list_earlier_points(self) -> list[tuple[dict[str, Scalar], str]]:
        """The points of a prior from the other studies of this home, with their studies, the best first."""
        return list_prior_points(self.settings.study_database, self.space, self.id)

    def store_terms(self) -> None:
        """Write terms and sources of the study next to its checkpoints, for commands without a study file."""
        folder = Folder.open(f"{self.settings.studies_folder}/{self.id}")
        terms = {
            FORMAT_KEY: STUDY_FORMAT,
            **self.study.model_dump(mode="json"),
            "alternatives": [*self.alternatives],
            "searched_fields": [*self.searched_fields],
        }
        folder.write_json(TERMS_FILE, terms)
        store_sources(str(folder), self.sources)

    def make_early_stopping_rule(self) -> Rule:
        """The study's early-stopping rule without trials."""
        return self.early_stopping.make_rule(self.trial_tokens)

    def sample(self, chooser: Chooser) -> TrialConfig:
        """A chooser's trial; raises ConfigurationError where fields exclude each other, or no size fits."""
        return make_trial_config(self.space.sample(chooser, self.measure_size))

    def draw(self, seeds: Iterable[int], pinned: Mapping[str, Scalar] | None = None) -> Iterator[TrialConfig]:
        """Random trials of the space with the `pinned` parameters, without the draws that are no trial."""
        for seed in seeds:
            with suppress(ConfigurationError):
                yield self.sample(RandomChooser(seed, pinned))

    def list_draw_problems(self, seeds: Iterable[int]) -> list[str]:
        """Why the draws under these seeds that are no trial are none."""
        problems = []
        for seed in seeds:
            try:
                self.sample(RandomChooser(seed))
            except ConfigurationError as error:
                problems.append(str(error))
        return problems

    def find_base_width(self) -> int | None:
        """The smallest width that the study searches, where `training.base_width` could scale its rates.

        None where the study has a base width, and where muP scales no trial of one of its families. It is not
        known to scale those of a user (tests/unit/training/test_width_scaling.py has the built-in ones).
        """
        searched = [each.leaf for each in self.space.parameters() if each.field == "model.width"]
        widths = [value for leaf in searched for value in leaf.test_values() if isinstance(value, int)]
        scales: dict[str, bool] = {}
        for sample in self.draw(range(BUDGET_SAMPLES) if len({*widths}) > 1 else ()):
            training, family = sample.training, sample.model.family
            if training is not None and training.base_width is not None:
                return None
            if training is not None and not scales.get(family):
                scaled = {**training.model_dump(mode="json"), "base_width": min(widths)}
                scales[family] = MODELS.get_source(family) is None and _is_valid(sample, training=scaled)
        return min(widths) if scales and all(scales.values()) else None

    def _draw_one(self, pinned: Mapping[str, Scalar]) -> TrialConfig:
        """A trial with the pinned parameters. Raises ConfigurationError where none of 200 draws is one."""
        first = self.study.seed
        found = next(self.draw(range(first, first + BUDGET_SAMPLES), pinned), None)
        return found or self.sample(RandomChooser(first, pinned))

    @property
    def terms(self) -> dict[str, Any]:
        """The terms of the study file that all drivers of one study share."""
        terms = self.study.model_dump(mode="json", exclude={*CHANGEABLE_TERMS, "models"})
        if self.study.objectives == ("value",):
            del terms["objectives"]
        if not self.study.families:
            del terms["families"]
        if not self.study.sampler.options:
            del terms["sampler"]["options"]
        if self.study.sampler.prior is None:
            del terms["sampler"]["prior"]
        return terms

    @property
    def id(self) -> str:
        """The name and a digest: the same terms on the same corpus are the same study on every machine.

        Budgets, prices, resources, repeats and the rule for the champion may change between runs of one study
        and are left out. The value as only objective is left out too, as in studies of earlier versions. The
        paths of model files are left out. The digests of their content count; the space holds those of
        families.
        """
        terms, space = self.terms, self.space.describe()
        held = str((terms, space))
        if others := sorted(source.digest for source in self.sources if source.digest not in held):
            terms["sources"] = others  # of mixers, tasks and output layers
        return f"{self.study.name}-{digest(terms, space, self.corpus.digest)[:8]}"

    def compute_average_gpus(self, gpu_bytes: int | None) -> float:
        """The GPUs that the trials of the space request on average."""
        samples = [*islice(self.draw(range(BUDGET_SAMPLES)), GPU_REQUEST_SAMPLES)]
        return sum(self.limits.compute_gpus(sample, gpu_bytes) for sample in samples) / len(samples)

    @property
    def searched_fields(self) -> tuple[str, ...]:
        """The dotted fields that the study's trials may differ in, in the order of its spaces."""
        return tuple(dict.fromkeys(parameter.field for parameter in self.space.parameters()))

    @cached_property
    def alternatives(self) -> dict[str, list[str]]:
        """The alternatives of the study's question, as far as its spaces list them, each with its families.

        A family without the compared field is an alternative of its own.
        """
        field, found = self.study.compare, dict[str, list[str]]()
        searched = [each for each in self.space.parameters() if each.field == field]
        for choice in self.space.family_choices() or [{}]:
            own = [each for each in searched if choice.items() <= each.conditions.items()]
            values = [
                {**each.conditions, each.name: value} for each in own for value in each.list_alternatives()
            ]
            for pinned in values if own else [choice]:
                sample = self._draw_one(pinned)
                families = found.setdefault(name_alternative(sample, field), [])
                if sample.model.family not in families:
                    families.append(sample.model.family)
        return found

    @property
    def max_trials(self) -> int:
        """The trials of the budget, or the configurations of a space that has fewer: none is tried twice."""
        trials, size = self.study.budget.trials, self.space.size()
        return trials if size is None else min(trials, size)

    def count_repeats(self) -> tuple[int, int]:
        """The fewest and the most repeats of the study where none diverges; a model that counts has none.

        The trials go to the alternatives in turn. Of a single one its two best configurations are compared.
        """
        trials, terms = self.max_trials, self.study.repeats
        is_trained = [
            [MODELS[family].is_trained_by_gradient for family in families]
            for families in self.alternatives.values()
        ]
        trained = (sum(map(all, is_trained)), sum(map(any, is_trained)))
        if terms.until:
            repeated = [min(trials, 2 * each if len(is_trained) == 1 else each) for each in trained]
            return repeated[0] * MIN_PAIRED_SEEDS, repeated[1] * terms.most_seeds
        fewest = trials * trained[0] // len(is_trained)
        most = trials if trained[1] else 0
        # Repeats in a precision of their own need the search's seed too.
        seeds = terms.seeds if terms.precision else terms.seeds - 1
        return min(terms.best, fewest) * seeds, min(terms.best, most) * seeds

    @property
    def vocabulary_size(self) -> int:
        """The number of words that a model of this study predicts."""
        return len(self.corpus.vocabulary)

    @property
    def checkpoint_root(self) -> str:
        """The folder of the checkpoints of the study's trials."""
        return self.settings.name_checkpoint_root(self.id)

    def identify(self, configuration: Mapping[str, Any]) -> str:
        """The identity of a sampled configuration on this corpus."""
        return make_trial_config(configuration).identity(self.corpus.digest)

    def measure_size(self, configuration: Mapping[str, Any], kind: SizeKind) -> int:
        """A size of a configuration's model on this corpus."""
        return make_trial_config(configuration).measure_size(kind, self.vocabulary_size)


def _is_valid(trial: TrialConfig, **changes: Any) -> bool:
    try:
        parse(TrialConfig, {**trial.model_dump(mode="json"), **changes}, "trial")
    except ConfigurationError:
        return False
    return True
