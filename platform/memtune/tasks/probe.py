"""Probes: a model answers rows of words whose answers are known.

A row is a sentence of the corpus: its inputs, then as many answers, of which UNASKED are not counted
(`memtune.corpora.probes`). A linear layer over the body's states classifies the answers by the vocabulary.

Shapes: E rows, B rows of a batch, T inputs of its longest row, N answers.
"""

from collections import Counter
from contextlib import suppress
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from typing_extensions import override

from memtune.corpora.batching.batches import Positions
from memtune.corpora.batching.protocols import Protocol
from memtune.corpora.probes.probe_corpora import PREFIX, PROBES, parse_corpus_name
from memtune.corpora.probes.probe_rows import UNASKED
from memtune.corpora.store.corpus import Corpus, Split
from memtune.errors import ConfigurationError, CorpusError
from memtune.models.architecture import LanguageModelConfig
from memtune.models.classifiers import AnswerClassifier, Classifier, ClassifierConfig
from memtune.tasks import classification
from memtune.tasks.item_costs import ItemCosts

ROWS_READ_AT_ONCE = 1_024


class ProbeConfig(classification.ClassificationConfig):
    """Answer rows with known answers."""

    kind: Literal["probe"] = "probe"
    reads_last_state: bool = Field(
        False,
        description="Whether two layers read all answers from the state after a row's last word, as in MAD's "
        "compression",
    )

    @property
    @override
    def label(self) -> str:
        return "probe of the last state" if self.reads_last_state else "probe"

    @override
    def make_head(self, vocabulary_size: int) -> ClassifierConfig:
        return ClassifierConfig(classes=vocabulary_size, layers=2 if self.reads_last_state else 0)

    @override
    def build(self, model: LanguageModelConfig, vocabulary_size: int) -> AnswerClassifier:
        body = self.require_network(model)
        if body.reads_ahead:
            raise ConfigurationError(
                f'a probe asks after each word, and this family = "{body.family}" reads ahead; choose a '
                "configuration that reads from left to right"
            )
        return AnswerClassifier(body, vocabulary_size, self.make_head(vocabulary_size), self.reads_last_state)

    @override
    def is_evaluable(self, corpus: Corpus, protocol: Protocol, split: str) -> bool:
        return split in corpus.splits and UNASKED in corpus.vocabulary

    @override
    def open(self, corpus: Corpus, protocol: Protocol) -> "ProbeTask":
        classification.require_whole_sentences(self.kind, protocol)
        if UNASKED not in corpus.vocabulary:
            raise CorpusError(
                f'the corpus "{corpus.name}" has no rows of a probe; draw some: memtune corpus probe mqar'
            )
        self._check_state(corpus.name)
        return ProbeTask(corpus, protocol.batch_size)

    def _check_state(self, corpus: str) -> None:
        """Raise ConfigurationError where drawn rows that are read from the last state would be read word by
        word: they ask for the word just read.
        """
        if not corpus.startswith(PREFIX) or self.reads_last_state:
            return
        with suppress(CorpusError):  # the name is of another text of a user
            name, _ = parse_corpus_name(corpus)
            if name in PROBES and PROBES[name].reads_last_state:
                raise ConfigurationError(
                    f"the answers to the rows of {name} are read from the state after the last word: write "
                    "task.reads_last_state = true"
                )


class ProbeTask(classification.Classification):
    """The rows of a corpus: their batches, their loss, and the accuracy of a split, also by length."""

    def __init__(self, corpus: Corpus, batch_size: int) -> None:
        unasked = corpus.vocabulary.get_id(UNASKED)
        self.rows = {split: _Rows(corpus[split], unasked) for split in corpus.splits}
        counts = self.rows["valid"].answer_counts
        super().__init__(self.rows["train"], self.rows, len(counts), batch_size)
        most = dict[str, int]()
        for answer, count in counts.items():
            probe = corpus.vocabulary.tokens[answer].partition(":")[0]  # in the corpus of a set
            probe = probe if probe in PROBES else ""
            most[probe] = max(most.get(probe, 0), count)
        self.chance = sum(most.values()) / counts.total()
        """The validation accuracy of the best constant answer, of each probe in a set."""
        trained = self.rows["train"].answer_counts
        self.ceiling = sum(own for answer, own in counts.items() if answer in trained) / counts.total()
        """The validation accuracy of a model that knows every answer for which training asks."""

    @override
    def compute_item_costs(
        self, model: Classifier, split: str, device: str | torch.device = "cpu"
    ) -> ItemCosts:
        """Of rows, short ones first: the answers of a row are not independent of each other."""
        costs_N = super().compute_item_costs(model, split, device).costs_I
        _, asked_I = self.rows[split].sort_by_length()
        firsts_I = np.cumsum(asked_I) - asked_I
        return ItemCosts("rows", np.add.reduceat(costs_N, firsts_I), asked_I.astype(np.int64))

    def compute_accuracy_by_length(
        self, model: AnswerClassifier, split: str, device: str | torch.device = "cpu"
    ) -> dict[int, float]:
        """The share of right answers by the number of inputs of their rows, ascending."""
        items = self.compute_item_costs(model, split, device)
        lengths_I, _ = self.rows[split].sort_by_length()
        lengths, firsts = np.unique(lengths_I, return_index=True)
        costs, counts = (np.add.reduceat(own, firsts) for own in (items.costs_I, items.counts_I))
        return dict(zip(lengths.tolist(), (1 - costs / counts).tolist(), strict=True))


class _Rows(classification.Examples):
    """The rows of a split. Raises CorpusError for a row whose inputs and answers differ in number."""

    def __init__(self, split: Split, unasked: int) -> None:
        self._split, self._unasked = split, unasked
        words_E = split.lengths.astype(np.int64) - 1
        odd_E = (words_E % 2 == 1) | (words_E == 0)
        if odd_E.any():
            row = int(odd_E.argmax())
            raise CorpusError(
                f"row {row + 1} of {split.name} has {words_E[row]} words; a row has its inputs and then as "
                "many answers, _ where nothing is asked"
            )
        self.lengths_E2 = np.stack([words_E // 2, np.zeros_like(words_E)], axis=1)
        asked, self.answer_counts = [], Counter[int]()
        """The asked answers by id, with their numbers."""
        for start in range(0, len(words_E), ROWS_READ_AT_ONCE):
            batch = self.batch(np.arange(start, min(start + ROWS_READ_AT_ONCE, len(words_E))))
            asked.append(np.bincount(batch.arguments[2].numpy(), minlength=batch.rows))
            self.answer_counts.update(batch.labels_N.tolist())
        self._asked_E = np.concatenate(asked)
        self.label_count = int(self._asked_E.sum())

    def sort_by_length(self) -> tuple[Positions, Positions]:
        """The lengths and the asked answers of the rows that ask, in the order of an evaluation."""
        order_E = np.argsort(self.lengths_E2[:, 0], kind="stable")
        order_I = order_E[self._asked_E[order_E] > 0]
        return self.lengths_E2[order_I, 0], self._asked_E[order_I]

    @override
    def batch(self, indices: Positions) -> classification.LabelledBatch:
        words_BS, counts_B = classification.pad_words(self._split, indices)
        lengths_B = counts_B // 2
        columns_T = torch.arange(int(lengths_B.max()))
        is_input_BT = columns_T < lengths_B[:, None]
        answer_places_BT = torch.where(is_input_BT, lengths_B[:, None] + columns_T, 0)
        answers_BT = words_BS.gather(1, answer_places_BT)
        is_asked_BT = is_input_BT & (answers_BT != self._unasked)
        rows_N, places_N = is_asked_BT.nonzero(as_tuple=True)
        arguments = (words_BS[:, : len(columns_T)], lengths_B - 1, rows_N, places_N)
        return classification.LabelledBatch(arguments, answers_BT[is_asked_BT], len(indices))
