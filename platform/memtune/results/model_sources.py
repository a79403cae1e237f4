"""A trained model by its name: a registered version, or any trial with a checkpoint."""

from dataclasses import dataclass

from memtune.arguments import check_type
from memtune.corpora import Corpus, open_corpus
from memtune.errors import CheckpointError, CorpusError
from memtune.models.architecture import Model
from memtune.plugins import SourceStore, run_with_sources
from memtune.settings import Settings
from memtune.studies.checkpoint_store import Checkpoints
from memtune.tracking import (
    NO_STUDY,
    RegisteredVersion,
    find_trial_run,
    is_trial_name,
    load_registered,
    record_test_access,
)
from memtune.training import (
    CheckpointRecord,
    TrialConfig,
    load_best_model,
    load_model,
    open_device,
    read_checkpoint,
)
from memtune.values import parse

SINGLE_TRIALS_FOLDER = "single"
"""The folder of trials without a study, where studies have theirs."""


@dataclass(frozen=True)
class TrainedModel:
    """A model with its configuration, its corpus and its run."""

    name: str
    """As the user wrote it, or the URI of the version behind an alias."""
    model: Model
    config: TrialConfig
    corpus: Corpus
    run_id: str
    experiment: str
    """The experiment of the run."""
    tracking_uri: str
    version: RegisteredVersion | None = None
    """None for a trial."""
    study: str = NO_STUDY
    """The study of a trial."""
    record: CheckpointRecord | None = None
    """The checkpoint of a trial; None for a version."""

    def record_access(self, split: str) -> None:
        """Record that the model is about to read a split, where that is the test split."""
        if split == "test":
            record_test_access(self.tracking_uri, self.experiment, self.run_id)


def open_model(
    name: str, settings: Settings, device: str = "cpu", *, trust_code: bool = False
) -> TrainedModel:
    """The model behind `models:/ptb@champion`, `models:/ptb/3`, `STUDY#7`, `STUDY#7 seed 1` or a run's id.

    A trial has the weights of its best validation report. `trust_code` consents to executing the source of a
    user's family that is stored with the model. Raises TrackingError for an unknown name, PluginError that
    names the source without that consent, CheckpointError for a trial without a readable checkpoint, and
    CorpusError when the store lacks the corpus or holds another text of that name.
    """
    check_model_name(name)
    open_any = _open_trial if is_trial_name(name) else _open_version
    return open_any(name, settings, device, trust_code)


def check_model_name(name: object) -> None:
    """Raise ArgumentError for anything but a text, such as a model that is loaded already."""
    expected = 'the name of a model, such as "models:/ptb@champion" or "STUDY#7"'
    if isinstance(loaded := getattr(name, "name", None), str):
        expected += f", here {loaded!r}"
    check_type("name", name, str, expected)


def _open_version(name: str, settings: Settings, device: str, trust_code: bool) -> TrainedModel:
    found = load_registered(settings.tracking_uri, name, settings.home / "models")
    version = found.version
    model = found.run_with_sources(lambda: load_model(found.folder, str(open_device(device))), trust_code)
    return TrainedModel(
        version.uri,
        model,
        parse(TrialConfig, found.card.result.configuration, f"{version.uri}: the configuration on its card"),
        _open_training_corpus(name, version.corpus, version.corpus_digest, settings),
        version.run_id,
        version.corpus,
        settings.tracking_uri,
        version,
    )


def _open_trial(name: str, settings: Settings, device: str, trust_code: bool) -> TrainedModel:
    run = find_trial_run(settings.tracking_uri, name)
    study = SINGLE_TRIALS_FOLDER if run.study == NO_STUDY else run.study
    root = f"{settings.studies_folder}/{study}"

    def open_checkpoint() -> tuple[CheckpointRecord, Model]:
        with Checkpoints(f"{root}/checkpoints", run.trial).open_newest(run.max_tokens) as folder:
            model = load_best_model(folder)
            return read_checkpoint(folder).record, model

    try:
        record, model = run_with_sources(open_checkpoint, SourceStore(root).read, name, trust_code)
    except CheckpointError as error:
        # A reused training is stored at its end alone, and early stopping may have ended this trial before.
        other = f'; use "{run.reused_from}", which has trained it' if run.reused_from else ""
        raise CheckpointError(f"{name} cannot be used: {error}{other}") from None
    corpus = _open_training_corpus(name, record.corpus, record.corpus_digest, settings)
    placed = model.to(open_device(device))
    return TrainedModel(
        name,
        placed,
        record.config,
        corpus,
        run.run_id,
        run.corpus,
        settings.tracking_uri,
        study=run.study,
        record=record,
    )


def _open_training_corpus(name: str, corpus: str, digest: str, settings: Settings) -> Corpus:
    """The corpus a model was trained on.

    Raises CorpusError when the store lacks it or holds another text of that name.
    """
    opened = open_corpus(corpus, settings.corpus_store)
    if opened.digest != digest:
        raise CorpusError(
            f'{name} was trained on "{corpus}" with digest {digest[:12]}, the store '
            f"{settings.corpus_store} holds {opened.digest[:12]}; import the text it was trained on"
        )
    return opened
