"""The tables of docs/memory_blocks.md: published mixers and their papers, and the fields of each kind."""

from docs.generators.models import WIDTH, find_documentation, format_field_row
from memtune.models.mixers.mixer_registry import MIXERS, PRESETS, SOURCES, list_settings
from memtune.values import Value


def render_tables() -> str:
    """A table of the names, and a section of each kind, as Markdown."""
    rows = ["| name | paper | kind | fields | parameters | state |", "|---|---|---|---|---|---|"]
    for name, mixer in PRESETS.items():
        listed = ", ".join(f"`{setting}`" for setting in list_settings(mixer))
        sizes = f"{mixer.parameter_count(WIDTH):,} | {mixer.state_size(WIDTH):,}"
        kind = f"[`{mixer.kind}`](#{mixer.kind})"
        rows.append(f"| `{name}` | {SOURCES[name]} | {kind} | {listed} | {sizes} |")
    sections = [_format_section(kind, config) for kind, config in MIXERS.built_in.items()]
    return "\n".join([*rows, "", *sections])


def _format_section(kind: str, config: type[Value]) -> str:
    """The documentation of the module, for the first kind of it, and the fields."""
    first = next(name for name, other in MIXERS.built_in.items() if other.__module__ == config.__module__)
    paragraphs = [text for text in find_documentation(config).split("\n\n") if not text.startswith("Shapes:")]
    about = paragraphs if kind == first else [config.__doc__ or "", f"See [{first}](#{first})."]
    fields = [format_field_row(name, field) for name, field in config.model_fields.items() if name != "kind"]
    table = ["| field | default | description |", "|---|---|---|", *fields, ""] if fields else []
    return "\n".join([f"## {kind}\n", *(f"{text}\n" for text in about), *table])
