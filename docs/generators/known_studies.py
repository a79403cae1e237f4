"""The table of docs/selection.md: studies whose truth is known, and what their answers say."""

from tests.studies.known_studies import STUDIES


def render_tables() -> str:
    """A row for each study; `tests/studies/test_known_studies.py` asserts them on every surface."""
    rows = [f"| {known.truth} | {' … '.join(part.strip() for part in known.says)} |" for known in STUDIES]
    return "\n".join(["| truth | parts of the answer |", "|---|---|", *rows])
