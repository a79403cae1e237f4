"""Points of a space in which a mixer has its name, `model.mixer = "kda"`, as in a configuration."""

import json
from collections.abc import Mapping

from memtune.errors import SpaceError
from memtune.models import MixerBlocksConfig
from memtune.models.mixers.mixer import MixerConfig
from memtune.plugins.source_modules import SOURCE_FIELD
from memtune.spaces import FAMILY_FIELD, RandomChooser, Scalar, Space, pin_point
from memtune.values import flatten, parse

MIXER_FIELDS = tuple(
    f"model.{name}"
    for name, field in MixerBlocksConfig.model_fields.items()
    if field.annotation is MixerConfig
)


def pin_named_point(space: Space, point: Mapping[str, Scalar], where: str) -> dict[str, Scalar]:
    """As `pin_point`; where the space searches the fields of a mixer, its name stands for all of them.

    Raises ConfigurationError for an unknown mixer, and SpaceError for one that the space cannot represent.
    """
    family = {field: value for field, value in point.items() if field == FAMILY_FIELD}
    known = _list_fields(space, family, where) | {each.field for each in space.parameters()}
    fields: dict[str, Scalar] = {}
    for field, value in point.items():
        if field in MIXER_FIELDS and field not in known and f"{field}.kind" in known:
            fields |= _list_mixer_fields(space, field, value, family, where)
        else:
            fields[field] = value
    return pin_point(space, fields, where)


def _list_mixer_fields(
    space: Space, field: str, name: Scalar, family: Mapping[str, Scalar], where: str
) -> dict[str, Scalar]:
    """The kind of a mixer and its fields that the space has; the others must have their defaults."""
    place = f'{where}: {field} = "{name}"'
    mixer: MixerConfig = parse(MixerBlocksConfig, {"mixer": name}, place).mixer
    found: dict[str, Scalar] = {f"{field}.kind": mixer.kind}
    known = _list_fields(space, {**family, **found}, place)
    for own, value in mixer.model_dump(exclude={"kind", SOURCE_FIELD}).items():
        default = type(mixer).model_fields[own].default
        if f"{field}.{own}" in known:
            found[f"{field}.{own}"] = value
        elif value != default:
            raise SpaceError(
                f"{place} has {own} = {json.dumps(value)}, which the space leaves at {json.dumps(default)}; "
                f"add {own} = {{ choice = {json.dumps([default, value])} }} to {mixer.kind} in [{field}]"
            )
    pin_point(space, {**family, **found}, place)
    return found


def _list_fields(space: Space, point: Mapping[str, Scalar], where: str) -> set[str]:
    chooser = RandomChooser(0, pin_point(space, point, where))
    return set(dict(flatten(space.root.sample(chooser, ""))))
