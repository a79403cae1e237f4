"""A champion behind MLflow's own commands: `mlflow models predict` and `mlflow models serve`."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtune.api import run_search
from memtune.results.loaded_models import load, score
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from tests.cluster.poll import TIMEOUT_SECONDS, poll_until
from tests.cluster.ports import find_free_port
from tests.conftest import import_tiny_corpus, open_home, write_study

pytestmark = [pytest.mark.cluster, pytest.mark.long]

MODEL = "models:/tiny@champion"
TEXTS = ["the dog sees a cat", "a cat sleeps"]
AS_LIST = json.dumps({"inputs": TEXTS})
AS_COLUMN = json.dumps({"dataframe_split": {"columns": ["sentence"], "data": [[text] for text in TEXTS]}})
AS_CSV = "\n".join(["sentence", *TEXTS]) + "\n"
BESIDE_AN_ID = "\n".join(["id,sentence", *(f"{7 + row},{text}" for row, text in enumerate(TEXTS))]) + "\n"
OF_ANY_NAME = json.dumps({"dataframe_split": {"columns": ["text"], "data": [[text] for text in TEXTS]}})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("served")
    with open_home(folder, empty_store) as settings:
        import_tiny_corpus(settings)
        run_search(write_study(folder), {"budget.trials": 1}, settings=settings, executor=InProcessExecutor())
        yield settings


@pytest.fixture(scope="module")
def expected(home: Settings) -> list[float]:
    """What memtune itself gives."""
    return [scored.log_probability for scored in score(load(MODEL, settings=home), TEXTS)]


def make_environment(home: Settings) -> dict[str, str]:
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "MLFLOW_TRACKING_URI": home.tracking_uri, "PYTHONPATH": paths}


@pytest.mark.parametrize(("kind", "content"), [("json", AS_LIST), ("csv", AS_CSV), ("csv", BESIDE_AN_ID)])
def test_predict_reads_sentences_as_a_list_and_as_a_column(
    home: Settings, expected: list[float], tmp_path: Path, kind: str, content: str
) -> None:
    file = tmp_path / f"sentences.{kind}"
    file.write_text(content)
    command = [sys.executable, "-m", "mlflow", "models", "predict", "-m", MODEL, "--env-manager", "local"]
    done = subprocess.run(
        [*command, "--content-type", kind, "-i", str(file)],
        env=make_environment(home),
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert json.loads(done.stdout)["predictions"] == pytest.approx(expected)


@pytest.fixture(scope="module")
def address(home: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running `mlflow models serve`; it ends with SIGTERM to its own process."""
    found = f"http://127.0.0.1:{find_free_port()}"
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", MODEL, "--env-manager", "local"]
    # uvicorn, which serves the model, is a program next to this interpreter.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    log = tmp_path_factory.mktemp("log") / "serve.log"
    with (
        open(log, "w") as output,
        subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", found.rpartition(":")[2]],
            env={**make_environment(home), "PATH": path},
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            poll_until(lambda: is_ready(found, process, log), "an answer to /ping")
            yield found
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_SECONDS)


def is_ready(address: str, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/ping", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        assert process.poll() is None, log.read_text()
        return False


def ask(address: str, content: str, content_type: str) -> list[float]:
    request = urllib.request.Request(
        f"{address}/invocations", content.encode(), {"Content-Type": content_type}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["predictions"]


def test_a_served_model_reads_sentences_as_a_list_and_as_a_column(
    address: str, expected: list[float]
) -> None:
    assert ask(address, AS_LIST, "application/json") == pytest.approx(expected)
    assert ask(address, AS_COLUMN, "application/json") == pytest.approx(expected)
    assert ask(address, AS_CSV, "text/csv") == pytest.approx(expected)


def test_a_served_model_reads_the_column_sentence_or_the_only_one(
    address: str, expected: list[float]
) -> None:
    assert ask(address, BESIDE_AN_ID, "text/csv") == pytest.approx(expected)
    assert ask(address, OF_ANY_NAME, "application/json") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("content", "content_type", "message"),
    [
        (
            json.dumps({"inputs": ["a cat", None]}),
            "application/json",
            "row 2 of the input is None, not a text",
        ),
        (json.dumps({"inputs": [7]}), "application/json", "row 1 of the input is 7, not a text"),
        ("id,sentence\n1,a cat\n2,\n", "text/csv", "row 2 of the input is nan, not a text"),
        (
            "id,text\n1,a cat\n",
            "text/csv",
            'the input has the columns id, text; name the one with the sentences "sentence"',
        ),
    ],
)
def test_a_served_model_names_what_it_refuses(
    address: str, content: str, content_type: str, message: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        ask(address, content, content_type)
    assert refusal.value.status == 400
    assert message in json.loads(refusal.value.read())["message"]
