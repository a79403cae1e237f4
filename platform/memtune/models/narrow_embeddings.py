"""Fields of families whose word embeddings can be narrower than their layers, as in Cheng et al. (2016)."""

from typing import Self

from pydantic import Field, model_validator

from memtune.models.architecture import NeuralLanguageModelConfig


class NarrowEmbeddingsConfig(NeuralLanguageModelConfig):
    """A family with a separate width of the embeddings; tied tables need embeddings as wide as the layers."""

    width: int
    tie_output: bool
    embedding_width: int | None = Field(
        None, ge=1, description="Width of the word embeddings, 150 in Cheng's; as `width` when not given"
    )

    @model_validator(mode="after")
    def _check_tied_widths(self) -> Self:
        if self.tie_output and self.input_width != self.width:
            raise ValueError(
                f"tie_output needs embeddings as wide as the layers, got embedding_width = "
                f"{self.embedding_width} and width = {self.width}; leave embedding_width out"
            )
        return self

    @property
    def input_width(self) -> int:
        """Width of the word embeddings."""
        return self.embedding_width or self.width
