"""Every model family as a page: paper, size, cost, fields. Written from the code; a test compares.

python -m memtune.reports.models > docs/models.md
"""

import sys
from typing import Any

from memtune.models import MODELS, LanguageModelConfig

__all__ = ["models_page"]

VOCABULARY = 10_000
OF_ALL = ("family", "output")
"""Fields that every family has."""
HEAD = f"""# Models

One family a module in `platform/memtune/models/`; each is held to an oracle written from its equations.
Parameters and multiply-adds (a predicted token, forward, full softmax) are those of the default configuration
over {VOCABULARY:,} words. Written by `python -m memtune.reports.models`.
"""


def models_page() -> str:
    """The page in Markdown: a table of the families, then the fields of each."""
    rows = [
        "| family | what it is | parameters | multiply-adds | to read on request |",
        "|---|---|---|---|---|",
    ]
    rows += [_row(family, config) for family, config in MODELS.items()]
    sections = [_section(family, config) for family, config in MODELS.items()]
    return "\n".join([HEAD, *rows, "", *sections])


def _row(family: str, config: type[LanguageModelConfig]) -> str:
    default = config.model_validate({})
    size, cost = default.parameter_count(VOCABULARY), default.multiply_adds(VOCABULARY)
    return f"| [`{family}`](#{family}) | {_title(config)} | {size:,} | {cost:,} | {_readings(default)} |"


def _title(config: type[LanguageModelConfig]) -> str:
    return _documentation(config).split("\n\n")[0].replace("\n", " ")


def _documentation(config: type[LanguageModelConfig]) -> str:
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


def _field(name: str, field: Any) -> str:
    return f"| `{name}` | `{field.default!r}` | {field.description} |"


if __name__ == "__main__":
    print(models_page(), end="")
