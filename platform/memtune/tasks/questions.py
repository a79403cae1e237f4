"""Questions that a language model answers by its probabilities, beside modelling a text.

A question has candidates; the model chooses the one it finds most probable. The text trains it, the questions
never do. They belong to the text itself or to another corpus, joined to it as "text+questions", whose words
are then looked up in the text's vocabulary.

Shapes: Q questions, C candidates, B batch, T time, V words of the questions' vocabulary.
"""

import csv
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from memtune.corpora.protocols import Protocol
from memtune.corpora.store import Corpus, Split
from memtune.corpora.trees import BOUNDARY
from memtune.corpora.vocabulary import UNK
from memtune.errors import CorpusError
from memtune.models.interface import LanguageModel, State
from memtune.objective import Objective
from memtune.tasks.interface import AnyTask, Metrics, Plan, Task
from memtune.tasks.language_modelling import LanguageModellingConfig, TextTaskConfig

__all__ = ["Answers", "QuestionTask", "QuestionTaskConfig", "choose"]

RESAMPLES = 10_000
LEVEL = 0.95
BATCH_TOKENS = 4096
READ_TOKENS = 2**20


def choose(nats_QC: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """The candidate with the fewest nats of each question, the first of equals."""
    return np.asarray(nats_QC.argmin(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class Answers:
    """What a model made of a split's questions."""

    kind: str
    names: tuple[str, ...]
    """Of each question, the same whatever model answers."""
    nats_QC: NDArray[np.float64]
    """Of each candidate."""
    answers_Q: NDArray[np.int64]
    """The right candidate; -1 where nobody says."""
    asked_Q: NDArray[np.bool_]
    """Whether the model could be asked: it knows the words and somebody knows the answer."""
    groups_Q: NDArray[np.int64]
    """What questions are counted by: attractors; zeros where nothing tells them apart."""

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each question was asked and answered rightly, (Q,)."""
        return np.asarray(self.asked_Q & (choose(self.nats_QC) == self.answers_Q))

    @property
    def questions(self) -> int:
        """How many were asked."""
        return int(self.asked_Q.sum())

    @property
    def accuracy(self) -> float:
        """Share of right answers among those asked; not a number where none was."""
        return float(self.right.sum() / self.questions) if self.questions else float("nan")

    def group(self, low: int, high: int | None = None) -> "Answers":
        """The questions of groups `low` to `high`, both included; without `high` all from `low` on."""
        kept_Q = (self.groups_Q >= low) & (self.groups_Q <= (self.groups_Q.max() if high is None else high))
        names = tuple(name for name, kept in zip(self.names, kept_Q, strict=True) if kept)
        nats_QC, answers_Q = self.nats_QC[kept_Q], self.answers_Q[kept_Q]
        return Answers(self.kind, names, nats_QC, answers_Q, self.asked_Q[kept_Q], self.groups_Q[kept_Q])

    def interval(self) -> tuple[float, float]:
        """Bootstrap interval of the accuracy at 95 %, from 10,000 resamples under a fixed seed."""
        right = self.right[self.asked_Q]
        if not len(right):
            return float("nan"), float("nan")
        # A resample of yes and no is a binomial draw.
        drawn = np.random.default_rng(0).binomial(len(right), right.mean(), RESAMPLES) / len(right)
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)

    def write(self, path: Path) -> None:
        """Write a line a question: its name, group, answer, choice, whether right ("" where not asked), nats.

        Raises CorpusError when the file cannot be written.
        """
        choices, right = choose(self.nats_QC), self.right
        try:
            with path.open("w", encoding="utf-8", newline="") as file:
                table = csv.writer(file, delimiter="\t", lineterminator="\n")
                columns = [f"nats_{number}" for number in range(self.nats_QC.shape[1])]
                table.writerow(["question", "group", "answer", "choice", "right", *columns])
                for row, name in enumerate(self.names):
                    verdict = str(int(right[row])) if self.asked_Q[row] else ""
                    nats = [f"{value:.6f}" for value in self.nats_QC[row]]
                    told = [int(self.groups_Q[row]), int(self.answers_Q[row]), int(choices[row])]
                    table.writerow([name, *told, verdict, *nats])
        except OSError as error:
            raise CorpusError(f"cannot write answers to {path}: {error.strerror}") from None


class QuestionTaskConfig(TextTaskConfig):
    """A text to model and questions to answer."""

    objective: Objective = "accuracy"
    """What trials compare by, stop early by and anneal by: the answers, or the text's perplexity."""

    @abstractmethod
    def ask(self, corpus: Corpus, protocol: Protocol) -> "QuestionTask":
        """The questions of a corpus; raises CorpusError or ConfigurationError that says what is lacking."""

    @override
    def open(self, corpus: Corpus, protocol: Protocol) -> "QuestionTask":
        """The same for models to be judged by: raises CorpusError, too, where no validation question can be
        asked.
        """
        task = self.ask(corpus, protocol)
        task.refuse_unaskable("valid")
        return task


class QuestionTask(Task[LanguageModel, Any]):
    """A text that trains, and questions at every evaluation. Raises CorpusError where there are none."""

    kind: str
    unaskable: str
    """Why not one question of a split can be asked, where that is so, and what helps."""

    def __init__(self, corpus: Corpus, protocol: Protocol, objective: Objective) -> None:
        self.text: AnyTask = LanguageModellingConfig().open(corpus, protocol)
        self.choices = self.text.choices
        self.objective = objective
        self.corpus, self.protocol = corpus, protocol
        self.asked = _asked(corpus, self.kind)
        self.ids_V = corpus.asked_ids()
        self.known_V = self.ids_V >= 0
        self.unknown = corpus.vocabulary.id_of(UNK) if UNK in corpus.vocabulary else None
        if self.unknown is None:
            self._refuse_unknown()
        else:
            self.known_V &= self.ids_V != self.unknown
            self.ids_V = np.where(self.ids_V < 0, self.unknown, self.ids_V)

    def _refuse_unknown(self) -> None:
        """Raise CorpusError for words that the text lacks and cannot read as `<unk>` either."""
        words = zip(self.asked.vocabulary.tokens, self.asked.vocabulary.counts, self.known_V, strict=True)
        strange = [word for word, count, known in words if not known and (count or word != UNK)]
        if strange:
            raise CorpusError(
                f'"{self.asked.name}" asks with {len(strange):,} words that the text lacks, such as '
                f'"{strange[0]}", and the text\'s vocabulary has no {UNK}; ask in its words, or, if it is of '
                "files, import it with --unknown map"
            )

    def refuse_unaskable(self, split: str) -> None:
        """Raise CorpusError where a split has no questions, or none that a model of the text can be asked."""
        asked_Q = self.askable(split)
        if not asked_Q.any():
            raise CorpusError(
                f'"{self.asked.name}" has {len(asked_Q):,} {self.kind} questions for {split}, and none can '
                f'be asked of "{self.corpus.name.partition("+")[0]}": {self.unaskable}'
            )

    @abstractmethod
    def askable(self, split: str) -> NDArray[np.bool_]:
        """Whether each question of a split can be asked, (Q,). Raises CorpusError where it has none."""

    @abstractmethod
    def answer(self, model: LanguageModel, split: str, device: str | torch.device = "cpu") -> Answers:
        """What a model on `device` makes of a split's questions. Raises CorpusError where it has none."""

    @property
    @override
    def epoch_tokens(self) -> int:
        return self.text.epoch_tokens

    @override
    def prepare(self, model: LanguageModel) -> None:
        self.text.prepare(model)

    @override
    def training_plan(self, seed: int, epoch: int) -> Plan[Any]:
        return self.text.training_plan(seed, epoch)

    @override
    def loss(self, model: LanguageModel, batch: Any, state: State | None) -> tuple[Tensor, State]:
        return self.text.loss(model, batch, state)

    @override
    def evaluate(self, model: LanguageModel, split: str, device: str | torch.device = "cpu") -> Metrics:
        """The metrics of the text's split, with the accuracy of the answers to the questions of that name."""
        return self.judged(self.text.evaluate(model, split, device), model, split, device)

    def judged(
        self, metrics: Metrics, model: LanguageModel, split: str, device: str | torch.device = "cpu"
    ) -> Metrics:
        """The metrics of a text, however it was read, with the accuracy of the answers."""
        answers = self.answer(model, split, device)
        accuracy = answers.accuracy if answers.questions else None
        return metrics.model_copy(update={"accuracy": accuracy, "questions": answers.questions})

    def unknown_rate(self, split: str) -> float:
        """Share of the words of a split's questions that are not in the text's vocabulary."""
        asked = self.asked[split]
        starts = range(0, asked.token_count, READ_TOKENS)
        pieces = (asked.tokens(start, min(start + READ_TOKENS, asked.token_count)) for start in starts)
        unknown = sum(int(np.count_nonzero(~self.known_V[tokens])) for tokens in pieces)
        return unknown / (asked.token_count - asked.sentence_count)

    def rows(self, split: str) -> Any:
        """The split's questions, an Arrow table; raises CorpusError where there are none."""
        tables = self.asked.annotations[self.kind]
        if split not in tables:
            raise CorpusError(
                f'corpus "{self.asked.name}" has no {self.kind} questions for {split}; it has them for '
                f"{', '.join(tables)}"
            )
        return tables[split]

    def targets(
        self, split: Split, sentences: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """targets_BT of sentences in the text's ids, filled up with the boundary, and which are theirs."""
        lengths = split.lengths[sentences]
        columns = np.arange(lengths.max())
        mask_BT = columns < lengths[:, None]
        words_BT = split.gather(split.starts[sentences][:, None] + np.where(mask_BT, columns, 0))
        return np.where(mask_BT, self.ids_V[words_BT], BOUNDARY), mask_BT


def by_length(lengths: NDArray[np.integer[Any]]) -> Iterator[NDArray[np.int64]]:
    """Indices in batches of like length, of about 4,096 tokens each."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        fits = np.arange(1, len(order) - start + 1) * lengths[order[start:]] <= BATCH_TOKENS
        stop = start + max(1, int(fits.sum()))
        yield order[start:stop]
        start = stop


def _asked(corpus: Corpus, kind: str) -> Corpus:
    asked = corpus.questions
    if asked is None or kind not in asked.annotations:
        has = ", ".join(asked.annotations) if asked else "nothing"
        raise CorpusError(
            f'corpus "{corpus.name}" has no {kind} questions, it has {has}; join a corpus that has them: '
            f'corpus = "{corpus.name.partition("+")[0]}+QUESTIONS"'
        )
    return asked
