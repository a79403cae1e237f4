"""Mutation testing: runs a seeded sample of a package's mutants with its unit tests, and lists the survivors.

    python -m tests.mutation search --size 150 --seed 0 --work FOLDER

It runs in an environment with mutmut 3.8.1 and memtune's dependencies.

The sample has mutants of every module, in proportion to their number. With `--all MODULE`, all mutants of a
module are in it. mutmut runs a mutant with those tests of the package that call the mutated function.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import chdir
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
MIN_PER_MODULE = 3
STUDY_RUNS = ("result_cache", "executor", "study_run", "trial_worker")
"""Modules of studies/ whose tests train models, which takes a minute."""
ANSWERS = ("ranking", "verdicts", "caveats", "alternative_comparison")
"""Modules of results/study/ that say which configuration is best."""
PACKAGES = {
    "search": (
        ["search/*.py"],
        ["search/samplers/*", "search/early_stopping/*"],
        ["tests/unit/search", "-k", "not samplers and not simulation and not gp and not nsga2"],
    ),
    "samplers": (["search/samplers/*.py"], [], ["tests/unit/search/test_samplers.py"]),
    "early_stopping": (
        ["search/early_stopping/*.py"],
        [],
        ["tests/unit/search/early_stopping", "tests/contracts/test_early_stopping.py"],
    ),
    "studies": (
        ["studies/*.py"],
        [f"studies/{name}.py" for name in STUDY_RUNS],
        [
            "tests/unit/studies",
            "-k",
            "not result_cache and not in_process_executor and not interrupted_studies and not paused_trials",
        ],
    ),
    "study_runs": ([f"studies/{name}.py" for name in STUDY_RUNS], [], ["tests/unit/studies"]),
    "tracking": (
        ["tracking/*.py"],
        ["tracking/mlflow_ui.py"],
        ["tests/unit/tracking", "-k", "not mlflow_ui"],
    ),
    "mlflow_ui": (["tracking/mlflow_ui.py"], [], ["tests/unit/tracking/test_mlflow_ui.py"]),
    "answers": (
        ["seed_statistics.py", *(f"results/study/{name}.py" for name in ANSWERS)],
        [],
        [
            "tests/unit/results/study",
            "tests/unit/results/test_selection.py",
            "tests/unit/test_seed_statistics.py",
        ],
    ),
    "checkpoint": (
        ["training/checkpoint.py"],
        [],
        [f"tests/unit/training/test_{name}.py" for name in ("checkpoint", "crafted_checkpoints")],
    ),
}
"""Of each package the sources, sources that belong to another package, and the tests that concern it."""
RESULTS = {0: "survived", 1: "killed", 3: "killed", 33: "without a test", None: "not run"}
"""Exit codes of mutmut; a mutant with any other was killed by a signal or by its time limit."""


def copy_repository(work: Path, sources: Sequence[str], others: Sequence[str], tests: Sequence[str]) -> None:
    """Copy the repository to `work`, with memtune in src/, where mutmut expects it, and mutmut's settings."""
    # Python looks no more into a folder of PYTHONPATH that is missing when it starts.
    (work / "mutants" / "src").mkdir(parents=True)
    names = [path for path in ROOT.iterdir() if path.name != "platform" and not path.name.startswith(".")]
    for path in names:
        (shutil.copytree if path.is_dir() else shutil.copy)(path, work / path.name)
    shutil.copytree(ROOT / "platform" / "memtune", work / "src" / "memtune")
    project = (work / "pyproject.toml").read_text().replace('pythonpath = ["platform"', 'pythonpath = ["src"')
    settings = {
        "source_paths": ["src"],
        "only_mutate": [f"src/memtune/{source}" for source in sources],
        "do_not_mutate": [f"src/memtune/{other}" for other in others],
        "pytest_add_cli_args_test_selection": list(tests),
        "pytest_add_cli_args": ["-p", "no:cacheprovider"],
        "also_copy": [path.name for path in names],
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    (work / "pyproject.toml").write_text("\n".join([project, "[tool.mutmut]", *lines, ""]))


def list_mutants(work: Path, sources: Sequence[str], others: Sequence[str]) -> list[str]:
    """The names of all mutants of a package."""
    # Imported here: the tests of this module run without mutmut.
    from mutmut.mutation.file_mutation import mutate_file_contents  # type: ignore[import-not-found]
    from mutmut.utils.format_utils import get_mutant_name  # type: ignore[import-not-found]

    found: list[str] = []
    for path in sorted((work / "src" / "memtune").rglob("*.py")):
        name = str(path.relative_to(work / "src" / "memtune"))
        if any(fnmatch(name, source) for source in sources) and not any(fnmatch(name, o) for o in others):
            mutants = mutate_file_contents(str(path), path.read_text()).mutant_names
            found += [get_mutant_name(path.relative_to(work), mutant) for mutant in mutants]
    return found


def run_mutmut(work: Path, names: Sequence[str]) -> None:
    """Run mutants by name on one core."""
    paths = [work / "mutants" / "src", work / "mutants"]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}
    program = "from mutmut.__main__ import cli; cli()"  # `python -m mutmut` would import the module twice
    arguments = [sys.executable, "-c", program, "run", "--max-children", "1", *names]
    subprocess.run(arguments, cwd=work, env={**os.environ, **environment}, check=True)


def read_results(work: Path) -> dict[str, int | None]:
    """The exit code of every mutant by name; None for those that were not run."""
    found: dict[str, int | None] = {}
    for path in sorted((work / "mutants" / "src").rglob("*.meta")):
        found |= json.loads(path.read_text())["exit_code_by_key"]
    return found


def get_module(mutant: str) -> str:
    """The module of a mutant, such as "search.proposals"."""
    return re.split(r"\.xǁ|\.x_", mutant)[0].removeprefix("memtune.")


def draw_sample(names: Sequence[str], size: int, seed: int, whole: Sequence[str] = ()) -> list[str]:
    """All mutants of the modules in `whole`, and about `size` of the others, at least three per module."""
    by_module: Mapping[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        by_module[get_module(name)].append(name)
    total = sum(len(own) for module, own in by_module.items() if module not in whole)
    generator, sample = random.Random(seed), []
    for module, own in sorted(by_module.items()):
        share = max(MIN_PER_MODULE, round(size * len(own) / max(1, total)))
        count = len(own) if module in whole else min(share, len(own))
        sample += generator.sample(own, count)
    return sample


def print_table(results: Mapping[str, int | None], sample: Sequence[str]) -> None:
    """One row per module, then the names of the mutants that ran and were not killed."""
    rows: Mapping[str, Counter[str]] = defaultdict(Counter)
    for name in sample:
        rows[get_module(name)][RESULTS.get(results[name], "stopped")] += 1
    made = Counter(map(get_module, results))
    kinds = ["killed", "stopped", "survived", "without a test", "not run"]
    print(f"| module | mutants | {' | '.join(kinds)} |")
    for module, counts in sorted(rows.items()):
        print(f"| {module} | {made[module]} | {' | '.join(str(counts[kind]) for kind in kinds)} |")
    print("\n".join(name for name in sample if RESULTS.get(results[name]) not in ("killed", "not run")))


def main() -> None:
    """Draw and run the sample."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("package", choices=PACKAGES)
    parser.add_argument("--size", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all", action="append", default=[], metavar="MODULE")
    parser.add_argument("--work", type=Path, required=True, help="a new folder")
    options = parser.parse_args()
    options.work = options.work.absolute()
    sources, others, tests = PACKAGES[options.package]
    copy_repository(options.work, sources, others, tests)
    with chdir(options.work):  # where mutmut finds its settings
        mutants = list_mutants(options.work, sources, others)
    sample = draw_sample(mutants, options.size, options.seed, options.all)
    run_mutmut(options.work, sample)
    print_table(read_results(options.work), sample)


if __name__ == "__main__":
    main()
