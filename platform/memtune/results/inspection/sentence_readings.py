"""A network reads sentences under its protocol, and each sentence comes with the trace of its memory.

A sentence of W words is read in W + 1 steps: the boundary and its words, each followed by the prediction of
the next word, at last of the boundary. A classifier reads its W words alone.

Shapes: B sentences read together, T steps, L layers that attend, n slots, A actions, H width, P words read
before the sentence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memtune.corpora.batching.batches import BOUNDARY
from memtune.models import RecurrentState
from memtune.models.memories.memory_traces import StackAction
from memtune.results.inspection.inspected_model import InspectedModel
from memtune.results.inspection.inspected_text import InspectedSentence, TextChoice, read_sentences

BATCH_SENTENCES = 16
MAX_EARLIER_WORDS = 1000
"""Words kept of a text that is read on across sentences: more than any memory in use holds."""
NO_WORD = -1
"""The id of a slot without a word."""


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


@dataclass(frozen=True)
class _Batch:
    sentences: Sequence[InspectedSentence]
    inputs_BT: Tensor
    state: RecurrentState
    """Before the first word."""
    hidden_BTH: Tensor
    earlier_P: NDArray[np.int64]


def read_attention(model: InspectedModel, choice: TextChoice) -> Iterator[SentenceAttention]:
    """The sentences of a text with the attention after each word.

    Raises ConfigurationError for a model without attention and the errors of `read_sentences`.
    """
    model.require_trace("attention")
    for batch in _read_batches(model, read_sentences(model, choice)):
        weights_LBTn, offsets = model.network.trace_attention(batch.inputs_BT, batch.state)
        for row, reading in enumerate(_split_batch(model, batch)):
            weights_LTn = weights_LBTn[:, row, : len(reading.inputs_T)].double().cpu().numpy()
            yield SentenceAttention(**vars(reading), weights_LTn=weights_LTn, offsets_n=np.array(offsets))


def read_stack(model: InspectedModel, choice: TextChoice) -> Iterator[SentenceStack]:
    """The sentences of a text with the use of the stack after each word; raises as `read_attention` does."""
    model.require_trace("stack")
    for batch in _read_batches(model, read_sentences(model, choice)):
        use = model.network.measure_stack_use(batch.inputs_BT, batch.state)
        for row, reading in enumerate(_split_batch(model, batch)):
            steps = len(reading.inputs_T)
            yield SentenceStack(
                **vars(reading),
                actions=use.actions,
                probabilities_TA=use.actions_BTA[row, :steps].double().cpu().numpy(),
                contribution_T=use.contribution_BT[row, :steps].double().cpu().numpy(),
            )


def _read_batches(model: InspectedModel, sentences: Iterator[InspectedSentence]) -> Iterator[_Batch]:
    """Batches in the order of the text: one sentence each where the state is carried on."""
    size = 1 if model.carries_state else BATCH_SENTENCES
    state, earlier_P = None, np.empty(0, np.int64)
    while batch := list(islice(sentences, size)):
        inputs_BT = _pad_inputs(model, batch)
        before = state or model.network.initial_state(len(batch))
        hidden_BTH, after = _encode(model, inputs_BT, before)
        yield _Batch(batch, inputs_BT, before, hidden_BTH, earlier_P)
        if model.carries_state:
            state = after
            earlier_P = np.concatenate([earlier_P, inputs_BT[0].cpu().numpy()])[-MAX_EARLIER_WORDS:]


@torch.no_grad()
def _encode(model: InspectedModel, inputs_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
    return model.network.encode(inputs_BT, state)


def _pad_inputs(model: InspectedModel, sentences: Sequence[InspectedSentence]) -> Tensor:
    """The words read of each sentence; no network here looks past the end of a sentence at the padding."""
    lead = int(model.reads_boundary)
    longest = lead + max(len(sentence.ids_W) for sentence in sentences)
    inputs_BT = np.full((len(sentences), longest), BOUNDARY, np.int64)
    for row, sentence in enumerate(sentences):
        inputs_BT[row, lead : lead + len(sentence.ids_W)] = sentence.ids_W
    return torch.from_numpy(inputs_BT).to(model.device)


def _split_batch(model: InspectedModel, batch: _Batch) -> Iterator[SentenceReading]:
    for row, sentence in enumerate(batch.sentences):
        steps = len(sentence.ids_W) + int(model.reads_boundary)
        inputs_T = batch.inputs_BT[row, :steps].cpu().numpy()
        targets_T = np.append(inputs_T[1:], BOUNDARY)
        yield SentenceReading(sentence, inputs_T, targets_T, batch.earlier_P, batch.hidden_BTH[row, :steps])
