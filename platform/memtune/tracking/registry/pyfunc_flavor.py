"""A registered model as MLflow's `mlflow.pyfunc.load_model` gives it: sentences in, log probabilities out.

MLflow calls `_load_pyfunc` because the package's MLmodel names this module; nothing is unpickled.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from memtune.errors import TrackingError
from memtune.models.architecture import LanguageModel, negative_log_likelihood
from memtune.tracking.registry.model_package import check_files, read_vocabulary
from memtune.tracking.registry.registered_model import load_registered
from memtune.training import load_model

if TYPE_CHECKING:
    from mlflow.models import Model

__all__ = ["SentenceScorer", "describe_package", "load_scorer"]

EOS = "<eos>"
UNK = "<unk>"
NO_TIME = "1970-01-01 00:00:00.000000"


class SentenceScorer:
    """Gives each sentence its log probability in nats, `<eos>` included, read from a zero state."""

    def __init__(self, model: LanguageModel, vocabulary: Iterable[str]) -> None:
        self._model = model.eval()
        self._id_by_token = {token: number for number, token in enumerate(vocabulary)}

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> list[float]:
        """One figure per sentence; `model_input` is a table with the column "sentence", or a list of texts.

        Words are separated by blanks; a word outside the vocabulary is read as `<unk>`.
        """
        sentences = model_input["sentence"] if hasattr(model_input, "columns") else model_input
        return [self._score(str(sentence).split()) for sentence in sentences]

    def _score(self, words: list[str]) -> float:
        ids = [self._find_token_id(word) for word in (EOS, *words, EOS)]
        text_BT = torch.tensor([ids])
        with torch.inference_mode():
            nats, _ = negative_log_likelihood(self._model, text_BT[:, :-1], text_BT[:, 1:])
        return -float(nats)

    def _find_token_id(self, word: str) -> int:
        known = self._id_by_token.get(word, self._id_by_token.get(UNK))
        if known is None:
            raise TrackingError(f'the model does not know the word "{word}" and its vocabulary has no {UNK}')
        return known


def describe_package(run_id: str) -> "Model":
    """The content of MLmodel: the module that loads the package, its inputs and its outputs.

    The same for the same run, so that repeating an interrupted registration finds its version: no path, which
    would hold the digest of this text, no random identifier, no time.
    """
    # Imported here: torch and MLflow load for seconds, and only a loaded model needs them.
    from mlflow.models import Model
    from mlflow.models.signature import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    inputs = Schema([ColSpec(DataType.string, "sentence")])
    outputs = Schema([ColSpec(DataType.double, "log_probability")])
    model = Model(
        run_id=run_id,
        model_uuid=None,
        utc_time_created=NO_TIME,
        signature=ModelSignature(inputs, outputs),
    )
    return model.add_flavor("python_function", loader_module=__name__)


def load_scorer(tracking_uri: str, uri: str, cache: Path) -> SentenceScorer:
    """The scorer of `models:/ptb@champion`, downloaded to `cache` and checked against the registry first.

    `mlflow.pyfunc.load_model` gives the same figures, but imports the module that MLmodel names before any
    file is checked: whoever can write to the store can name another one there. Raises the errors of
    `load_registered`.
    """
    return _make_scorer(load_registered(tracking_uri, uri, cache).folder)


def _load_pyfunc(path: str) -> SentenceScorer:
    check_files(Path(path))
    return _make_scorer(Path(path))


def _make_scorer(folder: Path) -> SentenceScorer:
    model = load_model(folder)
    if not isinstance(model, LanguageModel):
        raise TrackingError(f"{folder} holds a classifier, which gives sentences no probability")
    return SentenceScorer(model, read_vocabulary(folder))
