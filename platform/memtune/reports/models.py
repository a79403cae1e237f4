"""Every model family as a page: paper, size, cost, fields. Written from the code; a test compares.

python -m memtune.reports.models > docs/models.md
"""

import sys
from typing import Any, get_args

from memtune.models import MODELS, LanguageModelConfig, MaximumEntropyConfig, OutputConfig
from memtune.models.outputs import OutputArchitecture
from memtune.values import Value

__all__ = ["models_page"]

VOCABULARY = 10_000
WIDTH = 128
OF_ALL = ("family", "output")
"""Fields that every family has."""
HEAD = f"""# Models

One family a module in `platform/memtune/models/`; each is held to an oracle written from its equations.
Parameters and multiply-adds (a predicted token, forward, full softmax) are those of the default configuration
over {VOCABULARY:,} words; any family ends in any of the [output layers](#output-layers). Written by
`python -m memtune.reports.models`.
"""
OUTPUT_LAYERS = f"""## Output layers

The field `output` of every family, by its `kind`. Parameters and multiply-adds are those of the layer alone,
above hidden vectors of width {WIDTH}; the cost of a word is its mean over a text under Zipf's law.
`tie_output`, where a family has it, makes the words' rows those of the embedding.
"""


def models_page() -> str:
    """The page in Markdown: a table of the families, then the fields of each, then the output layers
    and the n-gram connections."""
    rows = [
        "| family | what it is | parameters | multiply-adds | to read on request |",
        "|---|---|---|---|---|",
    ]
    rows += [_row(family, config) for family, config in MODELS.items()]
    sections = [_section(family, config) for family, config in MODELS.items()]
    return "\n".join([HEAD, *rows, "", *sections, *_output_layers(), *_connections()])


def _row(family: str, config: type[LanguageModelConfig]) -> str:
    default = config.model_validate({})
    size, cost = default.parameter_count(VOCABULARY), default.multiply_adds(VOCABULARY)
    return f"| [`{family}`](#{family}) | {_title(config)} | {size:,} | {cost:,} | {_readings(default)} |"


def _title(config: type[LanguageModelConfig]) -> str:
    return _documentation(config).split("\n\n")[0].replace("\n", " ")


def _documentation(config: type[Value]) -> str:
    text = sys.modules[config.__module__].__doc__
    assert text is not None, f"{config.__module__} says nothing of itself"
    return text.strip()


def _readings(config: LanguageModelConfig) -> str:
    """The public methods of the model beyond those every model has, such as its attention."""
    model = type(config.build(3))
    own = [name for name in vars(model) if not name.startswith("_") and callable(getattr(model, name))]
    known = {"initial_state", "encode", "forward", "negative_log_likelihood", "make_room"}
    return ", ".join(f"`{name}`" for name in sorted(own) if name not in known)


def _section(family: str, config: type[LanguageModelConfig]) -> str:
    paragraphs = _documentation(config).split("\n\n")[1:]
    fields = [_field(name, field) for name, field in config.model_fields.items() if name not in OF_ALL]
    table = ["| field | default | what it is |", "|---|---|---|", *fields]
    return "\n".join([f"## {family}\n", *(f"{text}\n" for text in paragraphs), *table, ""])


def _output_layers() -> list[str]:
    """What there is of output layers, and the fields of each."""
    kinds: tuple[type[OutputArchitecture], ...] = get_args(get_args(OutputConfig)[0])
    rows = ["| kind | what it is | parameters | multiply-adds | tied words |", "|---|---|---|---|---|"]
    fields = ["| kind | field | default | what it is |", "|---|---|---|---|"]
    for config in kinds:
        default = config.model_validate({})
        size = default.parameter_count(WIDTH, VOCABULARY)
        cost = default.multiply_adds(WIDTH, VOCABULARY)
        about, tied = (config.__doc__ or "").rstrip("."), "yes" if config.can_be_tied else "no"
        rows.append(f"| `{default.kind}` | {about} | {size:,} | {cost:,} | {tied} |")
        fields += [
            f"| `{default.kind}` {_field(name, field)}"
            for name, field in config.model_fields.items()
            if name != "kind"
        ]
    return [OUTPUT_LAYERS, *rows, "", *fields, ""]


def _connections() -> list[str]:
    """What n-gram connections are, and their fields."""
    head, *paragraphs = _documentation(MaximumEntropyConfig).split("\n\n")
    fields = [_field(name, field) for name, field in MaximumEntropyConfig.model_fields.items()]
    about = [f"## Maximum entropy\n\n{head}\n", *(f"{text}\n" for text in paragraphs)]
    return [*about, "| field | default | what it is |", "|---|---|---|", *fields, ""]


def _field(name: str, field: Any) -> str:
    return f"| `{name}` | `{field.default!r}` | {field.description} |"


if __name__ == "__main__":
    print(models_page(), end="")
