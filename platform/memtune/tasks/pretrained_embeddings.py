"""Embeddings initialised with the corpus' pretrained vectors, with scaled gradients in the first epoch.

Cheng, Dong and Lapata (2016), "Long Short-Term Memory-Networks for Machine Reading", sections 5.2 and 5.3:
in the first epoch the gradients of words with a pretrained vector are scaled down (sentiment) or zero
(inference). Words without a pretrained vector have random vectors and train at the full rate.

Shapes: V vocabulary, E embedding, N tokens read.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from memtune.corpora.store.corpus import Corpus
from memtune.corpora.store.word_vectors import Vectors
from memtune.errors import ConfigurationError
from memtune.models.classifiers import Classifier


@dataclass(frozen=True)
class PretrainedVectors:
    """Initial vectors, and the factor of the gradients of the pretrained ones in the first epoch."""

    vectors: Vectors
    first_epoch_scale: float

    def initialise_embeddings(self, model: Classifier) -> None:
        """Copy the vectors into the model's embedding tables.

        Raises ConfigurationError for a table of another width.
        """
        values_VE = torch.from_numpy(np.array(self.vectors.values_VE))
        width = values_VE.shape[1]
        for table in model.find_embedding_tables():
            if table.embedding_dim != width:
                raise ConfigurationError(
                    f"the corpus' vectors have width {width}, the embeddings {table.embedding_dim}; "
                    f"set model.embedding_width = {width}, or task.pretrained_vectors = false"
                )
            with torch.no_grad():
                table.weight.copy_(values_VE)

    def scale_gradients(self, model: Classifier) -> list[RemovableHandle]:
        """Scale the gradients of pretrained words until the returned handles are removed."""
        known_V1 = torch.from_numpy(np.array(self.vectors.known_V)).unsqueeze(1)
        factors_V1 = torch.where(known_V1, self.first_epoch_scale, 1.0)
        return [
            table.weight.register_hook(partial(_scale_rows, factors_V1.to(table.weight.device)))  # type: ignore[no-untyped-call]
            for table in model.find_embedding_tables()
        ]


def find_pretrained_vectors(corpus: Corpus, first_epoch_scale: float) -> PretrainedVectors | None:
    """The corpus' vectors with their factor in the first epoch; None for a corpus without vectors."""
    return None if corpus.vectors is None else PretrainedVectors(corpus.vectors, first_epoch_scale)


def _scale_rows(factors_V1: Tensor, gradient_VE: Tensor) -> Tensor:
    """A gradient, dense or sparse with one row per token read, with its rows scaled."""
    if not gradient_VE.is_sparse:
        return gradient_VE * factors_V1
    indices_1N = gradient_VE._indices()
    values_NE = gradient_VE._values() * factors_V1[indices_1N[0]]
    return torch.sparse_coo_tensor(indices_1N, values_NE, gradient_VE.shape, check_invariants=False)
