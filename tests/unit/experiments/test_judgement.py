"""Whether a configuration is better than another, under seeds that both have not had."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import memtune
from memtune.cli.command_line import app
from memtune.errors import StudyError
from memtune.experiments.judgement import Judged, Judgement, judge_configurations, open_judged
from memtune.experiments.single_trial import TrainResult, TrialFile
from memtune.results.comparison import compare
from memtune.settings import Settings
from memtune.studies.definition.study_terms import Repeats
from memtune.toml_text import format_toml
from memtune.training import Report, TrialConfig
from memtune.trial_state import StopReason, TrialEnd
from tests.presence import require
from tests.unit.studies.study_files import resolve
from tests.unit.studies.test_director import make_report

LSTM = {"corpus": "tiny", "model": {"family": "lstm", "width": 4}, "training": {"tokens": 300}}
RNN = {"corpus": "tiny", "model": {"family": "rnn", "width": 4}, "training": {"tokens": 300}}
COUNTS = {"corpus": "tiny", "model": {"family": "kneser_ney", "order": 2}}
TRIGRAMS = {"corpus": "tiny", "model": {"family": "kneser_ney", "order": 3}}
DIVERGED = math.inf


def make_result(file: TrialFile, name: str, report: Report, best: Report | None) -> TrainResult:
    return TrainResult(name, "", [report], best, 0, None, "tokens", True, file.corpus)


def judge(
    costs: Mapping[str, float], settings: Settings, deviation: float = 0.01, **terms: Any
) -> tuple[Judgement, list[tuple[str, int]]]:
    """The judgement on configurations by their families with these mean costs, and what was trained."""
    sources = {"lstm": LSTM, "rnn": RNN, "kneser_ney": COUNTS, "trigrams": TRIGRAMS}
    files = {name: open_judged(sources[name], settings, trust_code=False).file for name in costs}
    opened = [Judged(name, file, name) for name, file in files.items()]
    trained: list[tuple[str, int]] = []

    def train(file: TrialFile, name: str) -> TrainResult:
        seed = file.trial.seed
        trained.append((name, seed))
        noise = (
            0.0
            if name in ("kneser_ney", "trigrams")
            else np.random.default_rng([seed, len(name)]).normal(0, deviation)
        )
        cost = costs[name] + noise
        has_diverged = math.isinf(cost)
        report = make_report(300, None if has_diverged else cost, "diverged" if has_diverged else "budget")
        best = None if has_diverged else report
        return make_result(file, name, report, best)

    asked = Repeats(until="decided", **terms)
    return judge_configurations(opened[0], opened[1], asked, settings, train), trained


def test_a_better_candidate_is_found_under_new_seeds_that_both_have(settings: Settings) -> None:
    judged, trained = judge({"rnn": 4.5, "lstm": 4.0}, settings)
    assert judged.outcome == "better"
    assert judged.text.startswith("lstm is better than rnn: perplexity 39.")
    seeds = {
        name: {seed for trained_name, seed in trained if trained_name == name} for name in ("lstm", "rnn")
    }
    assert seeds["lstm"] == seeds["rnn"]
    assert 0 not in seeds["lstm"]
    assert len(trained) == len(set(trained)) == judged.tokens // 300


@pytest.mark.parametrize("has_diverged", [False, True])
def test_the_seeds_are_new_to_the_studies_of_the_home(
    has_diverged: bool, settings: Settings, study_file: Path
) -> None:
    proposals = resolve(study_file, settings, seed=2).open_proposals()
    trial = require(proposals.ask())
    if has_diverged:
        proposals.fail(trial.number, TrialEnd(reason=StopReason.DIVERGED))
    else:
        proposals.complete(trial.number, 4.0)
    config = TrialConfig.model_validate(trial.configuration)
    first = TrialFile(corpus="tiny", trial=config.model_copy(update={"seed": 0}))
    other = open_judged(RNN, settings, trust_code=False).file.trial
    same = {"training": config.training, "protocol": config.protocol}
    second = TrialFile(corpus="tiny", trial=other.model_copy(update=same))
    trained: list[int] = []

    def train(file: TrialFile, name: str) -> TrainResult:
        trained.append(file.trial.seed)
        report = make_report(300, 4.0 + len(trained) / 1000, "budget")
        return make_result(file, name, report, report)

    terms = Repeats(until="decided", max_seeds=3)
    judge_configurations(Judged("a", first, "a"), Judged("b", second, "b"), terms, settings, train)
    assert config.seed == 2
    assert min(trained) == 3


def test_a_worse_and_an_equal_candidate_are_not_better(settings: Settings) -> None:
    assert judge({"lstm": 4.0, "rnn": 4.5}, settings)[0].outcome == "worse"
    equal, _ = judge({"lstm": 4.0, "rnn": 4.0}, settings, 1e-4)
    assert equal.text.startswith("rnn and lstm are equal within 0.5 %: ")


def test_a_difference_within_the_noise_is_undecided_at_the_last_seed(settings: Settings) -> None:
    judged, trained = judge({"lstm": 4.0, "rnn": 4.0}, settings, max_seeds=4)
    assert (judged.outcome, len(trained)) == ("undecided", 8)
    start = "Undecided after 4 seeds: rnn or lstm may be better: rnn against lstm, perplexity "
    assert judged.text.startswith(start)


def test_a_change_of_seed_alone_is_no_improvement(settings: Settings) -> None:
    opened = [open_judged({**LSTM, "seed": seed}, settings, trust_code=False) for seed in (0, 1)]

    def train(file: TrialFile, name: str) -> TrainResult:
        raise AssertionError("nothing is trained")

    judged = judge_configurations(opened[0], opened[1], Repeats(until="decided"), settings, train)
    assert judged.outcome == "same configuration"
    assert judged.text.endswith("a change of seed is no improvement.")


def test_a_model_that_counts_is_trained_once(settings: Settings) -> None:
    judged, trained = judge({"kneser_ney": 4.5, "lstm": 4.0}, settings)
    assert judged.outcome == "better"
    assert [name for name, _ in trained].count("kneser_ney") == 1


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (
            4.0,
            "trigrams is better than kneser_ney: perplexity 9.5 % lower; both learn by counting",
        ),
        (
            4.2,
            "trigrams is worse than kneser_ney: perplexity 10.5 % higher; both learn by counting",
        ),
        (4.1, "trigrams and kneser_ney are equal within 0.5 %: perplexity 0.0 % lower; both learn by "),
    ],
)
def test_two_models_that_count_differ_exactly(cost: float, text: str, settings: Settings) -> None:
    judged, trained = judge({"kneser_ney": 4.1, "trigrams": cost}, settings)
    assert judged.text.startswith(text)
    assert len(trained) == 2


def test_a_candidate_that_diverges_is_worse_and_its_seeds_are_counted(settings: Settings) -> None:
    judged, _ = judge({"lstm": 4.0, "rnn": DIVERGED}, settings)
    assert judged.text == "rnn is worse than lstm: 3 of 3 seeds of rnn diverged."


def test_two_configurations_that_diverge_have_no_result(settings: Settings) -> None:
    judged, _ = judge({"lstm": DIVERGED, "rnn": DIVERGED}, settings)
    assert judged.outcome == "undecided"
    assert judged.text == (
        "Undecided: no seed of either has a result: 3 of 3 seeds of lstm diverged; "
        "3 of 3 seeds of rnn diverged."
    )


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        ({**LSTM, "training": {"tokens": 600}}, "lstm .first. and lstm .second. .*: tokens 300 and 600"),
        (
            {**RNN, "protocol": {"kind": "stream", "batch_size": 2}},
            "protocol and task sentence.* and stream",
        ),
    ],
)
def test_configurations_of_other_terms_do_not_compare(
    candidate: dict[str, Any], message: str, settings: Settings
) -> None:
    with pytest.raises(StudyError, match=message):
        memtune.judge(LSTM, candidate, settings=settings, progress=False)


def test_configurations_are_trained_and_judged(settings: Settings) -> None:
    judged = memtune.judge(LSTM, RNN, indifference=100.0, settings=settings, progress=False)
    assert judged.outcome == "equal"
    assert {estimate.seeds for estimate in judged.estimates.values()} == {3}
    assert judged.cpu_hours > 0


def test_runs_of_a_file_have_one_name_and_what_was_trained_before_is_not_counted(
    settings: Settings, tmp_path: Path
) -> None:
    files = tmp_path / "a.toml", tmp_path / "t.toml"
    for file, trial in zip(files, (LSTM, RNN), strict=True):
        file.write_text(format_toml(trial))
    known = memtune.train(files[1], {"seed": 1}, settings=settings, progress=False)
    terms: dict[str, Any] = {"indifference": 100.0, "settings": settings, "progress": False}
    judged, again = (memtune.judge(*files, **terms) for _ in range(2))
    assert judged.text.startswith(f"{files[1]} and {files[0]} are equal")
    rows = compare("tiny", settings=settings).rows
    assert {row.name for row in rows} == {f"{name} seed {seed}" for name in "at" for seed in (1, 2, 3)}
    assert judged.tokens == sum(row.tokens for row in rows) - known.curve[-1].tokens
    assert judged.cpu_hours > 0
    assert (again.text, again.tokens, again.cpu_hours) == (judged.text, 0, 0.0)
    printed = CliRunner().invoke(app, ["judge", *map(str, files), "--indifference", "100"])
    assert printed.exit_code == 3
    assert printed.output.endswith("nothing was trained\n")
