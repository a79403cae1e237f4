"""A registered model as MLflow's `mlflow.pyfunc.load_model` gives it: sentences in, log probabilities out.

MLflow calls `_load_pyfunc` because the package's MLmodel names this module; nothing is unpickled.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from memtune.errors import TrackingError
from memtune.models.interface import LanguageModel, negative_log_likelihood
from memtune.tracking.card import read_card, read_vocabulary
from memtune.training import load_model

if TYPE_CHECKING:
    from mlflow.models import Model

__all__ = ["SentenceScorer", "describe_package"]

EOS = "<eos>"
UNK = "<unk>"


class SentenceScorer:
    """Gives each sentence its log probability in nats, `<eos>` included, read from a zero state."""

    def __init__(self, model: LanguageModel, vocabulary: Iterable[str]) -> None:
        self._model = model.eval()
        self._ids = {token: number for number, token in enumerate(vocabulary)}

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> list[float]:
        """One figure a sentence; `model_input` is a table with the column "sentence", or a list of texts.

        Words are what stands between blanks; one that the vocabulary lacks is read as `<unk>`.
        """
        sentences = model_input["sentence"] if hasattr(model_input, "columns") else model_input
        return [self._score(str(sentence).split()) for sentence in sentences]

    def _score(self, words: list[str]) -> float:
        ids = [self._id(word) for word in (EOS, *words, EOS)]
        text_BT = torch.tensor([ids])
        with torch.inference_mode():
            nats, _ = negative_log_likelihood(self._model, text_BT[:, :-1], text_BT[:, 1:])
        return -float(nats)

    def _id(self, word: str) -> int:
        known = self._ids.get(word, self._ids.get(UNK))
        if known is None:
            raise TrackingError(f'the model does not know the word "{word}" and its vocabulary has no {UNK}')
        return known


def describe_package(run_id: str, path: str) -> "Model":
    """What MLmodel says of a package: how MLflow loads it, what goes in and what comes out."""
    from mlflow.models import Model
    from mlflow.models.signature import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    inputs = Schema([ColSpec(DataType.string, "sentence")])
    outputs = Schema([ColSpec(DataType.double, "log_probability")])
    model = Model(artifact_path=path, run_id=run_id, signature=ModelSignature(inputs, outputs))
    return model.add_flavor("python_function", loader_module=__name__)


def _load_pyfunc(path: str) -> SentenceScorer:
    folder = Path(path)
    read_card(folder)
    model = load_model(folder)
    if not isinstance(model, LanguageModel):
        raise TrackingError(f"{path} holds a classifier, which gives sentences no probability")
    return SentenceScorer(model, read_vocabulary(folder))
