"""Fields that several families have, as annotated types; the configuration of a family sets the default."""

from typing import Annotated

from pydantic import Field

Probability = Annotated[float, Field(ge=0, lt=1)]
Dropout = Annotated[Probability, Field(description="Probability that a value is dropped")]
LayerDropout = Annotated[
    Probability,
    Field(
        description="Probability that a value is dropped from the embedding, between LSTM layers and from "
        "what the output layer reads (section 3.1)"
    ),
]
"""Dropout as Yogatama et al. (2018) apply it."""
CandidateDropout = Annotated[
    Probability,
    Field(description="Probability that a unit of a step's candidate is dropped, never a cell (section 3.1)"),
]
VariationalDropout = Annotated[
    Probability,
    Field(
        description="Dropout of each layer's input and the last one's output, one mask per sequence (Gal and "
        "Ghahramani 2016)"
    ),
]
TieOutput = Annotated[bool, Field(description="The output layer's weight is the embedding table")]
InitialRange = Annotated[float, Field(ge=0, description="Every parameter starts in U(-range, range)")]
ForgetBias = Annotated[float, Field(description="Initial bias of the forget gates")]
InputForgetBias = Annotated[
    float, Field(description="Initial input bias of the forget gates; the recurrent one stays random")
]
"""For layers of torch, whose gates have two biases."""
