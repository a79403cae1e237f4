"""The documentation as a site, from the root of the repository: sphinx-build -W -n -c docs . FOLDER.

With MEMTUNE_HOME=EMPTY_FOLDER and -D nb_execution_mode=force, notebooks are executed and shown with outputs.
"""

import re
import sys
from importlib import import_module
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1]))  # docs.generators

project = "memtune"
root_doc = "docs/index"
include_patterns = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/cluster/*.md",
    "docs/notebooks/*.ipynb",
    "docs/results/*.md",
]
extensions = ["myst_nb"]  # Markdown as myst_parser reads it, and notebooks
nb_execution_mode = "off"  # a test executes them
nb_execution_in_temp = True
nb_execution_timeout = 300  # seconds of a cell
nb_execution_raise_on_error = True
myst_heading_anchors = 4
html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["notebooks.css"]
html_copy_source = False
html_show_sphinx = False


def insert_tables(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the tables of docs/generators/NAME.py in place of the line `<!-- generated: NAME -->`."""
    source[0] = re.sub(
        r"^<!-- generated: (\w+) -->$",
        lambda found: import_module(f"docs.generators.{found[1]}").render_tables(),
        source[0],
        flags=re.MULTILINE,
    )


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", insert_tables)
