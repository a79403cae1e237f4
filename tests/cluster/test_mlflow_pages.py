"""MLflow's pages in a browser: which model is best for a corpus, by how much, at what size and cost.

Two studies on one corpus, the first with 30 trials and repeats, and a third under another protocol, at two
widths.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from memtune.api import run_search
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from tests.cluster.poll import poll_until
from tests.cluster.ports import find_free_port
from tests.conftest import SPACE_TOML, import_tiny_corpus, open_home

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser"),
]

RNN_TOML = SPACE_TOML.replace('"lstm"', '"rnn"')
STUDY_TOML = """question = "Which family is best here?"

corpus = "tiny"
spaces = ["lstm.toml", "rnn.toml"]

[training]
tokens = 900
report_every = 300

[prices]
cpu_hour = 1.0

[budget]
trials = 4

[repeats]
best = 2
seeds = 3
"""
WIDTHS = (1600, 1000)
SECONDS_TO_START = 120

Read = Callable[..., str]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Settings]:
    """The home of the three studies."""
    folder = tmp_path_factory.mktemp("pages")
    with open_home(folder, empty_store) as settings:
        import_tiny_corpus(settings)
        (folder / "lstm.toml").write_text(SPACE_TOML)
        (folder / "rnn.toml").write_text(RNN_TOML)
        alone = STUDY_TOML.partition("[repeats]")[0].replace('"lstm.toml", "rnn.toml"', '"lstm.toml"')
        texts = {
            "families": STUDY_TOML.replace("trials = 4", "trials = 30"),
            "lstms": alone.replace("Which family", "Which LSTM"),
            "streams": alone + '\n[protocol]\nkind = "stream"\nbatch_size = 2\nlength = 5\n',
        }
        for name, text in texts.items():
            path = folder / f"{name}.toml"
            path.write_text(text)
            run_search(path, settings=settings, executor=InProcessExecutor())
        yield settings


@pytest.fixture(scope="module")
def served(home: Settings) -> Iterator[tuple[str, str]]:
    """(what `memtune ui` prints, its address with the token)."""
    port = find_free_port()
    printed = home.home / "ui.log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "memtune.cli", "ui", "--port", str(port)]
    with open(printed, "w") as output, subprocess.Popen(command, env=environment, stdout=output) as process:
        try:
            wait_until_it_answers(f"http://127.0.0.1:{port}/health", process)
            poll_until(lambda: "stop it with Ctrl-C" in printed.read_text(), "the links of all corpora")
            yield printed.read_text(), (home.home / "ui-address.txt").read_text().strip()
        finally:
            process.send_signal(signal.SIGTERM)


def wait_until_it_answers(address: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a server answers; fail when its process ends or after SECONDS_TO_START."""
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            assert process.poll() is None, "memtune ui ended"
            time.sleep(0.2)
    pytest.fail(f"{address} did not answer within {SECONDS_TO_START} s")


@pytest.fixture(scope="module")
def read(served: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Read:
    """A function that returns the text of a page, by what follows `#` and by the size of the window."""
    server, _, token = served[1].partition("/?")

    def read_page(fragment: str, width: int, height: int = 1000) -> str:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000"]
        command += [
            f"--window-size={width},{height}",
            f"--user-data-dir={tmp_path_factory.mktemp('browser')}",
        ]
        command += ["--dump-dom", f"{server}/?{token}#{fragment}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        return re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style).*?</\1>", "", done.stdout, flags=re.DOTALL))

    return read_page


def find_fragment(printed: str, title: str) -> str:
    """What follows `#` in the link that `memtune ui` prints under a title."""
    (fragment,) = re.findall(rf"^ *{title}: http\S+?#(\S+)$", printed, flags=re.MULTILINE)
    return str(fragment)


def test_the_command_names_the_best_model_its_margin_its_size_and_its_cost(served: tuple[str, str]) -> None:
    (line,) = [line for line in served[0].splitlines() if line.startswith("corpus tiny")]
    for answer in (
        r"perplexity \d",
        r"margin [\d.]+ %",
        r"[\d.]+k? parameters",
        r"core h,",
        "EUR",
        r"better than (lstm|rnn) #\d",
    ):
        assert re.search(answer, line), line


def test_the_table_has_the_answer_and_the_trials_of_one_protocol(read: Read, served: tuple[str, str]) -> None:
    # MLflow draws the columns that fit the window; the widths are its own.
    page = read(find_fragment(served[0], "trials in MLflow"), 3200)
    assert re.search(r"Best: .*, margin .* parameters, .* core h, .* EUR", page)
    for column in ("best_validation", "parameters", "memtune.status", "tokens", "hours", "spent_money"):
        assert column in page
    # The rows that fit the window.
    assert len(set(re.findall(r"\b(?:lstm|rnn) #\d+", page))) >= 5
    assert "complete" in page
    # 30 trials and 4 repeats of the first study, 4 trials of the second, none of the stream protocol
    assert re.search(r"\b38\s+matching runs", page)
    assert "does not serve" not in page
    assert "Welcome to MLflow Assistant" not in page


@pytest.mark.parametrize("width", WIDTHS)
def test_the_charts_show_validation_by_tokens_size_and_searched_parameters(
    read: Read, served: tuple[str, str], width: int
) -> None:
    # MLflow draws a chart when it is scrolled into the window; in a narrow one each has a row of its own.
    page = read(find_fragment(served[0], "their charts"), width, 2500)
    for chart in ("valid_perplexity", "parameters vs. best_validation", "Parallel Coordinates"):
        assert chart in page


def test_the_best_of_each_family_are_a_view_of_their_own(read: Read, served: tuple[str, str]) -> None:
    page = read(find_fragment(served[0], "charts of the best of each family"), 1600)
    assert re.search(r"\b2\s+matching runs", page)  # the better LSTM of the two studies, and the RNN


def test_charts_show_more_runs_than_the_first_ten(read: Read, served: tuple[str, str]) -> None:
    page = read(find_fragment(served[0], "their charts"), 1600, 2500)
    # The legend of the chart by tokens names a run with its metric.
    assert len(set(re.findall(r"\b((?:lstm|rnn) #\d+) \(valid_perplexity\)", page))) > 10


@pytest.mark.parametrize("width", WIDTHS)
def test_the_run_of_a_study_answers_its_question(read: Read, home: Settings, width: int) -> None:
    from memtune.tracking.mlflow_connection import connect

    client = connect(home.tracking_uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    condition = "tags.`memtune.role` = 'study' AND tags.`memtune.name` = 'families'"
    (run,) = client.search_runs([experiment.experiment_id], condition)
    page = read(f"/experiments/{experiment.experiment_id}/runs/{run.info.run_id}", width)
    # MLflow's pages for machine learning, also at an address that does not ask for them.
    assert "Model registry" in page
    assert "Evaluation runs" not in page
    assert "Which family is best here?" in page
    for part in ("The best trial of each family", "above" if "ideal" in page else "seeds", "models:/tiny/"):
        assert part in page
    for metric in ("best_validation", "margin_percent", "trials_complete", "spent_cpu_hours", "spent_tokens"):
        assert metric in page


def test_the_registry_describes_the_model_and_its_versions(read: Read) -> None:
    model = read("/models/tiny", 1600)
    for part in ("is best here?", "Selection.", "Protocol.", "champion"):
        assert part in model
    version = read("/models/tiny/versions/1", 1600)
    for part in ("memtune evaluate models:/tiny/1", "nats per token", "mean of 2 seeds"):
        assert part in version


def test_two_versions_are_compared_by_parameters_and_metrics(read: Read, home: Settings) -> None:
    from memtune.tracking.mlflow_connection import connect

    client = connect(home.tracking_uri)
    versions = {number: client.get_model_version("tiny", number) for number in ("1", "2")}
    runs = json.dumps({number: version.run_id for number, version in versions.items()})
    page = read(f"/compare-model-versions?name={quote(json.dumps('tiny'))}&runs={quote(runs)}", 1600)
    assert "Comparing 2 Versions" in page
    for version in versions.values():
        run = client.get_run(version.run_id or "")
        assert run.info.run_name in page
        assert f"{run.data.metrics['best_validation']:.4g}" in page
        assert run.data.params["training.optimiser.learning_rate"] in page


def test_the_models_tab_lists_models_with_their_run_dataset_and_version(read: Read) -> None:
    page = read("/experiments/1/models?workflowType=machine_learning", 1600)
    for part in ("Ready", "lstm #", "tiny (#", "tiny"):
        assert part in page
