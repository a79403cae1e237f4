"""Values of inspection with words as tables and figures show them."""

from typing import Any, TypeVar

from memtune.corpora import show_tokens
from memtune.results.loaded_models import TrainedModel
from memtune.values import Value

T = TypeVar("T")


def show_words(found: T, model: TrainedModel) -> T:
    """The values with the text of subwords whose letters stand for bytes in place of the tokens."""
    tokens, document = model.corpus.vocabulary.tokens, model.corpus.tokeniser_document
    shown = dict(zip(tokens, show_tokens(tokens, document), strict=True))

    def show(part: Any) -> Any:
        if isinstance(part, str):
            return shown.get(part, part)
        if isinstance(part, list | tuple):
            return type(part)(map(show, part))
        if isinstance(part, Value):
            return part.model_copy(update={name: show(value) for name, value in part})
        return part

    translated: T = show(found)
    return translated
