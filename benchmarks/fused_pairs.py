"""Two fused LSTM-networks against the eager loop as written, forward and back, from the loss of a batch.

Widths of Cheng et al. (2016), table 3: embeddings of 300 into 300; 32 pairs of a premise of 14 words and a
hypothesis of 8, about the means of the Stanford corpus.

    python -m benchmarks.fused_pairs [--repeats 15]
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.side_by_side import compare, describe_machine, refuse
from memtune.models import LSTMNConfig
from memtune.models.classifiers import Classifier, ClassifierConfig
from memtune.models.fused_pairs import PairReading
from tests.oracles.agreement import assert_near
from tests.oracles.classifiers import fusion_as_written

WIDTH, EMBEDDING, WORDS = 300, 300, 2000
BATCH, PREMISE, HYPOTHESIS = 32, 14, 8
GOALS = {"shallow": 1.5, "deep": 1.5}
Read = Callable[[Classifier], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    try:
        for fusion in GOALS:
            require_agreement(fusion)
    except AssertionError as error:
        raise refuse(error) from None
    print(describe_machine())
    for fusion, goal in GOALS.items():
        slow, fast = (work(fusion, read) for read in (as_written, as_built))
        name = f"LSTMN {fusion} fusion / eager loop as written, B={BATCH}, {PREMISE} and {HYPOTHESIS} words"
        print(compare(slow, fast, repeats).line(name, goal), flush=True)


def require_agreement(fusion: str) -> None:
    """Logits and every gradient of both sides in float64."""
    model = new_model(fusion).double()
    parameters = list(model.parameters())
    fast, slow = (
        (logits, *torch.autograd.grad(loss(logits), parameters))
        for logits in (as_built(model), as_written(model))
    )
    for value, reference in zip(fast, slow, strict=True):
        assert_near(value, reference, 1e-9, fusion)


def work(fusion: str, read: Read) -> Callable[[], None]:
    model = new_model(fusion)

    def run() -> None:
        model.zero_grad()
        loss(read(model)).backward()

    return run


def new_model(fusion: str) -> Classifier:
    torch.manual_seed(0)
    config = LSTMNConfig(width=WIDTH, embedding_width=EMBEDDING)
    return PairReading(fusion=fusion).classifier(config, WORDS, ClassifierConfig(classes=3))


def as_built(model: Classifier) -> Tensor:
    premises_BS, hypotheses_BT = sentences()
    full = (torch.full((BATCH,), words) for words in (PREMISE, HYPOTHESIS))
    logits_BC: Tensor = model(premises_BS, next(full), hypotheses_BT, next(full))
    return logits_BC


def as_written(model: Classifier) -> Tensor:
    return fusion_as_written(model, *sentences())


def sentences() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    premises_BS = torch.randint(WORDS, (BATCH, PREMISE), generator=generator)
    return premises_BS, torch.randint(WORDS, (BATCH, HYPOTHESIS), generator=generator)


def loss(logits_BC: Tensor) -> Tensor:
    return cross_entropy(logits_BC, torch.arange(BATCH) % 3)


if __name__ == "__main__":
    main()
