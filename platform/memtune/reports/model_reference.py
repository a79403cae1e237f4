"""The files that are derived from the code; a test compares them with it.

`python -m memtune.reports.model_reference` writes docs/models.md, with paper, size, cost and fields of every
family, docs/reference.md, with the fields of studies, trials and spaces, and search_spaces/all_families.toml,
the space over all families of networks.
"""

import sys
from pathlib import Path
from typing import Any

from memtune.library import LIBRARY_ROOT
from memtune.models import MODELS, LanguageModelConfig, MaximumEntropyConfig, list_families
from memtune.models.outputs.output_config import OUTPUTS
from memtune.reports.reference.field_reference import render_reference_page
from memtune.values import Value

__all__ = ["DERIVED_FILES", "render_all_families_space", "render_models_page"]

VOCABULARY_SIZE = 10_000
WIDTH = 128
SHARED_FIELDS = ("family", "output")
"""Fields that every family has."""
INTERFACE_METHODS = {
    "allocate_buffers",
    "candidate_nats",
    "encode",
    "forward",
    "initial_state",
    "logits",
    "negative_log_likelihood",
    "on_validation",
    "trace_attention",
}
"""Methods that belong to the interface of every model; the others return an attention or the like."""
PAGE_HEADER = f"""# Models

Every family is one module in `platform/memtune/models/families/`, and the contract suite compares it with an
oracle that follows the equations of its paper. Parameters and multiply-adds (per predicted token, forward
pass, full softmax) are those of the default configuration with {VOCABULARY_SIZE:,} words. Every family works
with every [output layer](#output-layers), except where its tied tables exclude one. The command
`python -m memtune.reports.model_reference` writes this page from the code.
"""
OUTPUT_LAYERS_HEADER = f"""## Output layers

The field `output` of every family selects the layer by its `kind`. Parameters and multiply-adds are those of
the layer alone for hidden vectors of width {WIDTH}; multiply-adds are the mean over the words of a text under
Zipf's law. `tie_output`, in families that have it, shares the weight of the layer with the embedding table.
"""


def render_models_page() -> str:
    """docs/models.md: a table of the families, the fields of each, the output layers, n-gram connections."""
    rows = [
        "| family | description | parameters | multiply-adds | methods for analysis |",
        "|---|---|---|---|---|",
    ]
    rows += [_format_family_row(family, config) for family, config in MODELS.built_in.items()]
    sections = [_format_family_section(family, config) for family, config in MODELS.built_in.items()]
    return "\n".join(
        [PAGE_HEADER, *rows, "", *sections, *_format_output_layers(), *_format_ngram_connections()]
    )


def _format_family_row(family: str, config: type[LanguageModelConfig]) -> str:
    default = config.model_validate({})
    size, cost = default.parameter_count(VOCABULARY_SIZE), default.multiply_adds(VOCABULARY_SIZE)
    return (
        f"| [`{family}`](#{family}) | {_find_title(config)} | {size:,} | {cost:,} | "
        f"{_list_inspection_methods(default)} |"
    )


def _find_title(config: type[LanguageModelConfig]) -> str:
    return _find_documentation(config).split("\n\n")[0].replace("\n", " ")


def _find_documentation(config: type[Value]) -> str:
    text = sys.modules[config.__module__].__doc__
    assert text is not None, f"{config.__module__} has no docstring"
    return text.strip()


def _list_inspection_methods(config: LanguageModelConfig) -> str:
    """The public methods of the model that are not part of the common interface, such as `attention`."""
    model = type(config.build(3))
    own = [name for name in vars(model) if not name.startswith("_") and callable(getattr(model, name))]
    return ", ".join(f"`{name}`" for name in sorted(own) if name not in INTERFACE_METHODS)


def _format_family_section(family: str, config: type[LanguageModelConfig]) -> str:
    paragraphs = _find_documentation(config).split("\n\n")[1:]
    fields = [
        _format_field_row(name, field)
        for name, field in config.model_fields.items()
        if name not in SHARED_FIELDS
    ]
    table = ["| field | default | description |", "|---|---|---|", *fields]
    return "\n".join([f"## {family}\n", *(f"{text}\n" for text in paragraphs), *table, ""])


def _format_output_layers() -> list[str]:
    """A table of the output layers and a table of their fields."""
    kinds = OUTPUTS.built_in.values()
    rows = ["| kind | description | parameters | multiply-adds | can be tied |", "|---|---|---|---|---|"]
    fields = ["| kind | field | default | description |", "|---|---|---|---|"]
    for config in kinds:
        default = config.model_validate({})
        size = default.parameter_count(WIDTH, VOCABULARY_SIZE)
        cost = default.multiply_adds(WIDTH, VOCABULARY_SIZE)
        about, tied = (config.__doc__ or "").rstrip("."), "yes" if config.can_be_tied else "no"
        rows.append(f"| `{default.kind}` | {about} | {size:,} | {cost:,} | {tied} |")
        fields += [
            f"| `{default.kind}` {_format_field_row(name, field)}"
            for name, field in config.model_fields.items()
            if name != "kind"
        ]
    return [OUTPUT_LAYERS_HEADER, *rows, "", *fields, ""]


def _format_ngram_connections() -> list[str]:
    """The description of n-gram connections and a table of their fields."""
    head, *paragraphs = _find_documentation(MaximumEntropyConfig).split("\n\n")
    fields = [_format_field_row(name, field) for name, field in MaximumEntropyConfig.model_fields.items()]
    about = [f"## Maximum entropy\n\n{head}\n", *(f"{text}\n" for text in paragraphs)]
    return [*about, "| field | default | description |", "|---|---|---|", *fields, ""]


def _format_field_row(name: str, field: Any) -> str:
    return f"| `{name}` | `{field.default!r}` | {field.description} |"


def render_all_families_space() -> str:
    """search_spaces/all_families.toml: the spaces of all families of networks, in the registry's order."""
    names = "".join(f'  "{family}",\n' for family in list_families(trained_by_gradient=True))
    return f"""# Written from the registry of families by: python -m memtune.reports.model_reference
question = "Which memory is best?"

# The root chooses the family; each family then has its own space, with its own learning rates.
spaces = [
{names}]
"""


DERIVED_FILES = {
    "docs/models.md": render_models_page,
    "docs/reference.md": render_reference_page,
    "search_spaces/all_families.toml": render_all_families_space,
}
"""The function that renders each derived file, by the path of the file below the root of the repository."""


def write_derived_files(root: Path) -> None:
    """Write every derived file below the root of the repository."""
    for path, render in DERIVED_FILES.items():
        (root / path).write_text(render(), encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    write_derived_files(LIBRARY_ROOT)
