"""The table of docs/samplers.md: what each sampler proposes."""

from memtune.search.samplers import SAMPLERS


def render_tables() -> str:
    """A row for each sampler, from the docstring of its settings, as Markdown."""
    rows = [f"| `{kind}` | {(config.__doc__ or '').rstrip('.')} |" for kind, config in SAMPLERS.items()]
    return "\n".join(["| kind | proposes |", "|---|---|", *rows])
