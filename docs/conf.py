"""The documentation as a site, from the root of the repository: sphinx-build -W -n -c docs . FOLDER."""

project = "memtune"
root_doc = "docs/index"
include_patterns = ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "docs/results/*.md"]
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = project
html_copy_source = False
html_show_sphinx = False
