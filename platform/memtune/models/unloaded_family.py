"""A stored configuration of a family whose source is not loaded: readable, and unable to build anything.

Tables, curves and identities of such trials need no source. Its sizes and its model do, and executing stored
source takes the user's consent.
"""

from typing import Any, ClassVar, NoReturn

from pydantic import ConfigDict
from typing_extensions import override

from memtune.errors import MissingSourceError
from memtune.models.architecture import LanguageModel, LanguageModelConfig, NeuralLanguageModelConfig

__all__ = ["UnloadedFamilyConfig"]


class UnloadedFamilyConfig(LanguageModelConfig):
    """The fields as they were stored; every method that needs the family raises MissingSourceError."""

    model_config = ConfigDict(extra="allow")

    is_trained_by_gradient: ClassVar[bool] = True
    is_loaded: ClassVar[bool] = False
    source: str
    """SHA-256 of the source that defines the family."""

    @override
    def require_network(self, purpose: str) -> NeuralLanguageModelConfig:
        self._refuse()

    @override
    def build(self, vocabulary_size: int) -> LanguageModel:
        self._refuse()

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        self._refuse()

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        self._refuse()

    @override
    def state_size(self) -> int:
        self._refuse()

    @override
    def describe(self) -> dict[str, str | int | float]:
        """The stored fields that are texts and numbers."""
        hidden = {"family", "source", "initial_range"}
        fields: dict[str, Any] = self.model_dump(mode="json", exclude=hidden)
        return {name: value for name, value in fields.items() if isinstance(value, str | int | float)}

    @override
    def describe_output(self) -> dict[str, str | int | float]:
        return {}

    def _refuse(self) -> NoReturn:
        raise MissingSourceError("model family", self.family, self.source)
