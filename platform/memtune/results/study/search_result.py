"""What a run of a study returns: its outcome, and the study as it is read afterwards."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from memtune.number_format import format_count
from memtune.results.study.study_detail import StudyDetail, describe_study
from memtune.results.study.study_leaderboard import LeaderboardEntry
from memtune.results.study.study_view import StudyView, open_view
from memtune.studies.study_run import StudyResult


@dataclass(frozen=True, repr=False)
class SearchResult(StudyResult):
    """The outcome of a run, with the study in detail, the trials of earlier runs included."""

    @property
    def id(self) -> str:
        """The study's id."""
        return self.resolved.id

    @cached_property
    def view(self) -> StudyView:
        """The study, read from its storage on first use."""
        return open_view(self.id, self.resolved.settings)

    @cached_property
    def detail(self) -> StudyDetail:
        """The study in detail."""
        return describe_study(self.view)

    @property
    def best(self) -> LeaderboardEntry | None:
        """The best configuration; None before the first validation."""
        return self.detail.best

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each trial; sizes and differing fields are columns."""
        return self.detail.to_frame()

    def curves(self) -> Any:
        """A pandas data frame with a row for each report: trial, tokens, and its validation."""
        return self.detail.curves()

    def __repr__(self) -> str:
        return f"SearchResult({self.id}: {format_count(len(self.outcomes), 'trial')})"

    def _repr_html_(self) -> str:
        return self.detail._repr_html_()
