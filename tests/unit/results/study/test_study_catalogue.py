"""The studies of a home: their results, stopped trials, costs and savings, and their removal."""

import json
import logging
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.cli.command_line import app, run_command
from memtune.errors import MemtuneError, StudyError
from memtune.experiments.single_trial import load_trial
from memtune.results.study.study_catalogue import list_studies, remove_study, study_cost
from memtune.results.study.study_detail import explain_end, format_trial_file, show_study
from memtune.results.study.study_view import open_view
from memtune.search import Lease, StoredTrial, StudyReader
from memtune.search.early_stopping.successive_halving import SuccessiveHalvingConfig
from memtune.settings import Settings
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.director import Director
from memtune.trial_state import TrialState
from memtune.usage import NodeSeconds, Usage
from tests.directors import report_curve
from tests.presence import require
from tests.unit.results.made_trials import make_config, make_view
from tests.unit.studies.study_files import resolve
from tests.unit.studies.test_director import MemoryRecords, make_report

LOSSES = {0: 3.0, 1: 2.0, 2: 2.5, 3: 1.5}
PRICES = "\n[prices]\ncurrency = 'CHF'\ncpu_hour = 2.0\n"
runner = CliRunner()


@pytest.fixture
def study(study_file: Path, settings: Settings) -> ResolvedStudy:
    """A study of four trials of 900 tokens, the third of which is stopped at 300 tokens."""
    study_file.write_text(study_file.read_text() + PRICES)
    resolved = resolve(study_file, settings)
    resolved.store_terms()
    rule = SuccessiveHalvingConfig(grace=300, factor=2).make_rule(900)
    director = Director(resolved.open_proposals(), MemoryRecords(), 4, rule)
    while trial := director.take_next_trial():
        number = trial.proposal.number
        director.on_started(number)
        for count in (1, 2, 3):
            curve = [
                make_report(300 * (i + 1), LOSSES[number] - i / 10, "budget" if i == 2 else None)
                for i in range(count)
            ]
            usage = Usage(tokens=300 * count, nodes={"": NodeSeconds(cpu=1800.0 * count)})
            if not report_curve(director, number, curve, usage=usage):
                break
        director.on_ended(number)
    return resolved


def test_a_study_is_listed_with_its_best_trial_and_its_usage(
    study: ResolvedStudy, settings: Settings
) -> None:
    (found,) = list_studies(settings)
    assert (found.id, found.corpus, found.question) == (study.id, "tiny", "Does a second layer help?")
    assert (found.trials, found.repeats) == ({"complete": 3, "stopped": 1}, 0)
    assert found.best is not None
    assert (found.best.number, found.best.tokens, round(found.best.figure, 3)) == (3, 900, 3.669)
    assert (found.tokens, found.cpu_hours) == (3 * 900 + 300, 5.0)
    assert found.last_activity is not None


def test_trials_that_have_not_ended_are_open_whether_they_have_a_worker_or_not() -> None:
    configs = [make_config("lstm", number) for number in range(2)]
    outcomes = [
        StoredTrial(number, config.identity("corpus"), config.model_dump(mode="json"), state)
        for number, (config, state) in enumerate(
            zip(configs, (TrialState.RUNNING, TrialState.WAITING), strict=True)
        )
    ]
    assert make_view(outcomes).by_state == {"open": outcomes}


def test_the_cost_is_by_state_and_family_with_what_early_stopping_saved(
    study: ResolvedStudy, settings: Settings
) -> None:
    cost = study_cost(study.id, settings)
    assert [(row.group, row.trials, row.tokens) for row in cost.by_state] == [
        ("complete", 3, 2700),
        ("stopped", 1, 300),
    ]
    assert [(row.group, row.tokens, row.money) for row in cost.by_family] == [("lstm", 3000, 10.0)]
    assert (cost.full_tokens, cost.saved_tokens) == (3600, 600)
    assert cost.saved_share == pytest.approx(1 / 6)
    assert cost.currency == "CHF"


def test_a_study_shows_its_progress_and_its_stopped_trials(study: ResolvedStudy, settings: Settings) -> None:
    detail = show_study("layers", settings)
    assert [(best.family, best.number) for best in detail.alternatives] == [("lstm", 3)]
    assert [(point.tokens, point.number, round(point.cost, 1)) for point in detail.progress] == [
        *[(300, 0, 3.0), (600, 0, 2.9), (900, 0, 2.8)],
        *[(1200, 1, 2.0), (1500, 1, 1.9), (1800, 1, 1.8)],
        *[(2400, 3, 1.5), (2700, 3, 1.4), (3000, 3, 1.3)],
    ]
    # Half a core hour for 300 tokens in this study, trials 0 to 2 and the first report of trial 3.
    assert detail.progress[6].core_hours == pytest.approx(4.0)
    (ended,) = detail.ended_early
    assert (ended.number, ended.tokens, ended.figure) == (2, 300, "12.182")
    assert ended.leader_cost == 1.5, "of trial 3, the best of full length, at the same tokens"
    assert "rank 2 of 3 at the rung of 300" in ended.reason


def test_the_tokens_of_a_trial_that_diverged_are_those_it_was_trained_on(
    study_file: Path, settings: Settings
) -> None:
    """Its curve, its best value and its comparison with others end at its last validation."""
    resolved = resolve(study_file, settings)
    resolved.store_terms()
    director = Director(resolved.open_proposals(), MemoryRecords(), 2, None)
    for curve in (
        [make_report(300, 3.0), make_report(450, None, "diverged")],
        [make_report(300, 2.5), make_report(900, 2.0, "budget")],
    ):
        number = require(director.take_next_trial()).proposal.number
        director.on_started(number)
        tokens = curve[-1].tokens
        usage = Usage(tokens=tokens, nodes={"": NodeSeconds(cpu=8.0 * tokens)})
        report_curve(director, number, curve, usage=usage)
        director.on_ended(number)
    detail = show_study("layers", settings)
    assert [(trial.tokens, [*trial.curve]) for trial in detail.trials] == [(450, [300]), (900, [300, 900])]
    (ended,) = detail.ended_early
    assert (ended.tokens, ended.last_cost) == (450, 3.0)
    progress = [(point.tokens, round(3600 * point.core_hours)) for point in detail.progress]
    assert progress == [(300, 2400), (750, 6000), (1350, 10800)]


def test_the_reason_of_a_stop_comes_with_the_values_it_was_compared_with(
    study: ResolvedStudy, settings: Settings
) -> None:
    end, compared = explain_end(study.id, 2, settings)
    assert end.tokens == 300
    assert [(trial.number, trial.tokens, trial.cost) for trial in compared] == [
        (3, 300, 1.5),
        (1, 300, 2.0),
        (2, 300, 2.5),
        (0, 300, 3.0),
    ]
    with pytest.raises(StudyError, match=r"trial 1 of layers-.* is complete"):
        explain_end(study.id, 1, settings)
    with pytest.raises(StudyError, match=r"trial 9 of layers-.* is not a trial of the study"):
        explain_end(study.id, 9, settings)


def test_a_trial_of_a_study_is_a_file_that_trains_it_again(
    study: ResolvedStudy, settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "trial.toml"
    file.write_text(format_trial_file(study.id, 3, settings))
    found, stored = load_trial(file), open_view(study.id, settings).stored.outcomes[3]
    assert found.corpus == study.corpus.name
    assert found.trial == stored.config
    with pytest.raises(StudyError, match=r"trial 9 is not .*: memtune compare --corpus tiny --study layers-"):
        format_trial_file(study.id, 9, settings)


def test_the_reason_of_a_pause_is_shown_like_that_of_a_stop(study_file: Path, settings: Settings) -> None:
    text = '[early_stopping]\nkind = "promotion"\ngrace = 300\nfactor = 2\n'
    study_file.write_text(f"{study_file.read_text()}\n{text}")
    resolved = resolve(study_file, settings)
    resolved.store_terms()
    rule, proposals = resolved.make_early_stopping_rule(), resolved.open_proposals()
    with pytest.raises(StudyError, match=r"trial 0 of layers-.* is not a trial of the study"):
        explain_end(resolved.id, 0, settings)
    director = Director(proposals, MemoryRecords(), 1, rule)
    assert director.take_next_trial()
    director.on_started(0)
    report_curve(director, 0, [make_report(300, 2.0)])
    director.on_ended(0)
    end, _ = explain_end(resolved.id, 0, settings)
    assert (end.state, end.tokens) == (TrialState.PAUSED, 300)
    assert "promotion: rank 1 of 1" in end.reason
    assert [trial.number for trial in show_study(resolved.id, settings).ended_early] == [0]


def test_an_unknown_study_is_named_with_a_suggestion(study: ResolvedStudy, settings: Settings) -> None:
    with pytest.raises(StudyError, match=r'no study "layer"; .*layers'):
        open_view("layer", settings)


def test_a_name_that_several_studies_have_is_refused_with_their_ids(
    study: ResolvedStudy, study_file: Path, settings: Settings
) -> None:
    other = resolve(study_file, settings, seed=7)
    assert other.open_proposals().ask()
    with pytest.raises(
        StudyError, match=f'studies are called "layers": give the id of one, {study.id}, {other.id}'
    ):
        open_view("layers", settings)


def test_a_study_with_a_driver_is_not_removed(study: ResolvedStudy, settings: Settings) -> None:
    with (
        Lease(settings.study_database, study.id, heartbeat_seconds=0.05),
        pytest.raises(StudyError, match="is run by process"),
    ):
        remove_study(study.id, settings=settings)
    assert StudyReader(settings.study_database).list_ids() == [study.id]


def test_a_removed_study_leaves_no_checkpoint_and_no_trial(study: ResolvedStudy, settings: Settings) -> None:
    folder = Path(settings.studies_folder) / study.id
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "weights").write_bytes(b"0" * 5000)
    refused = runner.invoke(app, ["study", "remove", "layers"], input="n\n")
    assert refused.exit_code == 1
    assert "4 trials and 0.0 MiB of checkpoints" in refused.output
    assert folder.exists()
    assert runner.invoke(app, ["study", "remove", "layers", "--yes"]).exit_code == 0
    assert not folder.exists()
    assert StudyReader(settings.study_database).list_ids() == []
    assert "no study yet" in runner.invoke(app, ["study", "list"]).output


def test_the_commands_print_what_the_functions_return(study: ResolvedStudy, settings: Settings) -> None:
    listed = json.loads(runner.invoke(app, ["study", "list", "--json"]).output)
    assert [found["id"] for found in listed] == [study.id]
    shown = json.loads(runner.invoke(app, ["study", "show", "layers", "--json"]).output)
    assert shown == show_study("layers", settings).model_dump(mode="json")
    why = json.loads(runner.invoke(app, ["study", "show", "layers", "--why", "2", "--json"]).output)
    assert why["end"]["number"] == 2
    cost = json.loads(runner.invoke(app, ["study", "cost", "layers", "--json"]).output)
    assert cost == study_cost("layers", settings).model_dump(mode="json")
    for command, words in {
        ("list",): "3 complete, 1 stopped",
        ("show", "layers"): "rank 2 of 3",
        ("show", "layers", "--why", "2"): "rank now",
        ("cost", "layers"): "saved 600 of 3,600 tokens",
    }.items():
        assert words in runner.invoke(app, ["study", *command]).output


@pytest.mark.parametrize(
    "content", ["5", '"x"', '{"question": 5}', '{"prices": 7}', '{"prices": {"cpu_hour": "x"}}', "[[["]
)
def test_stored_terms_that_no_driver_wrote_are_named(
    content: str, study: ResolvedStudy, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(settings.studies_folder) / study.id / "study.json"
    path.write_text(content)
    assert list_studies(settings) == [], "others of the home would be listed"
    assert f"study {study.id} is not listed: {path} (restore it" in caplog.text
    with pytest.raises(MemtuneError, match=r"study\.json"):
        study_cost(study.id, settings)
    remove_study(study.id, settings=settings)
    assert not path.parent.exists()


def test_a_study_without_stored_terms_is_removed_with_its_runs(
    study: ResolvedStudy, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(settings.studies_folder) / study.id / "study.json"
    path.unlink()
    assert study_cost(study.id, settings).currency is None
    assert f"{path} (restore it, or resume the study, which writes it again) is missing" in caplog.text
    assert remove_study(study.id, with_runs=True, settings=settings) == 0


def test_a_study_of_another_version_is_left_out_with_a_warning(
    study: ResolvedStudy, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Path(settings.study_database.removeprefix("journal://"))
    stored = journal.read_text()
    for old, new in (("early_stopping", "no_such_reason"), ('"lstm"', '"no_such_family"')):
        assert old in stored
        journal.write_text(stored.replace(old, new))
        caplog.clear()
        assert list_studies(settings) == []
        assert f"study {study.id} is not listed" in caplog.text
        with pytest.raises(MemtuneError, match=study.id):
            study_cost(study.id, settings)


def test_a_warning_shows_control_characters(
    study: ResolvedStudy,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = Path(settings.studies_folder) / study.id / "study.json"
    path.write_text('{"prices": {"\\u001b[31m": 1}}')
    monkeypatch.setattr(sys, "argv", ["memtune", "study", "list"])
    monkeypatch.setattr(logging.getLogger("memtune"), "handlers", [])
    with pytest.raises(SystemExit) as ended:
        run_command()
    assert not ended.value.code
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert r"\x1b[31m" in shown


def test_the_reason_of_a_failure_is_shown_literally(study: ResolvedStudy, settings: Settings) -> None:
    journal = Path(settings.study_database.removeprefix("journal://"))
    journal.write_text(journal.read_text().replace("rank 2 of 3", "[/b] \\u001b[31m"))
    shown = runner.invoke(app, ["study", "show", study.id])
    assert shown.exit_code == 0, shown.output
    assert "\x1b" not in shown.output
    assert r"[/b] \x1b[31m" in " ".join(shown.output.split())
