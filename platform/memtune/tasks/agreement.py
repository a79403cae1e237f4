"""Number agreement: is the right form of a verb more probable than the other number's?

Linzen, Dupoux and Goldberg (2016) ask it of a sentence's beginning up to the verb; between subject and verb
stand attractors, nouns of the other number, and the more there are the longer a model has to remember
(Yogatama et al. 2018, section 4.2). A question can be asked when both forms are in the vocabulary and differ.

Shapes: Q questions, B batch, T time.
"""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from memtune.corpora.protocols import Protocol, TreeProtocol, shifted
from memtune.corpora.store import Corpus
from memtune.corpora.trees import BOUNDARY
from memtune.errors import ConfigurationError
from memtune.models.interface import LanguageModel, State
from memtune.objective import Objective
from memtune.tasks.questions import Answers, QuestionTask, QuestionTaskConfig, by_length

__all__ = ["Agreement", "AgreementConfig"]

Context = Literal["sentence", "text"]
PIECE = 256
"""Tokens of a text read at once."""


class AgreementConfig(QuestionTaskConfig):
    """Model a text and choose forms of verbs."""

    kind: Literal["agreement"] = "agreement"
    context: Context = Field(
        "sentence",
        description='What a verb is chosen after: its "sentence" alone, or the whole "text" of the '
        "questions, the state carried from one to the next",
    )

    @property
    @override
    def label(self) -> str:
        kept = self.kind if self.context == "sentence" else f"{self.kind} context={self.context}"
        return f"{kept} by {self.objective}"

    @override
    def ask(self, corpus: Corpus, protocol: Protocol) -> "Agreement":
        return Agreement(corpus, protocol, self.objective, self.context)


class Agreement(QuestionTask):
    """Number agreement on a corpus."""

    kind = "agreement"
    unaskable = "of no verb are both forms in its vocabulary; ask about verbs that the text has"

    def __init__(self, corpus: Corpus, protocol: Protocol, objective: Objective, context: Context) -> None:
        super().__init__(corpus, protocol, objective)
        self._context = context
        if isinstance(protocol, TreeProtocol):
            raise ConfigurationError(
                "agreement is asked from left to right, where no tree is known yet; take protocol.kind = "
                '"sentence" or "stream"'
            )

    @override
    def askable(self, split: str) -> NDArray[np.bool_]:
        forms_Q2 = self._forms(split)
        return np.asarray(self.known_V[forms_Q2].all(axis=1) & (forms_Q2[:, 0] != forms_Q2[:, 1]))

    @override
    @torch.no_grad()
    def answer(self, model: LanguageModel, split: str, device: str | torch.device = "cpu") -> Answers:
        rows, forms_Q2 = self.rows(split), self._forms(split)
        training = model.training
        model.eval()
        ask = self._by_sentence if self._context == "sentence" else self._through_text
        nats_Q2 = ask(model, split, self.ids_V[forms_Q2], torch.device(device))
        model.train(training)
        sentences, verbs = (rows.column(name).to_pylist() for name in ("sentence", "verb"))
        names = tuple(f"{split}:{place}:{verb}" for place, verb in zip(sentences, verbs, strict=True))
        attractors_Q = rows.column("attractors").to_numpy().astype(np.int64)
        answers_Q = np.zeros(len(names), np.int64)
        return Answers(self.kind, names, nats_Q2, answers_Q, self.askable(split), attractors_Q)

    def _forms(self, split: str) -> NDArray[np.int64]:
        """The right and the wrong form of each verb, in the questions' vocabulary, (Q, 2)."""
        rows = self.rows(split)
        return np.stack([rows.column(name).to_numpy() for name in ("right", "wrong")], axis=1)

    def _by_sentence(
        self, model: LanguageModel, split: str, forms_Q2: NDArray[np.int64], place: torch.device
    ) -> NDArray[np.float64]:
        """Each sentence's beginning is read from a zero state, up to the word before the verb."""
        rows, asked = self.rows(split), self.asked[split]
        sentences, verbs = (rows.column(name).to_numpy() for name in ("sentence", "verb"))
        nats_Q2 = np.empty(forms_Q2.shape)
        for batch in by_length(verbs + 1):
            last = int(verbs[batch].max()) + 1
            targets_BT, _ = self.targets(asked, sentences[batch])
            inputs_BT = shifted(targets_BT)[:, :last]
            asked_BT = np.arange(last) == verbs[batch][:, None]
            inputs, where, forms = _sent(place, inputs_BT, asked_BT, forms_Q2[batch])
            found, _ = model.candidate_nats(inputs, where, forms, model.initial_state(len(batch)))
            nats_Q2[batch] = found.cpu().double().numpy()
        return nats_Q2

    def _through_text(
        self, model: LanguageModel, split: str, forms_Q2: NDArray[np.int64], place: torch.device
    ) -> NDArray[np.float64]:
        """The sentences are one text; verbs are asked for as it goes by."""
        rows, asked = self.rows(split), self.asked[split]
        verbs = asked.starts[rows.column("sentence").to_numpy()] + rows.column("verb").to_numpy()
        order = np.argsort(verbs, kind="stable")
        nats_Q2 = np.empty(forms_Q2.shape)
        state: State = model.initial_state(1)
        before = BOUNDARY
        for start in range(0, asked.token_count, PIECE):
            stop = min(start + PIECE, asked.token_count)
            text = self.ids_V[asked.tokens(start, stop)]
            inputs_BT = np.concatenate(([before], text[:-1]))[None]
            here = order[np.searchsorted(verbs[order], start) : np.searchsorted(verbs[order], stop)]
            asked_BT = np.isin(np.arange(start, stop), verbs[here])[None]
            inputs, where, forms = _sent(place, inputs_BT, asked_BT, forms_Q2[here])
            found, state = model.candidate_nats(inputs, where, forms, state)
            nats_Q2[here] = found.cpu().double().numpy()
            before = int(text[-1])
        return nats_Q2


def _sent(place: torch.device, *arrays: NDArray[Any]) -> tuple[Tensor, ...]:
    """Arrays as tensors on a device."""
    return tuple(torch.from_numpy(np.ascontiguousarray(array)).to(place) for array in arrays)
