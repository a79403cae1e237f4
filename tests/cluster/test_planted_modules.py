"""Every command in a folder of somebody else, whose files are named as modules that Python imports."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from memtune.settings import Settings
from tests.cluster.poll import poll_until
from tests.cluster.ports import find_free_port
from tests.cluster.ray_head import RayHead
from tests.presence import require
from tests.unit.cli.invocation import TRIAL, list_commands

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 900
"""Seconds for all commands on a busy machine; an idle one needs 100."""
PLANTED = """open({marker!r}, "w").close()
raise ImportError("this module was planted")
"""
SCENARIO = """
corpus demo
corpus list
corpus formats
corpus sample grammar
corpus show grammar
corpus verify grammar
corpus questions grammar asked
corpus export grammar exported
corpus parse text.txt parsed.conllu
corpus import imported --train text.txt --valid text.txt --test text.txt
corpus probe parity
corpus rename imported renamed
corpus remove renamed --yes
model list
* model new own_memory
model show lstm
* model check own_memory.py
schema study
study new grammar_sizes
* train trial.toml
judge trial.toml trial.toml
probe lstm --set parity --setting rows=64 --parameters 2000 --epochs 1 --rates 0.01 --seeds 1
* demo
search layers.toml --dry-run
* search layers.toml --address GCS
study list
study show layers
study cost layers
study scaling layers
study ask layers.toml
study tell layers.toml --number 0 --failed stopped
compare --corpus tiny
* report layers --out report.html
study remove layers --yes
best --corpus tiny
evaluate models:/tiny@champion
generate models:/tiny@champion --tokens 3
ask models:/tiny@champion
evaluate models:/tiny@champion --rare-words 5
* model export models:/tiny@champion model
train trial.toml --seed 0 --seed 1
reproduce tran2016 --table ptb --row '5-gram Kneser-Ney' --scale tiny --corpus tiny
INSPECT
* submit layers.toml --detach
jobs
jobs list
* jobs logs JOB --follow
jobs stop JOB
* jobs resume JOB --detach
* cluster check cluster.yaml
cluster status cluster.yaml
* cluster up cluster.yaml
* cluster down cluster.yaml
* cluster dashboard cluster.yaml
ui
"""
"""Every command once, in an order that gives each what it needs. GCS and JOB stand for values of the test,
INSPECT for all commands of `memtune inspect`. Those with a star start processes or import files of users.
"""
INSPECTED = {"mistakes": "models:/tiny@champion models:/tiny@champion", "parameter": "demo model.width"}
"""What commands of `memtune inspect` read in place of one model."""

PROGRAM = """import json, re, shlex, sys
from pathlib import Path
from typer.testing import CliRunner
from memtune.cli.command_line import app
from memtune.corpora.grammar.embedded_corpus import SPLIT_SIZES

SPLIT_SIZES.update(train=6000, valid=300, test=300)  # a tenth of the embedded corpus
markers, job, results = Path(sys.argv[1]), "", {}
for line in sys.stdin.read().splitlines():
    done = CliRunner().invoke(app, shlex.split(line.replace("JOB", job)))
    if submitted := re.search("submitted (.+) to", done.output):
        job = submitted[1]
    planted = sorted(path.name for path in markers.iterdir())
    on_path = [folder for folder in sys.path if folder in ("", str(Path.cwd()))]
    results[line] = {"code": done.exit_code, "imported": planted + on_path, "error": repr(done.exception)}
    for name in planted:
        (markers / name).unlink()
print("\\nRESULTS", json.dumps(results))
"""
"""The process of the `memtune` script, which runs one command after the other."""


@pytest.fixture(scope="module")
def head() -> Iterator[RayHead]:
    # Its workers import the memtune of this folder, as the driver does.
    started = RayHead("--num-cpus=1", environment={"PYTHONPATH": str(ROOT / "platform")})
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def markers(tmp_path: Path) -> Path:
    """Has a file for each planted module that was executed."""
    folder = tmp_path / "markers"
    folder.mkdir()
    return folder


@pytest.fixture
def shared(tmp_path: Path, markers: Path) -> Path:
    """A folder with a planted module for every name that Python may import."""
    folder = tmp_path / "shared"
    folder.mkdir()
    for name in {
        *sys.stdlib_module_names,
        *packages_distributions(),
        "sitecustomize",
        "usercustomize",
        "IPython",
    }:
        (folder / f"{name}.py").write_text(PLANTED.format(marker=str(markers / name)))
    subprocess.run([sys.executable, "-c", "import hmac"], cwd=folder, capture_output=True, check=False)
    assert (markers / "hmac").exists(), "Python imports modules of its working folder"
    (markers / "hmac").unlink()
    return folder


def write_inputs(folder: Path, study_file: Path) -> None:
    """Write the files that the scenario names; every study has one short trial."""
    for name in ("layers.toml", "space.toml"):
        (folder / name).write_text((study_file.parent / name).read_text().replace("trials = 4", "trials = 1"))
    (folder / "trial.toml").write_text(TRIAL.replace('"lstm"', '"recurrent_memory"'))
    demo = (ROOT / "jobs" / "studies" / "demo.toml").read_text()  # `memtune demo` runs the copy in its folder
    demo = demo.replace("1_600_000", "2_000").replace("400_000", "2_000").replace("trials = 8", "trials = 1")
    (folder / "demo.toml").write_text(demo)
    (folder / "text.txt").write_text("the dog sees a cat .\n" * 20)
    # A project on whose hosts no ssh server answers.
    shutil.copytree(ROOT / "clusters", folder / "clusters")
    program = "platform/memtune/ray_backend/clusters/bin/ssh"
    (folder / program).parent.mkdir(parents=True)
    shutil.copy(ROOT / program, folder / program)
    cluster = (ROOT / "clusters" / "onprem.yaml").read_text()
    cluster = (
        cluster.replace("EDIT-key", "key").replace("EDIT-user", "nobody").replace("192.0.2.", "127.0.0.")
    )
    (folder / "cluster.yaml").write_text(cluster)


def write_scenario() -> list[str]:
    """The lines of the scenario, stars included."""
    names = [words[1] for words in list_commands() if words[0] == "inspect"]
    inspect = [f"inspect {name} {INSPECTED.get(name, 'models:/tiny@champion')}" for name in names]
    return SCENARIO.strip().replace("INSPECT", "\n".join(inspect)).splitlines()


def test_the_scenario_has_every_command() -> None:
    lines = [line.removeprefix("* ").split() for line in write_scenario()]
    missing = [words for words in list_commands() if not any(line[: len(words)] == words for line in lines)]
    assert not missing, "add a line with each of these commands"


@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param("* ", id="commands that start processes or import files"),
        pytest.param("", id="every command", marks=pytest.mark.long),
    ],
)
def test_no_command_imports_a_module_of_the_working_folder(
    prefix: str,
    shared: Path,
    markers: Path,
    head: RayHead,
    study_file: Path,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_inputs(shared, study_file)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "key").touch(0o600)
    variables = {
        "HOME": str(tmp_path),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(head.token),
        "RAY_API_SERVER_ADDRESS": head.address,
        "MEMTUNE_STORE": settings.corpus_store,
    }
    script = tmp_path / "bin" / "memtune"
    script.parent.mkdir()
    script.write_text(PROGRAM)
    lines = [line.removeprefix("* ") for line in write_scenario() if line.startswith(prefix) and line != "ui"]
    command = [sys.executable, str(script), str(markers)]
    done = subprocess.run(
        command,
        input="\n".join(lines).replace("GCS", head.gcs_address),
        capture_output=True,
        text=True,
        cwd=shared,
        env=os.environ | variables,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert head.process.poll() is None, (head.folder / "log").read_text()
    results = json.loads(done.stdout.rpartition("RESULTS")[2])
    # These have started Ray's workers and drivers; a few others need other models, or a host that answers.
    started = {line: found for line, found in results.items() if re.match("demo|search|submit|jobs", line)}
    assert {line: found for line, found in started.items() if found["code"]} == {}
    assert {line: found["imported"] for line, found in results.items() if found["imported"]} == {}


def test_the_server_of_the_pages_imports_no_module_of_the_working_folder(
    shared: Path, markers: Path, settings: Settings
) -> None:
    port = find_free_port()
    command = [sys.executable, "-P", "-m", "memtune.cli", "ui", "--port", str(port)]

    def is_up() -> bool:
        with suppress(OSError):
            return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status)
        return server.poll() is not None

    with subprocess.Popen(command, cwd=shared, stdout=subprocess.PIPE, text=True) as server:
        try:
            # Before, a signal ends it with an error.
            assert require(server.stdout).readline().startswith("open ")
            poll_until(is_up, "the pages")
        finally:
            server.send_signal(signal.SIGTERM)
    assert [path.name for path in markers.iterdir()] == []
    assert server.returncode == 0


def test_python_m_memtune_imports_nothing_more_from_the_working_folder(
    shared: Path, markers: Path, settings: Settings
) -> None:
    """Python itself looks there first, for memtune and for what it needs to find memtune."""
    finder = [sys.executable, "-P", "-c", "import runpy, sys; print(*sys.modules)"]
    taken = subprocess.run(finder, capture_output=True, text=True, check=True).stdout.split()
    for name in ("memtune", *taken):
        (shared / f"{name}.py").unlink(missing_ok=True)
    command = [sys.executable, "-m", "memtune", "--version"]
    subprocess.run(command, cwd=shared, check=True, capture_output=True)
    assert [path.name for path in markers.iterdir()] == []
