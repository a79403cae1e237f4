"""Compared trials: those of one protocol, and of one study if it is named."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.api import run_search
from memtune.cli.command_line import app
from memtune.errors import TrackingError
from memtune.results.comparison import compare, find_champions
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from memtune.tracking import Recorder
from memtune.trial_state import TrialState

pytestmark = pytest.mark.usefixtures("without_report")

PROTOCOL = {"protocol.kind": "sentence", "protocol.batch_size": 20}


@pytest.fixture
def recorded(settings: Settings) -> Settings:
    """Two studies of one trial each."""
    for study in ("first-0123abcd", "second-0123abcd"):
        with Recorder(settings.tracking_uri, "tiny") as recorder:
            recorder.start_study(study, study, {}, {})
            recorder.start_trial(f"trial of {study}", "lstm #0", PROTOCOL)
            recorder.finish_trial(f"trial of {study}", TrialState.COMPLETE)
            recorder.finish_trial(None, TrialState.COMPLETE)
            assert recorder.flush(60)
    return settings


@pytest.mark.parametrize("name", ["second", "second-0123abcd"])
def test_a_study_is_named_with_or_without_its_digest(recorded: Settings, name: str) -> None:
    (row,) = compare("tiny", study=name, settings=recorded).rows
    assert row.study == "second-0123abcd"


def test_without_a_name_all_studies_are_compared(recorded: Settings) -> None:
    assert {row.study for row in compare("tiny", settings=recorded).rows} == {
        "first-0123abcd",
        "second-0123abcd",
    }


def test_studies_of_unequal_budgets_are_named_with_them_and_the_champion_is_too(
    study_file: Path, settings: Settings
) -> None:
    for name, tokens in (("long", 900), ("short", 600)):
        terms = {"name": name, "training.tokens": tokens, "budget.trials": 1}
        run_search(study_file, terms, settings=settings, executor=InProcessExecutor())
    ids = sorted({row.study for row in compare("tiny", settings=settings).rows})
    shown = CliRunner().invoke(app, ["compare", "--corpus", "tiny"])
    assert "unequal numbers of tokens" in shown.stderr
    assert all(f"{study} {budget}" in shown.stderr for study, budget in zip(ids, (900, 600), strict=True))
    (champion,) = find_champions("tiny", settings)
    assert f"models:/tiny@champion is version {champion.version}" in shown.stdout
    assert f"study {champion.study}" in shown.stdout
    assert not CliRunner().invoke(app, ["compare", "--corpus", "tiny", "--study", "long"]).stderr


def test_the_top_are_configurations_with_all_their_seeds(recorded: Settings) -> None:
    found = compare("tiny", settings=recorded)
    best = found.rows[0].model_copy(update={"configuration": "a"})
    seed = best.model_copy(update={"run_id": "seed"})
    several = replace(found, rows=[best, seed, *found.rows[1:]])
    assert several.select_top(1) == [best, seed]
    assert several.count_configurations() == 2


def test_a_corpus_in_another_case_is_suggested(recorded: Settings) -> None:
    with pytest.raises(TrackingError, match=r'corpus "TINY".*did you mean "tiny"'):
        compare("TINY", settings=recorded)


def test_trials_under_another_protocol_are_left_out_and_named(recorded: Settings) -> None:
    with Recorder(recorded.tracking_uri, "tiny") as recorder:
        recorder.start_trial("another", "lstm #1", PROTOCOL, {"protocol": "stream"})
        recorder.finish_trial("another", TrialState.COMPLETE)
        assert recorder.flush(60)
    found = compare("tiny", settings=recorded)
    assert len(found.rows) == 2
    (other,) = found.other_protocols
    assert [row.name for row in compare("tiny", other, settings=recorded).rows] == ["lstm #1"]


def label(recorded: Settings, number: int, protocol: str) -> None:
    """One more trial under a label."""
    with Recorder(recorded.tracking_uri, "tiny") as recorder:
        recorder.start_trial(f"under {protocol}", f"lstm #{number}", PROTOCOL, {"protocol": protocol})
        recorder.finish_trial(f"under {protocol}", TrialState.COMPLETE)
        assert recorder.flush(60)


def test_a_protocol_without_a_task_is_accepted_if_only_one_task_has_it(recorded: Settings) -> None:
    label(recorded, 1, "sentence, agreement by accuracy")
    assert compare("tiny", "sentence", settings=recorded).protocol == "sentence, agreement by accuracy"
    label(recorded, 2, "sentence, completion by accuracy")
    with pytest.raises(
        TrackingError, match=r"several tasks .* --protocol 'sentence, agreement by accuracy' or"
    ):
        compare("tiny", "sentence", settings=recorded)
    with pytest.raises(TrackingError, match=r'under protocol "tree"; write --protocol'):
        compare("tiny", "tree", settings=recorded)
    label(recorded, 3, "sentence")
    assert compare("tiny", "sentence", settings=recorded).protocol == "sentence"


def test_the_error_for_an_unknown_study_lists_the_known_ones(recorded: Settings) -> None:
    with pytest.raises(TrackingError, match=r'no study "third".*known: first-0123abcd, second'):
        compare("tiny", study="third", settings=recorded)


def test_the_error_for_a_home_without_trials_or_champions_names_it(settings: Settings) -> None:
    for question in (lambda: compare("tiny", settings=settings), lambda: find_champions("tiny", settings)):
        with pytest.raises(TrackingError, match=r"mlflow\.db.*MEMTUNE_HOME"):
            question()


def test_the_error_for_a_misspelt_corpus_suggests_one_with_trials(recorded: Settings) -> None:
    with pytest.raises(TrackingError, match=r'corpus "tinny" in .*mlflow\.db; did you mean "tiny"\?'):
        compare("tinny", settings=recorded)
