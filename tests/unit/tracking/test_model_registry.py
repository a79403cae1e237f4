"""The registry: promotion to champion, and loading of registered models."""

import json
import math
import os
import pickletools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from memtune.errors import TrackingError
from memtune.models import LSTMConfig, build_model
from memtune.models.architecture import negative_log_likelihood
from memtune.tracking import (
    ModelResult,
    Recorder,
    find_champion,
    list_champions,
    load_registered,
    register_if_better,
)
from memtune.tracking.registry.pyfunc_flavor import load_scorer
from memtune.training import load_model, save_model
from tests.presence import require

VOCABULARY = ["<eos>", "<unk>", "the", "cat", "sleeps"]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A small untrained model, saved as training does."""
    folder = tmp_path_factory.mktemp("model")
    config = LSTMConfig()
    save_model(build_model(config, len(VOCABULARY), seed=0), folder)
    return folder


def make_result(loss, **changes):
    given = {
        "corpus": "ptb",
        "corpus_digest": "d" * 64,
        "label": "stream",
        "objective": "perplexity",
        "cost": loss,
        "configuration": {"model": {"family": "lstm"}, "seed": 3},
        "metrics": {"valid_loss": loss},
        "trial": "t1",
        "study": "s1",
        "seed": 3,
    }
    return ModelResult.model_validate(given | changes)


@pytest.fixture
def register(tracking_uri, model_folder):
    """A function that registers a result of a study of its own, whose run is recorded."""

    def run(loss, *, as_champion=True, **changes):
        candidate = make_result(loss, **({"study": f"study of {loss} {len(changes)}"} | changes))
        if candidate.trial == "t1":
            with Recorder(tracking_uri, "ptb") as recorder:
                recorder.start_study(candidate.study, "study", {})
                recorder.start_trial("t1", "trial", {})
        return register_if_better(tracking_uri, candidate, model_folder, VOCABULARY, as_champion=as_champion)

    return run


def read_versions_by_alias(client):
    return {alias: int(version) for alias, version in client.get_registered_model("ptb").aliases.items()}


def test_the_first_result_becomes_champion(register, tracking_uri):
    decision = register(5.0)
    assert decision.champion == find_champion(tracking_uri, "ptb")
    assert decision.reason.startswith("first champion")


def test_a_better_result_replaces_the_champion(register, client):
    register(5.0)
    register(4.9)
    assert read_versions_by_alias(client) == {"champion": 2, "best-lstm": 2, "previous": 1}


@pytest.mark.parametrize("loss", [5.0, 5.1])
def test_a_result_that_is_not_better_is_refused(register, client, loss):
    register(5.0)
    decision = register(loss, study="another")
    assert decision.champion is None
    assert "as good or better" in decision.reason
    assert read_versions_by_alias(client) == {"champion": 1, "best-lstm": 1}


def test_each_label_has_a_champion(register, client, tracking_uri):
    register(5.0)
    worse = register(9.0, label="sentence, agreement by accuracy", objective="accuracy").champion
    assert worse.alias == "champion-sentence-agreement-by-accuracy"
    assert [champion.alias for champion in list_champions(tracking_uri)] == ["champion", worse.alias]
    assert require(find_champion(tracking_uri, "ptb")).protocol == "stream"
    register(8.0, label="sentence, agreement by accuracy", objective="accuracy")
    register(4.0)
    suffix = "-sentence-agreement-by-accuracy"
    assert read_versions_by_alias(client) == {
        "champion": 4,
        "best-lstm": 4,
        "previous": 1,
        f"champion{suffix}": 3,
        f"best-lstm{suffix}": 3,
        f"previous{suffix}": 2,
    }


def test_the_best_of_a_family_is_registered_beside_a_better_champion(register, client):
    register(4.0)
    rnn = {"model": {"family": "rnn"}, "seed": 3}
    decision = register(5.0, configuration=rnn)
    assert (decision.champion, decision.version.version) == (None, 2)
    assert register(6.0, configuration=rnn).version is None
    assert read_versions_by_alias(client) == {"champion": 1, "best-lstm": 1, "best-rnn": 2}


def test_the_best_of_a_family_alone_does_not_become_champion(register, client):
    """A trial that is best of its family at fewer tokens or seeds may have a lower cost than the winner."""
    register(3.0, as_champion=False, study="s1", configuration={"model": {"family": "rnn"}, "seed": 3})
    assert register(4.0, study="s2").champion.version == 2
    assert read_versions_by_alias(client) == {"champion": 2, "best-lstm": 2, "best-rnn": 1}


def test_a_model_of_another_corpus_with_the_same_name_replaces_the_champion(register, client):
    register(5.0)
    decision = register(6.0, corpus_digest="e" * 64)
    assert decision.champion.version == 2
    assert decision.reason.endswith("on another text of this name")
    assert read_versions_by_alias(client) == {"champion": 2, "best-lstm": 2, "previous": 1}


def test_the_newer_conclusion_of_a_study_replaces_its_older_one(register, client):
    """More seeds of the champion raise the cost of a configuration that was lucky with its first one."""
    register(5.0, study="s1")
    register(5.2, study="s1", estimate={"cost": 5.2, "seeds": 3, "low": 5.0, "high": 5.4})
    assert read_versions_by_alias(client) == {"champion": 2, "best-lstm": 2, "previous": 1}
    assert register(5.2, study="s1").reason.startswith("models:/ptb/2 is this model")


def test_the_mean_over_seeds_and_its_interval_are_stored_with_the_version(register, client, tracking_uri):
    estimate = {"cost": math.log(100), "seeds": 3, "low": math.log(90), "high": math.log(110)}
    register(math.log(100), estimate=estimate, trial_cost=math.log(95))
    champion = require(find_champion(tracking_uri, "ptb"))
    assert champion.interval == pytest.approx((90, 110))
    assert champion.trial_cost == math.log(95)
    summary = "validation perplexity 100.000 (mean of 3 seeds, 95 % interval 90.000 to 110.000)"
    version = client.get_model_version("ptb", "1")
    assert champion.summary == version.description == summary
    assert float(version.tags["valid_perplexity"]) == pytest.approx(100)
    assert float(version.tags["valid_perplexity_high"]) == pytest.approx(110)


def test_a_version_of_an_earlier_memtune_is_a_single_seed(register, client, tracking_uri):
    register(5.0)
    for tag in ("seeds", "offered_as"):
        client.delete_model_version_tag("ptb", "1", tag)
    assert require(find_champion(tracking_uri, "ptb")).summary.endswith("(decided by a single seed)")


def test_by_accuracy_the_higher_figure_wins(register):
    first = register(0.5, objective="accuracy").champion
    assert first.figure == 0.5
    assert register(0.6, objective="accuracy").champion is None
    assert register(0.4, objective="accuracy").reason == (
        "validation accuracy 60.000 % (decided by a single seed), "
        "before validation accuracy 50.000 % (decided by a single seed)"
    )


@pytest.mark.parametrize(
    ("interrupted_step", "aliases"),
    [
        ("_upload", {"champion": 2, "best-lstm": 2}),
        ("_promote", {"champion": 2, "best-lstm": 2, "previous": 1}),
    ],
)
def test_the_better_of_two_studies_that_finish_at_once_is_champion(
    register, monkeypatch, client, interrupted_step, aliases
):
    """The second study, with the better model, registers it while the first is in the middle."""
    from memtune.tracking.registry import model_registry

    step = getattr(model_registry, interrupted_step)

    def register_better_first(*arguments):
        monkeypatch.setattr(model_registry, interrupted_step, step)
        if interrupted_step == "_promote":
            assert register(4.0).champion
            return step(*arguments)
        candidate = step(*arguments)
        assert register(4.0).champion
        return candidate

    monkeypatch.setattr(model_registry, interrupted_step, register_better_first)
    decision = register(4.5)
    assert decision.champion is None
    assert "meanwhile" in decision.reason
    assert read_versions_by_alias(client) == aliases


def test_an_interrupted_registration_is_completed_by_the_next_one(register, monkeypatch, client):
    """The process dies after it has created the version and before the promotion."""
    from memtune.tracking.registry import model_registry

    def die(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(model_registry, "_promote", die)
        with pytest.raises(KeyboardInterrupt):
            register(5.0)
    assert register(5.0).champion.version == 1
    assert read_versions_by_alias(client) == {"champion": 1, "best-lstm": 1}


def test_a_registration_is_retried_after_a_transient_error(register, monkeypatch, client):
    from memtune.tracking.registry import model_registry

    promote, errors = model_registry._promote, [OSError("unavailable"), OSError("unavailable")]

    def fail_twice(*arguments):
        if errors:
            raise errors.pop()
        promote(*arguments)

    monkeypatch.setattr(model_registry, "_promote", fail_twice)
    assert register(5.0).champion.version == 1
    assert read_versions_by_alias(client) == {"champion": 1, "best-lstm": 1}


def test_a_result_without_a_figure_is_refused():
    with pytest.raises(ValueError, match="finite cost"):
        make_result(math.nan)


def test_a_model_without_a_run_is_refused(register):
    with pytest.raises(TrackingError, match="no trial t9"):
        register(5.0, trial="t9")


def test_champions_are_listed(register, tracking_uri):
    assert list_champions(tracking_uri) == []
    champion = register(5.0).champion
    assert list_champions(tracking_uri) == [champion]


@pytest.mark.parametrize("uri", ["models:/ptb@champion", "models:/ptb/1"])
def test_a_registered_model_is_loaded_with_its_weights_and_metadata(
    register, tracking_uri, tmp_path, model_folder, uri
):
    loss = 4.987654321012345
    register(loss, study="s1")
    loaded = load_registered(tracking_uri, uri, tmp_path / "cache")
    weights, original = (load_model(folder).state_dict() for folder in (loaded.folder, model_folder))
    assert all(torch.equal(weights[name], original[name]) for name in original)
    assert loaded.vocabulary == tuple(VOCABULARY)
    assert loaded.card.result == make_result(loss)


def test_a_second_load_downloads_nothing(register, tracking_uri, tmp_path, client):
    champion = register(5.0).champion
    load_registered(tracking_uri, champion.uri, tmp_path)
    run = client.get_run(champion.run_id)
    Path(run.info.artifact_uri.removeprefix("file://"), champion.path, "model.safetensors").unlink()
    assert load_registered(tracking_uri, champion.uri, tmp_path).version.content == champion.content


def find_package(client, champion):
    """The folder in which the store keeps a version's package."""
    artifacts = client.get_run(champion.run_id).info.artifact_uri.removeprefix("file://")
    return Path(artifacts, champion.path)


@pytest.mark.parametrize("tag", ["content", "path"])
@pytest.mark.parametrize("value", ["../../escape", "/tmp/escape", "", "a" * 63, "model-..", "."])
def test_a_tag_that_leads_out_of_the_cache_is_refused(register, tracking_uri, tmp_path, client, tag, value):
    champion = register(5.0).champion
    client.set_model_version_tag("ptb", "1", tag, value)
    cache = tmp_path / "deep" / "cache"
    with pytest.raises(TrackingError, match=tag):
        load_registered(tracking_uri, champion.uri, cache)
    assert not list(tmp_path.rglob("escape*"))
    assert not cache.exists()


@pytest.mark.parametrize("name", ["MLmodel", "model.json", "code/evil.py", "python_env.yaml"])
def test_a_package_with_foreign_code_is_refused_by_memtune(register, tracking_uri, tmp_path, client, name):
    champion = register(5.0).champion
    path = find_package(client, champion) / name
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write("\nloader_module: evil\n")
    with pytest.raises(TrackingError, match=r"altered|no part of"):
        load_registered(tracking_uri, champion.uri, tmp_path / "cache")


@pytest.mark.parametrize("name", ["model.safetensors", "vocabulary.json", "memtune.json", "MLmodel"])
@pytest.mark.parametrize("replace", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_only_regular_files_are_read(register, tracking_uri, tmp_path, client, name, replace):
    champion = register(5.0).champion
    folder = load_registered(tracking_uri, champion.uri, tmp_path / "cache").folder
    (folder / name).unlink()
    replace(folder / name)
    with pytest.raises(TrackingError, match="not a regular file"):
        load_registered(tracking_uri, champion.uri, tmp_path / "cache")


def test_a_package_with_an_endless_file_is_not_copied(register, tracking_uri, tmp_path, client):
    champion = register(5.0).champion
    weights = find_package(client, champion) / "model.safetensors"
    weights.unlink()
    weights.symlink_to("/dev/zero")
    with pytest.raises(TrackingError, match="not a regular file"):
        load_registered(tracking_uri, champion.uri, tmp_path / "cache")


def test_a_text_file_over_the_size_limit_is_not_read(register, tracking_uri, tmp_path, client):
    champion = register(5.0).champion
    folder = load_registered(tracking_uri, champion.uri, tmp_path / "cache").folder
    os.truncate(folder / "vocabulary.json", 10**9)
    with pytest.raises(TrackingError, match="1,000,000,000 bytes"):
        load_registered(tracking_uri, champion.uri, tmp_path / "cache")


@pytest.mark.parametrize("name", ["model.safetensors", "vocabulary.json", "memtune.json", "MLmodel"])
def test_an_altered_file_is_named(register, tracking_uri, tmp_path, client, name):
    champion = register(5.0).champion
    stored = Path(
        client.get_run(champion.run_id).info.artifact_uri.removeprefix("file://"), champion.path, name
    )
    stored.write_bytes(stored.read_bytes().replace(b"e", b"E", 1))
    with pytest.raises(
        TrackingError, match=r"model\.safetensors|vocabulary\.json|memtune\.json|MLmodel|card"
    ):
        load_registered(tracking_uri, champion.uri, tmp_path)
    assert not (tmp_path / champion.content).exists()


def test_a_card_that_was_not_registered_is_refused(register, tracking_uri, tmp_path, client):
    champion = register(5.0).champion
    artifacts = Path(client.get_run(champion.run_id).info.artifact_uri.removeprefix("file://"))
    card = artifacts / champion.path / "memtune.json"
    card.write_text(card.read_text().replace('"cost": 5.0', '"cost": 1.0'))
    with pytest.raises(TrackingError, match="is not the card"):
        load_registered(tracking_uri, champion.uri, tmp_path)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("models:/ptbb@champion", 'did you mean "ptb"'),
        ("models:/ptb@best", "versions 1"),
        ("models:/ptb/7", "versions 1"),
        ("models:/ptb", "models:/ptb@champion"),
        ("ptb@champion", "models:/ptb@champion"),
    ],
)
def test_an_unknown_model_is_refused(register, tracking_uri, tmp_path, uri, message):
    register(5.0)
    with pytest.raises(TrackingError, match=message):
        load_registered(tracking_uri, uri, tmp_path)


def test_a_missing_model_is_found_before_heavy_libraries_are_imported(tmp_path):
    """Where nothing is recorded yet, neither torch nor MLflow is imported, and no store is created."""
    program = (
        "import sys\n"
        "from memtune.errors import TrackingError\n"
        "from memtune.tracking import require_registered\n"
        "try: require_registered(sys.argv[1], 'models:/ptb@champion')\n"
        "except TrackingError as error: print(error)\n"
        "print(sorted({'torch', 'mlflow', 'sqlalchemy'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", program, f"sqlite:///{tmp_path}/mlflow.db"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    message, imported = done.stdout.splitlines()
    assert "no models:/ptb@champion" in message
    assert imported == "[]"
    assert not any(tmp_path.iterdir())


def test_no_file_of_a_registered_model_is_a_pickle(register, tracking_uri, tmp_path):
    register(5.0)
    folder = load_registered(tracking_uri, "models:/ptb@champion", tmp_path).folder
    names = {path.name for path in folder.iterdir()}
    assert names == {"model.safetensors", "model.json", "vocabulary.json", "memtune.json", "MLmodel"}
    assert not any(is_pickle(path.read_bytes()) for path in folder.iterdir())


def is_pickle(content):
    try:
        return len(list(pickletools.genops(content))) > 0
    except ValueError:
        return False


@pytest.mark.filterwarnings(
    "ignore:.*Any type hint is inferred as AnyType:UserWarning"
)  # MLflow's own import
def test_mlflow_itself_loads_a_registered_model(register, tracking_uri, model_folder, monkeypatch):
    """Through MLflow's own loader, a sentence gets the log probability that the model gives it."""
    import mlflow.pyfunc
    import pandas

    register(5.0)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_uri)
    loaded = mlflow.pyfunc.load_model("models:/ptb@champion")
    (score,) = loaded.predict(pandas.DataFrame({"sentence": ["the dog sleeps"]}))
    inputs_BT, targets_BT = torch.tensor([[0, 2, 1, 4]]), torch.tensor([[2, 1, 4, 0]])
    with torch.no_grad():
        model: Any = load_model(model_folder)
        nats, _ = negative_log_likelihood(model, inputs_BT, targets_BT)
    assert score == pytest.approx(-float(nats), rel=1e-6)


def test_a_scorer_is_loaded_only_when_every_file_is_as_registered(
    register, tracking_uri, tmp_path, client, model_folder
):
    """MLflow's own loader would import the module that the altered MLmodel names."""
    champion = register(5.0).champion
    (score,) = load_scorer(tracking_uri, "models:/ptb@champion", tmp_path / "first").predict(
        ["the dog sleeps"]
    )
    inputs_BT, targets_BT = torch.tensor([[0, 2, 1, 4]]), torch.tensor([[2, 1, 4, 0]])
    with torch.no_grad():
        model: Any = load_model(model_folder)
        nats, _ = negative_log_likelihood(model, inputs_BT, targets_BT)
    assert score == pytest.approx(-float(nats), rel=1e-6)
    mlmodel = find_package(client, champion) / "MLmodel"
    mlmodel.write_text(mlmodel.read_text().replace("memtune.tracking.registry.pyfunc_flavor", "antigravity"))
    with pytest.raises(TrackingError, match="MLmodel was altered"):
        load_scorer(tracking_uri, "models:/ptb@champion", tmp_path / "second")


def test_the_model_card_is_readable(register, tracking_uri, tmp_path):
    register(5.0)
    folder = load_registered(tracking_uri, "models:/ptb@champion", tmp_path).folder
    card = json.loads((folder / "memtune.json").read_text())
    assert card["result"]["label"] == "stream"
    assert card["code"]


def test_a_model_of_another_program_is_skipped_with_a_warning(register, client, tracking_uri, caplog):
    own = register(5.0).champion
    client.create_registered_model("other")
    version = client.create_model_version("other", "file:///nowhere")
    client.set_registered_model_alias("other", "champion", version.version)
    assert list_champions(tracking_uri) == [own]
    assert "models:/other/1 was not registered by memtune" in caplog.text
    assert find_champion(tracking_uri, "other") is None


def test_a_version_of_another_program_does_not_affect_versions_of_memtune(
    register, client, tracking_uri, tmp_path
):
    register(5.0)
    client.create_model_version("ptb", "file:///nowhere")
    assert register(4.9).champion.version == 3
    with pytest.raises(TrackingError, match="not registered by memtune"):
        load_registered(tracking_uri, "models:/ptb/2", tmp_path)
