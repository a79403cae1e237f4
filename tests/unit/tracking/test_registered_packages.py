"""Packages of registered models: loading, refusal of altered packages, and models of other programs."""

import json
import os
import pickletools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from memtune.errors import TrackingError
from memtune.models.architecture import negative_log_likelihood
from memtune.tracking import list_champions, load_registered
from memtune.tracking.registry.model_package import check_package, read_vocabulary
from memtune.training import load_model
from tests.file_size_limit import limit_file_size
from tests.unit.tracking.registered_models import VOCABULARY, find_package, make_result


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
    (find_package(client, tracking_uri, champion) / "model.safetensors").unlink()
    assert load_registered(tracking_uri, champion.uri, tmp_path).version.content == champion.content


def test_a_download_that_does_not_fit_names_the_file_and_leaves_nothing(register, tracking_uri, tmp_path):
    champion = register(5.0).champion
    cache = tmp_path / "cache"
    with limit_file_size(100), pytest.raises(TrackingError, match=f"File too large: .*{cache}"):
        load_registered(tracking_uri, champion.uri, cache)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("tag", ["content", "path", "model_id"])
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
    path = find_package(client, tracking_uri, champion) / name
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write("\nloader_module: evil\n")
    with pytest.raises(TrackingError, match=r"altered|not part of"):
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


@pytest.mark.parametrize("name", ["model.safetensors", "vocabulary.json", "memtune.json", "MLmodel"])
def test_a_missing_file_is_named(register, tracking_uri, tmp_path, client, name):
    champion = register(5.0).champion
    (find_package(client, tracking_uri, champion) / name).unlink()
    with pytest.raises(TrackingError, match=rf"{name} is missing from the registered model; restore it, or"):
        load_registered(tracking_uri, champion.uri, tmp_path)
    client.delete_model_version(champion.corpus, str(champion.version))
    again = register(5.0).champion
    assert load_registered(tracking_uri, again.uri, tmp_path).version.version == again.version


def test_a_package_with_an_endless_file_is_not_copied(register, tracking_uri, tmp_path, client):
    champion = register(5.0).champion
    weights = find_package(client, tracking_uri, champion) / "model.safetensors"
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
    stored = find_package(client, tracking_uri, champion) / name
    stored.write_bytes(stored.read_bytes().replace(b"e", b"E", 1))
    with pytest.raises(
        TrackingError, match=r"model\.safetensors|vocabulary\.json|memtune\.json|MLmodel|card"
    ):
        load_registered(tracking_uri, champion.uri, tmp_path)
    assert not (tmp_path / champion.content).exists()


def test_a_card_that_was_not_registered_is_refused(register, tracking_uri, tmp_path, client):
    champion = register(5.0).champion
    card = find_package(client, tracking_uri, champion) / "memtune.json"
    card.write_text(card.read_text().replace('"cost": 5.0', '"cost": 1.0'))
    with pytest.raises(TrackingError, match="is not the card"):
        load_registered(tracking_uri, champion.uri, tmp_path)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("models:/ptbb@champion", 'did you mean "ptb"'),
        ("models:/ptb@best", "the aliases best-lstm, champion$"),
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
    assert names == {
        "model.safetensors",
        "model.json",
        "vocabulary.json",
        "memtune.json",
        "MLmodel",
        "text.json",
    }
    assert not any(is_pickle(path.read_bytes()) for path in folder.iterdir())


def is_pickle(content):
    try:
        return len(list(pickletools.genops(content))) > 0
    except ValueError:
        return False


@pytest.mark.filterwarnings(
    "ignore:.*Any type hint is inferred as AnyType:UserWarning"
)  # MLflow's own import
def test_mlflow_itself_loads_a_registered_model(register, tracking_uri, model_folder, monkeypatch, tmp_path):
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
    assert loaded.predict(["the dog sleeps"]) == [score]
    signature = loaded.metadata.signature
    assert signature.inputs is None
    assert signature.outputs.to_dict() == [{"type": "double", "name": "log_probability", "required": True}]
    # MLflow's loader has written a file of its own next to those of the package.
    assert load_registered(tracking_uri, "models:/ptb@champion", tmp_path / "cache").vocabulary


def test_a_model_is_loaded_only_when_every_file_is_as_registered(register, tracking_uri, tmp_path, client):
    """MLflow's own loader would import the module that the altered MLmodel names."""
    champion = register(5.0).champion
    assert load_registered(tracking_uri, "models:/ptb@champion", tmp_path / "first").vocabulary
    mlmodel = find_package(client, tracking_uri, champion) / "MLmodel"
    mlmodel.write_text(mlmodel.read_text().replace("memtune.tracking.registry.pyfunc_flavor", "antigravity"))
    with pytest.raises(TrackingError, match="MLmodel was altered"):
        load_registered(tracking_uri, "models:/ptb@champion", tmp_path / "second")


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


def test_a_version_of_another_program_does_not_affect_versions_of_memtune(
    register, client, tracking_uri, tmp_path
):
    register(5.0)
    client.create_model_version("ptb", "file:///nowhere")
    assert register(4.9).champion.version == 3
    with pytest.raises(TrackingError, match="not registered by memtune"):
        load_registered(tracking_uri, "models:/ptb/2", tmp_path)


@pytest.mark.parametrize("content", ["[", "[]", '{"tokens": 5}', '{"tokens": [["the"]]}', "[" * 100_000])
def test_a_vocabulary_of_another_form_is_refused(tmp_path, content):
    (tmp_path / "vocabulary.json").write_text(content)
    with pytest.raises(TrackingError, match="is not a vocabulary"):
        read_vocabulary(tmp_path)


def test_weights_without_a_header_are_refused_without_reading_them(register, tracking_uri, client):
    path = find_package(client, tracking_uri, register(5.0).champion) / "model.safetensors"
    with path.open("wb") as file:
        file.truncate(2**42)  # a sparse file: hashing it would take hours
    with pytest.raises(TrackingError, match=r"model\.safetensors was altered"):
        check_package(path.parent)
