"""The tables of docs/models.md: paper, size, cost and fields of every family and output layer."""

import sys
from typing import Any

from memtune.models import MODELS, LanguageModelConfig
from memtune.models.maximum_entropy import MaximumEntropyConfig
from memtune.models.outputs.output_config import OUTPUTS
from memtune.values import Value

VOCABULARY_SIZE = 10_000
WIDTH = 128
SHARED_FIELDS = ("family", "output")
"""Fields that every family has."""
OUTPUT_LAYERS_HEADER = f"""## Output layers

The field `output` of every family selects the layer by its `kind`. Parameters and multiply-adds are those of
the layer alone for hidden vectors of width {WIDTH}; multiply-adds are the mean over the words of a text under
Zipf's law. `tie_output`, in families that have it, shares the weight of the layer with the embedding table.
"""


def render_tables() -> str:
    """A table of the families, the fields of each, the output layers, and n-gram connections, as Markdown."""
    rows = ["| family | description | parameters | multiply-adds | state |", "|---|---|---|---|---|"]
    rows += [_format_family_row(family, config) for family, config in MODELS.built_in.items()]
    sections = [_format_family_section(family, config) for family, config in MODELS.built_in.items()]
    return "\n".join([*rows, "", *sections, *_format_output_layers(), *_format_ngram_connections()])


def _format_family_row(family: str, config: type[LanguageModelConfig]) -> str:
    default = config.model_validate({})
    size, cost = default.parameter_count(VOCABULARY_SIZE), default.multiply_adds(VOCABULARY_SIZE)
    sizes = f"{size:,} | {cost:,} | {default.state_size():,}"
    return f"| [`{family}`](#{family}) | {_find_title(config)} | {sizes} |"


def _find_title(config: type[LanguageModelConfig]) -> str:
    return find_documentation(config).split("\n\n")[0].replace("\n", " ")


def find_documentation(config: type[Value]) -> str:
    """The docstring of the module of a configuration."""
    text = sys.modules[config.__module__].__doc__
    assert text is not None, f"{config.__module__} has no docstring"
    return text.strip()


def _format_family_section(family: str, config: type[LanguageModelConfig]) -> str:
    paragraphs = [
        text
        for text in find_documentation(config).split("\n\n")[1:]
        if not text.startswith("Shapes:")  # the letters of tensors in the code
    ]
    fields = [
        format_field_row(name, field)
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
            f"| `{default.kind}` {format_field_row(name, field)}"
            for name, field in config.model_fields.items()
            if name != "kind"
        ]
    return [OUTPUT_LAYERS_HEADER, *rows, "", *fields, ""]


def _format_ngram_connections() -> list[str]:
    """The description of n-gram connections and a table of their fields."""
    head, *paragraphs = find_documentation(MaximumEntropyConfig).split("\n\n")
    fields = [format_field_row(name, field) for name, field in MaximumEntropyConfig.model_fields.items()]
    about = [f"## Maximum entropy\n\n{head}\n", *(f"{text}\n" for text in paragraphs)]
    return [*about, "| field | default | description |", "|---|---|---|", *fields, ""]


def format_field_row(name: str, field: Any) -> str:
    """A row of a table of fields: name, default, description."""
    default = field.default.model_dump() if isinstance(field.default, Value) else field.default
    return f"| `{name}` | `{default!r}` | {field.description} |"
