"""Files of users: what they may hold, and the message for everything else."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memtune.errors import ConfigurationError, PluginError
from memtune.models import MODELS, build_model
from memtune.plugins import load_plugin_file, load_plugin_files
from memtune.training import TrialConfig
from memtune.values import parse
from tests.unit.plugins.user_files import write_family

BUILD = "    @override\n    def build("
TRIAL = {"model": {"family": "my_memory", "width": 4}, "training": {"tokens": 900}}


def test_a_file_adds_its_family_with_the_digest_of_its_bytes(family_file: Path) -> None:
    source = load_plugin_file(family_file)
    config: Any = parse(TrialConfig, TRIAL, "trial").model
    assert config.source == source.digest == hashlib.sha256(family_file.read_bytes()).hexdigest()
    assert sum(p.numel() for p in build_model(config, 11, 0).parameters()) == config.parameter_count(11)


def test_a_changed_file_is_another_trial_and_an_unchanged_one_the_same(family_file: Path) -> None:
    identities = []
    for comment in ("", "", "\n# another comment\n"):
        family_file.write_text(family_file.read_text() + comment)
        load_plugin_file(family_file)
        identities.append(parse(TrialConfig, TRIAL, "trial").identity("corpus"))
    assert identities[0] == identities[1] != identities[2]


def test_a_stored_configuration_of_an_earlier_version_keeps_its_class(family_file: Path) -> None:
    load_plugin_file(family_file)
    old = parse(TrialConfig, TRIAL, "trial")
    family_file.write_text(family_file.read_text() + "\n# changed\n")
    load_plugin_file(family_file)
    assert TrialConfig.model_validate(old.model_dump()) == old
    assert MODELS["my_memory"] is not type(old.model)


def test_the_same_text_is_executed_once(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    file = write_family(tmp_path / "my_memory.py", marker=marker)
    load_plugin_file(file)
    marker.unlink()
    load_plugin_file(file)
    assert not marker.exists()


def test_an_unknown_field_of_a_users_family_has_the_message_of_a_built_in_one(family_file: Path) -> None:
    load_plugin_file(family_file)
    wrong = {**TRIAL, "model": {"family": "my_memory", "aplha": 0.5}}
    with pytest.raises(ConfigurationError, match=r'"model.aplha" \(my_memory\); did you mean "alpha"'):
        parse(TrialConfig, wrong, "trial")


def test_a_value_of_the_users_own_class_gets_its_source(family_file: Path) -> None:
    source = load_plugin_file(family_file)
    own_class: Any = MODELS["my_memory"].__mro__[1]
    trial = TrialConfig.model_validate({**TRIAL, "model": own_class(width=4)})
    assert trial.model.model_dump()["source"] == source.digest
    assert trial == TrialConfig.model_validate(TRIAL)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("def broken(:\n", r"bad\.py \(sha256 \w{12}\) cannot be loaded: line 1: invalid syntax"),
        ("\n\n1 / 0\n", "line 3: ZeroDivisionError: division by zero"),
        ("import a_module_that_nobody_has\n", "line 1: ModuleNotFoundError: No module named 'a_module"),
        ("raise SystemExit(0)\n", "line 1: SystemExit: 0"),
        ("raise BaseException('base')\n", "line 1: BaseException: base"),
        ("class E(Exception):\n    def __str__(self):\n        return 1 / 0\nraise E\n", "line 4: E$"),
        ("x = 1\n", r"bad\.py defines no model family: no class derived from NeuralLanguageModelConfig"),
        ("", "defines no model family"),
        ("# " + "x" * 10_000_000, r"more than 1,048,576 bytes, and every trial carries it"),
        (
            "from memtune.models import LSTMConfig\nclass Mine(LSTMConfig):\n    pass\n",
            'defines the model family "lstm", which is built in; rename it',
        ),
        (
            "from typing import Literal\nfrom memtune.models import NeuralLanguageModelConfig\n"
            'class Mine(NeuralLanguageModelConfig):\n    family: Literal["mine"] = "mine"\n',
            "Mine lacks the methods build, describe, multiply_adds, parameter_count, state_size",
        ),
        (
            "from typing import Literal\nfrom memtune.models import LSTMConfig\n"
            'class Mine(LSTMConfig):\n    family: Literal["../x"] = "../x"\n',
            "needs a name of small letters, digits and underscores",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_problem(text: str, named: str, tmp_path: Path) -> None:
    file, before = tmp_path / "bad.py", dict(MODELS)
    file.write_text(text)
    with pytest.raises(PluginError, match=named):
        load_plugin_file(file)
    assert dict(MODELS) == before


def test_what_a_file_prints_is_no_part_of_the_output_of_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json, a program reads the output."""
    file = write_family(tmp_path / "my_memory.py")
    file.write_text(file.read_text() + "\nprint('loaded')\n")
    load_plugin_file(file)
    assert capsys.readouterr() == ("", "loaded\n")


def test_a_name_in_any_alphabet_and_a_byte_order_mark_are_accepted(tmp_path: Path) -> None:
    file = write_family(tmp_path / "модель.py")
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert load_plugin_file(file).digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert MODELS["my_memory"].__module__.startswith("memtune_plugin_")


def test_two_files_of_a_study_with_one_family_are_refused(tmp_path: Path) -> None:
    for name in ("first.py", "second.py"):
        write_family(tmp_path / name, before=f"# {name}\n")
    with pytest.raises(
        PluginError, match=r'first\.py .* and second\.py .* both define the model family "my_'
    ):
        load_plugin_files(["first.py", "second.py"], tmp_path)
    assert load_plugin_files(["first.py", "./first.py"], tmp_path)


def test_a_mistake_in_a_familys_own_validator_is_an_invalid_value_with_its_line(tmp_path: Path) -> None:
    file = edit_family(
        tmp_path, BUILD, f"    def model_post_init(self, _):\n        raise KeyError('no')\n\n{BUILD}"
    )
    load_plugin_file(file)
    with pytest.raises(ConfigurationError, match=r"refuses it: my_memory\.py, line \d+: KeyError: 'no'"):
        parse(TrialConfig, TRIAL, "trial")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (
            "class MyMemoryLanguageModel(",
            "class Variant(MyMemoryConfig):\n    beta: float = 0.5\n\n\nclass MyMemoryLanguageModel(",
            r'MyMemoryConfig and Variant are both the model family "my_memory"; give one of them another fam',
        ),
        (
            "    alpha: float",
            '    source: str = "a"\n    alpha: float',
            'has a field "source", in which memtune',
        ),
        ("    alpha: float", '    beta: "Nothing" = None\n    alpha: float', "name 'Nothing' is not defined"),
        ("my_memory", "m" * 61, "at most 60"),
        ("class MyMemoryConfig", "import sys\ndel sys.modules[__name__]\n\n\nclass MyMemoryConfig", "loaded"),
    ],
    ids=["two classes", "field source", "unknown type", "long name", "no module"],
)
def test_a_family_that_cannot_be_registered_is_named(old: str, new: str, named: str, tmp_path: Path) -> None:
    before = dict(MODELS)
    with pytest.raises(PluginError, match=named):
        load_plugin_file(edit_family(tmp_path, old, new))
    assert dict(MODELS) == before


def edit_family(folder: Path, old: str, new: str) -> Path:
    file = write_family(folder / "my_memory.py")
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    return file


def test_a_corrected_file_is_loaded_after_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "my_memory.py"
    file.write_text("import a_module_that_nobody_has\n")
    for _ in range(2):
        with pytest.raises(PluginError, match="a_module_that_nobody_has"):
            load_plugin_file(file)
    load_plugin_file(write_family(file))
    assert "my_memory" in MODELS


def test_what_is_no_python_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "my-memory.py").write_text("x = 1\n")
    (tmp_path / f"{'m' * 210}.py").write_text("x = 1\n")
    for name, named in {
        "missing.py": "no file .*missing.py; a study or a trial names it relative to itself",
        "binery.py": 'no file .*binery.py; did you mean "binary.py"',
        "folder.py": "is a folder; name the Python file",
        "binary.py": "is not UTF-8",
        "pipe.py": "is not a regular file",
        "notes.txt": "is not a Python file; its name ends in .py",
        "my-memory.py": "letters, digits and underscores in its name",
        f"{'m' * 210}.py": "name: String should have at most 200 characters",
    }.items():
        with pytest.raises(PluginError, match=named):
            load_plugin_file(tmp_path / name)


def test_a_file_beside_it_that_workers_do_not_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "neighbour_of_my_memory.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    file = write_family(tmp_path / "my_memory.py", before="import neighbour_of_my_memory\n")
    for _ in range(2):
        with pytest.raises(PluginError, match=r"imports neighbour_of_my_memory\.py next to it, which"):
            load_plugin_file(file)


@pytest.mark.cluster
def test_importing_memtune_and_its_models_reads_no_entry_points() -> None:
    program = (
        "import importlib.metadata as m\n"
        "read = m.entry_points\n"
        "def check(**options):\n"
        "    assert 'memtune' not in options['group'], options\n"
        "    return read(**options)\n"
        "m.entry_points = check\n"
        "import memtune, memtune.models\n"
        "from memtune.training import TrialConfig\n"
        "TrialConfig.model_validate({'model': {'family': 'lstm'}, 'training': {'tokens': 9}})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_path_that_no_file_can_have_is_an_error() -> None:
    with pytest.raises(PluginError, match=r"cannot read 'a\\x00.py': "):
        load_plugin_file("a\0.py")
