"""A registered model as MLflow's `mlflow.pyfunc.load_model` gives it: sentences in, log probabilities out.

MLflow calls `_load_pyfunc` because the package's MLmodel names this module; nothing is unpickled.
"""

import logging
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from memtune.corpora import UNK
from memtune.errors import TrackingError
from memtune.models.architecture import LanguageModel
from memtune.tasks import compute_text_nats
from memtune.tracking.registry.model_package import check_files, read_text_rules, read_vocabulary
from memtune.tracking.registry.text_rules import TextReader, TextRules
from memtune.training import load_model

log = logging.getLogger(__name__)

SENTENCE_COLUMN = "sentence"
MAX_NAMED_WORDS = 5


class SentenceScorer:
    """Gives each sentence its log probability in nats, `<eos>` included, read from a zero state."""

    def __init__(self, model: LanguageModel, vocabulary: Iterable[str], rules: TextRules) -> None:
        self._model = model.eval()
        id_by_token = {token: number for number, token in enumerate(vocabulary)}
        self._reader = TextReader(rules, id_by_token)

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> list[float]:
        """One figure per sentence; `model_input` is a table, a list, or one text, see `list_sentences`.

        Words are split and looked up by the rules of the model's corpus. Words outside the vocabulary are
        read as `<unk>`, with a warning that has their share: a text of such words has a high probability.
        Raises MlflowException, status 400 of a server, for bad input: its message alone is shown.
        """
        # Imported here, as below: MLflow loads for seconds, and only a loaded model needs it.
        from mlflow.exceptions import MlflowException

        try:
            texts = [self._reader.read(sentence) for sentence in list_sentences(model_input)]
        except TrackingError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from error
        unknown = [word for text in texts for word in text.unknown_words]
        if unknown:
            share = len(unknown) / sum(len(text.ids) for text in texts)
            log.warning(
                "%.1f %% of the words are not in the model's vocabulary and are read as %s, such as %s; "
                "log probabilities of such text do not compare",
                100 * share,
                UNK,
                ", ".join(dict.fromkeys(unknown[:MAX_NAMED_WORDS])),
            )
        return [-math.fsum(compute_text_nats(self._model, text.ids)) for text in texts]


def list_sentences(model_input: Any) -> list[str]:
    """The texts of an input as MLflow's commands pass it.

    Raises TrackingError for a table of several columns of which not one is named "sentence", and for the
    first row without a text.
    """
    if isinstance(model_input, str):
        return [model_input]
    table = _make_table(model_input)
    if table.shape == (0, 0):
        return []
    names = [str(name) for name in table.columns]
    if len(names) != 1 and names.count(SENTENCE_COLUMN) != 1:
        found = f"the columns {', '.join(names)}" if names else "no column"
        raise TrackingError(f'the input has {found}; name the one with the sentences "{SENTENCE_COLUMN}"')
    texts: list[Any] = table.iloc[:, 0 if len(names) == 1 else names.index(SENTENCE_COLUMN)].tolist()
    for row, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise TrackingError(f"row {row} of the input is {text!r}, not a text; remove it or correct it")
    return texts


def _make_table(model_input: Any) -> Any:
    """A pandas data frame with the columns of the input, a list as its only column."""
    # Imported here: pandas takes half a second.
    import pandas

    if isinstance(model_input, pandas.DataFrame):
        return model_input
    try:
        # Values stay as they are: an inferred type makes NaN of None.
        return pandas.DataFrame(model_input, dtype=object)
    except (TypeError, ValueError) as error:
        raise TrackingError(f"the input is neither a list of sentences nor a table: {error}") from None


def _load_pyfunc(path: str) -> SentenceScorer:
    folder = Path(path)
    check_files(folder)
    model = load_model(folder).require_language_model(f"scoring sentences with {folder}")
    return SentenceScorer(model, read_vocabulary(folder), read_text_rules(folder))
