"""The functions of `import memtune`: their names, their arguments, and studies of programs."""

import json
import os
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memtune
from memtune.errors import ArgumentError, ConfigurationError, CorpusError, MemtuneError, StudyError
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from memtune.toml_text import parse_toml
from memtune.trial_state import TrialState
from tests.conftest import SENTENCES

pytestmark = pytest.mark.usefixtures("without_report")

NAMES = dir(memtune)
DOCS = Path(memtune.__file__).parents[2] / "docs"
HEAVY_MODULES = ("torch", "ray", "optuna", "mlflow", "pandas", "altair", "matplotlib", "numpy", "pydantic")
IMPORT_SECONDS = 0.2
"""CPU time of `import memtune` beyond that of Python alone."""
SPLITS = dict.fromkeys(("train", "valid", "test"), SENTENCES)


def run_python(program: str) -> str:
    """What a fresh Python prints."""
    source = Path(memtune.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_importing_memtune_loads_no_heavy_module() -> None:
    loaded = run_python("import sys, memtune; dir(memtune); print(*sys.modules)").split()
    assert set(HEAVY_MODULES).isdisjoint(loaded)
    assert "memtune" in loaded


def test_importing_memtune_takes_little_cpu_time() -> None:
    """CPU time, the least of three, because other processes slow the clock on the wall."""
    show = "import time; print(time.process_time())"
    seconds = [
        min(float(run_python(f"{statement}{show}")) for _ in range(3))
        for statement in ("", "import memtune; ")
    ]
    assert seconds[1] - seconds[0] < IMPORT_SECONDS


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_api_is_found_and_described(name: str) -> None:
    assert getattr(memtune, name).__doc__


def test_settings_have_one_name_and_one_default() -> None:
    functions = [getattr(memtune, name) for name in NAMES if name[0].islower()]
    parameters = [each for function in functions for each in signature(function).parameters.values()]
    taken = [each for each in parameters if each.name == "settings" or "Settings" in str(each.annotation)]
    assert {(each.name, each.default) for each in taken} == {("settings", None)}
    assert len(taken) >= 12


def test_completion_lists_the_api_and_an_unknown_name_gets_a_suggestion() -> None:
    exported: dict[str, object] = {}
    exec("from memtune import *", exported)
    assert sorted(exported.keys() - {"__builtins__"}) == dir(memtune)
    with pytest.raises(AttributeError, match="run_serach") as caught:
        memtune.run_serach  # type: ignore[attr-defined]  # noqa: B018
    assert caught.value.obj is memtune


def test_the_guide_lists_every_name_of_the_api() -> None:
    listed = re.findall(r"^\| `memtune\.(\w+)`", (DOCS / "python.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == NAMES


def test_every_name_that_the_guide_and_the_notebooks_use_is_one_of_the_api() -> None:
    texts = [path.read_text() for path in (DOCS / "python.md", *(DOCS / "notebooks").glob("*.ipynb"))]
    used = {name for text in texts for name in re.findall(r"\bmemtune\.(\w+)", text)}
    assert used - {"models", "reports", "results"} <= set(NAMES)


@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    """Outputs hold paths and times of one machine, and every execution would change them."""
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)


@pytest.fixture
def content(study_file: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The content of the study file "layers", whose folder is the working folder."""
    monkeypatch.chdir(study_file.parent)
    return {"name": "layers", **parse_toml(study_file.read_text())}


def test_a_study_is_the_same_as_a_file_a_mapping_and_a_value(
    study_file: Path, content: dict[str, Any], settings: Settings
) -> None:
    given = [study_file, str(study_file), content, memtune.Study(**content)]
    given.append({**content, "spaces": (Path("space.toml"),)})
    resolved = [memtune.dry_run(each, settings=settings)[0] for each in given]  # type: ignore[arg-type]
    assert {each.id for each in resolved} == {resolved[0].id}
    assert {str(each.study) for each in resolved} == {str(resolved[0].study)}


def test_another_program_trains_the_trials_of_a_study_from_python(
    content: dict[str, Any], settings: Settings
) -> None:
    content["early_stopping"] = {"kind": "none"}
    with pytest.raises(MemtuneError, match=r"has begun; start it with: memtune\.ask\(study\)"):
        memtune.list_open_trials(content, settings=settings)
    trial = memtune.ask(content, {"model.layers": 2}, settings=settings)
    assert trial.configuration["model"]["layers"] == 2
    assert memtune.tell(content, trial.number, 300, 2.0, settings=settings).end is None
    (waiting,) = memtune.list_open_trials(content, settings=settings)
    assert (waiting.number, waiting.curve) == (trial.number, {300: 2.0})
    with pytest.raises(MemtuneError, match="told neither a cost nor an error"):
        memtune.tell(content, trial.number, settings=settings)
    told = memtune.tell(content, trial.number, 900, np.float64(1.5), is_complete=True, settings=settings)
    assert told.state is TrialState.COMPLETE
    assert memtune.show_study("layers", settings=settings).trials[0].tokens == 900
    failed = memtune.ask(content, settings=settings)
    told = memtune.tell(content, failed.number, error="out of memory", settings=settings)
    assert told.state is TrialState.FAILED


def test_overrides_change_a_copy_of_a_study(content: dict[str, Any], settings: Settings) -> None:
    study, before = memtune.Study(**content), str(content)
    for given in (content, study):
        resolved, _ = memtune.dry_run(given, {"budget.trials": 2, "seed": 5}, settings)
        assert (resolved.study.budget.trials, resolved.study.seed) == (2, 5)
    assert str(content) == before
    assert study.budget.trials == 4


def test_overrides_reach_fields_of_tables_within_tables(content: dict[str, Any], settings: Settings) -> None:
    resolved, _ = memtune.dry_run(content, {"training.optimiser.learning_rate": 0.125}, settings)
    rates = {trial.gradient_training.optimiser.learning_rate for trial in resolved.draw(range(3))}
    assert rates == {0.125}


def test_a_study_with_numbers_of_numpy_is_the_one_with_those_of_python(
    content: dict[str, Any], settings: Settings
) -> None:
    model = {"width": {"choice": list(np.array([4, 8]))}, "dropout": np.float32(0.25), "layers": np.int64(1)}
    training = {"tokens": np.int64(900), "report_every": np.int32(300)}
    given = {**content, "model": model, "training": training, "points": [{"model.width": np.int64(4)}]}
    plain = {
        **content,
        "model": {"width": {"choice": [4, 8]}, "dropout": 0.25, "layers": 1},
        "training": {"tokens": 900, "report_every": 300},
        "points": [{"model.width": 4}],
    }
    overrides = {"budget.trials": np.int64(1), "model.tie_output": np.False_}
    expected, _ = memtune.dry_run(plain, {"budget.trials": 1, "model.tie_output": False}, settings)
    found = memtune.run_search(given, overrides, settings=settings, executor=InProcessExecutor())
    assert (found.resolved.id, len(found.outcomes)) == (expected.id, 1)


def test_a_trial_with_numbers_of_numpy_is_trained(settings: Settings) -> None:
    trial = {"corpus": "tiny", "model": {"family": "lstm", "width": np.int64(4)}}
    overrides = {"training.tokens": np.int64(300), "model.tie_output": np.False_}
    assert memtune.train(trial, overrides, settings=settings).curve[-1].tokens >= 300


def test_a_study_of_a_program_runs_and_resumes(content: dict[str, Any], settings: Settings) -> None:
    def search(trials: int, **options: Any) -> int:
        overrides = {"budget.trials": trials}
        found = memtune.run_search(
            content, overrides, settings=settings, executor=InProcessExecutor(), **options
        )
        return len(found.outcomes)

    with pytest.raises(StudyError, match=r"no study layers-.{8} has begun; start it without resume=True"):
        search(1, resume=True)
    assert search(1) == 1
    with pytest.raises(StudyError, match=r"has begun: .*; continue with: resume=True"):
        search(2)
    assert search(2, resume=True) == 2


def test_a_trial_of_a_program_is_trained_under_the_name_of_its_family(settings: Settings) -> None:
    trial = {"corpus": "tiny", "model": {"family": "lstm", "width": 4}, "training": {"tokens": 900}}
    before = dict(os.environ)
    trained = memtune.train(trial, {"training.tokens": 300}, settings=settings)
    assert dict(os.environ) == before, "the user's own requests to MLflow are as before"
    assert trained.name == "lstm"
    assert 300 <= trained.curve[-1].tokens < 900


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, 'the study: name is missing; one that is not a file needs it, such as "name"'),
        ({"spaces": "space.toml"}, r'the study: spaces: must be a list; write \["space.toml"\]'),
        ({"spaces": [{"model": {"family": "lstm"}}]}, "spaces: a space is a name such as .* width = "),
        ({"spaces": ["lstn"]}, 'the study: no search space "lstn"; did you mean'),
        ({"corpus": 3}, "the study: corpus: Input should be a valid string, got 3"),
        ({"budget": {"trails": 3}}, 'the study: unknown name "budget.trails"; did you mean "trials"'),
        ({"model": {"widht": 3}}, r'the study, over .*space.toml: unknown name "model.widht".* "width"'),
        ({"model": {"width": {"choice": ("a", 4)}}}, r"the study, over .*space.toml: .*model.width"),
        ({"compare": "gru"}, 'the study: compare = "gru" is not a field that the study searches'),
        ({"training": {"tokens": 900, "report_every": 901}}, "the study: training.report_every = 901"),
        ({"models": "own.py"}, "the study: models must be a list of Python files"),
        ({"spaces": None, "model": {"family": "lstm"}}, r"the study is one trial.* memtune.train\("),
    ],
)
def test_mistakes_in_a_study_of_a_program_name_the_field_and_the_fix(
    change: dict[str, Any], message: str, content: dict[str, Any], settings: Settings
) -> None:
    changed = {**content, **change}
    if changed["spaces"] is None:
        del changed["spaces"]
    with pytest.raises(MemtuneError, match=message):
        memtune.dry_run(changed, settings=settings)


def test_a_mistake_in_a_study_value_is_found_when_it_is_made(content: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"Study: budget\.trials: .*, got 0"):
        memtune.Study(**{**content, "budget": {"trials": 0}})
    with pytest.raises(ConfigurationError, match='Study: unknown name "spces"; did you mean "spaces"'):
        memtune.Study(**{**content, "spces": []})
    with pytest.raises(ConfigurationError, match="Study takes fields by name, got 'demo'"):
        memtune.Study(*["demo"], **content)


def test_a_mistake_in_a_nested_value_keeps_its_place() -> None:
    """Pydantic does not call the constructor of a value within another one."""
    with pytest.raises(ConfigurationError, match=r"^CacheGrid: size: "):
        memtune.CacheGrid(size=0)
    study = {"question": "?", "name": "a", "corpus": "b", "spaces": ["c"]}
    with pytest.raises(ConfigurationError, match=r"^the study: resources\.cpus_per_trial: "):
        memtune.dry_run({**study, "resources": {"cpus_per_trial": 0}})


WRONG_CALLS = {
    "ask('demo', 'width')": "configuration must be fields of the trial by name.*; got 'width'",
    "tell('demo', '0', 900, 2.0)": "number must be the number of a trial, such as 0; got '0'",
    "tell('demo', 0, 10.5, 2.0)": "tokens must be a whole number, such as 400_000; got 10.5",
    "tell('demo', 0, 900, '2.0')": "cost must be a number, such as 3.2; got '2.0'",
    "run_search(3)": "study must be a TOML file, the name of a packaged study, a mapping .*; got 3",
    "run_search(['a.toml'])": "study must be",
    "dry_run(None)": "study must be .*; got None",
    "run_search('demo', 'budget.trials=2')": 'overrides must be values by dotted name, such as {"',
    "run_search('demo', settings='/home')": r"settings must be memtune.Settings, .*; got '/home' \(str\)",
    "run_search('demo', resume='no')": "resume must be True or False; got 'no'",
    "run_search('demo', console=True)": "console must be a rich.console.Console; progress=False",
    "run_search('demo', reuse='no')": r"reuse must be True or False; got 'no' \(str\)",
    "run_search('demo', progress=0)": r"progress must be True or False; got 0 \(int\)",
    "run_search('demo', executor='x')": r"executor must be an executor, such as .*; got 'x' \(str\)",
    "judge(3, 4)": "trial must be",
    "judge('a.toml', 'b.toml', trust_code='no')": "trust_code must be True or False; got 'no'",
    "judge('a.toml', 'b.toml', progress='no')": "progress must be True or False",
    "train('a.toml', progress='no')": "progress must be True or False",
    "train('a.toml', on_progress=3)": "on_progress must be a function of one argument, or None; got 3",
    "train('a.toml', on_report='print')": "on_report must be a function of one argument, or None",
    "probe('lstm', progress=None)": "progress must be True or False; got None",
    "train(3)": "trial must be a TOML file, the name of a packaged trial, or a mapping",
    "import_corpus('x', 'train.txt')": 'sources must be a mapping of splits to sources, such as {"train"',
    "import_corpus('x', sentences)": "sources must be a mapping of splits",
    "import_corpus('x', {**splits, 'train': 'a'})": r"sources\[\"train\"\] .*; a file is TextFile\('a'\)",
    "import_corpus('x', {**splits, 'valid': Path('a.txt')})": r"sources\[\"valid\"\] must be a TextFile",
    "import_corpus('x', {**splits, 'test': 3})": r"sources\[\"test\"\] must be a TextFile, a DataSet, or",
    "import_corpus(3, splits)": 'name must be the name of a corpus, such as "ptb"; got 3',
    "import_corpus('x', splits, options={})": r"options must be ImportOptions, such as ImportOptions\(",
    "import_corpus('x', splits, memtune.Settings.from_environment())": "store must be a folder or a URI",
    "import_corpus('x', splits, replace='False')": r"replace must be True or False; got 'False' \(str\)",
    "import_corpus('x', splits, progress=print)": "progress must be .*; a callback is an argument of memtune",
    "Division(Path('a.txt'))": r"source must be a TextFile or a DataSet; .*; a file is TextFile\('a.txt'\)",
    "Division(splits)": "source must be a TextFile or a DataSet; got ",
    "Division(memtune.TextFile('a.txt'), (8, 1, 1))": 'shares must be a mapping of splits, such as {"train"',
    "Division(memtune.TextFile('a'), dict.fromkeys(splits, '80'))": r'shares\["train"\] must be a number',
    "Division(memtune.TextFile('a.txt'), seed='1')": r"seed must be a whole number, such as 0; got '1'",
    "TextFile(3)": "path must be a file, a folder, a pattern or a URI",
    "DataSet('a.parquet')": r"data must be a datasets.Dataset, .*; a file is TextFile\(",
    "DataSet([], column=3)": r'column must be the name of a column, such as "text"; got 3 \(int\)',
    "DataSet([], content='text')": r"""content must be "lines" or "prose"; got 'text' \(str\)""",
    "open_corpus(3)": "name must be the name of a corpus",
    "open_corpus('tiny', 3)": "store must be a folder or a URI of corpora",
    "verify_corpus(None)": "name must be the name of a corpus",
    "list_corpora(3)": "store must be a folder",
    "list_studies('home')": r"settings must be memtune.Settings, such as Settings.from_environment\(",
    "show_study(1)": "study must be the id or the name of a study",
    "study_cost(Path('x'))": "study must be the id or the name of a study",
    "extrapolate_study('x', '10')": "factor must be a number",
    "compare(3)": "corpus must be the name of a corpus",
    "compare('tiny', settings={})": "settings must be memtune.Settings",
    "find_champions(3)": "corpus must be the name of a corpus, such as .* or None for all",
    "load(None)": 'name must be the name of a model, such as "models:/ptb@champion"',
    "generate('models:/ptb@champion', 'the')": r"model must be a loaded model, such as load\(",
    "score('models:/ptb@champion', ['the'])": r"model must be a loaded model, such as load\(",
    "export_model('models:/tiny/1', 3)": "folder must be a folder that does not exist yet, such as .*; got 3",
    "find_splits(3)": r"data_sets must be a mapping of splits, such as a datasets.DatasetDict; got 3",
    "evaluate(model)": "name must be the name of a model, .*, here 'models:/tiny/1'",
    "evaluate('models:/ptb@champion', cache=9)": r"cache must be ContinuousCache\(size=2000\), or CacheGrid",
    "evaluate('models:/ptb@champion', words=3)": "words must be a Parquet file, such as",
    "Settings.from_environment(3)": "home must be a folder",
    "serve_pages('sqlite:///mlflow.db').__enter__()": "port must be the number of a port",
}


class NamedModel:
    """Stands for a loaded model."""

    name = "models:/tiny/1"


@pytest.mark.parametrize("call", WRONG_CALLS)
@pytest.mark.usefixtures("settings")
def test_a_wrong_argument_is_named_with_its_value_and_the_fix(call: str) -> None:
    names = {"sentences": SENTENCES, "splits": SPLITS, "model": NamedModel(), "Path": Path}
    with pytest.raises(ArgumentError, match=WRONG_CALLS[call]) as caught:
        eval(f"memtune.{call}", {"memtune": memtune, **names})
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        (["the dog sees a cat"], r"the train split: a sentence is a list of words, got 'the dog .*DataSet\("),
        ([3], "the train split: a sentence is a list of words, got 3"),
        ([[3, 4]], "is not a word"),
    ],
)
@pytest.mark.usefixtures("settings")
def test_texts_and_numbers_are_not_imported_as_sentences(sentences: Any, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        memtune.import_corpus("x", {**SPLITS, "train": sentences})


def test_corpora_are_those_of_the_environment_unless_a_store_is_named(
    settings: Settings, tmp_path: Path
) -> None:
    assert [manifest.name for manifest in memtune.list_corpora()] == ["tiny"]
    assert memtune.open_corpus("tiny").digest == memtune.open_corpus("tiny", settings.corpus_store).digest
    assert memtune.list_corpora(tmp_path / "other") == []


@pytest.mark.usefixtures("settings")
def test_a_table_that_holds_itself_is_an_error() -> None:
    table: dict[str, Any] = {}
    table["model"] = table
    study = {"name": "n", "question": "q", "corpus": "tiny", "spaces": ["lstm"]}
    for given, overrides in ((study | {"model": table}, None), (study, {"model": table})):
        with pytest.raises(ConfigurationError, match="is in more than 100 others, or holds itself"):
            memtune.dry_run(given, overrides)
