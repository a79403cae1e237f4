"""Sentence completion: a model chooses the word that was removed from a sentence.

Each candidate word completes the sentence. The answer is the candidate whose whole sentence is most probable
(Zweig and Burges 2012; Tran et al. 2016, section 6; Mirowski and Vlachos 2015, section 4).

Shapes: Q questions, C candidates, B batch, T time, N predicted words.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from memtune.corpora.batching.batches import shift_targets
from memtune.corpora.batching.protocols import Protocol
from memtune.corpora.batching.tree_protocol import Treebank
from memtune.corpora.store.corpus import Corpus, Split
from memtune.errors import CorpusError
from memtune.models.architecture import LanguageModel
from memtune.number_format import format_count
from memtune.tasks.item_costs import evaluation_mode
from memtune.tasks.language_modelling import nats_by_sentence
from memtune.tasks.questions import Answers, QuestionTask, QuestionTaskConfig, batch_by_length


class CompletionConfig(QuestionTaskConfig):
    """Model a text and complete sentences."""

    kind: Literal["completion"] = "completion"
    unknown: Literal["count", "skip"] = Field(
        "count",
        description='Words outside the vocabulary: "count" them as `<unk>`, or "skip" them in a '
        "sentence's probability, as Mirowski and Vlachos (2015) do; they are read as `<unk>` either way",
    )

    @override
    def open_questions(self, corpus: Corpus, protocol: Protocol) -> "Completion":
        return Completion(corpus, protocol, self)


class Completion(QuestionTask):
    """Sentence completion on a corpus."""

    unanswerable_reason = "their correct candidates are not known; import them with --option answers=FILE"

    def __init__(self, corpus: Corpus, protocol: Protocol, config: CompletionConfig) -> None:
        super().__init__(corpus, protocol, config)
        self._skip_unknown = config.unknown == "skip"
        for split in self.question_corpus.annotations[self.kind]:
            counts = sorted({*self.question_table(split).column("candidates").to_pylist()})
            if len(counts) > 1:
                least = format_count(counts[0], "candidate")
                raise CorpusError(
                    f'"{self.question_corpus.name}" has {least} in one question of {split} and {counts[-1]} '
                    "in another; import questions with equal numbers of candidates"
                )
            if protocol.reads_trees:
                Treebank.from_questions(corpus, split)  # raises CorpusError if trees are missing

    @override
    def is_answerable(self, split: str) -> NDArray[np.bool_]:
        return np.asarray(self.question_table(split).column("answer").to_numpy() >= 0)

    @override
    def answer(self, model: LanguageModel, split: str, device: str | torch.device = "cpu") -> Answers:
        rows = self.question_table(split)
        first_Q = rows.column("first").to_numpy()
        candidates = int(rows.column("candidates")[0].as_py())
        sentences = (first_Q[:, None] + np.arange(candidates)).ravel()
        nats_QC = self.sentence_nats(model, split, sentences, device).reshape(-1, candidates)
        answers_Q = rows.column("answer").to_numpy().astype(np.int64)
        names = tuple(rows.column("question").to_pylist())
        asked_Q = self.is_answerable(split)
        return Answers(self.kind, names, nats_QC, answers_Q, asked_Q, np.zeros_like(answers_Q))

    @torch.no_grad()
    def sentence_nats(
        self, model: LanguageModel, split: str, sentences: NDArray[np.int64], device: str | torch.device
    ) -> NDArray[np.float64]:
        """Nats of whole sentences of the questions' split, (sentences,).

        Sentences are read from left to right with `<eos>`, or down their trees without it.
        """
        # A model reads equal sentences (two candidates outside the vocabulary) once: the rounding of a
        # batched matrix product may depend on the row and the batch, and would hide their tie.
        questions = self.question_corpus[split]
        if self.protocol.reads_trees:
            trees = Treebank.from_questions(self.corpus, split)
            different, inverse = _find_different(sentences, partial(_make_tree_key, trees))
            protocol = self.protocol.model_copy(update={"count_unknown": not self._skip_unknown})
            return nats_by_sentence(model, trees, protocol, device)[different][inverse]
        different, inverse = _find_different(sentences, partial(self._make_sentence_key, questions))
        return self._read_sentences(model, questions, different, torch.device(device))[inverse]

    def _make_sentence_key(self, questions: Split, sentence: int) -> bytes:
        """The ids of a sentence's words in the text's vocabulary, as bytes."""
        start = int(questions.starts[sentence])
        return self.ids_V[questions.read_tokens(start, start + int(questions.lengths[sentence]))].tobytes()

    def _read_sentences(
        self, model: LanguageModel, questions: Split, sentences: NDArray[np.int64], device: torch.device
    ) -> NDArray[np.float64]:
        """Nats of sentences, (sentences,), each read from left to right from an initial state."""
        nats = np.empty(len(sentences))
        with evaluation_mode(model):
            for batch in batch_by_length(questions.lengths[sentences]):
                targets_BT, counted_BT = self.gather_targets(questions, sentences[batch])
                if self._skip_unknown:
                    counted_BT &= targets_BT != (-1 if self.unknown_id is None else self.unknown_id)
                arrays = shift_targets(targets_BT), counted_BT, targets_BT[counted_BT][:, None]
                nats_BT = np.zeros(counted_BT.shape)
                nats_BT[counted_BT] = self.score_candidates(model, arrays, device)[0][:, 0]
                # cumsum adds from left to right. The order in sum() depends on the padding, so its rounding
                # could make equal sums of two batches differ.
                nats[batch] = nats_BT.cumsum(1)[:, -1]
        return nats


def _make_tree_key(trees: Treebank, sentence: int) -> bytes:
    """The words of a sentence in the text's ids, their heads and their labels, as bytes."""
    tree = trees.batch(np.array([sentence]))
    return b"".join(column.numpy().tobytes() for column in (tree.words_N, tree.parents_N, tree.labels_N))


def _find_different(
    sentences: NDArray[np.int64], make_key: Callable[[int], bytes]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first sentence with each key, and for each given sentence the index of its key's first sentence."""
    index_by_key: dict[bytes, int] = {}
    inverse = [
        index_by_key.setdefault(make_key(sentence), len(index_by_key)) for sentence in sentences.tolist()
    ]
    _, first = np.unique(inverse, return_index=True)
    return sentences[first], np.array(inverse, np.int64)
