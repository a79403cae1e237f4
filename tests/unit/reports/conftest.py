"""The reported study of the tests of pages."""

from tests.reported_study import home, report

__all__ = ["home", "report"]
