"""What a smaller vocabulary is worth: a registered model's perplexity with rare words counted as `<unk>`.

Tran et al. (2016) keep a word when the training sentences they use have it more than five times. A model over
a larger vocabulary is read as one over theirs by summing: P(<unk>) and the probabilities of all rarer words
are added up, and a rare word is predicted when `<unk>` is.

python jobs/rare_words.py MODEL SPLIT [COUNT], such as models:/ptb@champion test 5
"""

import math
from typing import Annotated

import numpy as np
import torch
import typer
from pydantic import TypeAdapter

from memtune.cli import run_script
from memtune.corpora import UNK, Corpus, open_corpus
from memtune.corpora.protocols import Plan, TextProtocol
from memtune.execution.settings import Settings
from memtune.models import NeuralLanguageModel, logits
from memtune.tracking import load_registered
from memtune.training import load_model


def counted(corpus: Corpus, protocol: TextProtocol) -> np.ndarray:
    """How often each word is predicted in one epoch's worth of the training sentences the protocol keeps."""
    plan = protocol.evaluation_plan(corpus["train"])
    counts = np.zeros(len(corpus.vocabulary), np.int64)
    for index in range(len(plan)):
        np.add.at(counts, plan.batch(index).targets_BT.numpy(), 1)
    return counts


@torch.inference_mode()
def perplexities(model: NeuralLanguageModel, plan: Plan, unknown: torch.Tensor) -> tuple[float, float]:
    """Perplexity over the vocabulary as it is, and with the words marked in `unknown` (V,) as one."""
    plain = merged = 0.0
    for index in range(len(plan)):
        batch = plan.batch(index)
        log_NV = logits(model, batch.inputs_BT)[0].log_softmax(-1).flatten(0, 1)
        targets_N = batch.targets_BT.flatten()
        own_N = log_NV.gather(1, targets_N[:, None])[:, 0]
        together_N = log_NV[:, unknown].logsumexp(1)
        plain -= own_N.double().sum().item()
        merged -= torch.where(unknown[targets_N], together_N, own_N).double().sum().item()
    return math.exp(plain / plan.token_count), math.exp(merged / plan.token_count)


def main(model: str, split: str, count: Annotated[int, typer.Argument(min=0)] = 5) -> None:
    """Print both perplexities."""
    settings = Settings.read()
    registered = load_registered(settings.tracking, model, settings.home / "models")
    protocol = TypeAdapter[TextProtocol](TextProtocol).validate_python(registered.card.result.protocol)
    corpus = open_corpus(registered.champion.corpus, settings.store)
    unknown = torch.from_numpy(counted(corpus, protocol) <= count)
    unknown[corpus.vocabulary.id_of(UNK)] = True
    plan = protocol.evaluation_plan(corpus[split])
    plain, merged = perplexities(load_model(registered.folder).eval(), plan, unknown)
    print(
        f"{model} on {split}: {plain:.2f} over {len(unknown):,} words, "
        f"{merged:.2f} with {int(unknown.sum()) - 1:,} rare words as <unk>"
    )


if __name__ == "__main__":
    run_script(main)
