"""A trained model by its name, a registered version or a trial with a checkpoint, and text that it writes."""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from memtune.arguments import check_type
from memtune.corpora import EOS, UNK, Corpus, CorpusStore, list_corpora, open_corpus
from memtune.errors import ArgumentError, CheckpointError, CorpusError, TrackingError
from memtune.models import NeuralLanguageModel
from memtune.models.architecture import LanguageModel, Model, find_device
from memtune.number_format import format_parameters
from memtune.plugins import read_source, run_with_sources
from memtune.results.other_texts import number_words, read_known
from memtune.settings import SINGLE_TRIALS_FOLDER, Settings
from memtune.storage.folder import Folder
from memtune.studies.checkpoint_store import Checkpoints
from memtune.tasks import compute_text_nats
from memtune.tracking import (
    NO_STUDY,
    ModelPackage,
    RegisteredVersion,
    TextReader,
    TextRules,
    TrialRun,
    find_text_rules,
    find_trial_run,
    is_package,
    is_trial_name,
    load_registered,
    read_package,
    record_test_access,
)
from memtune.training import CheckpointRecord, TrialConfig, load_model, open_device
from memtune.values import UserValue, parse

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainedModel:
    """A model with its configuration, its corpus and its run."""

    name: str
    """As the user wrote it, or the URI of the version behind an alias."""
    model: Model
    config: TrialConfig
    corpus: Corpus
    run_id: str
    settings: Settings
    """Of the home that it was opened from."""
    version: RegisteredVersion | None = None
    """None for a trial."""
    study: str = NO_STUDY
    """The study of a trial."""
    record: CheckpointRecord | None = None
    """The checkpoint of a trial; None for a version."""

    @cached_property
    def network(self) -> NeuralLanguageModel:
        """The network in evaluation, of a classifier its body. Raises ConfigurationError without one."""
        return self.model.eval().require_network(f"the inspection of {self.name}")

    @property
    def memory(self) -> str:
        """What its memory is: the mixers of blocks, and else the family."""
        described = self.config.model.describe()
        mixers = [str(described[name]) for name in ("mixer", "alternate") if name in described]
        return " and ".join(mixers) or self.config.model.family

    def record_access(self, split: str, corpus: str | None = None) -> None:
        """Record that the model is about to read a split of a corpus, by default its own, if it is "test"."""
        if split == "test":
            own, text = (name.partition("+")[0] for name in (self.corpus.name, corpus or self.corpus.name))
            record_test_access(self.settings.tracking_uri, self.run_id, None if text == own else text)


def open_model(
    name: str, settings: Settings | None = None, device: str = "cpu", *, trust_code: bool = False
) -> TrainedModel:
    """The model behind `models:/ptb@champion`, `models:/ptb/3`, `STUDY#7`, `STUDY#7 seed 1` or a run's id.

    A trial has the weights of its best validation report. `trust_code` consents to executing the source of a
    user's family that is stored with the model. Raises TrackingError for an unknown name, PluginError that
    names the source without that consent, CheckpointError for a trial without a readable checkpoint, and
    CorpusError when the store lacks the text that it was trained on.
    """
    check_model_name(name)
    settings = Settings.resolve(settings)
    if is_trial_name(name):
        return _open_trial(name, settings, device, trust_code)
    found = load_registered(settings.tracking_uri, name, settings.home / "models")
    version = found.version
    model, config = _build_model(found, version.uri, device, trust_code)
    corpus = _open_training_corpus(name, version.corpus, version.corpus_digest, settings)
    return TrainedModel(version.uri, model, config, corpus, version.run_id, settings, version)


def check_model_name(name: object) -> None:
    """Raise ArgumentError for anything but a text, such as a model that is loaded already."""
    expected = 'the name of a model, such as "models:/ptb@champion" or "STUDY#7"'
    if isinstance(loaded := getattr(name, "name", None), str):
        expected += f", here {loaded!r}"
    check_type("name", name, str, expected)


def _build_model(
    package: ModelPackage, name: str, device: str, trust_code: bool
) -> tuple[Model, TrialConfig]:
    sources = {source.digest: source for source in package.sources}
    model = run_with_sources(
        lambda: load_model(package.folder, str(open_device(device))), sources.get, name, trust_code
    )
    place = f"{name}: the configuration on its card"
    config: TrialConfig = parse(TrialConfig, package.card.result.configuration, place)
    stated = config.model.model_dump(mode="json")
    if any(stated.get(name, value) != value for name, value in model.config.model_dump(mode="json").items()):
        raise TrackingError(f"{place} is not that of its weights, so it was altered; export the model again")
    return model, config


def name_study_folder(run: TrialRun) -> str:
    """The folder of a trial's study, or of trials without one, in the folder of studies."""
    return SINGLE_TRIALS_FOLDER if run.study == NO_STUDY else run.study


def _open_trial(name: str, settings: Settings, device: str, trust_code: bool) -> TrainedModel:
    run = find_trial_run(settings.tracking_uri, name)
    study = name_study_folder(run)

    def open_checkpoint() -> tuple[CheckpointRecord, Model]:
        checkpoints = Checkpoints(settings.name_checkpoint_root(study), run.trial)
        checkpoint = checkpoints.read(run.max_tokens)
        return checkpoint.record, checkpoint.build_best_model()

    try:
        record, model = run_with_sources(
            open_checkpoint, partial(read_source, f"{settings.studies_folder}/{study}"), name, trust_code
        )
    except CheckpointError as error:
        # A reused training is stored at its end alone, and early stopping may have ended this trial before.
        other = f'; use "{run.reused_from}", which has trained it' if run.reused_from else ""
        if study != SINGLE_TRIALS_FOLDER and study not in Folder.open(settings.studies_folder).list_names():
            reason = f"study {study} was removed with its checkpoints; run the study's file again"
        else:
            reason = str(error)
        raise CheckpointError(f"{name} cannot be used: {reason}{other}") from None
    corpus = _open_training_corpus(name, record.corpus, record.corpus_digest, settings)
    placed = model.to(open_device(device))
    return TrainedModel(
        name, placed, record.config, corpus, run.run_id, settings, study=run.study, record=record
    )


def _open_training_corpus(name: str, corpus: str, digest: str, settings: Settings) -> Corpus:
    """The corpus a model was trained on, which may have another name by now.

    Raises CorpusError when the store lacks its text.
    """
    store = CorpusStore.open(settings.corpus_store)
    opened = open_corpus(corpus, store)
    if opened.digest == digest:
        return opened
    for other in list_corpora(store, on_unreadable=lambda _: None):
        if other.digest == digest:
            return open_corpus(other.name, store)
    raise CorpusError(
        f'{name} was trained on "{corpus}" with digest {digest[:12]}, the store {store.folder} holds '
        f"{opened.digest[:12]}; import the text it was trained on under another name, or under this one "
        "with --replace"
    )


@dataclass(frozen=True)
class LoadedModel:
    """A trained model, ready to be used."""

    name: str
    """The version's URI, or the trial or the folder as the user named it."""
    module: Model
    """In evaluation mode, on the device that was asked for."""
    vocabulary: tuple[str, ...]
    """The tokens by id."""
    configuration: TrialConfig
    rules: TextRules
    """How text becomes tokens of the vocabulary."""

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.module.parameters())
        family, words = self.configuration.model.family, f"{len(self.vocabulary):,} tokens"
        return f"LoadedModel({self.name}: {family}, {format_parameters(parameters)}, vocabulary of {words})"

    @cached_property
    def reader(self) -> TextReader:
        """Makes token ids of texts by these rules."""
        return TextReader(self.rules, {token: number for number, token in enumerate(self.vocabulary)})


class GenerationOptions(UserValue):
    """How a text is sampled."""

    tokens: int = Field(50, ge=1)
    """Words and ends of sentences after the prompt."""
    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Divides the logits; 0 takes the most likely word."""
    top_k: int | None = Field(None, ge=1)
    """Samples from so many most likely words; None from all."""
    seed: int = Field(0, ge=0, lt=2**63)


def load(
    name: str, *, device: str = "cpu", settings: Settings | None = None, trust_code: bool = False
) -> LoadedModel:
    """The model behind `models:/ptb@champion`, `models:/ptb/3`, `STUDY#7` or a run's id, or in a folder.

    A registered version, or the folder of an exported model, needs no corpus. `trust_code` consents to
    executing the source of a user's family that is stored with the model. Raises the errors of `open_model`.
    """
    check_model_name(name)
    settings = Settings.resolve(settings)
    if is_trial_name(name):
        opened = open_model(name, settings, device, trust_code=trust_code)
        tokens, rules = tuple(opened.corpus.vocabulary.tokens), find_text_rules(opened.corpus)
        return LoadedModel(name, opened.model.eval(), tokens, opened.config, rules)
    package: ModelPackage
    if is_package(name):
        package, title = read_package(Path(name)), name
    else:
        package = found = load_registered(settings.tracking_uri, name, settings.home / "models")
        title = found.version.uri
    module, config = _build_model(package, title, device, trust_code)
    return LoadedModel(title, module.eval(), package.vocabulary, config, package.rules)


def generate(model: LoadedModel, prompt: str = "", options: GenerationOptions | None = None) -> Iterator[str]:
    """The words that the model writes after a prompt, one by one; `<eos>` ends a sentence.

    A word of several tokens comes when it is complete. Where the model goes on with the prompt's last word,
    the first one is its rest. Raises what `write_tokens` raises.
    """
    tokens = write_tokens(model, prompt, options)
    return tokens if model.rules.tokens == "words" else _join_words(model, prompt, tokens)


def _join_words(model: LoadedModel, prompt: str, tokens: Iterator[str]) -> Iterator[str]:
    """The words of characters or parts of words, and `<eos>`."""
    sentence = [model.vocabulary[number] for number in read_known(model.reader, prompt, "the prompt").ids]
    done = len(model.reader.join(sentence))
    for token in chain(tokens, (None,)):
        if token is not None and token != EOS:
            sentence.append(token)
        rest = model.reader.join(sentence)[done:]
        complete = rest if token is None or token == EOS else rest[: rest.rfind(" ") + 1]
        yield from complete.split()
        done += len(complete)
        if token == EOS:
            yield EOS
            sentence, done = [], 0


def write_tokens(
    model: LoadedModel, prompt: str = "", options: GenerationOptions | None = None
) -> Iterator[str]:
    """The tokens that the model writes after a prompt, one by one; `reader.join` makes a text of them.

    The same seed gives the same text on the same machine. `<unk>` is never written; words of the prompt that
    are read as it are logged. Under the protocol "sentence" a new sentence starts from the state before any
    word, as in training. Raises ArgumentError for another model than that of `load`, ConfigurationError for a
    classifier, and TrackingError for a word that the model does not know where its vocabulary has no `<unk>`.
    """
    options = GenerationOptions() if options is None else options
    check_type("model", model, LoadedModel, 'a loaded model, such as load("models:/ptb@champion")')
    check_type("prompt", prompt, str, 'a text, such as "the company"')
    check_type(
        "options", options, GenerationOptions, "GenerationOptions, such as GenerationOptions(tokens=20)"
    )
    module = model.module.require_language_model(f"writing a text with {model.name}")
    read = read_known(model.reader, prompt, "the prompt")
    if read.unknown_words:
        unknown = ", ".join(dict.fromkeys(read.unknown_words))
        log.warning("the model does not know %s and reads %s instead", unknown, UNK)
    return _write_tokens(model, module, read.ids, options)


@dataclass(frozen=True)
class ScoredSentence:
    """A sentence with the log probability of each of its words."""

    sentence: str
    words: tuple[str, ...]
    """As the model reads them, `<eos>` last."""
    log_probabilities: tuple[float, ...]
    """Of each word after those before it, in nats; that of a word of several tokens is their sum."""
    unknown_words: tuple[str, ...]
    """Words, or other tokens, that were read as `<unk>`."""

    @property
    def log_probability(self) -> float:
        """Of the sentence and its end, in nats."""
        return math.fsum(self.log_probabilities)


def score(model: LoadedModel, sentences: Iterable[str]) -> list[ScoredSentence]:
    """The log probabilities of sentences, which are split into words and tokens as the model's corpus was.

    Each is read by itself, as MLflow's predict does. Raises ArgumentError for another model than that of
    `load`, for what is no text and for one with the word `<eos>`, ConfigurationError for a classifier, and
    TrackingError for a word that the model does not know where its vocabulary has no `<unk>`.
    """
    check_type("model", model, LoadedModel, 'a loaded model, such as load("models:/ptb@champion")')
    module = model.module.require_language_model(f"scoring sentences with {model.name}")
    check_type("sentences", sentences, Iterable, 'texts, such as ["the company said"]')
    texts = [sentences] if isinstance(sentences, str) else list(sentences)
    for text in texts:
        check_type("sentences", text, str, 'texts, such as ["the company said"]')
    return [_score_sentence(model, module, number, text) for number, text in enumerate(texts, 1)]


def _score_sentence(model: LoadedModel, module: LanguageModel, number: int, text: str) -> ScoredSentence:
    read = read_known(model.reader, text, f"sentence {number}")
    tokens = [*(model.vocabulary[number] for number in read.ids), EOS]
    if EOS in tokens[:-1]:
        raise ArgumentError(f'"{text}" has the word {EOS}, which follows every sentence; leave it out')
    is_end = np.arange(len(tokens)) == len(read.ids)
    numbers = number_words(tokens, is_end, model.rules.tokens == "words")
    nats = np.bincount(numbers, compute_text_nats(module, read.ids))
    groups = [
        [token for token, place in zip(tokens[:-1], numbers, strict=False) if place == word]
        for word in range(len(nats) - 1)
    ]
    words = read.words if len(read.words) == len(groups) else [model.reader.join(group) for group in groups]
    return ScoredSentence(text, (*words, EOS), tuple((-nats).tolist()), tuple(read.unknown_words))


def _write_tokens(
    model: LoadedModel, module: LanguageModel, prompt: Sequence[int], options: GenerationOptions
) -> Iterator[str]:
    id_by_token = {token: number for number, token in enumerate(model.vocabulary)}
    eos, unk = id_by_token[EOS], id_by_token.get(UNK)
    resets = model.configuration.protocol.reads_sentences
    device = find_device(module)
    generator = torch.Generator().manual_seed(options.seed)
    given, state = [eos, *prompt], module.initial_state(1)
    for _ in range(options.tokens):
        with torch.no_grad():
            scores_1V, state = module.score_next_word(torch.tensor([given], device=device), state)
        scores_V = scores_1V[0].float().cpu()
        if unk is not None:
            scores_V[unk] = -torch.inf
        chosen = _choose(scores_V, options, generator)
        yield model.vocabulary[chosen]
        given = [chosen]
        if resets and chosen == eos:
            state = module.initial_state(1)


def _choose(scores_V: Tensor, options: GenerationOptions, generator: torch.Generator) -> int:
    """The id of the next word."""
    if options.temperature < 1e-30:  # by less, scores overflow
        return int(scores_V.argmax())
    count = min(options.top_k or len(scores_V), len(scores_V))
    best_K, ids_K = scores_V.topk(count)
    probability_K = torch.softmax(best_K / options.temperature, dim=0)
    return int(ids_K[torch.multinomial(probability_K, 1, generator=generator)])
