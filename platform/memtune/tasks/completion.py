"""Sentence completion: which of five words was taken out of a sentence?

The sentence is completed with each candidate, and the one whose whole sentence is most probable is the
answer (Zweig and Burges 2012; Tran et al. 2016, section 6; Mirowski and Vlachos 2015, section 4).

Shapes: Q questions, C candidates, B batch, T time, N predicted words.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from memtune.corpora.protocols import Protocol, TreeProtocol, shifted
from memtune.corpora.store import Corpus
from memtune.corpora.trees import Treebank
from memtune.errors import CorpusError
from memtune.models.interface import LanguageModel
from memtune.objective import Objective
from memtune.tasks.questions import Answers, QuestionTask, QuestionTaskConfig, by_length
from memtune.tasks.tree_modelling import nats_by_sentence

__all__ = ["Completion", "CompletionConfig"]

Unknown = Literal["count", "skip"]


class CompletionConfig(QuestionTaskConfig):
    """Model a text and complete sentences."""

    kind: Literal["completion"] = "completion"
    unknown: Unknown = Field(
        "count",
        description='Words outside of the vocabulary: "count" them as `<unk>`, or "skip" them in a '
        "sentence's probability, as Mirowski and Vlachos (2015) do; they are read as `<unk>` either way",
    )

    @property
    @override
    def label(self) -> str:
        kept = self.kind if self.unknown == "count" else f"{self.kind} unknown={self.unknown}"
        return f"{kept} by {self.objective}"

    @override
    def ask(self, corpus: Corpus, protocol: Protocol) -> "Completion":
        return Completion(corpus, protocol, self.objective, self.unknown)


class Completion(QuestionTask):
    """Sentence completion on a corpus."""

    kind = "completion"
    unaskable = "nobody says which candidate is right; import them with their answers, --option answers=FILE"

    def __init__(self, corpus: Corpus, protocol: Protocol, objective: Objective, unknown: Unknown) -> None:
        super().__init__(corpus, protocol, objective)
        self._skip = unknown == "skip"
        if isinstance(protocol, TreeProtocol):
            for split in self.asked.annotations[self.kind]:
                Treebank.asked(corpus, split)  # what is lacking is told now

    @override
    def askable(self, split: str) -> NDArray[np.bool_]:
        return np.asarray(self.rows(split).column("answer").to_numpy() >= 0)

    @override
    def answer(self, model: LanguageModel, split: str, device: str | torch.device = "cpu") -> Answers:
        rows = self.rows(split)
        first_Q = rows.column("first").to_numpy()
        offered = rows.column("candidates").to_numpy()
        if offered.min() != offered.max():
            raise CorpusError(
                f'"{self.asked.name}" offers {offered.min()} candidates in one question of {split} and '
                f"{offered.max()} in another; import questions with one number of candidates"
            )
        candidates = int(offered[0])
        sentences = (first_Q[:, None] + np.arange(candidates)).ravel()
        nats_QC = self.sentence_nats(model, split, sentences, device).reshape(-1, candidates)
        answers_Q = rows.column("answer").to_numpy().astype(np.int64)
        names = tuple(rows.column("question").to_pylist())
        asked_Q = self.askable(split)
        return Answers(self.kind, names, nats_QC, answers_Q, asked_Q, np.zeros_like(answers_Q))

    @torch.no_grad()
    def sentence_nats(
        self, model: LanguageModel, split: str, sentences: NDArray[np.int64], device: str | torch.device
    ) -> NDArray[np.float64]:
        """Nats of whole sentences of the questions' split.

        Sentences are read from left to right with their `<eos>`, or down their trees without.
        """
        if isinstance(self.protocol, TreeProtocol):
            protocol = self.protocol.model_copy(update={"count_unknown": not self._skip})
            found = nats_by_sentence(model, Treebank.asked(self.corpus, split), protocol, device)
            return found[sentences]
        asked, place = self.asked[split], torch.device(device)
        nats = np.empty(len(sentences))
        training = model.training
        model.eval()
        for batch in by_length(asked.lengths[sentences]):
            targets_BT, counted_BT = self.targets(asked, sentences[batch])
            if self._skip:
                counted_BT &= targets_BT != (-1 if self.unknown is None else self.unknown)
            inputs_BT, counts_BT = torch.from_numpy(shifted(targets_BT)), torch.from_numpy(counted_BT)
            candidates_N1 = torch.from_numpy(targets_BT[counted_BT][:, None])
            state = model.initial_state(len(batch))
            nats_N1, _ = model.candidate_nats(
                inputs_BT.to(place), counts_BT.to(place), candidates_N1.to(place), state
            )
            nats_BT = torch.zeros(counts_BT.shape, dtype=torch.float64)
            nats_BT[counts_BT] = nats_N1[:, 0].cpu().double()
            nats[batch] = nats_BT.sum(1).numpy()
        model.train(training)
        return nats
