"""Probing: a model trained on probes at one size and one budget, and the references that gate its accuracies.

The rate is chosen on validation under the first seed, the other seeds are trained at it, and the test split
of each is read once. A low accuracy counts only where a reference, a mixer that is known to solve the probe,
solves it with the same rows, batch, budget and rates, at the terms' size and under one seed; else the probe
is not learnable at this budget.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from memtune.corpora import Corpus
from memtune.corpora.probes.probe_corpora import (
    PROBES,
    TESTED_LENGTHS,
    Probe,
    check_settings,
    name_corpus,
    open_or_draw_corpus,
    select_probes,
)
from memtune.errors import ConfigurationError, SpaceError, did_you_mean
from memtune.experiments.single_trial import (
    TrainResult,
    TrialFile,
    open_checkpoints,
    parse_trial,
    train_at_best_rate,
    train_trial,
)
from memtune.models import MODELS, find_model
from memtune.results.fingerprints import (
    MIN_PARAMETERS,
    Fingerprint,
    ProbeResult,
    ProbeTerms,
    dump_named_fields,
    store_fingerprint,
)
from memtune.settings import Settings
from memtune.spaces import FittedSize
from memtune.studies.definition.toml_files import load_listed_models, name_place, read_toml
from memtune.tasks import ProbeTask
from memtune.tracking import find_evaluation, record_evaluation, record_test_access
from memtune.training import Progress

FIGURE_PREFIX = "accuracy_length_x"
"""Before the multiple of the trained length in the names of recorded test figures."""
MAX_SIZE_DIFFERENCE = 0.1
"""Between a model and its references, which heads and words keep from having exactly the terms' size."""
ModelSource = str | Path | Mapping[str, Any]
"""A family, a mixer, a TOML file with the table [model], its content as a mapping, or that table alone."""


def open_probed_model(source: ModelSource) -> tuple[str, dict[str, Any]]:
    """The name and the table of a model; the Python files of the list `models` are executed.

    Raises ConfigurationError for a name that is neither a family nor a mixer, for a file without
    a model, and for a family that counts words.
    """
    name, table = _read_model(source)
    if "family" not in table:
        place = "the table" if isinstance(source, Mapping) else f"{source}: [model]"
        raise ConfigurationError(f'{place} has no family; add family = "lstm"')
    family = MODELS.find(str(table["family"]))
    if family is not None and not family.is_trained_by_gradient:
        raise ConfigurationError(f"{table['family']} counts words; only networks can be probed")
    return name, table


def _read_model(source: ModelSource) -> tuple[str, dict[str, Any]]:
    if isinstance(source, Mapping):
        table = _find_table(source, None) if source.keys() & {"models", "model"} else dict(source)
        return str(table.get("family", "model")), table
    if str(source).endswith(".toml"):
        path = Path(source)
        return path.stem, _find_table(read_toml(path), path)
    if str(source).endswith(".py"):
        raise ConfigurationError(
            f'{source} is a Python file: name it as models = ["{source}"] in a TOML file with [model]'
        )
    return str(source), find_model(str(source), ".toml")


def _find_table(document: Mapping[str, Any], path: Path | None) -> dict[str, Any]:
    """The table [model] of a file, or of its content as a mapping."""
    load_listed_models(document, path, "model")
    place = name_place(path, "model")
    if not isinstance(document.get("model"), Mapping):
        raise ConfigurationError(f"{place} has no table [model] with a family")
    if others := sorted(document.keys() - {"models", "model"}):
        raise ConfigurationError(
            f"{place} has {', '.join(others)}, which a probe does not read: remove it, and give the terms "
            "of training as options such as --epochs, or as terms in Python"
        )
    return dict(document["model"])


def take_fingerprint(
    model: ModelSource,
    probes: str = "recall",
    terms: ProbeTerms | None = None,
    *,
    device: str = "cpu",
    settings: Settings | None = None,
    notify: Callable[[str], object] = lambda line: None,
    on_progress: Callable[[str, Progress], None] = lambda title, progress: None,
) -> Fingerprint:
    """Train a model on the probes of a set, or on one, and store its fingerprint in the home.

    Rows that are missing are drawn. A trained model is not trained again, and its test split is not read
    again. `notify` gets a line after each training, and `on_progress` the title of the present one with its
    state, a few times a second. Before the first training it raises ConfigurationError
    for an unknown model or setting, and CorpusError for an unknown set and settings that allow no row.
    """
    settings, terms = Settings.resolve(settings), terms or ProbeTerms()
    name, table = open_probed_model(model)
    corpora = {probe: name_corpus(probe, own) for probe, own in _divide_settings(probes, terms).items()}
    run = _ProbeRun(terms, device, settings, notify, on_progress)
    results = tuple(run.measure(name, table, probe, corpus) for probe, corpus in corpora.items())
    fingerprint = Fingerprint(name=name, model=dump_named_fields(table), terms=terms, results=results)
    store_fingerprint(fingerprint, settings)
    return fingerprint


def _divide_settings(probes: str, terms: ProbeTerms) -> dict[str, dict[str, int | float]]:
    """The changed settings of each probe of a set, checked."""
    known = {probe: PROBES[probe].known_settings for probe in select_probes(probes)}
    for setting in terms.settings:
        if not any(setting in own for own in known.values()):
            near = did_you_mean(setting, chain.from_iterable(known.values()))
            raise ConfigurationError(f'no setting "{setting}" of the rows of {probes}; {near}')
    return {
        probe: check_settings(probe, {key: value for key, value in terms.settings.items() if key in own})
        for probe, own in known.items()
    }


@dataclass(frozen=True)
class _ProbeRun:
    terms: ProbeTerms
    device: str
    settings: Settings
    notify: Callable[[str], object]
    on_progress: Callable[[str, Progress], None]

    def measure(self, name: str, table: Mapping[str, Any], probe_name: str, corpus_name: str) -> ProbeResult:
        """The result of a model on a probe, with that of a reference where it does not solve it."""
        probe = PROBES[probe_name]
        corpus = open_or_draw_corpus(corpus_name, self.settings.corpus_store)
        file = self._make_file(corpus, probe, table)
        trainings = self._train(name, file, self.terms.seeds)
        found = [self._read_test(corpus, probe, *own) for own in trainings]
        task = ProbeTask(corpus, file.trial.protocol.batch_size)
        result = ProbeResult(
            probe=probe_name,
            corpus=corpus.name,
            parameters=file.trial.parameter_count(len(corpus.vocabulary)),
            carried_state=file.trial.model.state_size(),
            rate=trainings[0][0].trial.gradient_training.optimiser.learning_rate,
            valid=tuple(_get_accuracy(trained) for _, trained in trainings),
            test={times: tuple(own[times] for own in found) for times in found[0]},
            chance=task.chance,
            ceiling=task.ceiling,
        )
        is_solved = fmean(result.valid) >= result.compute_threshold(probe.solved)
        return result if is_solved else self._gate(result, corpus, probe)

    def _gate(self, result: ProbeResult, corpus: Corpus, probe: Probe) -> ProbeResult:
        """The result with the first reference that solves the probe, or the best of those that do not."""
        if abs(result.parameters / self.terms.parameters - 1) > MAX_SIZE_DIFFERENCE:
            self.notify(
                f"{corpus.name}: {result.parameters:,} parameters, and the references about "
                f"{self.terms.parameters:,}; --parameters {max(result.parameters, MIN_PARAMETERS)} makes "
                "them equal"
            )
        for reference in probe.references:
            file = self._make_file(corpus, probe, {"family": "mixer_blocks", "mixer": reference})
            [(_, trained)] = self._train(reference, file, 1, "reference mixer ")
            accuracy = _get_accuracy(trained)
            if result.reference_valid is None or accuracy > result.reference_valid:
                is_learnable = accuracy >= result.compute_threshold(probe.solved)
                gated = {"reference": reference, "reference_valid": accuracy, "is_learnable": is_learnable}
                result = result.model_copy(update=gated)
            if result.is_learnable:
                break
        return result

    def _make_file(self, corpus: Corpus, probe: Probe, table: Mapping[str, Any]) -> TrialFile:
        """The trial of a model, of the terms' size where its table has no width."""

        def make(width: int) -> TrialFile:
            document = {
                "corpus": corpus.name,
                "model": {"width": width, **table},
                "task": {"kind": "probe", "reads_last_state": probe.reads_last_state},
                "protocol": {"kind": "sentence", "batch_size": self.terms.batch_size},
                "training": {
                    "epochs": self.terms.epochs,
                    "optimiser": {"kind": "adamw", "decayed": "matrices"},
                    "schedule": {"kind": "warmup"},
                    "clip_norm": 1.0,
                    "loss_reduction": "tokens",
                },
            }
            return parse_trial(document, f"probe {corpus.name}")

        words = len(corpus.vocabulary)
        if "width" in table:
            return make(0)
        fitted = FittedSize("parameters", self.terms.parameters)
        try:
            return make(fitted.solve(lambda width: make(width).trial.parameter_count(words)))
        except SpaceError as error:
            raise ConfigurationError(
                f"{corpus.name} has {words:,} words: no width of the model has --parameters "
                f"{self.terms.parameters} ({error})"
            ) from None

    def _train(self, name: str, file: TrialFile, seeds: int, role: str = "") -> list[Any]:
        def train(own: TrialFile) -> TrainResult:
            rate = own.trial.gradient_training.optimiser.learning_rate
            title = f"{own.corpus}: {role}{name}, rate {rate:g}, seed {own.trial.seed}"
            trained = train_trial(
                own,
                name,
                device=self.device,
                settings=self.settings,
                on_progress=lambda now: self.on_progress(title, now),
                registers=False,
            )
            accuracy = f"validation {100 * _get_accuracy(trained):.1f} %"
            is_known = trained.initial_tokens == trained.curve[-1].tokens
            known = ", trained before" if is_known else ""
            self.notify(f"{title}: {'diverged' if trained.best is None else accuracy}{known}")
            return trained

        return train_at_best_rate(file, self.terms.rates, seeds, train)

    def _read_test(self, corpus: Corpus, probe: Probe, file: TrialFile, trained: Any) -> dict[int, float]:
        """The test accuracy by multiple of the trained length, from the records where it was read before.

        It is 0 for a training that diverged at once, which has no weights to test.
        """
        lengths = TESTED_LENGTHS if probe.tests_longer else (1,)
        if trained.best is None:
            return dict.fromkeys(lengths, 0.0)
        uri, identity = self.settings.tracking_uri, file.trial.identity(corpus.digest)
        recorded = find_evaluation(uri, corpus.name, identity)
        assert recorded is not None, "a training is recorded before its test split is read"
        known = {
            int(name.removeprefix(FIGURE_PREFIX)): share
            for name, share in recorded.figures.items()
            if name.startswith(FIGURE_PREFIX)
        }
        if known.keys() == {*lengths}:  # fewer where a call was stopped while it recorded them
            return {times: known[times] for times in lengths}
        checkpoint = open_checkpoints(file.trial, corpus, self.settings).read()
        model: Any = checkpoint.build_best_model().to(self.device)
        record_test_access(uri, recorded.run_id)
        task = ProbeTask(corpus, file.trial.protocol.batch_size)
        if probe.tests_longer:
            by_length = task.compute_accuracy_by_length(model, "test", self.device)
            found = dict(zip(TESTED_LENGTHS, by_length.values(), strict=True))
        else:
            found = {1: task.evaluate(model, "test", self.device).accuracy or 0.0}
        figures = {f"{FIGURE_PREFIX}{times}": own for times, own in found.items()}
        record_evaluation(uri, recorded.run_id, "test", figures)
        return found


def _get_accuracy(trained: Any) -> float:
    """The best validation accuracy; 0 for a training that diverged at once."""
    return 0.0 if trained.best is None else 1 - (trained.best.cost or 0.0)
