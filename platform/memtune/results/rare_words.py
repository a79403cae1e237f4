"""The perplexity of a registered model as if its vocabulary were smaller: rare words counted as `<unk>`.

Tran, Bisazza and Monz (2016) keep a word that occurs more than five times in their training sentences. A
model with a larger vocabulary gives the same figure by a sum: the probabilities of `<unk>` and of all rarer
words are added, and a rare word counts as predicted when `<unk>` is.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from memtune.corpora import UNK, Corpus
from memtune.corpora.batching.protocols import Plan, TextProtocol
from memtune.models import NeuralLanguageModel, logits
from memtune.results.model_sources import open_model
from memtune.settings import Settings


@dataclass(frozen=True)
class MergedPerplexity:
    """Two perplexities per token of one model, lower is better."""

    full: float
    """Over the model's own vocabulary."""
    merged: float
    """With rare words as `<unk>`."""
    vocabulary_size: int
    rare_words: int
    """The number of words that count as `<unk>`."""


def compute_merged_perplexity(
    model: str, split: str, max_count: int, settings: Settings, *, trust_code: bool = False
) -> MergedPerplexity:
    """Evaluate a registered model, words that occur at most `max_count` times in training counted as `<unk>`.

    Training counts are those of the sentences that the model's protocol keeps. Raises TrackingError for an
    unknown model, ConfigurationError for one that is not a neural language model of texts, and CorpusError
    for a missing corpus.
    """
    opened = open_model(model, settings, trust_code=trust_code)
    corpus, purpose = opened.corpus, f"the perplexity of {model} with rare words merged"
    protocol = opened.config.protocol.require_text(purpose)
    network = opened.model.eval().require_language_model(purpose).require_network(purpose)
    is_merged_V = torch.from_numpy(_count_targets(corpus, protocol) <= max_count)
    is_merged_V[corpus.vocabulary.get_id(UNK)] = True
    plan = protocol.evaluation_plan(corpus[split])
    opened.record_access(split)
    full, merged = _compute_perplexities(network, plan, is_merged_V)
    return MergedPerplexity(full, merged, len(is_merged_V), int(is_merged_V.sum()) - 1)


def _count_targets(corpus: Corpus, protocol: TextProtocol) -> np.ndarray:
    """How often one epoch of the training split predicts each word, shape (V,)."""
    plan = protocol.evaluation_plan(corpus["train"])
    counts_V = np.zeros(len(corpus.vocabulary), np.int64)
    for index in range(len(plan)):
        np.add.at(counts_V, plan.batch(index).targets_BT.numpy(), 1)
    return counts_V


@torch.inference_mode()
def _compute_perplexities(
    model: NeuralLanguageModel, plan: Plan, is_merged_V: torch.Tensor
) -> tuple[float, float]:
    """Perplexity over the whole vocabulary, and with the marked words as one."""
    full = merged = 0.0
    for index in range(len(plan)):
        batch = plan.batch(index)
        log_NV = logits(model, batch.inputs_BT)[0].log_softmax(-1).flatten(0, 1)
        targets_N = batch.targets_BT.flatten()
        target_N = log_NV.gather(1, targets_N[:, None])[:, 0]
        merged_N = log_NV[:, is_merged_V].logsumexp(1)
        full -= target_N.double().sum().item()
        merged -= torch.where(is_merged_V[targets_N], merged_N, target_N).double().sum().item()
    return math.exp(full / plan.token_count), math.exp(merged / plan.token_count)
