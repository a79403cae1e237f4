"""Papers' tables: their rows make trials, train at scale tiny, and are compared with the published values."""

import shlex
from typing import Any

import pytest
import typer

from memtune.cli import app
from memtune.corpora.formats import FORMATS
from memtune.errors import ConfigurationError, CorpusError, StudyError
from memtune.library import FileKind, list_packaged
from memtune.objective import Objective
from memtune.results.reproduction import table_run
from memtune.results.reproduction.published_tables import (
    PublishedRow,
    PublishedTable,
    Scale,
    has_printed_size,
    load_paper,
    select_tables,
)
from memtune.results.reproduction.table_run import ReproducedRow, RowState, reproduce_table
from memtune.settings import Settings
from memtune.tracking import find_champion
from memtune.values import parse
from tests.unit.results.reproduction_corpus import import_small_corpora

PAPERS = list_packaged(FileKind.PAPER)
TABLES = [(paper, table) for paper in PAPERS for table in load_paper(paper).tables]

SHOWN = {
    ("tran2016", "ptb"): ["5-gram Kneser-Ney", "LSTM, 3 layers", "RM(+tM-g)"],
    ("tran2016", "4"): ["LSTM, 256 units"],
    ("cheng2016", "1"): ["KN5", "LSTMN, 3 layers"],
    ("cheng2016", "2-fine"): ["LSTM", "LSTMN, 2 layers"],
    ("cheng2016", "3"): ["LSTMN deep fusion, 100 units"],
    ("benes2017", "1"): ["shallow feed-forward", "small RMN"],
    ("yogatama2018", "1-ptb"): ["attention, K = 15", "stack, multipop adaptive computation"],
    ("yogatama2018", "2"): ["stack"],
    ("mirowski2015", "1"): ["RNN+3g, 50 units"],
    ("mirowski2015", "2"): ["ldepRNN+3g, 50 units"],
}
"""Rows that a test trains: one of every kind, because a whole table takes long."""


def find_table(paper: str, name: str) -> PublishedTable:
    (table,) = select_tables(load_paper(paper), name)
    return table


@pytest.mark.parametrize(("paper", "table"), TABLES, ids=lambda value: getattr(value, "name", value))
def test_every_row_of_every_scale_is_a_trial_with_a_name_of_its_own(
    paper: str, table: PublishedTable
) -> None:
    names = [row.name for row in table.rows]
    assert len(set(names)) == len(names)
    for scale, terms in table.scales.items():
        assert set(terms.rows or ()) | terms.row_changes.keys() <= set(names)
        trials = [table.make_trial(row, scale) for row in table.rows]
        identities = {file.trial.identity("digest") for file in trials}
        assert len(identities) == len(trials) or scale == "tiny"  # equal widths make equal rows


def test_the_rows_of_the_papers_that_have_trial_files_are_those_files() -> None:
    table = find_table("tran2016", "ptb")
    for name, file in (("LSTM, 3 layers", "tran2016_ptb_lstm"), ("RM(+tM-g)", "tran2016_ptb_rm")):
        (row,) = [row for row in table.rows if row.name == name]
        from_file = PublishedRow(name=name, trial=file)
        assert table.make_trial(row, "paper").trial == table.make_trial(from_file, "paper").trial


@pytest.mark.parametrize(("paper", "table"), TABLES, ids=lambda value: getattr(value, "name", value))
def test_the_commands_that_import_a_text_are_complete(paper: str, table: PublishedTable) -> None:
    commands: Any = typer.main.get_command(app)
    imported = set()
    for words in map(shlex.split, table.import_command.split("; ")):
        if words[:2] != ["memtune", "corpus"]:
            continue
        command = commands.commands["corpus"].commands[words[2]]
        given = command.make_context(words[2], words[3:]).params
        assert given.get("format", "text") in FORMATS
        imported |= {given["name"]} if words[2] == "import" else set()
    assert imported == set(table.corpus.split("+"))


@pytest.mark.parametrize(
    ("count", "printed", "is_equal"),
    [
        (2_313_000, "2.3M", True),
        (2_090_800, "2.0M", True),
        (2_350_000, "2.4M", True),
        (331_203, "330k", True),
        (241_003, "260k", False),
    ],
)
def test_a_printed_size_has_printed_size(count: int, printed: str, is_equal: bool) -> None:
    assert has_printed_size(count, printed) is is_equal


def test_the_rows_whose_size_differs_from_the_printed_one_say_why() -> None:
    for _, table in TABLES:
        words = 33_278 if table.corpus == "wikitext2" else 10_000
        for row in table.rows:
            if row.parameters and not has_printed_size(table.count_parameters(row, words), row.parameters):
                assert row.reason, (table.name, row.name)


@pytest.mark.parametrize(("paper", "name"), SHOWN)
def test_rows_of_every_table_train_at_scale_tiny(settings: Settings, paper: str, name: str) -> None:
    table = find_table(paper, name)
    corpus = import_small_corpora(settings, table)
    tiny = table.scales["tiny"].model_copy(update={"rows": tuple(SHOWN[paper, name])})
    table = table.model_copy(update={"scales": {**table.scales, "tiny": tiny}})
    rows = list(reproduce_table(table, "tiny", settings, corpus=corpus))
    assert [row.name for row in rows] == [row.name for row in table.rows]
    for row in rows:
        expected = "trained" if row.name in SHOWN[paper, name] else "not run"
        assert row.state == expected, row.reason
        if expected == "trained":
            assert row.test is not None
            assert row.parameters is not None
    assert find_champion(settings.tracking_uri, corpus) is None, "a tiny model is in the registry"


TABLE = parse(
    PublishedTable,
    {
        "name": "1",
        "title": "A table",
        "corpus": "tiny",
        "import_command": "memtune corpus import tiny ...",
        "text_source": "a test",
        "base": {"model.family": "lstm", "model.width": 4, "training.epochs": 3},
        "scales": {"paper": {}, "cpu": {"tokens": 300, "rows": ["one"], "note": "300 tokens"}},
        "rows": [
            {"name": "one", "test": 5.0, "parameters": "1k", "reason": "known"},
            {"name": "two", "test": 1.0, "changes": {"model.width": 6}},
        ],
    },
    "table",
)


def test_a_trained_row_is_not_trained_again_and_its_test_split_is_read_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = list(reproduce_table(TABLE, "cpu", settings))
    assert [row.state for row in first] == ["trained", "not run"]
    assert first[0].difference is not None
    assert first[0].test == pytest.approx(5.0 * (1 + first[0].difference / 100))
    assert "300 tokens" in first[0].reason

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("the test split is read again")

    monkeypatch.setattr(table_run, "evaluate_model", refuse)
    steps: list[str] = []
    again = list(
        reproduce_table(TABLE, "cpu", settings, on_progress=lambda row, progress: steps.append(row.name))
    )
    assert again == first
    assert steps == []


def test_a_missing_corpus_is_named_with_its_import_and_its_source(settings: Settings) -> None:
    table = TABLE.model_copy(update={"corpus": "missing"})
    with pytest.raises(CorpusError, match=r"missing.*text: a test; import it with: memtune corpus import"):
        list(reproduce_table(table, "cpu", settings))


def test_a_row_without_a_finite_validation_fails_alone(settings: Settings) -> None:
    steep = {"training.optimiser": {"kind": "sgd", "learning_rate": 1e30}, "training.clip_norm": 1e30}
    scale = Scale(tokens=300, row_changes={"one": steep})
    table = TABLE.model_copy(update={"scales": {"paper": Scale(), "cpu": scale}})
    rows = list(reproduce_table(table, "cpu", settings))
    assert [row.state for row in rows] == ["failed", "trained"]


@pytest.mark.parametrize(
    ("number", "names"), [(None, 4), ("2", 2), ("2-fine", 1), ("3", 1)], ids=lambda value: str(value)
)
def test_a_number_selects_all_parts_of_a_table(number: str | None, names: int) -> None:
    assert len(select_tables(load_paper("cheng2016"), number)) == names


def test_an_unknown_paper_or_table_is_named() -> None:
    with pytest.raises(StudyError, match='no packaged tables of a paper "tran2015"; did you mean "tran2016"'):
        load_paper("tran2015")
    with pytest.raises(ConfigurationError, match='no table "9"; the tables are 1, 2-fine, 2-binary, 3'):
        select_tables(load_paper("cheng2016"), "9")


def explain(difference: float, objective: str, scale: str, reason: str = "") -> str:
    row = PublishedRow(name="x", test=100.0, reason=reason)
    return table_run._explain(objective, difference, row, "shorter", scale)  # type: ignore[arg-type]


def test_the_reason_of_a_difference() -> None:
    assert (
        explain(1.9, Objective.PERPLEXITY, "paper")
        == explain(-0.9, Objective.ACCURACY, "paper")
        == "reproduced"
    )
    assert explain(-9.0, Objective.PERPLEXITY, "paper").startswith("better")
    assert explain(9.0, Objective.ACCURACY, "paper").startswith("better")
    assert explain(9.0, Objective.PERPLEXITY, "cpu", "known") == "known; shorter"
    assert explain(0.0, Objective.PERPLEXITY, "tiny") == "shorter"


def test_results_are_values() -> None:
    row = ReproducedRow(
        table="1",
        name="x",
        objective=Objective.PERPLEXITY,
        state=RowState.NOT_RUN,
        published_valid=None,
        published_test=1.0,
        published_parameters=None,
    )
    assert ReproducedRow.model_validate_json(row.model_dump_json()) == row
