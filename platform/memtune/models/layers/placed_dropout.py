"""Dropout of a stack of layers by its place: between the layers, after each, or around them."""

from typing import Annotated, Literal

from pydantic import Field
from torch import nn

DropoutPlacement = Annotated[
    Literal["between", "after", "around"],
    Field(
        description='Dropout "between" layers (nothing to drop in one layer), "after" each layer, or '
        '"around", on the embeddings too (Zaremba et al. 2014, section 3.1); never on what a layer carries on'
    ),
]


class PlacedDropout(nn.Module):
    """The dropout of the first layer's input, of what is read between two layers, and of the last output."""

    def __init__(self, probability: float, placement: DropoutPlacement) -> None:
        super().__init__()
        self.input = nn.Dropout(probability if placement == "around" else 0.0)
        self.between = nn.Dropout(probability)
        self.output = nn.Dropout(0.0 if placement == "between" else probability)


def explain_unused_dropout(model: object) -> str | None:
    """Why the dropout of a family's configuration drops nothing; None where it drops something or is 0."""
    dropout = getattr(model, "dropout", 0.0)
    layers = (getattr(model, "layers", 0), getattr(model, "layers_above", 0))
    is_between = getattr(model, "dropout_placement", None) == "between"
    if not (dropout and is_between and layers in ((1, 0), (1, 1))):
        return None
    return (
        f"dropout = {dropout:g} has no effect, because one layer has nothing between layers; add "
        'dropout_placement = "after"'
    )
