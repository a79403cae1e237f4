"""The table of docs/probes.md: the settings of every probe, and those of its source."""

from collections.abc import Mapping

from memtune.corpora.probes.probe_corpora import PROBES


def render_tables() -> str:
    """A row for each probe, as Markdown."""
    rows = ["| probe | settings with defaults | published settings | source |", "|---|---|---|---|"]
    for name, probe in PROBES.items():
        settings = f"{_list_settings(probe.settings)} | {_list_settings(probe.published)}"
        rows.append(f"| `{name}` | {settings} | {probe.source} |")
    return "\n".join(rows)


def _list_settings(settings: Mapping[str, int | float]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in settings.items())
