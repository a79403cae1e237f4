"""The words that each word of a sentence attends to: Cheng, Dong and Lapata (2016), figures 1, 4 and 5."""

from itertools import islice

import numpy as np

from memtune.errors import CorpusError
from memtune.results.inspection.inspected_model import InspectedModel
from memtune.results.inspection.inspected_text import TextChoice
from memtune.results.inspection.sentence_readings import SentenceAttention, read_attention
from memtune.values import Value


class Link(Value):
    """Attention of one word to another."""

    layer: int
    """From 1, the lowest layer."""
    word: int
    """The position of the word read."""
    attended: int
    """The position of the word attended to."""
    weight: float


class SentenceLinks(Value):
    """The attention within one sentence."""

    number: int
    """Counted from 0 within its split."""
    words: tuple[str, ...]
    """The words as the model reads them, `<eos>` before the first where it reads it."""
    layers: int
    links: tuple[Link, ...]
    """All links, in the order of layers and words; links to words of earlier sentences are left out."""

    def select(self, layer: int, min_weight: float = 0.0) -> list[Link]:
        """The links of a layer with at least this weight."""
        return [link for link in self.links if link.layer == layer and link.weight >= min_weight]


class AttentionLinks(Value):
    """The attention within the sentences of a text."""

    model: str
    family: str
    sentences: tuple[SentenceLinks, ...]


def find_links(model: InspectedModel, choice: TextChoice, first: int = 0, count: int = 1) -> AttentionLinks:
    """The links within `count` sentences from sentence `first` on, in every layer that attends.

    A model that reads on across sentences reads all sentences before them. Raises CorpusError where the text
    has no such sentence, and the errors of `read_attention`.
    """
    read = choice if choice.text else choice.model_copy(update={"sentences": first + count})
    readings = (reading for reading in read_attention(model, read) if reading.sentence.number >= first)
    found = tuple(_describe_sentence(model, reading) for reading in islice(readings, count))
    if not found:
        raise CorpusError(f"the text has no sentence {first}; sentences count from 0")
    return AttentionLinks(model=model.name, family=model.family, sentences=found)


def _describe_sentence(model: InspectedModel, reading: SentenceAttention) -> SentenceLinks:
    steps = len(reading.inputs_T)
    places_Tn = np.arange(steps)[:, None] + reading.offsets_n
    inside = (places_Tn >= 0) & (places_Tn < steps)
    return SentenceLinks(
        number=reading.sentence.number,
        words=tuple(model.corpus.vocabulary.decode(reading.inputs_T.tolist())),
        layers=len(reading.weights_LTn),
        links=tuple(
            Link(layer=layer, word=word, attended=int(places_Tn[word, slot]), weight=float(weight))
            for layer, weights_Tn in enumerate(reading.weights_LTn, start=1)
            for (word, slot), weight in np.ndenumerate(weights_Tn)
            if inside[word, slot]
        ),
    )
