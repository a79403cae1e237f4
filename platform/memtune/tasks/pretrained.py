"""Embeddings that start as the corpus' pretrained vectors, and are held back in the first epoch.

Cheng, Dong and Lapata (2016), "Long Short-Term Memory-Networks for Machine Reading", sections 5.2 and 5.3:
in the first epoch the gradient of words with a pretrained vector is scaled (sentiment), or these stay as they
are (inference); words without one have drawn vectors, and learn from the start.

Shapes: V vocabulary, E embedding, N tokens read.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from memtune.corpora.store import Corpus
from memtune.corpora.vectors import Vectors
from memtune.errors import ConfigurationError
from memtune.models.classifiers import Classifier

__all__ = ["Pretrained", "pretrained"]


@dataclass(frozen=True)
class Pretrained:
    """Vectors to start from, and what the gradient of those that were pretrained is scaled by at first."""

    vectors: Vectors
    first_epoch_scale: float

    def start(self, model: Classifier) -> None:
        """Put the vectors into the readers' tables; a ConfigurationError where they do not fit."""
        values_VE = torch.from_numpy(np.array(self.vectors.values_VE))
        width = values_VE.shape[1]
        for table in model.tables():
            if table.embedding_dim != width:
                raise ConfigurationError(
                    f"the corpus' vectors are {width} wide, the embeddings {table.embedding_dim}; take a "
                    f"family with embedding_width = {width}, or task.pretrained_vectors = false"
                )
            with torch.no_grad():
                table.weight.copy_(values_VE)

    def hold_back(self, model: Classifier) -> list[RemovableHandle]:
        """Scale what the gradients of known words come to until the handles are removed."""
        known_V1 = torch.from_numpy(np.array(self.vectors.known_V)).unsqueeze(1)
        factors_V1 = torch.where(known_V1, self.first_epoch_scale, 1.0)
        return [
            table.weight.register_hook(partial(_scaled, factors_V1.to(table.weight.device)))  # type: ignore[no-untyped-call]
            for table in model.tables()
        ]


def pretrained(corpus: Corpus, first_epoch_scale: float) -> Pretrained | None:
    """The corpus' vectors and what becomes of them in the first epoch; None where it has none."""
    return None if corpus.vectors is None else Pretrained(corpus.vectors, first_epoch_scale)


def _scaled(factors_V1: Tensor, gradient_VE: Tensor) -> Tensor:
    """A gradient with its rows scaled, dense or with a row for each token read."""
    if not gradient_VE.is_sparse:
        return gradient_VE * factors_V1
    indices_1N = gradient_VE._indices()
    values_NE = gradient_VE._values() * factors_V1[indices_1N[0]]
    return torch.sparse_coo_tensor(indices_1N, values_NE, gradient_VE.shape, check_invariants=False)
