"""The report of a study or a corpus as one HTML file, and its charts as SVG and PDF.

The charts are Vega-Lite specifications, made with Altair. The optional extra `report` brings Altair and
vl-convert, which draws the files and holds the JavaScript of Vega.
"""

from importlib.util import find_spec

from memtune.errors import ConfigurationError

__all__ = ["check_libraries", "has_libraries"]

LIBRARIES = ("altair", "vl_convert", "jinja2")


def has_libraries() -> bool:
    """Whether the libraries of the extra `report` are installed."""
    return all(find_spec(name) is not None for name in LIBRARIES)


def check_libraries() -> None:
    """Raise ConfigurationError where a library of the extra `report` is missing."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"a report needs {' and '.join(missing)}, not installed here; install memtune with its extra: "
            "pip install 'memtune[report]'"
        )
