"""The documentation is a site without broken links, which asks no other server for anything."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
REQUEST = re.compile(
    r"<(?:script|img|iframe)[^>]*src=\"(https?:)?//|<link[^>]*rel=\"stylesheet\"[^>]*href=\"(https?:)?//"
)

GENERATED = {
    "models": "number of dependency labels",
    "reference": "sentences, or rows of a stream",
    "parameter_counts": "19,780,400",
    "probes": "zoology, figure 2",
    "samplers": "scrambled Sobol sequence",
}
"""A text of the tables that the site reads from the code, by page."""


def test_every_page_is_built_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-c", "docs", "."]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    docs = ROOT / "docs"
    sources = [*docs.glob("*.md"), *docs.glob("*/*.md"), *docs.glob("notebooks/*.ipynb")]
    missing = [
        path for path in sources if not (tmp_path / path.relative_to(ROOT)).with_suffix(".html").exists()
    ]
    assert missing == []
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(sources)
    for name, text in GENERATED.items():
        assert text in (tmp_path / "docs" / f"{name}.html").read_text(encoding="utf-8"), name
    assert [page for page in pages if REQUEST.search(page.read_text(encoding="utf-8"))] == []
