"""Imports point down only, and each external library is imported in one package."""

import ast
import itertools
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.architecture.source import PATHS, SOURCE, Import, find_imported_names, parse

LAYERS = [
    {"errors"},
    {
        "arguments",
        "data_frames",
        "values",
        "objective",
        "gc_pause",
        "retry",
        "number_format",
        "toml_text",
        "stop_signals",
    },
    {"storage", "trial_state", "usage", "library"},
    {"settings", "plugins", "seed_statistics"},
    {"corpora", "models", "spaces"},
    {"tasks"},
    {"training"},
    {"search", "tracking", "model_checks"},
    {"studies"},
    {"ray_backend", "results"},
    {"experiments"},
    {"reports"},
    {"api"},
    {"cli", "__init__"},
    {"__main__"},
]
PACKAGES_BY_LIBRARY = {"ray": "ray_backend", "optuna": "search", "mlflow": "tracking", "altair": "reports"}
TORCH_FREE = ("library", "storage", "plugins", "spaces", "search", "tracking", "cli")
"""With corpora, whose test is in test_corpora."""
NEEDS_TORCH = "memtune.tracking.registry.pyfunc_flavor"
"""MLflow imports it to load a model."""


def rank(package: str) -> int:
    return next(height for height, layer in enumerate(LAYERS) if package in layer)


def find_package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_modules_import_only_from_layers_below_their_own_package() -> None:
    imports = {
        (str(path.relative_to(SOURCE)), name)
        for path in PATHS
        for name in find_imported_names(path)
        if name.startswith("memtune.") and name.split(".")[1] != find_package(path)
    }
    assert {
        (module, name)
        for module, name in imports
        if rank(name.split(".")[1]) >= rank(find_package(SOURCE / module))
    } == set()


@pytest.mark.parametrize(("library", "package"), PACKAGES_BY_LIBRARY.items())
def test_a_library_is_imported_in_one_package(library: str, package: str) -> None:
    users = {
        find_package(path)
        for path in PATHS
        for name in find_imported_names(path)
        if name.split(".")[0] == library
    }
    assert users == {package}


def test_a_comment_says_why_a_module_imports_within_functions() -> None:
    """The first of them has it, for all."""
    assert {
        str(path.relative_to(SOURCE)) for path in PATHS if not explains_imports_in_functions(path)
    } == set()


def explains_imports_in_functions(path: Path) -> bool:
    """Whether a comment stands above the first import within a function, if there is one."""
    lines = path.read_text().splitlines()
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = [node for node in ast.walk(parse(path)) if isinstance(node, kinds)]
    imports = [
        node.lineno for function in functions for node in ast.walk(function) if isinstance(node, Import)
    ]
    above = itertools.takewhile(
        lambda line: line.lstrip().startswith("#"), reversed(lines[: min(imports, default=1) - 1])
    )
    return not imports or "Imported here" in " ".join(above)


def test_every_imported_library_is_declared() -> None:
    """IPython is there in notebooks, which alone use it; setuptools builds the wheel."""
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values(), ["setuptools"]]
    declared = {_normalise(re.split(r"[<>=~!\[; ]", entry)[0]) for group in groups for entry in group}
    libraries = {name.split(".")[0] for path in PATHS for name in find_imported_names(path)}
    distributions = packages_distributions()
    undeclared = {
        library
        for library in libraries - {"memtune", "IPython"} - set(sys.stdlib_module_names)
        if not declared.intersection(map(_normalise, distributions[library]))
    }
    assert undeclared == set()


def _normalise(distribution: str) -> str:
    return re.sub("[-_.]+", "-", distribution).lower()


def test_no_module_but_that_of_subwords_imports_tokenizers() -> None:
    users = [
        path.name
        for path in PATHS
        for name in find_imported_names(path)
        if name.split(".")[0] == "tokenizers"
    ]
    assert users == ["subwords.py"]


def test_only_subwords_need_tokenizers_and_training_needs_neither_ray_optuna_nor_mlflow() -> None:
    program = (
        "import sys\n"
        "missing = {'tokenizers', 'ray', 'optuna', 'mlflow'}\n"
        "sys.modules.update(dict.fromkeys(missing))\n"
        "import memtune.corpora, memtune.models, memtune.spaces, memtune.tasks, memtune.training\n"
        "for name in missing - {'tokenizers'}: del sys.modules[name]\n"
        "import memtune, memtune.tracking, memtune.results.loaded_models\n"
        "import torch\n"
        "from typing import get_args\n"
        "from memtune.training.optimisation.optimisers import OptimiserConfig\n"
        "for kind in get_args(get_args(OptimiserConfig)[0]):\n"
        "    weight = torch.nn.Parameter(torch.ones(2, 2))\n"
        "    optimiser = kind().build([{'params': [weight], 'role': 'hidden'}])\n"
        "    optimiser.zero_grad()\n"
        "    weight.sum().backward()\n"
        "    optimiser.step()\n"
        "    optimiser.load_state_dict(optimiser.state_dict())\n"
        "assert 'torch._dynamo' not in sys.modules, 'two seconds at each start'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=SOURCE.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_packages_that_compute_no_tensors_are_imported_without_torch() -> None:
    names = [
        ".".join(("memtune", *path.relative_to(SOURCE).with_suffix("").parts))
        for path in PATHS
        if find_package(path) in TORCH_FREE and not path.stem.startswith("__")
    ]
    program = f"import importlib, sys\nsys.modules['torch'] = None\nnames = {names!r}\n" + (
        f"[importlib.import_module(name) for name in names if name != {NEEDS_TORCH!r}]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=SOURCE.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
