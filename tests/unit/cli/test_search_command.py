"""`memtune search`: a dry run, options, and what is printed at the end of a driver."""

import functools
import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from memtune import api
from memtune.cli import command_line as cli
from memtune.settings import Settings
from memtune.studies import budgets, study_run
from memtune.studies.executor import InProcessExecutor
from tests.presence import require
from tests.unit.cli.invocation import read_error, read_output
from tests.unit.studies.study_files import resolve
from tests.unit.studies.test_interrupted_studies import InterruptingStop, lengthen_trials

pytestmark = pytest.mark.usefixtures("without_report")


def test_a_driver_whose_budget_is_spent_counts_the_trials_that_earlier_drivers_left_open(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengthen_trials(study_file)
    study_file.write_text(study_file.read_text().replace("[budget]", '[budget]\ntime = "30s"'))
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))  # a second for each training step
    monkeypatch.setattr(budgets, "time", clock)
    train_in_process(monkeypatch)
    for options in ([], ["--resume"]):
        done = CliRunner().invoke(cli.app, ["search", str(study_file), *options])
        assert "; 1 trial open; to continue, change it under [budget]" in " ".join(done.output.split())


def train_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        api, "search_study", functools.partial(api.search_study, executor=InProcessExecutor())
    )


@pytest.mark.parametrize("options", [[], ["--trials 2", "--no-cache"]])
def test_ctrl_c_ends_a_search_with_code_1_and_the_command_that_resumes_it(
    options: list[str], study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengthen_trials(study_file, trials=1)
    train_in_process(monkeypatch)
    monkeypatch.setattr(study_run, "StopRequest", InterruptingStop)
    done = CliRunner().invoke(cli.app, ["search", str(study_file), *" ".join(options).split()])
    assert done.exit_code == 1
    again = " ".join(["memtune search", str(study_file), "--resume", *options])
    assert f"stopped with 1 trial open; to resume: {again}" in " ".join(done.output.split())


@pytest.mark.parametrize("share", ["some", "fitt", ""])
def test_a_share_of_a_gpu_is_a_number_or_fit(share: str, study_file: Path) -> None:
    refused = CliRunner().invoke(cli.app, ["search", str(study_file), "--gpus-per-trial", share])
    assert refused.exit_code == 2
    assert "is neither a number of GPUs" in " ".join(refused.output.replace("│", " ").split())


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


def test_a_study_ends_with_the_last_configuration_of_its_space(
    settings: Settings, study_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = study_file.parent / "space.toml"
    text = space.read_text().replace("layers = { int = [1, 2] }", "layers = 1")
    space.write_text(text.replace("{ float = [0.1, 1.0], log = true }", "0.5"))
    dry = CliRunner().invoke(cli.app, ["search", str(study_file), "--dry-run"])
    assert "2 trials of 2 configurations" in dry.stdout
    assert re.search(r"early stopping: 2 trials of \S+ core seconds", " ".join(dry.stdout.split()))
    train_in_process(monkeypatch)
    done = CliRunner().invoke(cli.app, ["search", str(study_file)])
    assert "2 of 2 trials ended" in done.output
    assert "every configuration of the space has had its trial or was refused: 2" in done.output


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


def test_a_dry_run_warns_of_budgets_that_leave_alternatives_without_a_trial(
    settings: Settings, study_file: Path
) -> None:
    study_file.write_text(f'compare = "model.width"\n{study_file.read_text()}')
    options = ["--dry-run", "--trials", "1", "--time-budget"]
    for time, warnings in (("0.0001s", 2), ("2h", 1)):
        done = CliRunner().invoke(cli.app, ["search", str(study_file), *options, time])
        warned = " ".join(done.stderr.split())
        assert "budget.trials = 1 leaves some of 2 alternatives untried" in warned
        assert ("ends before a whole trial of each of 2 alternatives, which" in warned) == (warnings == 2)
    study_file.write_text(f'{study_file.read_text()}\n[repeats]\nuntil = "decided"\n')
    done = CliRunner().invoke(cli.app, ["search", str(study_file), *options, "0.0001s"])
    assert "of each of 2 alternatives and 3 repeats, which" in " ".join(done.stderr.split())


def test_a_dry_run_estimates_what_its_budgets_allow(settings: Settings, study_file: Path) -> None:
    """Of four trials of 900 tokens each; three seeds leave two for a test, which needs three."""
    text = study_file.read_text() + "tokens = 1_800\n"
    study_file.write_text(text)
    done = CliRunner().invoke(cli.app, ["search", str(study_file), "--dry-run"])
    assert "4 trials of " in done.output
    assert "; budget.tokens ends the study before; " in " ".join(done.output.split())
    assert "warning" not in done.stderr
    study_file.write_text(f"{text}[repeats]\nbest = 2\nseeds = 3\n")
    warned = CliRunner().invoke(cli.app, ["search", str(study_file), "--dry-run"])
    said = " ".join(warned.stderr.split())
    assert "budget.tokens = 1,800 ends before a whole trial of each of 1 alternative and 4 repeats" in said
    assert "which take about 4,500" in said
    assert "repeats.seeds = 3 leaves 2 besides the search's own, and a test needs 3" in said


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
    assert "early stopping: 2 trials of 0 core seconds, measured" in shown


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


def test_a_dry_run_shows_what_is_believed_and_from_where(settings: Settings, study_file: Path) -> None:
    text, space = study_file.read_text(), study_file.with_name("space.toml")
    layers = "layers = { int = [1, 2], prior = 2, confidence = 'low' }"
    space.write_text(space.read_text().replace("layers = { int = [1, 2] }", layers))
    line = space.read_text().splitlines().index(layers) + 1
    study_file.write_text(text.replace("[training]", "[training]\noptimiser.learning_rate.prior = 0.5", 1))
    shown = " ".join(read_output("search", str(study_file), "--dry-run").split())
    assert f"model.layers 2 low space.toml, line {line}" in shown
    stated = study_file.read_text().splitlines().index("optimiser.learning_rate.prior = 0.5") + 1
    assert f"training.optimiser.learning_rate 0.5 medium layers.toml, line {stated}" in shown
    assert "of the spaces" not in shown
    stated_space = space.read_text()
    space.write_text(f"prior_points = [{{ model.width = 8 }}, {{ model.width = 4 }}]\n{stated_space}")
    shown = " ".join(read_output("search", str(study_file), "--dry-run").split())
    assert "prior: 2 points of the spaces parameter value model.width 4 (4 to 8)" in shown
    space.write_text(stated_space)
    study_file.write_text(f"{text}[sampler]\nprior = 'studies'\n")
    shown = " ".join(read_output("search", str(study_file), "--dry-run").split())
    assert "prior: none, because no earlier study of this home has a complete trial" in shown
    study_file.write_text(text)
    earlier = resolve(study_file, settings)
    proposals = earlier.open_proposals()
    first = require(proposals.ask())
    proposals.report(first.number, 300, 1.0)
    proposals.complete(first.number, 1.0)
    study_file.write_text(f"seed = 9\n{text}")
    shown = " ".join(read_output("search", str(study_file), "--dry-run").split())
    assert "points of earlier studies that fit these spaces: 1; to begin with them, write" in shown
    study_file.write_text(f"{text}[sampler]\nprior = 'studies'\n")
    shown = " ".join(read_output("search", str(study_file), "--dry-run").split())
    assert f"prior: 1 point: 1 of {earlier.id} (the best 1 of 1 complete trial)" in shown
    assert "keeps the prior" not in shown
    require(resolve(study_file, settings).open_proposals().ask())
    shown = " ".join(read_output("search", str(study_file), "--dry-run").split())
    assert "this study keeps the prior with which it began" in shown
    space.write_text(space.read_text() + "\n[[points]]\nmodel.layers = 2\n")
    study_file.write_text(f"{text}[sampler]\nprior = 'papers'\n")
    shown = " ".join(read_output("search", str(study_file), "--dry-run").split())
    assert "prior: 1 point: 1 of the papers of lstm parameter value model.layers 2" in shown


def test_a_dry_run_counts_what_is_tried_first_and_names_its_source(
    settings: Settings, study_file: Path
) -> None:
    earlier = resolve(study_file, settings)
    proposals = earlier.open_proposals()
    first = require(proposals.ask())
    proposals.report(first.number, 300, 1.0)
    proposals.complete(first.number, 1.0)
    earlier.store_terms()
    text, space = study_file.read_text(), study_file.with_name("space.toml")
    assert "first: " not in read_output("search", str(study_file), "--dry-run")
    options = "search", str(study_file), "--dry-run", "--from", earlier.id
    study_file.write_text(f"seed = 9\n{text}")
    assert f"\nfirst: 1 configuration of {earlier.id}\n" in read_output(*options)
    study_file.write_text(f"points = [{{ model.layers = 1 }}, {{ model.layers = 2 }}]\n{text}")
    shown = " ".join(read_output(*options).split())
    assert f"first: 2 configurations of the study's points, 1 configuration of {earlier.id}" in shown
    space.write_text(space.read_text() + "\n[[points]]\nmodel.layers = 2\n")
    study_file.write_text(f"points = 'papers'\n{text}")
    assert "first: 1 configuration of the papers\n" in read_output("search", str(study_file), "--dry-run")


def test_a_dry_run_says_where_one_learning_rate_could_serve_all_widths(
    settings: Settings, study_file: Path
) -> None:
    """The space has widths 4 and 8, and SGD, whose rates muP does not scale here."""

    def find_advice(training: str, spaces: str = '["space.toml"]') -> str:
        study_file.write_text(
            text.replace("[training]", f"[training]\n{training}").replace('["space.toml"]', spaces)
        )
        return " ".join(read_output("search", str(study_file), "--dry-run").split())

    text, advice = study_file.read_text(), "training.base_width = {} one learning rate serves all widths"
    adam = 'optimiser = { kind = "adam", learning_rate = 1e-3 }'
    assert advice.format(4) + " about" in find_advice(adam)
    assert "base_width" not in find_advice("")
    assert "base_width" not in find_advice(f"base_width = 4\n{adam}")
    choices = "optimiser = { kind = { choice = ['adam', 'adamw'] }, learning_rate = 1e-3 }"
    assert advice.format(4) + " about" in find_advice(choices)
    both = 'training.optimiser.kind = "adam" or "adamw" and model.tie_output = false'
    assert f"{advice.format(32)}, which needs {both}" in find_advice("", '["lstm"]')


def test_a_dry_run_marks_the_samples_that_the_study_refuses(settings: Settings, study_file: Path) -> None:
    study_file.write_text(study_file.read_text() + "max_parameters = 700\n")
    command = ["search", str(study_file), "--dry-run"]
    checked = json.loads(read_output(*command, "--json"))
    widths = [sample["model"]["width"] for sample in checked["samples"]]
    assert [reason is not None for reason in checked["refusals"]] == [width == 8 for width in widths]
    assert {*widths} == {4, 8}
    assert read_output(*command).count("more than") == widths.count(8)


def test_a_missing_gpu_is_an_error_before_anything_starts(settings: Settings, study_file: Path) -> None:
    assert "--gpus-per-trial 0" in read_error("search", str(study_file), "--gpus-per-trial", "1")
    assert not Path(settings.studies_folder).exists()
