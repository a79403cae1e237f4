"""The text that a network reads whose memory is inspected, and its reading of each sentence.

A sentence of W words is read in W + 1 steps: the boundary and its words, each followed by the prediction of
the next word, at last of the boundary. A classifier reads its W words alone.

Shapes: B sentences read together, T steps, L layers that attend, n slots, A actions, H width, P words read
before the sentence.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from memtune.corpora import Corpus, open_corpus
from memtune.corpora.batching.batches import BOUNDARY
from memtune.corpora.store.vocabulary import UNK
from memtune.errors import ConfigurationError, CorpusError
from memtune.models import MODELS, RecurrentState, find_device
from memtune.models.memories.memory_traces import MemoryTrace, StackAction
from memtune.results.loaded_models import TrainedModel
from memtune.results.other_texts import make_reader, read_known, read_other_text
from memtune.values import Value

BATCH_SENTENCES = 16
MAX_EARLIER_WORDS = 1000
"""Words kept of a text that is read on across sentences: more than any memory in use holds."""
NO_WORD = -1
"""The id of a slot without a word, and of a word that the vocabulary lacks."""


def list_signs(corpus: Corpus) -> set[int]:
    """The ids of `<eos>` and, where the vocabulary has it, `<unk>`, which are not words."""
    vocabulary = corpus.vocabulary
    return {BOUNDARY} | ({vocabulary.get_id(UNK)} if UNK in vocabulary else set())


def reads_boundary(model: TrainedModel) -> bool:
    """Whether `<eos>` is read before the first word; classifiers read words only."""
    return model.config.task.prediction_unit == "tokens"


def _require_trace(model: TrainedModel, trace: MemoryTrace) -> None:
    """Raise ConfigurationError, which names the families with this trace, where the model has none."""
    config = model.network.config
    if trace not in config.memory_traces:
        having = ", ".join(family for family, config in MODELS.items() if trace in config.memory_traces)
        raise ConfigurationError(
            f'{model.name}: the inspection of its {trace} does not cover family "{config.family}"; it covers '
            f"{having}"
        )


class TextChoice(Value):
    """Which text a model reads; without any field its own validation split."""

    split: Literal["train", "valid", "test"] = "valid"
    corpus: str | None = None
    """Another corpus of the store, whose words are looked up in the model's vocabulary; None is its own."""
    sentences: int | None = Field(None, ge=1)
    """The number of sentences from the start of the split; None is all."""
    text: str | None = None
    """Words separated by blanks, in place of a split."""


@dataclass(frozen=True)
class WordTree:
    """The dependency tree of a sentence."""

    heads: tuple[int, ...]
    """The position of each word's head; -1 for a root."""
    relations: tuple[str, ...]
    """Each word's relation to its head."""


@dataclass(frozen=True)
class InspectedSentence:
    """A sentence in the words of the model's vocabulary."""

    number: int
    """Counted from 0 within its split; 0 for a given text."""
    ids_W: NDArray[np.int64]
    """Its words, without `<eos>`."""
    tree: WordTree | None = None


def read_sentences(model: TrainedModel, choice: TextChoice) -> Iterator[InspectedSentence]:
    """The sentences of a text in their order, empty ones left out; trees where the corpus has them.

    Raises CorpusError for a missing corpus or split and for a word that the model's vocabulary lacks where it
    has no `<unk>`, ConfigurationError for a text without words or together with a corpus.
    """
    if choice.text is not None:
        if not choice.text.split():
            raise ConfigurationError("the text has no words; give words separated by blanks")
        if choice.corpus is not None:
            raise ConfigurationError(
                f'a text is read in place of corpus "{choice.corpus}"; leave one of them out'
            )
        if model.corpus.manifest.tokeniser is None:
            ids_W = model.corpus.vocabulary.encode(choice.text.split())
        else:
            ids_W = np.array(read_known(make_reader(model.corpus), choice.text, "the text").ids, np.int64)
        return iter([InspectedSentence(0, ids_W)])
    corpus, ids = _open_corpus(model, choice.corpus, choice.split)
    model.record_access(choice.split, choice.corpus)
    return islice(_iterate_split(corpus, choice.split, ids), choice.sentences)


def _open_corpus(
    model: TrainedModel, name: str | None, split: str
) -> tuple[Corpus, NDArray[np.int64] | None]:
    """The corpus that is read, and the model's id of each word of its vocabulary; None for its own corpus."""
    if name is None or name == model.corpus.name:
        return model.corpus, None
    if model.corpus.manifest.tokeniser is not None:
        return read_other_text(model.corpus, name, split, model.settings.corpus_store)[0], None
    other = open_corpus(name, model.settings.corpus_store)
    return other, replace(model.corpus, joined=other).map_question_ids()


def _iterate_split(corpus: Corpus, name: str, ids: NDArray[np.int64] | None) -> Iterator[InspectedSentence]:
    split, trees = corpus[name], corpus.iterate_trees(name)
    for number, (start, length) in enumerate(zip(split.starts, split.lengths, strict=True)):
        words_W = split.read_tokens(int(start), int(start + length - 1))
        read_W = words_W if ids is None else ids[words_W]
        if (read_W == NO_WORD).any():
            missing = corpus.vocabulary.tokens[int(words_W[np.argmax(read_W == NO_WORD)])]
            raise CorpusError(
                f'"{missing}" of corpus "{corpus.name}" is not in the vocabulary of the model, which has no '
                f"{UNK}; inspect another text"
            )
        tree = next(trees, None)
        if length > 1:
            yield InspectedSentence(number, read_W, tree and WordTree(*tree))


@dataclass(frozen=True)
class SentenceReading:
    """One sentence as a network has read it."""

    sentence: InspectedSentence
    inputs_T: NDArray[np.int64]
    """The words read."""
    targets_T: NDArray[np.int64]
    """The word after each."""
    earlier_P: NDArray[np.int64]
    """Words read before the sentence, from which slots may come; none where each sentence is read alone."""
    hidden_TH: Tensor
    """The input of the output layer after each word."""


@dataclass(frozen=True)
class SentenceAttention(SentenceReading):
    """One sentence with the attention after each word."""

    weights_LTn: NDArray[np.float64]
    offsets_n: NDArray[np.int64]
    """The place of each slot's word relative to the word read."""

    @property
    def distances_n(self) -> NDArray[np.int64]:
        """Words from each slot's word to the word to predict: 1 is the word before it, -1 the word after."""
        return 1 - self.offsets_n

    def find_attended_words(self) -> NDArray[np.int64]:
        """The id of the word in each slot, (T, n); NO_WORD for a slot without one."""
        text_K = np.concatenate([self.earlier_P, self.inputs_T])
        steps_T1 = np.arange(len(self.inputs_T))[:, None]
        places_Tn = len(self.earlier_P) + steps_T1 + self.offsets_n
        is_word_Tn = (places_Tn >= 0) & (places_Tn < len(text_K))
        return np.where(is_word_Tn, text_K[places_Tn.clip(0, len(text_K) - 1)], NO_WORD)


@dataclass(frozen=True)
class SentenceStack(SentenceReading):
    """One sentence with the use of a stack after each word."""

    actions: tuple[StackAction, ...]
    probabilities_TA: NDArray[np.float64]
    contribution_T: NDArray[np.float64]
    """The norm of the stack's term in each prediction."""


Reading = TypeVar("Reading", bound=SentenceReading)


def read_attention(model: TrainedModel, choice: TextChoice) -> Iterator[SentenceAttention]:
    """The sentences of a text with the attention after each word.

    Raises ConfigurationError for a model without attention and the errors of `read_sentences`.
    """
    _require_trace(model, "attention")
    for inputs_BT, state, readings in _read_batches(model, choice):
        weights_LBTn, offsets = model.network.trace_attention(inputs_BT, state)
        for row, reading in enumerate(readings):
            weights_LTn = weights_LBTn[:, row, : len(reading.inputs_T)].double().cpu().numpy()
            yield SentenceAttention(**vars(reading), weights_LTn=weights_LTn, offsets_n=np.array(offsets))


def read_stack(model: TrainedModel, choice: TextChoice) -> Iterator[SentenceStack]:
    """The sentences of a text with the use of the stack after each word; raises as `read_attention` does."""
    _require_trace(model, "stack")
    for inputs_BT, state, readings in _read_batches(model, choice):
        use = model.network.measure_stack_use(inputs_BT, state)
        for row, reading in enumerate(readings):
            steps = len(reading.inputs_T)
            yield SentenceStack(
                **vars(reading),
                actions=use.actions,
                probabilities_TA=use.actions_BTA[row, :steps].double().cpu().numpy(),
                contribution_T=use.contribution_BT[row, :steps].double().cpu().numpy(),
            )


def read_one(
    read: Callable[[TrainedModel, TextChoice], Iterator[Reading]],
    model: TrainedModel,
    choice: TextChoice,
    number: int,
) -> Reading:
    """The reading of sentence `number`, or of the next one that is not empty.

    A model that reads on across sentences reads all sentences before it. Raises CorpusError where the text
    has no such sentence.
    """
    chosen = choice if choice.text else choice.model_copy(update={"sentences": number + 1})
    found = next((reading for reading in read(model, chosen) if reading.sentence.number >= number), None)
    if found is None:
        raise CorpusError(f"the text has no sentence {number}; sentences count from 0")
    return found


def _read_batches(
    model: TrainedModel, choice: TextChoice
) -> Iterator[tuple[Tensor, RecurrentState, list[SentenceReading]]]:
    """Yield batches in the order of the text, each with the state before its first word and its readings.

    A batch is one sentence where the state is carried on. No network here looks past the end of a sentence at
    the padding.
    """
    sentences, lead = read_sentences(model, choice), np.full(int(reads_boundary(model)), BOUNDARY, np.int64)
    size = 1 if model.config.protocol.carries_state else BATCH_SENTENCES
    state, earlier_P = None, np.empty(0, np.int64)
    while batch := list(islice(sentences, size)):
        read = [np.concatenate([lead, sentence.ids_W]) for sentence in batch]
        inputs_BT = pad_sequence([*map(torch.from_numpy, read)], batch_first=True, padding_value=BOUNDARY)
        inputs_BT = inputs_BT.to(find_device(model.network))
        before = state or model.network.initial_state(len(batch))
        with torch.no_grad():
            hidden_BTH, after = model.network.encode(inputs_BT, before)
        readings = [
            SentenceReading(
                sentence, inputs_T, np.append(inputs_T[1:], BOUNDARY), earlier_P, hidden_TH[: len(inputs_T)]
            )
            for sentence, inputs_T, hidden_TH in zip(batch, read, hidden_BTH, strict=True)
        ]
        yield inputs_BT, before, readings
        if model.config.protocol.carries_state:
            state = after
            earlier_P = np.concatenate([earlier_P, read[0]])[-MAX_EARLIER_WORDS:]
