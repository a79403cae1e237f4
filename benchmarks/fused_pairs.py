"""Two fused LSTM-networks against an eager loop of the equations: forward and backward of a batch.

Widths of Cheng et al. (2016), table 3: embeddings and hidden states of 300. The batch has 32 pairs of a
premise of 14 words and a hypothesis of 8, about the means of the Stanford corpus (SNLI).

    python -m benchmarks.fused_pairs [--repeats 15]
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.side_by_side import compare_times, describe_machine, make_refusal
from memtune.model_checks.oracles import assert_near
from memtune.models.classifiers import Classifier, ClassifierConfig
from memtune.models.families.lstmn import LSTMNConfig
from memtune.models.fused_pairs import PairReadingConfig
from tests.oracles.classifiers import compute_reference_fusion

WIDTH, EMBEDDING, WORDS = 300, 300, 2000
BATCH, PREMISE, HYPOTHESIS = 32, 14, 8
GOALS = {"shallow": 1.5, "deep": 1.5}
Forward = Callable[[Classifier], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    try:
        for fusion in GOALS:
            require_agreement(fusion)
    except AssertionError as error:
        raise make_refusal(error) from None
    print(describe_machine())
    for fusion, goal in GOALS.items():
        slow, fast = (make_step(fusion, read) for read in (run_reference, run_model))
        name = f"LSTMN {fusion} fusion / eager loop as written, B={BATCH}, {PREMISE} and {HYPOTHESIS} words"
        print(compare_times(slow, fast, repeats).format_measure(name, goal), flush=True)


def require_agreement(fusion: str) -> None:
    """Compare logits and every gradient of both sides in float64."""
    model = make_model(fusion).double()
    parameters = list(model.parameters())
    fast, slow = (
        (logits, *torch.autograd.grad(compute_loss(logits), parameters))
        for logits in (run_model(model), run_reference(model))
    )
    for value, reference in zip(fast, slow, strict=True):
        assert_near(value, reference, 1e-9, fusion)


def make_step(fusion: str, forward: Forward) -> Callable[[], None]:
    model = make_model(fusion)

    def run() -> None:
        model.zero_grad()
        compute_loss(forward(model)).backward()

    return run


def make_model(fusion: str) -> Classifier:
    torch.manual_seed(0)
    config = LSTMNConfig(width=WIDTH, embedding_width=EMBEDDING)
    return PairReadingConfig(fusion=fusion).build_classifier(config, WORDS, ClassifierConfig(classes=3))


def run_model(model: Classifier) -> Tensor:
    premises_BS, hypotheses_BT = make_pairs()
    full = (torch.full((BATCH,), words) for words in (PREMISE, HYPOTHESIS))
    logits_BC: Tensor = model(premises_BS, next(full), hypotheses_BT, next(full))
    return logits_BC


def run_reference(model: Classifier) -> Tensor:
    return compute_reference_fusion(model, *make_pairs())


def make_pairs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    premises_BS = torch.randint(WORDS, (BATCH, PREMISE), generator=generator)
    return premises_BS, torch.randint(WORDS, (BATCH, HYPOTHESIS), generator=generator)


def compute_loss(logits_BC: Tensor) -> Tensor:
    return cross_entropy(logits_BC, torch.arange(BATCH) % 3)


if __name__ == "__main__":
    main()
