"""Number agreement: a model chooses between the singular and the plural form of a verb.

Linzen, Dupoux and Goldberg (2016) compare the probabilities of both forms after the words before the verb.
Attractors are nouns of the other number between subject and verb. With more attractors the model must
remember the subject for longer (Yogatama et al. 2018, section 4.2). A question counts only if both forms are
in the vocabulary and differ.

Shapes: Q questions, B batch, T time.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from memtune.corpora.batching.batches import BOUNDARY, shift_targets
from memtune.corpora.batching.protocols import Protocol
from memtune.corpora.store.corpus import Corpus
from memtune.errors import ConfigurationError
from memtune.models.architecture import LanguageModel, LanguageModelConfig, RecurrentState
from memtune.tasks.item_costs import evaluation_mode
from memtune.tasks.questions import Answers, QuestionTask, QuestionTaskConfig, batch_by_length

CHUNK_TOKENS = 256
"""Tokens of a text in one forward pass."""


class AgreementConfig(QuestionTaskConfig):
    """Model a text and choose forms of verbs."""

    kind: Literal["agreement"] = "agreement"
    context: Literal["sentence", "text"] = Field(
        "sentence",
        description='The context before a verb: its "sentence" alone, or the whole "text" of the '
        "questions, with the state carried from one sentence to the next",
    )

    @override
    def build(self, model: LanguageModelConfig, vocabulary_size: int) -> LanguageModel:
        self.check_context(model)
        return super().build(model, vocabulary_size)

    @override
    def open_questions(self, corpus: Corpus, protocol: Protocol) -> "Agreement":
        return Agreement(corpus, protocol, self)

    def check_context(self, model: LanguageModelConfig) -> None:
        """Raise ConfigurationError where a model that reads ahead would read sentences in pieces."""
        if self.context == "text" and model.reads_ahead:
            raise ConfigurationError(
                f'task.context = "text" is read in pieces, and this family = "{model.family}" reads ahead: '
                'sentences must be whole; set task.context = "sentence"'
            )


class Agreement(QuestionTask):
    """Number agreement on a corpus."""

    unanswerable_reason = (
        "no verb has both forms in its vocabulary; import questions about verbs that the text contains"
    )

    def __init__(self, corpus: Corpus, protocol: Protocol, config: AgreementConfig) -> None:
        super().__init__(corpus, protocol, config)
        self._config = config
        protocol.require_text("agreement, whose questions are read before a tree is known,")

    @override
    def is_answerable(self, split: str) -> NDArray[np.bool_]:
        forms_Q2 = self._find_verb_forms(split)
        return np.asarray(self.known_V[forms_Q2].all(axis=1) & (forms_Q2[:, 0] != forms_Q2[:, 1]))

    @override
    @torch.no_grad()
    def answer(self, model: LanguageModel, split: str, device: str | torch.device = "cpu") -> Answers:
        self._config.check_context(model.config)
        rows, forms_Q2 = self.question_table(split), self._find_verb_forms(split)
        by_sentence = self._config.context == "sentence"
        score = self._score_by_sentence if by_sentence else self._score_through_text
        with evaluation_mode(model):
            nats_Q2 = score(model, split, self.ids_V[forms_Q2], torch.device(device))
        sentences, verbs = (rows.column(name).to_pylist() for name in ("sentence", "verb"))
        names = tuple(f"{split}:{sentence}:{verb}" for sentence, verb in zip(sentences, verbs, strict=True))
        attractors_Q = rows.column("attractors").to_numpy().astype(np.int64)
        answers_Q = np.zeros(len(names), np.int64)
        return Answers(self.kind, names, nats_Q2, answers_Q, self.is_answerable(split), attractors_Q)

    def _find_verb_forms(self, split: str) -> NDArray[np.int64]:
        """The right and the wrong form of each verb, in the questions' vocabulary, (Q, 2)."""
        rows = self.question_table(split)
        return np.stack([rows.column(name).to_numpy() for name in ("right", "wrong")], axis=1)

    def _score_by_sentence(
        self, model: LanguageModel, split: str, forms_Q2: NDArray[np.int64], device: torch.device
    ) -> NDArray[np.float64]:
        """Nats of both forms, (Q, 2); a sentence is read from a zero state up to the word before the verb."""
        rows, text = self.question_table(split), self.question_corpus[split]
        sentences, verbs = (rows.column(name).to_numpy() for name in ("sentence", "verb"))
        nats_Q2 = np.empty(forms_Q2.shape)
        for batch in batch_by_length(verbs + 1):
            last = int(verbs[batch].max()) + 1
            targets_BT, _ = self.gather_targets(text, sentences[batch])
            inputs_BT = shift_targets(targets_BT)[:, :last]
            is_verb_BT = np.arange(last) == verbs[batch][:, None]
            nats_Q2[batch], _ = self.score_candidates(model, (inputs_BT, is_verb_BT, forms_Q2[batch]), device)
        return nats_Q2

    def _score_through_text(
        self, model: LanguageModel, split: str, forms_Q2: NDArray[np.int64], device: torch.device
    ) -> NDArray[np.float64]:
        """Nats of both forms, (Q, 2); the sentences are read as one text, with the state carried over."""
        rows, text = self.question_table(split), self.question_corpus[split]
        verbs = text.starts[rows.column("sentence").to_numpy()] + rows.column("verb").to_numpy()
        order = np.argsort(verbs, kind="stable")
        nats_Q2 = np.empty(forms_Q2.shape)
        state: RecurrentState | None = None
        previous_word = BOUNDARY
        for start in range(0, text.token_count, CHUNK_TOKENS):
            stop = min(start + CHUNK_TOKENS, text.token_count)
            words = self.ids_V[text.read_tokens(start, stop)]
            inputs_BT = np.concatenate(([previous_word], words[:-1]))[None]
            questions = order[np.searchsorted(verbs[order], start) : np.searchsorted(verbs[order], stop)]
            is_verb_BT = np.isin(np.arange(start, stop), verbs[questions])[None]
            arrays = inputs_BT, is_verb_BT, forms_Q2[questions]
            nats_Q2[questions], state = self.score_candidates(model, arrays, device, state)
            previous_word = int(words[-1])
        return nats_Q2
