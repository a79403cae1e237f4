"""Questions that a language model answers with its probabilities, in addition to modelling a text.

A question has candidates; the model chooses the most probable one. The model is trained on the text and never
on the questions. The questions belong to the text's corpus or to another corpus, joined as "text+questions",
whose words are looked up in the text's vocabulary.

Shapes: Q questions, C candidates, B batch, T time, V words of the questions' vocabulary.
"""

import csv
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaincinv
from torch import Tensor
from typing_extensions import override

from memtune.corpora.batching.batches import BOUNDARY, TaskPlan, cut_by_length
from memtune.corpora.batching.protocols import Protocol
from memtune.corpora.store.corpus import Corpus, Split
from memtune.errors import CorpusError
from memtune.models.architecture import LanguageModel, RecurrentState
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.seed_statistics import CONFIDENCE_LEVEL
from memtune.storage.local_files import write_whole
from memtune.tasks.item_costs import ItemCosts, count_best_candidates, credit_choices
from memtune.tasks.language_modelling import LanguageModellingConfig, TextTaskConfig
from memtune.tasks.task import AnyTask, Metrics, Task

BATCH_TOKENS = 4096
"""Largest number of tokens in a batch of questions, padding included."""


@dataclass(frozen=True)
class Answers:
    """A model's answers to a split's questions; a tie among the k best candidates counts 1 / k."""

    kind: str
    names: tuple[str, ...]
    """Name of each question, the same for every model."""
    nats_QC: NDArray[np.float64]
    """-log probability of each candidate, lower is better."""
    answers_Q: NDArray[np.int64]
    """Index of the correct candidate; -1 where it is not known."""
    asked_Q: NDArray[np.bool_]
    """Whether the question counts: the model's vocabulary has its words, and the answer is known."""
    groups_Q: NDArray[np.int64]
    """Group of each question in tables: number of attractors; zeros for tasks without groups."""

    @cached_property
    def credits(self) -> NDArray[np.float64]:
        """Credit of each question: 1 if correct, 1 / k in a tie among k, 0 if wrong or not asked, (Q,)."""
        answers_Q = torch.from_numpy(self.answers_Q.clip(min=0))
        credits_Q = credit_choices(torch.from_numpy(self.nats_QC), answers_Q).numpy()
        return np.where(self.asked_Q, credits_Q, 0.0)

    @cached_property
    def best_counts(self) -> NDArray[np.int64]:
        """Number of candidates that share the lowest cost of each question, (Q,)."""
        return count_best_candidates(torch.from_numpy(self.nats_QC)).numpy()

    @property
    def question_count(self) -> int:
        """Number of questions that count."""
        return int(self.asked_Q.sum())

    @property
    def tie_count(self) -> int:
        """Number of questions that count and whose best candidates tie, with or without the correct one."""
        return int((self.asked_Q & (self.best_counts > 1)).sum())

    @property
    def accuracy(self) -> float:
        """Mean credit of the questions that count, higher is better; NaN where none counts."""
        return float(self.credits.sum() / self.question_count) if self.question_count else float("nan")

    def select_groups(self, low: int, high: int | None = None) -> "Answers":
        """The questions of groups `low` to `high`, both included; without `high` all from `low` on."""
        kept_Q = (self.groups_Q >= low) & (self.groups_Q <= (self.groups_Q.max() if high is None else high))
        names = tuple(name for name, kept in zip(self.names, kept_Q, strict=True) if kept)
        nats_QC, answers_Q = self.nats_QC[kept_Q], self.answers_Q[kept_Q]
        return Answers(self.kind, names, nats_QC, answers_Q, self.asked_Q[kept_Q], self.groups_Q[kept_Q])

    def compute_confidence_interval(self) -> tuple[float, float]:
        """The exact interval of the accuracy at 95 %: Clopper and Pearson (1934), "The use of confidence or
        fiducial limits illustrated in the case of the binomial". NaN where no question counts.
        """
        count, right = self.question_count, float(self.credits.sum())
        if not count:
            return float("nan"), float("nan")
        tail = (1 - CONFIDENCE_LEVEL) / 2
        low = float(betaincinv(right, count - right + 1, tail)) if right else 0.0
        high = float(betaincinv(right + 1, count - right, 1 - tail)) if right < count else 1.0
        return low, high

    def write_tsv(self, path: Path) -> None:
        """Write one line for each question.

        Columns: name, group, index of the correct candidate, index of the first best candidate, number of
        best candidates (more than 1 is a tie), credit ("" where the question does not count), nats of each
        candidate. Raises StorageError when the file cannot be written.
        """
        file = StringIO()
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        nats_columns = [f"nats_{number}" for number in range(self.nats_QC.shape[1])]
        table.writerow(["question", "group", "answer", "choice", "tied", "right", *nats_columns])
        for row, (name, nats_C) in enumerate(zip(self.names, self.nats_QC, strict=True)):
            credit = f"{self.credits[row]:.6g}" if self.asked_Q[row] else ""
            numbers = self.groups_Q[row], self.answers_Q[row], nats_C.argmin(), self.best_counts[row]
            table.writerow([name, *map(int, numbers), credit, *(f"{each:.6f}" for each in nats_C)])
        write_whole(path, file.getvalue().encode())


class QuestionTaskConfig(TextTaskConfig):
    """A text to model and questions to answer."""

    objective: Literal[Objective.PERPLEXITY, Objective.ACCURACY] = Objective.ACCURACY
    """The figure that compares trials, stops them early and anneals the learning rate."""

    @property
    @override
    def label(self) -> str:
        options = self.model_dump(exclude={"kind", "objective"}, exclude_defaults=True)
        changed = (f" {name}={value}" for name, value in options.items())
        return f"{self.kind}{''.join(changed)} by {self.objective}"

    @override
    def is_evaluable(self, corpus: Corpus, protocol: Protocol, split: str) -> bool:
        has_questions = corpus.questions is not None and split in corpus.questions.annotations.get(
            self.kind, {}
        )
        return has_questions and super().is_evaluable(corpus, protocol, split)

    @abstractmethod
    def open_questions(self, corpus: Corpus, protocol: Protocol) -> "QuestionTask":
        """The questions of a corpus; raises CorpusError or ConfigurationError that names what is missing."""

    @override
    def open(self, corpus: Corpus, protocol: Protocol) -> "QuestionTask":
        """The task for training; raises CorpusError also if no validation question can be answered."""
        task = self.open_questions(corpus, protocol)
        is_answerable_Q = task.is_answerable("valid")
        if not is_answerable_Q.any():
            count = format_count(len(is_answerable_Q), f"{self.kind} question")
            raise CorpusError(
                f'"{task.question_corpus.name}" has {count} for valid, and a model of '
                f'"{corpus.name.partition("+")[0]}" can answer none: {task.unanswerable_reason}'
            )
        return task


class QuestionTask(Task[LanguageModel, Any]):
    """A text for training and questions for evaluation; raises CorpusError for a corpus without questions."""

    unanswerable_reason: str
    """End of the error for a split without answerable questions: the reason and the fix."""

    def __init__(self, corpus: Corpus, protocol: Protocol, config: QuestionTaskConfig) -> None:
        self.text_task: AnyTask = LanguageModellingConfig().open(corpus, protocol)
        self.outcome_count = self.text_task.outcome_count
        self.kind, self.objective = config.kind, config.objective
        self.corpus, self.protocol = corpus, protocol
        questions = corpus.questions
        if questions is None or self.kind not in questions.annotations:
            kinds = ", ".join(questions.annotations) if questions else "nothing"
            raise CorpusError(
                f'corpus "{corpus.name}" has no {self.kind} questions, it has {kinds}; join a corpus that '
                f'has them: corpus = "{corpus.name.partition("+")[0]}+QUESTIONS"'
            )
        self.question_corpus = questions
        self.ids_V = corpus.map_question_ids(refuse_missing=True)
        self.unknown_id = corpus.vocabulary.unknown_id
        self.known_V = self.ids_V != (-1 if self.unknown_id is None else self.unknown_id)

    @abstractmethod
    def is_answerable(self, split: str) -> NDArray[np.bool_]:
        """Whether each question of a split counts, (Q,); raises CorpusError for a split without questions."""

    @abstractmethod
    def answer(self, model: LanguageModel, split: str, device: str | torch.device = "cpu") -> Answers:
        """The answers of a model on `device`. Raises CorpusError for a split without questions."""

    @property
    @override
    def epoch_tokens(self) -> int:
        return self.text_task.epoch_tokens

    @override
    def initialise_model(self, model: LanguageModel) -> None:
        self.text_task.initialise_model(model)

    @override
    def training_plan(self, seed: int, epoch: int) -> TaskPlan[Any]:
        return self.text_task.training_plan(seed, epoch)

    @override
    def loss(
        self, model: LanguageModel, batch: Any, state: RecurrentState | None
    ) -> tuple[Tensor, RecurrentState]:
        return self.text_task.loss(model, batch, state)

    @override
    def evaluate(self, model: LanguageModel, split: str, device: str | torch.device = "cpu") -> Metrics:
        """The metrics of the text's split, with the accuracy on the questions' split of the same name."""
        return self.add_accuracy(self.text_task.evaluate(model, split, device), model, split, device)

    @override
    def add_accuracy(
        self, metrics: Metrics, model: LanguageModel, split: str, device: str | torch.device = "cpu"
    ) -> Metrics:
        answers = self.answer(model, split, device)
        accuracy = answers.accuracy if answers.question_count else None
        return metrics.model_copy(
            update={"accuracy": accuracy, "questions": answers.question_count, "ties": answers.tie_count}
        )

    @override
    def compute_item_costs(
        self, model: LanguageModel, split: str, device: str | torch.device = "cpu"
    ) -> ItemCosts:
        if self.objective is Objective.PERPLEXITY:
            return self.text_task.compute_item_costs(model, split, device)
        answers = self.answer(model, split, device)
        costs_Q = 1 - answers.credits[answers.asked_Q]
        return ItemCosts("questions", costs_Q, np.ones(len(costs_Q), np.int64))

    def unknown_rate(self, split: str) -> float:
        """Share of the words of a split's questions that are not in the text's vocabulary, from 0 to 1."""
        text = self.question_corpus[split]
        unknown = sum(int(np.count_nonzero(~self.known_V[tokens])) for tokens in text.iterate_tokens())
        return unknown / (text.token_count - text.sentence_count)  # without the <eos> of each sentence

    def question_table(self, split: str) -> Any:
        """The split's questions as an Arrow table; raises CorpusError for a split without questions."""
        tables = self.question_corpus.annotations[self.kind]
        if split not in tables:
            raise CorpusError(
                f'corpus "{self.question_corpus.name}" has no {self.kind} questions for {split}; it has '
                f"them for {', '.join(tables)}"
            )
        return tables[split]

    def gather_targets(
        self, split: Split, sentences: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Words of sentences in the text's ids, padded with BOUNDARY, and the mask of the words, (B, T)."""
        words_BT, mask_BT = split.gather_sentences(sentences, split.lengths[sentences])
        return np.where(mask_BT, self.ids_V[words_BT], BOUNDARY), mask_BT

    def score_candidates(
        self,
        model: LanguageModel,
        arrays: Sequence[NDArray[Any]],
        device: torch.device,
        state: RecurrentState | None = None,
    ) -> tuple[NDArray[np.float64], RecurrentState]:
        """The results of `candidate_nats` for inputs_BT, asked_BT and candidates_QC; None starts a text."""
        inputs, asked, candidates = (torch.from_numpy(each.copy()).to(device) for each in arrays)
        nats, after = model.candidate_nats(
            inputs, asked, candidates, state or model.initial_state(len(inputs))
        )
        return nats.cpu().double().numpy(), after


def batch_by_length(lengths: NDArray[np.integer[Any]]) -> Iterator[NDArray[np.int64]]:
    """Indices in batches of similar length, of at most BATCH_TOKENS tokens or of one row."""
    order = np.argsort(lengths, kind="stable")
    for start, stop in pairwise(cut_by_length(lengths[order], BATCH_TOKENS)):
        yield order[start:stop]
