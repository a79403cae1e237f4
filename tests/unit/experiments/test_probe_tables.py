"""Tables of probes: rows are drawn, rates chosen, and a table counts where one of its rows has learned."""

import pytest

from memtune.corpora.probes.probe_corpora import parse_corpus_name
from memtune.experiments import table_run
from memtune.experiments.published_tables import load_paper, select_tables
from memtune.experiments.table_run import ReproducedRow, RowHooks, RowState, reproduce_table
from memtune.objective import Objective
from memtune.reports.experiment_views import format_reproduction_page
from memtune.settings import Settings

(COMPRESS,) = select_tables(load_paper("mad"), "compress")


def test_rows_count_only_where_one_of_the_table_has_learned_the_task() -> None:
    def gate(valid: float | None, other: float) -> list[str]:
        rows = [
            ReproducedRow(
                table="1",
                name=name,
                objective=Objective.ACCURACY,
                state=RowState.TRAINED,
                published_valid=None,
                published_test=None,
                published_parameters=None,
                valid=figure,
                reason="shorter",
            )
            for name, figure in (("GLA", valid), ("PaTH", other))
        ]
        return [row.reason for row in table_run._gate(rows, solved=90.0)]

    unsolved = "learned by no row that is trained: at best 40.0 % in validation (PaTH); shorter"
    assert gate(24.0, 40.0) == [unsolved, unsolved]
    assert gate(None, 40.0) == ["shorter", unsolved]
    assert gate(95.0, 40.0) == gate(24.0, 95.0) == ["shorter", "shorter"]


def test_a_table_of_probes_draws_its_rows_and_trains_at_scale_tiny(settings: Settings) -> None:
    tiny = COMPRESS.scales["tiny"].model_copy(update={"rows": ("mLSTM",), "tokens": 200, "seeds": 3})
    corpus = "probe-compression-length-8-rows-40-evaluated-10"
    table = COMPRESS.model_copy(update={"scales": {**COMPRESS.scales, "tiny": tiny}, "corpus": corpus})
    row = reproduce_table(table, "tiny", settings)[0]
    assert row.state == "trained", row.reason
    assert row.published_test == 47.8
    assert row.difference is None
    assert row.reason == "the published value is a mean over 11 settings"
    assert row.test_interval is not None
    page = format_reproduction_page(table, [row], "tiny", "memtune reproduce mad")
    assert f"{row.test:.2f} % [{row.test_interval[0]:.1f}, " in page
    assert "Validation and test: accuracy, with the 95 % interval over seeds." in page


def test_rows_that_other_calls_have_trained_have_their_figures(settings: Settings) -> None:
    """Of a row whose rate is chosen, the trainings at every rate count."""
    terms = {"rows": ("mLSTM", "GLA"), "tokens": 200, "rates": (0.01, 0.02)}
    tiny = COMPRESS.scales["tiny"].model_copy(update=terms)
    corpus = "probe-compression-length-8-rows-40-evaluated-10"
    table = COMPRESS.model_copy(update={"scales": {**COMPRESS.scales, "tiny": tiny}, "corpus": corpus})
    reports: list[str] = []
    hooks = RowHooks(on_report=lambda row, trial, report: reports.append(row.name))

    def reproduce(*rows: str) -> list[ReproducedRow]:
        found = reproduce_table(table, "tiny", settings, rows=rows, hooks=hooks)
        return [row for row in found if row.name in ("mLSTM", "GLA")]

    mlstm, gla = reproduce("GLA")
    assert (mlstm.reason, gla.state) == ("not among the chosen rows", "trained")
    known = reproduce("mLSTM")[1]
    assert (known.state, known.run_id, known.valid) == ("trained", gla.run_id, gla.valid)
    assert known.test == pytest.approx(gla.test)
    assert {*reports} == {"GLA", "mLSTM"}
    trained = len(reports)
    assert [row.state for row in reproduce()] == ["trained", "trained"]
    assert len(reports) == trained


def test_the_settings_of_mad_are_66_corpora_of_probes() -> None:
    corpora = [name for table in load_paper("mad").tables for name in table.scales["paper"].corpora]
    assert len(set(corpora)) == 66
    for name in corpora:
        parse_corpus_name(name)
