"""The table, the answer and the figure of families at a larger budget."""

from pathlib import Path

import pytest

from memtune.errors import ConfigurationError
from memtune.reports.experiment_views import describe_extrapolation, draw_scaling, make_scaling_table
from memtune.reports.figure_files import save_figure
from memtune.results.study.scaling_laws import ScalingReport, compare_scaling
from tests.unit.results.study.test_scaling_laws import FAST, SLOW, make_trials


@pytest.fixture(scope="module")
def report() -> ScalingReport:
    return compare_scaling([*make_trials("slow", SLOW), *make_trials("fast", FAST)], resamples=10)


def test_the_table_has_a_row_for_each_family_best_first(report: ScalingReport) -> None:
    table = make_scaling_table(report)
    columns = {str(column.header): list(column.cells) for column in table.columns}
    assert columns["family"] == ["fast", "slow"]
    assert str(columns["parameters"][0]).endswith("M")
    assert str(columns["at 10 times the compute"][0]).startswith("14.")


def test_the_answer_names_both_winners(report: ScalingReport) -> None:
    assert describe_extrapolation(report).startswith(
        "at 10 times the compute fast is best, now slow: perplexity 14."
    )


def test_an_uncertain_answer_says_so(report: ScalingReport) -> None:
    first, second = report.families
    unsure = report.model_copy(update={"families": (first.model_copy(update={"best_share": 0.6}), second)})
    assert describe_extrapolation(unsure).endswith("the intervals do not separate the families")


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_figure_is_written(report: ScalingReport, tmp_path: Path, suffix: str) -> None:
    save_figure(draw_scaling(report), tmp_path / f"figure.{suffix}")
    assert (tmp_path / f"figure.{suffix}").stat().st_size > 5000


def test_another_kind_of_file_is_refused(report: ScalingReport, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="txt"):
        save_figure(draw_scaling(report), tmp_path / "figure.txt")
