"""The numbers of files of ARCHITECTURE.md: a toy of each kind is added to a copy of the tree."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from memtune.model_checks import write_built_in_family

ROOT = Path(__file__).parents[2]
NUMBERS = ("no", "one", "two", "three", "four", "five", "six")
Files = Mapping[str, str | Mapping[str, str]]
"""Text of each new file, and what replaces a text in each file that is there."""

RULE: Files = {
    "platform/memtune/search/early_stopping/toy_rule.py": '''"""A rule that stops no trial."""

from typing import Literal

from typing_extensions import override

from memtune.search.early_stopping.rule import EarlyStopping, NoEarlyStopping, Rule


class ToyRuleConfig(EarlyStopping):
    """Every trial trains on its whole budget."""

    kind: Literal["toy"] = "toy"

    @override
    def make_rule(self, trial_tokens: int) -> Rule:
        return NoEarlyStopping()

    @override
    def describe(self) -> str:
        return "a toy"
''',
    "platform/memtune/search/early_stopping/__init__.py": {
        "\nRULES:": "from memtune.search.early_stopping.toy_rule import ToyRuleConfig\n\nRULES:",
        "HyperbandConfig),": "HyperbandConfig, ToyRuleConfig),",
    },
    "tests/contracts/test_early_stopping.py": {
        '    "none": {},\n': '    "none": {},\n    "toy": {},\n',
        '    "none": "no early stopping",\n': '    "none": "no early stopping",\n    "toy": "a toy",\n',
    },
    "docs/early_stopping.md": {
        "| `none` |": "| `toy` | every trial trains to full length | never |\n| `none` |"
    },
}
SAMPLER: Files = {
    "platform/memtune/search/samplers/toy_sampler.py": '''"""TPE under another name."""

from typing import Literal

from memtune.search.samplers.built_in_samplers import TpeConfig


class ToySamplerConfig(TpeConfig):
    """What good trials have."""

    kind: Literal["toy"] = "toy"
''',
    "platform/memtune/search/samplers/__init__.py": {
        "\nSAMPLERS =": "from memtune.search.samplers.toy_sampler import ToySamplerConfig\n\nSAMPLERS =",
        "GridConfig),": "GridConfig, ToySamplerConfig),",
    },
    "tests/unit/search/test_samplers.py": {'"nsga2": 60}': '"nsga2": 60, "toy": 40}'},
}
TASK: Files = {
    "platform/memtune/tasks/toy_task.py": '''"""Language modelling under another name."""

from typing import Literal

from memtune.objective import Objective
from memtune.tasks.language_modelling import LanguageModelling, TextTaskConfig


class ToyTaskConfig(TextTaskConfig):
    """Predict each token of a text."""

    kind: Literal["toy"] = "toy"
    objective: Literal[Objective.PERPLEXITY] = Objective.PERPLEXITY

    def open(self, corpus, protocol):
        """The text."""
        return LanguageModelling(corpus, protocol)
''',
    "platform/memtune/tasks/__init__.py": {
        "\nQUESTION_CONFIGS:": "from memtune.tasks.toy_task import ToyTaskConfig\n\nQUESTION_CONFIGS:",
        "ProbeConfig),": "ProbeConfig, ToyTaskConfig),",
    },
    "tests/contracts/test_tasks.py": {
        '    "language_modelling": {},\n': '    "language_modelling": {},\n    "toy": {},\n',
        "IDENTITIES = {\n": 'IDENTITIES = {\n    "toy": "7dbc1fe60a58316a",\n',
    },
    "docs/tasks.md": {
        "| `probe` |": "| `toy` | each word after those before it | perplexity | a text |\n| `probe` |"
    },
}
CHART: Files = {
    "platform/memtune/reports/report_page/trial_charts.py": {
        "\n\ndef draw_seeds(": '''

def draw_toy(detail: StudyDetail) -> StudyChart:
    """A tick for each trial."""
    rows = [{"number": trial.number} for trial in detail.trials]
    return StudyChart("toy", "Toy", "", alt.Chart().mark_tick().encode(x="number:Q"), {"trials": rows})


def draw_seeds('''
    },
    "platform/memtune/reports/report_page/page.py": {
        "    draw_seeds,\n)": "    draw_seeds,\n    draw_toy,\n)",
        '("curves", "Learning': '("toy", "Toy", [draw_toy(detail)]),\n        ("curves", "Learning',
    },
}
FIGURE: Files = {
    "platform/memtune/results/inspection/toy_names.py": '''"""The names of models."""

from collections.abc import Sequence

from memtune.values import Value


class ModelNames(Value):
    """Names."""

    names: tuple[str, ...]


def list_toy_names(models: Sequence[str]) -> ModelNames:
    """The names of models."""
    return ModelNames(names=tuple(models))
''',
    "platform/memtune/reports/inspection/toy_views.py": '''"""The table and the figure of names."""

from typing import TYPE_CHECKING

from rich.table import Table

from memtune.reports.figure_files import make_figure
from memtune.reports.text_console import make_table
from memtune.results.inspection.toy_names import ModelNames

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def make_toy_table(found: ModelNames) -> Table:
    """A row for each name."""
    return make_table("models", ("name",), ((name,) for name in found.names))


def draw_toy(found: ModelNames) -> "Figure":
    """The number of names."""
    figure = make_figure(3, 3)
    figure.subplots().bar(["models"], [len(found.names)])
    return figure
''',
    "platform/memtune/cli/inspect_commands.py": {
        "@app.command()\ndef parameter(": '''@app.command()
def toy(models: ModelNames, output: OutputOptions) -> None:
    """The names of models.

    Example: memtune inspect toy models:/ptb/1
    """
    from memtune.reports.inspection.toy_views import draw_toy, make_toy_table
    from memtune.results.inspection.toy_names import list_toy_names

    found = list_toy_names(models)
    output.show(found, make_toy_table, draw_toy)


@app.command()
def parameter('''
    },
    "tests/unit/results/inspection/test_toy_names.py": """from tests.unit.cli.invocation import read_output


def test_a_command_prints_and_draws_names(tmp_path):
    printed = read_output("inspect", "toy", "models:/tiny/1", "--out", str(tmp_path / "toy.svg"))
    assert "models:/tiny/1" in printed
    assert (tmp_path / "toy.svg").read_text().startswith("<?xml")
""",
}
TRACKER: Files = {
    "platform/memtune/reports/live/toy_tracker.py": '''"""A line of a file for each change of a trial."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memtune.studies.director import DirectedTrial, Watcher
from memtune.studies.study_run import TrialPhase


@contextmanager
def open_toy_tracker(file: Path, phase: TrialPhase) -> Iterator[Watcher]:
    """What writes the number, the state and the tokens of a trial."""
    with file.open("a", encoding="utf-8") as lines:

        def write(trial: DirectedTrial) -> None:
            print(trial.proposal.number, trial.state, trial.tokens, file=lines)

        yield write
''',
    "platform/memtune/api.py": {
        "StudyHooks((watch,)": 'StudyHooks((watch, partial(open_toy_tracker, settings.home / "toy"))',
        "        from memtune.reports.live.live_display": (
            "        from memtune.reports.live.toy_tracker import open_toy_tracker\n"
            "        from memtune.reports.live.live_display"
        ),
    },
    "tests/unit/studies/test_toy_tracker.py": """import pytest

from memtune.api import run_search
from memtune.studies.executor import InProcessExecutor

pytestmark = pytest.mark.usefixtures("without_report")


def test_the_tracker_sees_the_end_of_every_trial(study_file, settings):
    one = {"budget.trials": 1}
    run_search(study_file, one, settings=settings, executor=InProcessExecutor(), progress=False)
    assert (settings.home / "toy").read_text().splitlines()[-1] == "0 complete 940"
""",
}
TOYS = {
    "an early-stopping rule": RULE,
    "a sampler": SAMPLER,
    "a task": TASK,
    "a chart of a report": CHART,
    "a figure of what a memory does": FIGURE,
    "another tracker beside MLflow": TRACKER,
}
SUITES = (
    *(
        f"tests/contracts/test_{name}.py"
        for name in ("early_stopping", "models", "oracles", "spaces", "tasks")
    ),
    "tests/unit/models/test_toy_memory.py",
    "tests/unit/search/test_samplers.py",
    "tests/test_toys.py",
)
CHECKS = '''"""What no suite of the tree asks of every entry; it is no part of an addition."""

from docs.generators import models, reference, samplers
from memtune.cli import command_line
from memtune.reports.report_page.page import list_sections
from memtune.results.study.study_detail import describe_study
from memtune.results.study.study_leaderboard import make_leaderboard
from memtune.results.study.study_report import StudyReport
from memtune.search import StoredTrial
from memtune.trial_state import TrialState
from tests.cluster.test_planted_modules import test_the_scenario_has_every_command
from tests.unit.cli.invocation import list_commands, read_output
from tests.unit.results.made_trials import make_config, make_view


def test_toys_are_listed():
    assert "toy_memory" in read_output("model", "list")
    assert "| [`toy_memory`](#toy_memory) | My family" in models.render_tables()
    assert "| `toy` | What good trials have |" in samplers.render_tables()
    tables = reference.render_tables()
    assert 'task: kind = "toy"' in tables
    assert 'early_stopping: kind = "toy"' in tables
    assert ["inspect", "toy"] in list_commands()


def test_the_toy_is_a_chart():
    config = make_config("lstm", 8)
    configuration = config.model_dump(mode="json")
    view = make_view([StoredTrial(0, "trial", configuration, TrialState.COMPLETE, curve={900: 3.0})])
    detail, leaderboard = describe_study(view), make_leaderboard(view)
    sections = list_sections(StudyReport.model_construct(detail=detail, leaderboard=leaderboard, ideal=None))
    assert [chart.name for chart in sections["toy"].charts] == ["toy"]
'''


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the additions and their tests read."""
    folder = tmp_path_factory.mktemp("tree") / "clone"
    for part in ("platform/memtune", "search_spaces", "tests", "docs"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("homes", "*.png", "*.svg"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture(scope="module")
def counts(clone: Path) -> dict[str, int]:
    """The files of each addition, which are in the copy afterwards."""
    found = {name: add(files, clone) for name, files in TOYS.items()}
    return {**found, "a built-in model family": len(write_built_in_family("toy_memory", clone))}


def test_an_addition_takes_the_number_of_files_that_the_architecture_names(counts: dict[str, int]) -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("## Where do I put X?")[2]
    written = dict(re.findall(r"^\| ([^|]+) \| (\w+) files", table, flags=re.MULTILINE))
    assert written == {name: NUMBERS[count] for name, count in counts.items()}


@pytest.mark.cluster
def test_the_suites_of_the_tree_find_every_addition_and_pass(counts: dict[str, int], clone: Path) -> None:
    (clone / "tests/test_toys.py").write_text(CHECKS)
    own = [path for files in TOYS.values() for path in files if "/test_toy" in path]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "toy", *SUITES, *own],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": f"{clone / 'platform'}{os.pathsep}{clone}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def add(files: Files, clone: Path) -> int:
    """Write an addition; returns the number of its files."""
    for path, content in files.items():
        file = clone / path
        if isinstance(content, str):
            assert not file.exists()
            file.write_text(content)
            continue
        text = file.read_text()
        for old, new in content.items():
            assert text.count(old) == 1, f"{path}: {old}"
            text = text.replace(old, new)
        file.write_text(text)
    return len(files)
