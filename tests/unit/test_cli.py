"""The command line: help with examples, exit codes 0, 1 and 2, messages without tracebacks, JSON."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import memtune
from memtune.cli import command_line as cli
from memtune.errors import MemtuneError
from memtune.settings import Settings
from tests.presence import require

TRIAL = """question = "Does it train?"

corpus = "tiny"

[model]
family = "lstm"
width = 6

[training]
tokens = 600
report_every = 300
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `memtune ...` in a new process."""
    command = [sys.executable, "-m", "memtune.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def read_output(*arguments: str) -> str:
    """The output of `memtune ...` in this process; the command must succeed."""
    done = CliRunner().invoke(cli.app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def read_error(*arguments: str) -> str:
    """The message of the error with which `memtune ...` ends, in this process."""
    done = CliRunner().invoke(cli.app, list(arguments))
    assert isinstance(done.exception, MemtuneError), done.output
    return str(done.exception)


def list_commands(group: Any = None, path: tuple[str, ...] = ()) -> list[list[str]]:
    """The words of every command."""
    paths: list[list[str]] = []
    root: Any = typer.main.get_command(cli.app)
    for name, command in (group or root).commands.items():
        is_group = hasattr(command, "commands")
        paths += list_commands(command, (*path, name)) if is_group else [[*path, name]]
    return paths


def test_every_command_has_help_with_an_example_under_h_too() -> None:
    for command in ([], *list_commands()):
        pages = [CliRunner().invoke(cli.app, [*command, option]) for option in ("-h", "--help")]
        assert [page.exit_code for page in pages] == [0, 0], command
        assert pages[0].output == pages[1].output
        assert not command or f"Example: memtune {' '.join(command)}" in " ".join(pages[0].output.split())


def test_help_in_a_pipe_is_plain_text_as_wide_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = run("compare", "-h").stdout
    assert shown.isascii()
    assert max(len(line) for line in shown.splitlines()) > 80


@pytest.mark.parametrize("columns", ["60", "140"])
def test_a_list_of_commands_shows_whole_sentences(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = " ".join(run("inspect", "-h").stdout.split())
    assert "Mean attention by position in the memory (Tran 2016, figure 3)." in shown
    root = run("-h").stdout
    assert "figures of the papers, with tables and JSON." in " ".join(root.split())
    assert "..." not in (shown + root).replace("COMMAND [ARGS]...", "")


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "memtune", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert shown.stdout == read_output("--version")


def test_wrong_usage_ends_with_2(settings: Settings) -> None:
    assert CliRunner().invoke(cli.app, ["corpus", "show"]).exit_code == 2
    assert CliRunner().invoke(cli.app, ["serach"]).exit_code == 2


@pytest.mark.parametrize(
    ("option", "value"), [("--cache-size", "0"), ("--cache-flatness", "-1"), ("--cache-weight", "1")]
)
def test_an_option_value_out_of_range_is_wrong_usage(option: str, value: str) -> None:
    refused = CliRunner().invoke(cli.app, ["evaluate", "models:/tiny@champion", option, value])
    assert refused.exit_code == 2
    assert option in refused.output or "the cache: weight" in refused.output


def test_an_unknown_split_is_wrong_usage() -> None:
    refused = CliRunner().invoke(cli.app, ["evaluate", "models:/tiny@champion", "--split", "tset"])
    assert refused.exit_code == 2
    assert "'tset' is not one of" in refused.output


@pytest.mark.parametrize("share", ["some", "fitt", ""])
def test_a_share_of_a_gpu_is_a_number_or_fit(share: str, study_file: Path) -> None:
    refused = CliRunner().invoke(cli.app, ["search", str(study_file), "--gpus-per-trial", share])
    assert refused.exit_code == 2
    assert "is neither a number of GPUs" in " ".join(refused.output.replace("│", " ").split())


def test_an_error_ends_with_1_and_one_message(settings: Settings) -> None:
    done = run("corpus", "show", "tinny")
    assert done.returncode == 1
    assert 'did you mean "tiny"' in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_corpus_is_imported_listed_shown_and_verified(settings: Settings, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c\nb c d\n" * 5)
    files = [part for split in ("train", "valid", "test") for part in (f"--{split}", str(text))]
    imported = CliRunner().invoke(cli.app, ["corpus", "import", "letters", *files, "--licence", "CC0"])
    assert imported.exit_code == 0, imported.output
    listed = json.loads(CliRunner().invoke(cli.app, ["corpus", "list", "--json"]).stdout)
    assert [corpus["name"] for corpus in listed] == ["letters", "tiny"]
    shown = json.loads(CliRunner().invoke(cli.app, ["corpus", "show", "letters", "--json"]).stdout)
    assert shown["manifest"]["splits"]["train"]["tokens"] == 40
    assert shown["manifest"]["licence"] == "CC0"
    assert "is intact" in CliRunner().invoke(cli.app, ["corpus", "verify", "letters"]).stdout


def test_questions_are_imported_with_options_of_their_format(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("1a) It's [on].\n1b) It's [off].\n")
    (tmp_path / "a.txt").write_text("1\n")
    options = ["--option", f"answers={tmp_path / 'a.txt'}", "--option", "clitics=split"]
    read_output(
        "corpus", "import", "asked", "--format", "msr-completion", "--test", str(tmp_path / "q.txt"), *options
    )
    manifest = json.loads(read_output("corpus", "show", "asked", "--json"))["manifest"]
    assert manifest["annotations"]["completion"]["files"]["test"]["rows"] == 1
    assert manifest["splits"]["test"]["tokens"] == 10
    assert "completion" in read_output("corpus", "list")
    assert "msr-completion" in read_output("corpus", "formats")


def test_one_file_is_divided_into_splits(settings: Settings, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {number}\n" for number in range(200)))
    read_output("corpus", "import", "lines", "--train", str(text), "--split", "60,20,20", "--split-seed", "1")
    splits = json.loads(read_output("corpus", "show", "lines", "--json"))["manifest"]["splits"]
    assert sum(split["sentences"] for split in splits.values()) == 200
    wrong = ["corpus", "import", "lines", "--train", str(text), "--split", f"{'9' * 5_000},1,1"]
    assert CliRunner().invoke(cli.app, wrong).exit_code == 2
    wrong = ["corpus", "import", "lines", "--train", str(text), "--split", "60,40"]
    assert CliRunner().invoke(cli.app, wrong).exit_code == 2


def test_an_altered_shard_is_named(settings: Settings) -> None:
    shard = next(Path(settings.corpus_store, "tiny").rglob("train*"))
    content = bytearray(shard.read_bytes())
    content[-200] ^= 1
    shard.write_bytes(content)
    assert shard.name in read_error("corpus", "verify", "tiny")


@pytest.mark.cluster
def test_a_trial_is_trained_recorded_registered_compared_and_evaluated(
    settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "trial.toml"
    file.write_text(TRIAL)
    trained = run("train", str(file))
    assert trained.returncode == 0, trained.stderr
    assert "new champion models:/tiny@champion" in trained.stdout
    assert "evaluate it with: memtune evaluate models:/tiny@champion --split test" in trained.stdout
    assert "from memtune train" in read_output("best")
    (row,) = json.loads(read_output("compare", "--corpus", "tiny", "--json"))
    assert row["state"] == "complete"
    lines = run("compare", "--corpus", "tiny").stdout.splitlines()
    assert any(line.split() == ["parameters", "tokens"] for line in lines), "a pipe has short lines"
    assert max(map(len, lines[: next(n for n, line in enumerate(lines) if "figure:" in line)])) <= 120
    (champion,) = json.loads(read_output("best", "--corpus", "tiny", "--json"))
    evaluated = json.loads(read_output("evaluate", "models:/tiny@champion", "--json"))
    assert evaluated["perplexity"] == pytest.approx(champion["figure"], rel=1e-6)
    options = ("--cache-size", "20", "--cache-weight", "0.2", "--json")
    cached = json.loads(read_output("evaluate", "models:/tiny@champion", *options))
    assert cached["cache"] == {"size": 20, "flatness": 0.3, "weight": 0.2}
    assert cached["perplexity"] != evaluated["perplexity"]
    contrary = ["--tune-cache", "--cache-weight", "0.2"]
    wrong = CliRunner().invoke(cli.app, ["evaluate", "models:/tiny@champion", *contrary])
    assert wrong.exit_code == 2
    assert "leave them out" in wrong.output
    again = read_output("train", str(file))
    assert "the champion stays" in again
    assert "was already trained to its end, 680 tokens" in again


def test_a_dry_run_shows_the_study_and_five_samples_and_starts_nothing(
    settings: Settings, study_file: Path
) -> None:
    done = CliRunner().invoke(cli.app, ["search", str(study_file), "--dry-run", "--trials", "3"])
    assert done.exit_code == 0, done.output
    assert "layers-" in done.stdout
    assert "Does a second layer help?" in done.stdout
    assert "3 trials of infinitely many configurations, 900 tokens each" in done.stdout
    assert "{" not in done.stdout
    assert done.stdout.count("learning_rate=") == 5
    assert re.search(r"about [\d.e-]+ core hours on this machine.*3 trials of", done.stdout, re.DOTALL)
    assert not Path(settings.studies_folder).exists()


def test_a_dry_run_shows_budgets_repeats_time_money_and_the_ranges_of_a_family(
    settings: Settings, study_file: Path
) -> None:
    study_file.write_text(
        study_file.read_text()
        + "tokens = 1_000_000\n[repeats]\nbest = 2\nseeds = 3\n[prices]\ncpu_hour = 0.04\n"
        + "[families.lstm.training]\noptimiser.learning_rate = { float = [0.2, 0.3] }\n"
    )
    done = CliRunner().invoke(cli.app, ["search", str(study_file), "--dry-run", "--time-budget", "2h"])
    assert done.exit_code == 0, done.output
    shown = " ".join(done.stdout.split())
    assert "budget: tokens = 1,000,000, time = 7,200 s" in shown
    assert "repeats: the best 2 configurations, 3 seeds each" in shown
    assert "lstm alone: training.optimiser.learning_rate.float = [0.2, 0.3]" in shown
    assert re.search(
        r"4 trials of \S+ and 4 repeats of \S+ core seconds,.*; \d+m \d\ds with \d+ at once and \S+ EUR",
        shown,
    )


COUNTING_SPACE = '[model]\nfamily = "kneser_ney"\norder = { int = [2, 3] }\n'
DECIDED = '[repeats]\nuntil = "decided"\nmax_seeds = 15\n'
BEST_NINE = "[repeats]\nbest = 9\nseeds = 3\n"


def dry_run(study_file: Path, compare: str, terms: str, spaces: str = '["space.toml"]') -> str:
    """The words of a dry run of the study with other spaces, a compared field and further terms."""
    study_file.with_name("kneser_ney.toml").write_text(COUNTING_SPACE)
    text = study_file.read_text().replace('["space.toml"]', spaces)
    study_file.write_text(f'compare = "{compare}"\n{text}{terms}')
    return " ".join(read_output("search", str(study_file), "--dry-run").split())


def test_a_dry_run_has_the_hours_of_the_fewest_and_of_the_most_seeds_until_decided(
    settings: Settings, study_file: Path
) -> None:
    """Four trials, and from 3 to 12 seeds of each of two widths."""
    shown = dry_run(study_file, "model.width", DECIDED)
    low, high = require(
        re.search(r"about (\S+) to (\S+) core hours.*: 4 trials .* 6 to 24 repeats", shown)
    ).groups()
    assert float(high) / float(low) == pytest.approx(2.8, rel=0.1)


@pytest.mark.parametrize(
    ("compare", "terms", "spaces", "repeats"),
    [
        ("model.family", DECIDED, '["space.toml", "kneser_ney.toml"]', "3 to 12 repeats"),
        ("model.layers", DECIDED, '["space.toml", "kneser_ney.toml"]', "6 to 24 repeats"),
        ("model.order", DECIDED, '["space.toml", "kneser_ney.toml"]', "3 to 12 repeats"),
        ("model.family", BEST_NINE, '["space.toml", "kneser_ney.toml"]', "4 to 8 repeats"),
        ("model.family", BEST_NINE, '["space.toml"]', "8 repeats"),
    ],
)
def test_a_dry_run_counts_no_repeats_of_models_that_count(
    compare: str, terms: str, spaces: str, repeats: str, settings: Settings, study_file: Path
) -> None:
    """Of four trials."""
    assert f" and {repeats} of " in dry_run(study_file, compare, terms, spaces)


def test_a_dry_run_of_models_that_count_has_no_repeats(settings: Settings, study_file: Path) -> None:
    study_file.write_text(re.sub(r"\[training\].*\n.*\n.*\n", "", study_file.read_text()))
    shown = dry_run(study_file, "model.order", BEST_NINE, '["kneser_ney.toml"]')
    assert "early stopping: 4 trials of 0 core seconds, measured" in shown


def test_a_dry_run_names_the_alternatives_and_the_families_without_the_compared_field(
    settings: Settings, study_file: Path
) -> None:
    """The vanilla RNN has the field at a value that another family has, too."""
    optimiser = '[training.optimiser]\nkind = "sgd"\nlearning_rate = 0.1\n'
    rnn = f'[model]\nfamily = "rnn"\nwidth = 4\nlayers = 2\n{optimiser}'
    study_file.with_name("rnn.toml").write_text(rnn)
    shown = dry_run(study_file, "model.layers", "", '["space.toml", "rnn.toml", "kneser_ney.toml"]')
    assert (
        "alternatives by model.layers: layers 1, layers 2, kneser_ney kneser_ney has no model.layers, so"
        in shown
    )
    assert "rnn has no" not in shown
    checked = json.loads(read_output("search", str(study_file), "--dry-run", "--json"))
    assert checked["alternatives"] == {
        "layers 1": ["lstm"],
        "layers 2": ["lstm", "rnn"],
        "kneser_ney": ["kneser_ney"],
    }


def test_a_dry_run_marks_the_samples_that_the_study_refuses(settings: Settings, study_file: Path) -> None:
    study_file.write_text(study_file.read_text() + "max_parameters = 700\n")
    command = ["search", str(study_file), "--dry-run"]
    checked = json.loads(read_output(*command, "--json"))
    widths = [sample["model"]["width"] for sample in checked["samples"]]
    assert [reason is not None for reason in checked["refusals"]] == [width == 8 for width in widths]
    assert {*widths} == {4, 8}
    assert read_output(*command).count("more than") == widths.count(8)


def test_ask_compares_the_mistakes_of_two_models(settings: Settings, tmp_path: Path) -> None:
    questions = tmp_path / "asked"
    questions.with_suffix(".text").write_text(
        "the cat sleeps <eos>\nthe dog and a cat eat <eos>\na cat zigzags <eos>\n"
    )
    questions.with_suffix(".gold").write_text("2\tsleeps\teat\t0\n5\teat\tsleeps\t6\n2\tzigzags\tzigzag\t1\n")
    read_output("corpus", "import", "asked", "--format", "agreement", "--valid", f"{questions}.text")
    file = tmp_path / "trial.toml"
    file.write_text(TRIAL)
    for seed in ("0", "1"):
        read_output("train", str(file), "--seed", seed)
    rows = json.loads(read_output("compare", "--corpus", "tiny", "--json"))
    models = ["models:/tiny/1", next(row["run_id"] for row in rows if row["seed"] == 1)]
    records = json.loads(read_output("ask", *models, "--questions", "asked", "--json"))
    assert [(record["questions"], record["not_asked"]) for record in records] == [(2, 1), (2, 1)]
    assert records[0]["by_attractors"]["5+"]["questions"] == 1
    shown = read_output("ask", *models, "--questions", "asked", "--answers", str(tmp_path / "answers"))
    assert "5+" in shown
    assert "mistakes on 2 questions, by the models that make them" in shown
    assert len((tmp_path / "answers" / "tiny-1.tsv").read_text().splitlines()) == 4
    assert 'corpus "tiny" has no annotations' in read_error("ask", models[0])
    (tmp_path / "labels.txt").write_text("(3 (2 a) (2 cat))\n")
    read_output("corpus", "import", "labels", "--format", "sst", "--valid", str(tmp_path / "labels.txt"))
    unlike = read_error("ask", *models, "--questions", "labels")
    assert unlike.startswith('models:/tiny/1: corpus "labels" has sentiment, ')


def test_a_missing_gpu_is_an_error_before_anything_starts(settings: Settings, study_file: Path) -> None:
    assert "--gpus-per-trial 0" in read_error("search", str(study_file), "--gpus-per-trial", "1")
    assert not Path(settings.studies_folder).exists()


def test_the_error_for_a_missing_champion_names_the_search_command(settings: Settings) -> None:
    assert "memtune search" in read_error("best", "--corpus", "tiny")


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train", "trail.toml"], 'no file trail.toml; did you mean "trial.toml"?'),
        (["search", "nothing.toml"], "no file nothing.toml"),
        (["search", "trial.toml"], "trial.toml: question is missing"),
        (["compare", "--corpus", "nothing"], "no trials are recorded"),
    ],
    ids=" ".join,
)
def test_a_wrong_file_or_corpus_is_an_error_before_torch_is_imported(
    command: list[str], message: str, tmp_path: Path, settings: Settings
) -> None:
    (tmp_path / "trial.toml").write_text('corpus = "tiny"\n')
    program = (
        "import sys\n"
        "for name in ('torch', 'ray'): sys.modules[name] = None\n"
        f"sys.argv = ['memtune', *{command!r}]\n"
        "from memtune.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


CLASSIFIER = """question = "Does it read?"

corpus = "sentiment"

[model]
family = "lstm"
width = 6
output = { kind = "none" }

[task]
kind = "sentiment"

[training]
tokens = 40
report_every = 20
"""


def test_reports_of_a_classifier_have_examples_and_accuracy(settings: Settings, tmp_path: Path) -> None:
    trees = tmp_path / "trees.txt"
    trees.write_text("(4 (2 it) (4 (2 is) (4 good)))\n(0 (2 it) (0 (2 is) (0 bad)))\n" * 10)
    files = [part for split in ("train", "valid") for part in (f"--{split}", str(trees))]
    read_output("corpus", "import", "sentiment", "--format", "sst", *files)
    file = tmp_path / "trial.toml"
    file.write_text(CLASSIFIER)
    trained = read_output("train", str(file))
    assert "evaluate it with: memtune evaluate models:/sentiment@champion\n" in trained, "no test split"
    for text in (trained, read_output("evaluate", "models:/sentiment@champion")):
        assert "examples" in text
        assert "tokens" not in text
        assert "perplexity" not in text
    assert "tokens" not in read_output("compare", "--corpus", "sentiment").partition("figure:")[0]


def test_an_interpreter_without_docstrings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    done = run("corpus", "list")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: Ray and Altair do not load without docstrings, which -OO and")
    assert len(done.stderr.splitlines()) == 1


def test_the_checks_of_a_family_are_refused_where_they_would_check_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    done = run("model", "check", "lstm")
    assert done.returncode == 1
    assert "the checks of a family are assertions, which Python leaves out with -O" in done.stderr


def test_help_needs_neither_torch_nor_ray_nor_mlflow() -> None:
    program = (
        "import sys\n"
        "for name in ('torch', 'ray', 'optuna', 'mlflow'): sys.modules[name] = None\n"
        "sys.argv = ['memtune', '--help']\n"
        "from memtune.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [["search", "FILE"], ["train", "FILE"], ["model", "check", "FILE.py"]])
def test_a_file_that_the_system_refuses_is_named_without_a_traceback(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name too long stands for all refusals: root, who may run the tests, has every permission."""
    name = "x" * 300
    monkeypatch.setattr(sys, "argv", ["memtune", *(word.replace("FILE", name) for word in command)])
    with pytest.raises(SystemExit) as ended:
        cli.run_command()
    assert ended.value.code == 1
    assert name in (error := capsys.readouterr().err)
    assert "File name too long" in error


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    ("module", "program"),
    [
        ("typer", "from memtune.cli import main\nmain()"),
        ("slow", "@app.command()\ndef work(): import slow\nrun_command()"),
        ("", "@app.command()\ndef work(): signal.raise_signal(signal.NUMBER)\nrun_command()"),
        ("", "@app.command()\ndef work(): atexit.register(signal.raise_signal, signal.NUMBER)\nmain()"),
    ],
    ids=["while the commands are imported", "while one imports", "in one", "after one"],
)
def test_a_stop_signal_ends_a_command_with_a_line(
    module: str, program: str, number: str, tmp_path: Path
) -> None:
    """Modules such as NumPy, which imports parts of itself on demand, do not survive an exception there."""
    raises = f"import signal\nsignal.raise_signal(signal.{number})\n"
    (tmp_path / f"{module or 'other'}.py").write_text(
        f"try:\n    exec({raises!r})\nexcept BaseException: pass\n"
    )
    # A shell may have it ignored.
    start = "import atexit, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    if module != "typer":
        start += "from memtune.cli import main\nfrom memtune.cli.command_line import app, run_command\n"
    command = [sys.executable, "-c", start + program.replace("NUMBER", number), "work"]
    done = subprocess.run(
        command, env=make_environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (1, "interrupted\n", "")


def make_environment(*folders: Path) -> dict[str, str]:
    """Variables of a process that finds modules in folders, then memtune."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [*folders, Path(memtune.__file__).parents[1]])),
    }


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
@pytest.mark.parametrize("module", ["memtune", "memtune.cli"])
def test_a_process_that_loads_its_commands_ends_with_a_line(
    module: str, number: signal.Signals, tmp_path: Path
) -> None:
    """The stop of a job, Ctrl-C and the end of a terminal, from outside."""
    loading = "import sys\nprint('loading', flush=True)\nsys.stdin.read()\n"
    (tmp_path / "typer.py").write_text(loading)
    command = [sys.executable, "-P", "-m", module, "--help"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=make_environment(tmp_path), text=True, stdin=pipe, stdout=pipe, stderr=pipe
    ) as process:
        require(process.stdout).readline()
        process.send_signal(number)
        _, error = process.communicate()
    assert (process.returncode, error) == (1, "interrupted\n")


def test_little_is_loaded_before_stop_signals_end_a_process_with_a_line() -> None:
    """Python prints a traceback for a signal while it loads what comes first."""
    program = "import sys\nbefore = set(sys.modules)\nimport memtune.cli\nprint(*set(sys.modules) - before)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=make_environment(), capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {name for name in loaded if name.startswith("memtune")} == {
        *("memtune", "memtune.cli", "memtune.stop_signals")
    }
    assert loaded.isdisjoint(("argparse", "inspect", "json", "logging", "re", "typing"))
