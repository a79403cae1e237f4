"""Papers' tables: their rows make trials, train at scale tiny, and are compared with the published values."""

import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from memtune.cli.command_line import app
from memtune.corpora import import_corpus, open_corpus
from memtune.corpora.formats import FORMATS
from memtune.corpora.probes.probe_corpora import name_corpus
from memtune.corpora.store.vocabulary import VectorFile
from memtune.errors import ConfigurationError, CorpusError, StudyError
from memtune.experiments import single_trial, table_run
from memtune.experiments.published_tables import (
    PublishedRow,
    PublishedTable,
    Scale,
    has_printed_size,
    load_paper,
    select_rows,
    select_tables,
)
from memtune.experiments.table_run import (
    CoreHours,
    ReproducedRow,
    RowHooks,
    RowState,
    estimate_table,
    reproduce_table,
)
from memtune.library import FileKind, list_packaged
from memtune.objective import Objective
from memtune.reports.experiment_views import format_reproduction_page
from memtune.settings import Settings
from memtune.tracking import RecordedEvaluation, find_evaluation, list_champions
from memtune.training import Report, TrialConfig
from memtune.values import parse
from tests.conftest import SENTENCES, open_home
from tests.unit.cli.invocation import read_error, read_output
from tests.unit.experiments.reproduction_corpus import import_small_corpora

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
        if words[2] == "import" and not given["split"]:
            assert None not in (given["valid"], given["test"]), "figures need text and questions of both"
        assert given.get("format", "text") in FORMATS
        imported |= {given["name"]} if words[2] == "import" else set()
        imported |= {name_corpus(name) for name in given.get("names", ())}
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
    rows = reproduce_table(table.on_corpus(corpus), "tiny", settings)
    assert [row.name for row in rows] == [row.name for row in table.rows]
    for row in rows:
        expected = "trained" if row.name in SHOWN[paper, name] else "not run"
        assert row.state == expected, row.reason
        if expected == "trained":
            assert row.test is not None
            assert row.parameters is not None
    assert not list_champions(settings.tracking_uri, corpus), "a tiny model is in the registry"


@pytest.mark.parametrize("has_vectors", [True, False])
def test_rows_read_the_vectors_of_the_paper_or_say_that_they_have_none(
    settings: Settings, tmp_path: Path, has_vectors: bool
) -> None:
    (tmp_path / "glove").write_text(f"the {'0.5 ' * 299}0.5\n")
    table = find_table("cheng2016", "2-fine")
    corpus = import_small_corpora(settings, table, VectorFile(tmp_path / "glove") if has_vectors else None)
    row = reproduce_table(table.on_corpus(corpus), "tiny", settings, rows=["LSTM"])[0]
    assert row.state == "trained", row.reason
    assert row.reason.startswith("without the vectors that --vectors imports; ") is not has_vectors


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
            {"name": "two", "test": 1, "changes": {"model.width": 6}},
        ],
    },
    "table",
)


def test_a_trained_row_is_not_trained_again_and_its_test_split_is_read_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = reproduce_table(TABLE, "cpu", settings)
    assert [row.state for row in first] == ["trained", "not run"]
    assert first[0].difference is not None
    assert first[0].test == pytest.approx(5.0 * (1 + first[0].difference / 100))
    assert "300 tokens" in first[0].reason

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("the test split is read again")

    monkeypatch.setattr(single_trial, "evaluate", refuse)
    steps: list[str] = []
    hooks = RowHooks(on_report=lambda row, trial, report: steps.append(row.name))
    again = reproduce_table(TABLE, "cpu", settings, hooks=hooks)
    assert again == first
    assert steps == []


BOTH_ROWS = TABLE.model_copy(
    update={"scales": {"paper": Scale(), "cpu": Scale(tokens=300, changes={"training.report_every": 100})}}
)


def test_a_row_is_trained_at_the_rate_of_validation_under_every_seed_on_every_corpus(
    settings: Settings,
) -> None:
    import_corpus("other", dict.fromkeys(("train", "valid", "test"), SENTENCES * 9), settings.corpus_store)
    terms = Scale(tokens=300, rates=(1e-9, 0.5), seeds=3, corpora=("tiny", "other"), rows=("one",))
    table = TABLE.model_copy(update={"scales": {"paper": Scale(), "cpu": terms}})
    trials: list[tuple[float, int]] = []

    def note(row: PublishedRow, trial: TrialConfig, report: Report) -> None:
        if report.is_finished:
            trials.append((trial.gradient_training.optimiser.learning_rate, trial.seed))

    hooks = RowHooks(on_report=note)
    one, two = reproduce_table(table, "cpu", settings, hooks=hooks)
    assert trials == [(1e-9, 0), (0.5, 0), (0.5, 1), (0.5, 2)] * 2
    assert (one.state, two.state) == ("trained", "not run")
    figures = [
        recorded.figures["perplexity"]
        for name in ("tiny", "other")
        for seed in range(3)
        for recorded in [find_test(settings, table, name, seed)]
    ]
    assert one.test == pytest.approx(sum(figures) / 6)
    assert one.test is not None
    assert one.test_interval is not None
    assert one.test_interval[0] < one.test < one.test_interval[1]


def test_a_table_may_print_another_figure_than_the_one_that_chooses_the_weights(settings: Settings) -> None:
    table = find_table("yogatama2018", "2")
    corpus = import_small_corpora(settings, table)
    row = reproduce_table(table.on_corpus(corpus), "tiny", settings, rows=["LSTM"])[0]
    trial = parse(TrialConfig, row.configuration, "row")
    assert (trial.task.objective, row.objective) == (Objective.PERPLEXITY, Objective.ACCURACY)
    recorded = find_evaluation(settings.tracking_uri, corpus, trial.identity(row.corpus_digest or ""))
    assert recorded is not None
    assert row.test == pytest.approx(100 * recorded.figures["accuracy"])


@pytest.fixture(scope="module")
def second_row(module_settings: Settings) -> ReproducedRow:
    """The row "two" of both, which alone is trained in the home of the module."""
    one, two = reproduce_table(BOTH_ROWS, "cpu", module_settings, rows=["two"])
    assert (one.state, two.state) == ("not run", "trained")
    return two


@pytest.fixture(scope="module")
def trained_rows(
    tmp_path_factory: pytest.TempPathFactory, empty_store: Path, tiny_corpora: Path
) -> tuple[list[ReproducedRow], CoreHours]:
    """Both rows, and what their training has left of one core hour."""
    hours = CoreHours(1.0)
    with open_home(tmp_path_factory.mktemp("rows"), empty_store) as settings:
        shutil.copytree(tiny_corpora, settings.corpus_store)
        return reproduce_table(BOTH_ROWS, "cpu", settings, core_hours=hours), hours


def find_test(settings: Settings, table: PublishedTable, name: str, seed: int) -> RecordedEvaluation:
    trial = table.on_corpus(name).make_trial(table.rows[0], "cpu").trial
    optimiser = trial.gradient_training.optimiser.model_copy(update={"learning_rate": 0.5})
    training = trial.gradient_training.model_copy(update={"optimiser": optimiser})
    own = trial.model_copy(update={"training": training, "seed": seed})
    identity = own.identity(open_corpus(name, settings.corpus_store).digest)
    found = find_evaluation(settings.tracking_uri, name, identity)
    assert found is not None
    return found


def test_rows_are_trained_one_at_a_time_in_any_order(settings: Settings) -> None:
    reports: list[str] = []
    hooks = RowHooks(on_report=lambda row, trial, report: reports.append(row.name))
    first = reproduce_table(BOTH_ROWS, "cpu", settings, rows=["two"], hooks=hooks)
    assert [row.state for row in first] == ["not run", "trained"]
    second = reproduce_table(BOTH_ROWS, "cpu", settings, rows=["one"], hooks=hooks)
    assert second[1] == first[1]
    assert reports == ["two"] * 3 + ["one"] * 3
    assert reproduce_table(BOTH_ROWS, "cpu", settings, hooks=hooks) == second
    assert len(reports) == 6


def test_rows_that_do_not_fit_into_the_core_hours_say_what_they_need(
    module_settings: Settings, second_row: ReproducedRow
) -> None:
    (one, two) = reproduce_table(BOTH_ROWS, "cpu", module_settings, core_hours=CoreHours(1e-9))
    assert (one.state, two) == ("not run", second_row)
    assert re.fullmatch(r"about \S+ core hours, where 1e-09 are left", one.reason)


def test_a_dry_run_estimates_what_is_left_of_the_chosen_rows(
    settings: Settings, module_settings: Settings, second_row: ReproducedRow
) -> None:
    first = estimate_table(BOTH_ROWS, "cpu", settings)
    assert (list(first), min(first.values()) > 0) == (["one", "two"], True)
    assert estimate_table(BOTH_ROWS, "cpu", module_settings, rows=["two"]) == {"two": 0.0}
    command = ["reproduce", "benes2017", "--corpus", "tiny", "--scale", "tiny", "--row", "small LSTM"]
    (row,) = json.loads(read_output(*command, "--dry-run", "--json"))
    assert (row["table"], row["row"], row["core_hours"] > 0) == ("1", "small LSTM", True)


def test_a_scale_that_a_table_does_not_have_is_refused_with_those_that_it_has(settings: Settings) -> None:
    with pytest.raises(
        ConfigurationError, match="table 1 has no rows at scale tiny; use --scale paper or cpu"
    ):
        reproduce_table(TABLE, "tiny", settings)
    assert "table 2 has no rows at scale cpu; use --scale paper" in read_error("reproduce", "yogatama2018")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_core_hours_are_estimated_on_the_device_that_trains(settings: Settings) -> None:
    (one, _) = reproduce_table(BOTH_ROWS, "cpu", settings, device="cuda", core_hours=CoreHours(1e-9))
    assert one.state == "failed"
    assert one.reason.startswith('device "cuda" is not available')


def test_core_hours_are_spent_as_they_are_used(
    trained_rows: tuple[list[ReproducedRow], CoreHours],
) -> None:
    rows, hours = trained_rows
    assert [row.state for row in rows] == ["trained", "trained"]
    assert hours.left + sum(row.cpu_hours or 0.0 for row in rows) == pytest.approx(1.0)


def test_a_row_that_is_not_chosen_tells_how_far_it_is(settings: Settings) -> None:
    def stop(row: PublishedRow, trial: TrialConfig, report: Report) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(reproduce_table(BOTH_ROWS, "cpu", settings, rows=["one"], hooks=RowHooks(on_report=stop)))
    (one, two) = reproduce_table(BOTH_ROWS, "cpu", settings, rows=[])
    assert (one.state, two.state) == ("not run", "not run")
    assert re.fullmatch(r"not among the chosen rows; 1\d\d tokens are trained", one.reason)
    assert two.reason == "not among the chosen rows"


def test_a_row_that_another_machine_has_trained_is_read_from_its_checkpoint(
    settings: Settings, module_settings: Settings, second_row: ReproducedRow
) -> None:
    elsewhere, here = (Path(each.studies_folder) / "single" for each in (module_settings, settings))
    shutil.copytree(elsewhere, here, dirs_exist_ok=True)
    reports: list[str] = []
    hooks = RowHooks(on_report=lambda row, trial, report: reports.append(row.name))
    (_, copied) = reproduce_table(BOTH_ROWS, "cpu", settings, rows=["two"], hooks=hooks)
    assert reports == []
    assert copied.model_copy(update={"run_id": second_row.run_id}) == second_row


def test_a_row_on_another_corpus_has_no_published_values(settings: Settings, tmp_path: Path) -> None:
    """In the terminal, as JSON and as Markdown: they hold for the corpus of the table alone."""
    page, command = tmp_path / "page.md", ["reproduce", "benes2017", "--row", "KN5", "--scale", "tiny"]
    command += ["--corpus", "tiny", "--out", str(page)]
    (row,) = json.loads(read_output(*command, "--json"))
    assert (row["state"], row["corpus"]) == ("trained", "tiny")
    published = (
        "published_valid",
        "published_test",
        "published_parameters",
        "has_published_size",
        "difference",
    )
    assert {row[name] for name in published} == {None}
    for shown in (read_output(*command), page.read_text()):
        text = " ".join(shown.split())
        assert "SCRN" not in text, "a row that was not chosen"
        assert "Table 1, Penn Treebank; trained on tiny instead" in text
        assert "no published value; the table's corpus is ptb" in text
        assert not re.search(r"\b141\.2\b", text)


def test_an_unknown_row_is_named_with_those_that_there_are() -> None:
    tables = select_tables(load_paper("cheng2016"), "2")
    assert select_rows(tables, []) is None
    assert select_rows(tables, ["LSTM"]) == {"LSTM"}
    with pytest.raises(ConfigurationError, match='no row "LSTMM"; the rows are "LSTM", "LSTM, 2 layers"'):
        select_rows(tables, ["LSTM", "LSTMM"])


def test_the_page_has_command_seeds_settings_versions_and_machine(
    trained_rows: tuple[list[ReproducedRow], CoreHours],
) -> None:
    rows, _ = trained_rows
    page = format_reproduction_page(BOTH_ROWS, rows, "cpu", "memtune reproduce x --table 1")
    command, trainings, common, environments = re.split("^### .*$", page, flags=re.MULTILINE)
    assert re.findall(r" (5\.0|1) \| [+-]", command) == ["5.0", "1"], "published with the digits of the file"
    assert "\nmemtune reproduce x --table 1\n" in command
    assert "\nValidation and test: perplexity.\n" in command
    assert re.findall(r"^\| (one|two) \| 0 \| 3\d\d \|", trainings, re.MULTILINE) == ["one", "two"]
    assert rows[0].corpus_digest is not None
    assert rows[0].corpus_digest in common
    shared = tomllib.loads(common.partition("```toml")[2].partition("```")[0])
    assert shared["model"]["family"] == "lstm"
    assert "- one: `model.width = 4`\n- two: `model.width = 6`" in common
    for value in (f"torch {torch.__version__}", "processor", "cores: one; two"):
        assert value in environments


def test_settings_are_shared_among_the_networks_and_reasons_leave_out_the_note_of_the_scale(
    settings: Settings,
) -> None:
    counting = PublishedRow(name="three", changes={"model": {"family": "kneser_ney", "order": 3}})
    table = TABLE.model_copy(
        update={
            "scales": {"paper": Scale(), "tiny": Scale(tokens=300, note="300 tokens")},
            "rows": (*TABLE.rows, counting),
        }
    )
    rows = reproduce_table(table, "tiny", settings)
    page = format_reproduction_page(table, rows, "tiny", "memtune reproduce x")
    assert "Of every network:" in page
    assert "- one: `model.width = 4`\n" in page
    assert re.search(r"- three: `.*seed = 0`", page)
    assert page.count("300 tokens") == 1
    assert re.search(r"\| one \| \d+ \| 1k \(our formula: \d+\) \|", page)
    assert "| three | 0 |" in page, "as in all tables, a model that counts has 0 parameters"


def test_a_missing_corpus_is_named_with_its_import_and_its_source(settings: Settings) -> None:
    table = TABLE.model_copy(update={"corpus": "missing"})
    with pytest.raises(CorpusError, match=r"missing.*text: a test; import it with: memtune corpus import"):
        reproduce_table(table, "cpu", settings)


def test_a_row_without_a_finite_validation_fails_alone(settings: Settings) -> None:
    steep = {"training.optimiser": {"kind": "sgd", "learning_rate": 1e30}, "training.clip_norm": 1e30}
    scale = Scale(tokens=300, row_changes={"one": steep})
    table = TABLE.model_copy(update={"scales": {"paper": Scale(), "cpu": scale}})
    rows = reproduce_table(table, "cpu", settings)
    assert [row.state for row in rows] == ["failed", "trained"]


def test_a_row_that_diverges_after_a_finite_validation_says_so(settings: Settings) -> None:
    steep = {"training.optimiser": {"kind": "sgd", "learning_rate": 8.0}, "training.clip_norm": 1.0}
    scale = Scale(tokens=1500, changes={"training.report_every": 100}, row_changes={"one": steep})
    table = TABLE.model_copy(update={"scales": {"paper": Scale(), "cpu": scale}})
    (one, two) = reproduce_table(table, "cpu", settings)
    assert one.state == two.state == "trained"
    assert one.tokens is not None
    assert one.tokens < 1500
    assert one.reason == f"diverged after {one.tokens:,} tokens, the best figures before that; known"
    assert "diverged" not in two.reason


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
    unpublished = PublishedRow(name="x", reason="known")
    reason = table_run._explain(Objective.PERPLEXITY, None, unpublished, "shorter", "cpu")
    assert reason == "no published value; known"


def test_a_model_that_counts_is_at_the_scale_of_the_paper() -> None:
    table = find_table("benes2017", "1")
    find = table_run._find_departure
    departures = {row.name: find(table.make_trial(row, "tiny"), table, "tiny") for row in table.rows}
    assert departures.pop("KN5") == ("", "paper")
    assert set(departures.values()) == {(table.scales["tiny"].note, "tiny")}


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


@pytest.mark.parametrize("printed", ["12", "1.2B", "k"])
def test_a_printed_number_of_parameters_without_a_known_unit_is_an_error_of_the_file(printed):
    with pytest.raises(ConfigurationError, match="parameters"):
        parse(PublishedRow, {"name": "LSTM", "parameters": printed}, "papers/mine.toml")
