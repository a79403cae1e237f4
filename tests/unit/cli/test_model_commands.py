"""`memtune model`: list, show, new and check, as a user types them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from memtune.cli import command_line as cli
from memtune.errors import ConfigurationError
from memtune.model_checks import check_run
from memtune.models import MODELS, MixerBlocksConfig
from memtune.models.mixers.mixer_registry import MIXERS, PRESETS
from memtune.studies.definition.study_loader import load_study
from tests.registries import isolate_registries

MIXER = Path(__file__).parents[3] / "docs" / "examples" / "plugins" / "memtune_examples" / "moving_average.py"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder; checks compare the speed over a small vocabulary."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check_run, "COMPARED_WORDS", 100)
    with isolate_registries():
        yield tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["model", *arguments])


def read_verdicts(*arguments: str) -> dict[str, str | None]:
    """The problem of each topic, None where it holds."""
    return {row["topic"]: row["problem"] for row in json.loads(run("check", "--json", *arguments).stdout)}


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_list_has_every_built_in_family_with_its_description() -> None:
    rows = json.loads(run("list", "--json").stdout)
    assert [row["name"] for row in rows if row["origin"] == "built in"] == list(MODELS.built_in)
    assert all(row["title"] for row in rows)


def test_show_gives_fields_equations_and_sizes_at_a_width() -> None:
    shown = json.loads(run("show", "rnn", "--width", "16", "--words", "100", "--json").stdout)
    fields = {field["name"]: field for field in shown["fields"]}
    assert fields["width"]["type"] == "int"
    assert fields["layers"]["default"] == 1
    assert "h_t = f(W x_t + R h_{t-1} + b)" in shown["equations"]
    assert shown["sizes"]["parameters"] == 100 * 16 + 16 * (2 * 16 + 2) + 100 * 17
    assert "16 numbers\n" in run("show", "rnn", "--width", "16").stdout


def test_show_names_classes_alone_and_says_which_state_grows_with_the_text() -> None:
    shown = " ".join(run("show", "dependency_rnn").stdout.split())
    assert "MaximumEntropyConfig | None" in shown
    assert "memtune.models" not in shown
    assert "numbers after a mean sentence" in " ".join(run("show", "lstmn").stdout.split())
    assert "mean sentence" not in run("show", "kneser_ney").stdout


def test_show_of_an_unknown_name_suggests_a_family_or_a_mixer() -> None:
    assert 'did you mean "lstm"' in str(run("show", "lstmm").exception)
    assert 'did you mean "deltanet"' in str(run("show", "delta_net").exception)


def test_show_of_a_published_mixer_has_what_it_sets_the_equations_and_the_fields_of_its_kind() -> None:
    shown = json.loads(run("show", "kda", "--width", "16", "--words", "100", "--json").stdout)
    assert shown["name"] == "kda"
    assert 'matrix_memory of mixer_blocks with decay = "vector"' in shown["title"]
    assert shown["equations"].startswith("Kimi Team (2025), 2510.26692, equation 1\n")
    assert "KDA, 2510.26692" in shown["equations"]
    assert [field["name"] for field in shown["fields"]][:3] == ["heads", "key_ratio", "value_ratio"]
    config = MixerBlocksConfig(width=16, mixer="kda")
    assert shown["sizes"]["parameters"] == config.parameter_count(100)


def test_show_of_a_kind_of_mixers_has_its_defaults() -> None:
    shown = json.loads(run("show", "matrix_memory", "--json").stdout)
    assert shown["title"] == "The mixer matrix_memory of mixer_blocks"
    assert {field["name"]: field["default"] for field in shown["fields"]}["decay"] == "number"


def test_show_of_the_blocks_lists_every_mixer() -> None:
    shown = json.loads(run("show", "mixer_blocks", "--json").stdout)
    assert {*PRESETS, *MIXERS.built_in} == {*shown["mixers"]}
    assert "forgetting_attention, path" in run("show", "mixer_blocks").stdout
    assert "mixers" not in run("show", "lstm").stdout


def test_new_writes_a_family_that_passes_every_check_with_its_oracle(folder: Path) -> None:
    assert run("new", "my_memory").exit_code == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "my_memory.py",
        "my_memory.toml",
        "my_memory_oracle.py",
        "my_memory_study.toml",
        "test_my_memory.py",
    }
    verdicts = read_verdicts("my_memory.py")
    assert {topic for topic, problem in verdicts.items() if problem} == set()
    assert {"oracle", "finite differences", "speed and memory"} <= verdicts.keys()
    assert load_study(folder / "my_memory_study.toml").models == ("my_memory.py",)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("lstm", 'a model family "lstm" already'),
        ("../x", "small letters, digits and underscores"),
        ("My", "small letters"),
    ],
)
def test_new_refuses_an_unsuitable_name(name: str, named: str, folder: Path) -> None:
    assert named in str(run("new", name).exception)
    assert not list(folder.iterdir())


def test_new_overwrites_nothing(folder: Path) -> None:
    (folder / "my_memory.toml").write_text("mine")
    assert "my_memory.toml exists" in str(run("new", "my_memory").exception)
    assert [path.name for path in folder.iterdir()] == ["my_memory.toml"]


@pytest.mark.parametrize(
    ("changes", "topics"),
    [
        (
            {"torch.stack(contexts, dim=1)).tanh()": "torch.stack(contexts, dim=1)).sigmoid()"},
            {"oracle"},
        ),
        (
            {"torch.stack(contexts, dim=1)": "torch.stack(contexts, dim=1).flip(1)"},
            {"causality", "carried state"},
        ),
        ({', {"context": context_BH}': ', {"context": context_BH * 0}'}, {"carried state"}),
        (
            # None of them changes the topic of another.
            {
                "return self.width\n": "return self.width + 1\n",
                "+ self.width**2 + output": "+ self.width**3 + output",
                "self.embedding(tokens_BT).unbind": "self.embedding(tokens_BT.flip(0)).unbind",
            },
            {"state formula", "parameter formula", "batch independence"},
        ),
        ({"self.hidden(torch": "self.hidden.requires_grad_(False)(torch"}, {"gradients"}),
        ({").tanh()": ").detach().requires_grad_().tanh()"}, {"finite differences", "gradients"}),
        ({").tanh()": ").tanh() + torch.randn(1).double()"}, {"determinism"}),
        ({").tanh()": ").double().tanh()"}, {"single precision"}),
    ],
    ids=lambda value: ",".join(sorted(value)) if isinstance(value, set) else "",
)
def test_an_error_in_the_family_fails_the_check_of_its_topic(
    changes: dict[str, str], topics: set[str], folder: Path
) -> None:
    run("new", "my_memory")
    for old, new in changes.items():
        change(folder / "my_memory.py", old, new)
    done = run("check", "my_memory.py", "--json")
    assert done.exit_code == 1
    assert topics <= {row["topic"] for row in json.loads(done.stdout) if row["problem"]}


def test_an_error_in_the_oracle_fails_and_without_an_oracle_it_is_said(folder: Path) -> None:
    run("new", "my_memory")
    change(folder / "my_memory_oracle.py", "torch.tanh(W @ s)", "torch.sin(W @ s)")
    failed = run("check", "my_memory.py")
    assert failed.exit_code == 1
    assert "FAIL  oracle: Logits, loss and every gradient" in failed.stdout
    (folder / "my_memory_oracle.py").unlink()
    done = run("check", "my_memory.py")
    assert done.exit_code == 0
    assert "no oracle: the equations themselves were not checked" in done.stdout


def test_a_built_in_family_takes_the_same_path() -> None:
    done = run("check", "rnn")
    assert done.exit_code == 0
    assert all(line.startswith(("ok", "no oracle")) for line in done.stdout.splitlines())


def test_a_mixer_is_checked_in_its_blocks(folder: Path) -> None:
    """Of a file and by name; an average from the other end fails."""
    shutil.copyfile(MIXER, folder / "my_mixer.py")
    done = run("check", "my_mixer.py")
    assert done.exit_code == 0, done.stdout
    assert run("check", "moving_average").stdout.startswith("ok")
    change(folder / "my_mixer.py", '["value"].unbind(1)', '["value"].flip(1).unbind(1)')
    failed = {topic for topic, problem in read_verdicts("my_mixer.py").items() if problem}
    assert {"causality", "carried state"} <= failed


def test_a_mixer_with_the_name_of_a_family_is_checked_and_shown_by_its_prefix() -> None:
    done = run("check", "mixer=rnn")
    assert done.exit_code == 0, done.stdout
    assert "The mixer rnn of mixer_blocks" in run("show", "mixer=rnn").stdout
    assert 'no mixer "rn"; did you mean "rnn"' in str(run("check", "mixer=rn").exception)


def test_a_window_is_checked_full_where_it_is_longer_than_the_text() -> None:
    """The window of `attention` has 256 words; the text of the check has fewer."""
    assert read_verdicts("attention")["state formula"] is None


def test_a_file_without_a_family_and_a_mixer_is_refused(folder: Path) -> None:
    shutil.copyfile(MIXER.with_name("low_rank.py"), folder / "own_output.py")
    assert "defines no model family and no mixer" in str(run("check", "own_output.py").exception)


def test_a_family_that_counts_is_refused_with_the_reason() -> None:
    assert "learns by counting" in str(run("check", "kneser_ney").exception)


def test_json_holds_nothing_that_a_model_prints(folder: Path) -> None:
    """A forgotten print in `encode` would otherwise end the program that reads the output."""
    run("new", "my_memory")
    change(
        folder / "my_memory.py", "        contexts = []\n", "        contexts = []\n        print('debug')\n"
    )
    done = run("check", "my_memory.py", "--json")
    assert json.loads(done.stdout)
    assert "debug" in done.stderr
    assert "my_memory" in run("list").stdout


def test_the_checks_of_a_family_are_refused_where_they_would_check_nothing() -> None:
    """Their module, compiled as by `python -O`: a process with that option would compile torch anew."""
    optimised: dict[str, Any] = {"__name__": "optimised"}
    code = compile(Path(check_run.__file__).read_text(), check_run.__file__, "exec", optimize=1)
    exec(code, optimised)
    with pytest.raises(ConfigurationError, match="are assertions, which Python leaves out with -O"):
        next(optimised["check_family"]({"family": "lstm"}))
