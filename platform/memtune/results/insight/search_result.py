"""What `memtune.run_search` returns: the outcome of a run, and the tables of its study."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from memtune.number_format import format_count
from memtune.results.insight.study_catalogue import BestTrial
from memtune.results.insight.study_detail import StudyDetail, show_study
from memtune.studies.study_run import StudyResult

__all__ = ["SearchResult"]


@dataclass(frozen=True, repr=False)
class SearchResult(StudyResult):
    """The outcome of a run, with the study in detail, the trials of earlier runs included."""

    @property
    def id(self) -> str:
        """The study's id."""
        return self.resolved.id

    @cached_property
    def detail(self) -> StudyDetail:
        """The study in detail, read from its storage on first use."""
        return show_study(self.id, self.resolved.settings)

    @property
    def best(self) -> BestTrial | None:
        """The best configuration; None before the first validation."""
        return self.detail.best

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each trial; sizes and differing fields are columns."""
        return self.detail.to_frame()

    def curves(self) -> Any:
        """A pandas data frame with a row for each report: trial, tokens, and its validation."""
        return self.detail.curves()

    def __repr__(self) -> str:
        """The study's id and the number of its trials."""
        return f"SearchResult({self.id}: {format_count(len(self.outcomes), 'trial')})"

    def _repr_html_(self) -> str:
        return self.detail._repr_html_()
