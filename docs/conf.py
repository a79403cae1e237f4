"""The documentation as a site, from the root of the repository: sphinx-build -W -n -c docs . FOLDER.

With MEMTUNE_HOME=EMPTY_FOLDER and -D nb_execution_mode=force, notebooks are executed and shown with outputs.
"""

project = "memtune"
root_doc = "docs/index"
include_patterns = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/*.md",
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
