"""Plug-ins of an installed package: docs/examples/plugins, installed with pip into a folder of its own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.presence import require
from tests.unit.plugins.user_files import ROOT

pytestmark = pytest.mark.cluster

Run = Callable[..., Any]
"""The fixture `run`: takes a program, the folder it runs in, and folders of packages."""

PACKAGE = ROOT / "docs" / "examples" / "plugins"
PREPARE = """
import json, os, sys
from pathlib import Path
from memtune.settings import Settings
settings = Settings.from_environment()
"""
SERVER = """
import json, os, sys, traceback
import memtune.api, memtune.model_checks, memtune.results.model_evaluation, memtune.results.study_conclusion
import mlflow

for line in sys.stdin:
    program, home, paths = json.loads(line)
    if child := os.fork():
        print(os.waitpid(child, 0)[1], flush=True)
        continue
    code = 1
    try:
        os.chdir(home)
        for descriptor, name in ((0, os.devnull), (1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), descriptor)
        os.environ["MEMTUNE_HOME"] = f"{home}/home"
        sys.path[1:1] = paths
        exec(program, {"__name__": "__main__"})
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
"""
"""Forks a process for each program: one that starts anew would load memtune and its libraries for seconds.

Loading memtune reads no entry points (test_plugin_files), so the packages may be put on the path after it.
"""
SPACE_TOML = """
[model]
family = "FAMILY"
width = { choice = [4, 8] }
output = { kind = "low_rank", rank = 2 }

[training.optimiser]
kind = "sgd"
learning_rate = { float = [0.1, 1.0], log = true }
"""
STUDY_TOML = """question = "Do plug-ins of every kind work together?"

corpus = "columns"
spaces = ["lstm.toml", "own.toml"]

[task]
kind = "smoothed_language_modelling"
smoothing = 0.2

[training]
tokens = 600
report_every = 200

[sampler]
kind = "wide_tpe"
startup_trials = 2
options = { candidates = 7 }

[early_stopping]
kind = "median"
min_trials = 1

[budget]
trials = 6
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip installed the package, offline."""
    folder = tmp_path_factory.mktemp("installed")
    source = tmp_path_factory.mktemp("source") / "plugins"
    subprocess.run(["cp", "-r", str(PACKAGE), str(source)], check=True)
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--quiet", "--target", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Gives the JSON that a program prints in a process of its own, with some packages installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMTUNE_")}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=environment | {"PYTHONPATH": str(ROOT / "platform")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:

        def run_program(program: str, home: Path, *packages: Path) -> Any:
            task = json.dumps([PREPARE + program, str(home), [*map(str, packages)]])
            require(server.stdin).write(f"{task}\n")
            require(server.stdin).flush()
            code = require(server.stdout).readline().strip()
            assert code == "0", (home / "err").read_text()[-3000:]
            return json.loads((home / "out").read_text().splitlines()[-1])

        yield run_program
        require(server.stdin).close()


@pytest.fixture(scope="module")
def searched(
    run: Run, installed: Path, tmp_path_factory: pytest.TempPathFactory, empty_store: Path
) -> tuple[Path, Any]:
    """A home with a corpus in the package's format and a study of its other plug-ins, and its trials."""
    home = tmp_path_factory.mktemp("user")
    (home / "home").mkdir()
    shutil.copyfile(empty_store, home / "home" / "mlflow.db")
    lines = ["1\tthe dog sees a cat\tx", "2\ta cat sleeps\ty", "3\tthe cat and the dog eat\tz"]
    (home / "text.tsv").write_text("".join(f"{line}\n" for line in lines * 20))
    for name, family in {"lstm.toml": "lstm", "own.toml": "decaying_mean"}.items():
        (home / name).write_text(SPACE_TOML.replace("FAMILY", family))
    (home / "study.toml").write_text(STUDY_TOML)
    found = run(
        """
from memtune import api, import_corpus
from memtune.corpora import TextFile
from memtune.studies.executor import InProcessExecutor
text = TextFile(Path("text.tsv"), "second_column")
import_corpus("columns", {"train": text, "valid": text, "test": text}, settings.corpus_store)
api._record_report = lambda study, view, recorder: None
api.run_search("study.toml", settings=settings, executor=InProcessExecutor())
from memtune.search import StudyReader
(name,) = [s for s in StudyReader(settings.study_database).list_ids()]
stored = StudyReader(settings.study_database).read(name)
from memtune.corpora import open_corpus
print(json.dumps({
    "families": sorted({o.family for o in stored.outcomes}),
    "outputs": sorted({o.configuration["model"]["output"]["kind"] for o in stored.outcomes}),
    "tasks": sorted({o.configuration["task"]["kind"] for o in stored.outcomes}),
    "stops": [str(o.end) for o in stored.outcomes if o.end and "median" in str(o.end)],
    "words": sorted(open_corpus("columns", settings.corpus_store).vocabulary.tokens),
}))
""",
        home,
        installed,
    )
    return home, found


@pytest.fixture
def home(searched: tuple[Path, Any]) -> Path:
    return searched[0]


def test_the_examples_of_every_kind_work_in_one_study(searched: tuple[Path, Any]) -> None:
    _, found = searched
    assert found["families"] == ["decaying_mean", "lstm"]
    assert found["outputs"] == ["low_rank"]
    assert found["tasks"] == ["smoothed_language_modelling"]
    assert found["stops"]
    assert {"sleeps", "eat"} < set(found["words"])
    assert not {"1", "x"} & set(found["words"])


def test_the_example_of_a_mixer_reads_a_text_in_pieces_and_has_the_sizes_of_its_formulas(
    run: Run, installed: Path, tmp_path: Path
) -> None:
    found = run(
        """
import torch
from memtune.model_checks import find_family
from memtune.models import build_model
from memtune.models.families.mixer_blocks import MixerBlocksConfig
from memtune.values import parse
mixer = {"kind": "moving_average", "decay": 0.5}
config = parse(MixerBlocksConfig, {"width": 6, "layers": 2, "mixer": mixer}, "test")
model = build_model(config, 11, 0).double()
words = torch.arange(8).view(2, 4)
whole, _ = model.logits(words, model.initial_state(2))
first, state = model.logits(words[:, :1], model.initial_state(2))
rest, _ = model.logits(words[:, 1:], state)
print(json.dumps({
    "sizes": [sum(p.numel() for p in model.parameters()), config.parameter_count(11)],
    "difference": (whole - torch.cat([first, rest], 1)).abs().max().item(),
    "described": config.describe()["mixer"],
    "found": find_family("moving_average")["mixer"],
    "named": parse(MixerBlocksConfig, {"mixer": "moving_average"}, "test").describe()["mixer"],
    "source": len(config.mixer.source),
}))
""",
        tmp_path,
        installed,
    )
    assert found["sizes"][0] == found["sizes"][1]
    assert found["difference"] < 1e-12  # float64
    assert found["described"] == "moving_average decay=0.5"
    assert found["named"] == found["found"] == "moving_average"
    assert found["source"] == 64


BAD_LINES = """
from memtune import ImportOptions, TextFile, import_corpus
from memtune.errors import MemtuneError
def read(split):
    text = TextFile(Path("bad.tsv"), "second_column")
    sources = dict.fromkeys(("train", "valid", "test"), text)
    options = ImportOptions(skip_bad=split == "skip")
    try:
        found = import_corpus(split, sources, settings.corpus_store, options)
        return found.manifest.sources["train"].skipped
    except MemtuneError as error:
        return str(error)
print(json.dumps([read("refuse"), read("skip")]))
"""


def test_a_bad_line_is_named_or_skipped_by_the_example_of_a_format(
    run: Run, home: Path, installed: Path
) -> None:
    (home / "bad.tsv").write_text("1\tthe dog sees a cat\n" * 200 + "none\n")
    refused, skipped = run(BAD_LINES, home, installed)
    assert "bad.tsv: line 201: no column 1; --skip-bad leaves it out" in refused
    assert skipped == {"bad entries": 1}


def test_a_bad_line_that_ends_a_format_names_the_file(
    run: Run, home: Path, installed: Path, tmp_path: Path
) -> None:
    subprocess.run(["cp", "-r", f"{installed}/.", str(tmp_path)], check=True)
    module = tmp_path / "memtune_examples" / "second_column.py"
    raising = "from memtune.corpora.formats import BadLineError\n        raise BadLineError('too short', 7)"
    module.write_text(module.read_text().replace('fields = pc.split_pattern(lines, "\\t")', raising))
    (home / "bad.tsv").write_text("1\tthe dog\n")
    refused, skipped = run(BAD_LINES, home, tmp_path)
    assert refused == skipped
    assert 'bad.tsv: line 7: too short; correct it: the format "second_column" leaves no line out' in refused


EVALUATE = """
from memtune.errors import MemtuneError
from memtune.results.model_evaluation import evaluate
answers = []
for trust in (False, True):
    try:
        found = evaluate("models:/columns@champion", settings=settings, trust_code=trust)
        answers.append(found.metrics.perplexity)
    except MemtuneError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""
"""What an evaluation gives without consent, and then with it."""


def test_a_model_needs_the_package_or_consent_to_the_source_that_it_carries(
    run: Run, home: Path, installed: Path
) -> None:
    perplexity, _ = run(EVALUATE, home, installed)
    assert isinstance(perplexity, float)
    refusal, trusted = run(EVALUATE, home)
    assert "memtune-examples 1.0" in refusal
    assert "--trust-code" in refusal
    assert trusted == perplexity


def test_another_version_of_the_package_is_another_source(
    run: Run, home: Path, installed: Path, tmp_path: Path
) -> None:
    subprocess.run(["cp", "-r", f"{installed}/.", str(tmp_path)], check=True)
    with (tmp_path / "memtune_examples" / "low_rank.py").open("a") as file:
        file.write("# changed\n")
    assert "--trust-code" in run(EVALUATE, home, tmp_path)[0]


LIST = """
from memtune.model_checks import list_entries
from memtune.models import MODELS
names = [name for name in MODELS]
print(json.dumps([names, [[e.name, e.origin, e.problem] for e in list_entries()],
                  "memtune_examples" in sys.modules]))
"""


def test_families_of_packages_are_listed_and_found_with_their_space(
    run: Run, home: Path, installed: Path
) -> None:
    find = """
from memtune.studies.definition.study_loader import find_space
listed = [names, [[e.name, e.origin] for e in list_entries()]]
print(json.dumps([*listed, find_space("decaying_mean", Path("study.toml")).name]))
"""
    before, entries, space = run(LIST + find, home, installed)
    assert "decaying_mean" not in before
    assert any(name == "decaying_mean" and "memtune-examples 1.0" in origin for name, origin in entries)
    assert space == "decaying_mean.toml"


@pytest.mark.parametrize(
    ("text", "modules", "problem"),
    [
        ("import nothing_there\n", 0, "No module named 'nothing_there'"),
        ("raise BaseException('base')\n", 0, "BaseException: base"),
        (None, 200, "at most 200 items"),
    ],
)
def test_a_package_that_cannot_be_used_is_named_and_hides_no_other_family(
    run: Run, text: str | None, modules: int, problem: str, home: Path, installed: Path, tmp_path: Path
) -> None:
    subprocess.run(["cp", "-r", f"{installed}/.", str(tmp_path)], check=True)
    package = tmp_path / "memtune_examples"
    if text is not None:
        (package / "decaying_mean.py").write_text(text)
    for number in range(modules):
        (package / f"module_{number}.py").touch()
    _, entries, _ = run(LIST, home, tmp_path)
    problems = {name: problem for name, _, problem in entries if problem}
    assert list(problems) == ["decaying_mean"]
    assert "memtune-examples 1.0" in problems["decaying_mean"]
    assert problem in problems["decaying_mean"]


def test_scripts_of_a_package_are_no_modules_and_what_it_prints_is_no_output(
    run: Run, home: Path, installed: Path, tmp_path: Path
) -> None:
    subprocess.run(["cp", "-r", f"{installed}/.", str(tmp_path)], check=True)
    package = tmp_path / "memtune_examples"
    (package / "__init__.py").write_text("print('imported')\n")
    (package / "run-me.py").write_text("raise SystemExit\n")
    files, printed = run(
        """
import contextlib, io
from memtune.models import MODELS
with contextlib.redirect_stdout(io.StringIO()) as output:
    MODELS["decaying_mean"]
print(json.dumps([list(MODELS.get_source("decaying_mean").files), output.getvalue()]))
""",
        home,
        tmp_path,
    )
    assert "memtune_examples/decaying_mean.py" in files
    assert "memtune_examples/run-me.py" not in files
    assert printed == ""
