"""A 5-gram model beside the neural ones: interpolated modified Kneser-Ney on a corpus of the store.

python jobs/five_gram.py CORPUS prints its perplexity per token on validation and test, and the ideal.
"""

import math
import sys

from memtune.corpora import Split, open_corpus
from memtune.execution.settings import Settings
from memtune.models.kneser_ney import KneserNeyConfig


def tokens_and_starts(split: Split) -> tuple:
    """The whole stream of a split, and where its sentences begin."""
    return split.tokens(0, split.token_count), split.starts


def main(name: str) -> None:
    """Train on the training split and score the others."""
    corpus = open_corpus(name, Settings.read().store)
    model = KneserNeyConfig(order=5).fit(*tokens_and_starts(corpus["train"]), len(corpus.vocabulary))
    for split in ("valid", "test"):
        nats = model.log_probabilities(*tokens_and_starts(corpus[split]))
        ideal = f", ideal {corpus.manifest.ideal[split]:.3f}" if corpus.manifest.ideal else ""
        print(f"{name} {split}: 5-gram perplexity {math.exp(-nats.mean()):.3f}{ideal}")


if __name__ == "__main__":
    main(*sys.argv[1:])
