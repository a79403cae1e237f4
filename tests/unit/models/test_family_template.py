"""The templates of a built-in family, from which `memtune model new --built-in` starts, pass every test."""

import re
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
import torch

from memtune.errors import PluginError
from memtune.model_checks import write_built_in_family
from memtune.model_checks.oracles import assert_agreement
from memtune.spaces.space_files import read_space
from memtune.spaces.space_points import pin_point
from tests.presence import require

ROOT = Path(__file__).parents[3]
TEMPLATES = ROOT / "platform" / "memtune" / "model_checks" / "templates"


def load_template(name: str, as_module: str, monkeypatch):
    """The module of a template, under the name that it has after it is copied."""
    loader = SourceFileLoader(as_module, str(TEMPLATES / name))
    module = module_from_spec(require(spec_from_loader(as_module, loader)))
    monkeypatch.setitem(sys.modules, as_module, module)
    loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def leave_no_bytecode(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def test_the_family_agrees_with_the_oracle(monkeypatch):
    load_template("family.py.template", "memtune.models.families.my_family", monkeypatch)
    oracle = load_template("oracle.py.template", "tests.oracles.my_family", monkeypatch)
    for case in oracle.CASES.values():
        model = case.build(torch.float64)
        assert_agreement(model, case.get_oracle(model), case.draw_text(16), 1e-9, carried_from=7)


def test_the_unit_tests_pass(monkeypatch):
    load_template("family.py.template", "memtune.models.families.my_family", monkeypatch)
    tests = load_template("test_family.py.template", "tests.unit.models.test_my_family", monkeypatch)
    passed = []
    for name, test in vars(tests).items():
        if name.startswith("test_"):
            test()
            passed.append(name)
    written = re.findall(
        r"^def (test_\w+)", (TEMPLATES / "test_family.py.template").read_text(), re.MULTILINE
    )
    assert passed == written
    assert "test_size_by_hand" in passed


def test_the_space_is_one_of_the_family_and_holds_the_settings_of_a_paper():
    space = read_space((TEMPLATES / "space.toml.template").read_text(), "space.toml.template")
    assert space.family == "my_family"
    (point,) = space.paper_points
    assert len(pin_point(space, point, space.source)) == len(point)


def test_a_folder_that_is_no_clone_is_refused(tmp_path):
    with pytest.raises(PluginError, match="not a clone of memtune"):
        write_built_in_family("gated_mean", tmp_path)
    assert list(tmp_path.iterdir()) == []
