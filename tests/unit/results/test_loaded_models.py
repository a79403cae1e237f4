"""A champion as a module with its vocabulary, and text that it writes."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from memtune.api import run_search
from memtune.errors import ArgumentError, ConfigurationError, StorageError, TrackingError
from memtune.results.loaded_models import GenerationOptions, LoadedModel, generate, load, score
from memtune.results.model_evaluation import evaluate
from memtune.results.registration import export_model
from memtune.results.study.study_detail import show_study
from memtune.settings import Settings
from memtune.storage.digests import hash_file
from memtune.studies.executor import InProcessExecutor
from memtune.tracking import load_registered
from memtune.tracking.mlflow_connection import connect
from memtune.tracking.registry.pyfunc_flavor import SentenceScorer
from tests.conftest import write_study

pytestmark = pytest.mark.usefixtures("without_report")


@pytest.fixture(scope="module")
def home(module_settings: Settings) -> Settings:
    """A home with a study of two trials."""
    file = write_study(module_settings.home.parent)
    run_search(file, {"budget.trials": 2}, settings=module_settings, executor=InProcessExecutor())
    return module_settings


@pytest.fixture
def champion(home: Settings) -> LoadedModel:
    return load("models:/tiny@champion", settings=home)


def write(model: LoadedModel, **options: Any) -> list[str]:
    return list(generate(model, "the dog", GenerationOptions(**options)))


def test_a_champion_has_its_module_its_vocabulary_and_its_configuration(champion: LoadedModel) -> None:
    assert champion.name == "models:/tiny/1"
    assert {"<eos>", "dog", "cat"} <= set(champion.vocabulary)
    assert champion.configuration.model.family == champion.module.config.family
    assert not champion.module.training


def test_a_version_whose_card_has_no_configuration_is_named(home: Settings) -> None:
    """Its card is the one that was registered; no trial has such a configuration."""
    client = connect(home.tracking_uri)
    version = load_registered(home.tracking_uri, "models:/tiny@champion", home.home / "models")
    folder = version.folder.with_name("empty")
    shutil.copytree(version.folder, folder)
    card = json.loads((folder / "memtune.json").read_text())
    card["result"]["configuration"] = {}
    (folder / "memtune.json").write_text(json.dumps(card))
    digest = hash_file(folder / "memtune.json")
    folder.rename(folder.with_name(digest))
    tag, number = "content", str(version.version.version)
    client.set_model_version_tag("tiny", number, tag, digest)
    try:
        for open_version in (load, evaluate):
            with pytest.raises(
                ConfigurationError, match="models:/tiny/1: the configuration on its card: mod"
            ):
                open_version("models:/tiny@champion", settings=home)
    finally:
        client.set_model_version_tag("tiny", number, tag, version.version.content)


def test_a_trial_is_loaded_by_its_name(champion: LoadedModel, home: Settings) -> None:
    trial = load("layers#0", settings=home)
    assert trial.vocabulary == champion.vocabulary
    assert trial.rules == champion.rules


def test_generated_text_is_that_of_its_seed(champion: LoadedModel) -> None:
    texts = {seed: write(champion, seed=seed, tokens=30) for seed in (0, 1)}
    assert len(texts[0]) == 30
    assert texts[0] == write(champion, seed=0, tokens=30)
    assert texts[0] != texts[1]
    assert set(texts[0]) <= set(champion.vocabulary) - {"<unk>"}


def test_unknown_words_of_a_prompt_are_warned_of_once(
    champion: LoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    list(generate(champion, "the zebra and the zebra", GenerationOptions(tokens=2)))
    assert caplog.messages == ["the model does not know zebra and reads <unk> instead"]


def test_an_unknown_word_without_unk_is_refused_with_its_sentence_and_a_remedy(champion: LoadedModel) -> None:
    rules = champion.rules.model_copy(update={"unknown": "refuse"})
    with pytest.raises(TrackingError, match=r'sentence 2: .* "zebra" .* --min-count 2 for characters'):
        score(replace(champion, rules=rules), ["the", "the zebra"])


def test_the_likeliest_words_are_written_at_temperature_0_and_with_a_top_k_of_1(
    champion: LoadedModel,
) -> None:
    greedy = write(champion, temperature=0, tokens=10)
    assert greedy == write(champion, temperature=0, tokens=10, seed=5)
    assert greedy == write(champion, temperature=1e-300, tokens=10)
    assert greedy == write(champion, temperature=1.0, top_k=1, tokens=10)


def test_the_words_of_a_long_text_are_those_of_one_pass_over_it(champion: LoadedModel) -> None:
    """The carried state: each word is the likeliest one after all words before it in its sentence."""
    from memtune.models.architecture import NeuralLanguageModel, logits

    written = write(champion, temperature=0, tokens=6)
    assert isinstance(champion.module, NeuralLanguageModel)
    sentence = ["<eos>", "the", "dog", *written]
    end = written.index("<eos>") if "<eos>" in written else len(written)
    ids = [champion.vocabulary.index(word) for word in sentence[: 3 + end]]
    with torch.no_grad():
        scores_1TV, _ = logits(champion.module, torch.tensor([ids]))
    if "<unk>" in champion.vocabulary:
        scores_1TV[..., champion.vocabulary.index("<unk>")] = -torch.inf
    likeliest = [champion.vocabulary[number] for number in scores_1TV[0].argmax(-1)]
    assert likeliest[2 : 2 + end] == written[:end]


@pytest.mark.parametrize(
    "options",
    [{"temperature": -1.0}, {"temperature": math.inf}, {"top_k": 0}, {"seed": 2**63}, {"tokens": -5}],
)
def test_options_without_a_meaning_are_refused(champion: LoadedModel, options: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        write(champion, **options)


def test_probabilities_of_words_are_not_written_to_a_file_of_another_format(home: Settings) -> None:
    with pytest.raises(
        ConfigurationError, match=r"words = 'w\.csv' is written as Parquet; name it w\.parquet"
    ):
        evaluate("models:/tiny@champion", words="w.csv", settings=home)


@pytest.mark.filterwarnings(
    "ignore:.*Any type hint is inferred as AnyType:UserWarning"
)  # MLflow's own import
def test_an_exported_trial_scores_sentences_like_the_trial(home: Settings, tmp_path: Path) -> None:
    """A registered version is exported as it is, a trial with the same files."""
    import mlflow.pyfunc

    (worse,) = {0, 1} - {show_study("layers", home).alternatives[0].number}
    trial, version = tmp_path / "trial", tmp_path / "version"
    export_model(f"layers#{worse}", trial, home)
    export_model("models:/tiny@champion", version, home)
    assert {path.name for path in trial.iterdir()} == {path.name for path in version.iterdir()}
    loaded = load(f"layers#{worse}", settings=home)
    sentences = ["the dog sees", "a cat"]
    expected = SentenceScorer(loaded.module.require_language_model("a test"), loaded.vocabulary, loaded.rules)
    scores = mlflow.pyfunc.load_model(str(trial)).predict(sentences)
    assert list(scores) == pytest.approx(list(expected.predict(sentences)))
    opened = load(str(trial), settings=home.model_copy(update={"home": tmp_path / "another"}))
    assert [found.log_probability for found in score(opened, sentences)] == pytest.approx(list(scores))
    with pytest.raises(ArgumentError, match=r"sentences must be texts, such as .*; got 3 \(int\)"):
        score(opened, 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match='"a cat <eos>" has the word <eos>, which follows every sentence'):
        score(opened, ["the dog", "a cat <eos>"])
    with pytest.raises(StorageError, match="exists; name a folder that does not"):
        export_model(f"layers#{worse}", trial, home)
    card = json.loads((trial / "memtune.json").read_text())
    card["result"]["configuration"]["model"]["width"] += 1
    (trial / "memtune.json").write_text(json.dumps(card))
    with pytest.raises(TrackingError, match="the configuration on its card is not that of its weights"):
        load(str(trial), settings=home)
    (tmp_path / "file").touch()
    for model in (f"layers#{worse}", "models:/tiny@champion"):
        with pytest.raises(StorageError, match=r"cannot write to .*file/model: .*; choose another place"):
            export_model(model, tmp_path / "file" / "model", home)
