"""Groups of command options: a dataclass parameter has one field for each option."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, get_type_hints


def expand_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with each dataclass parameter replaced by one parameter for each field of the dataclass.

    Typer makes one option of each parameter of a function and has no groups. A field has the annotation of a
    Typer parameter and a default.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind) and isinstance(kind, type)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            parameters += _make_parameters(groups[name])
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(command)
    def run_expanded(**values: Any) -> None:
        grouped = {
            name: kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**values, **grouped)

    # Typer reads the signature for defaults and the annotations for types.
    run_expanded.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    run_expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run_expanded


def _make_parameters(group: type) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]
