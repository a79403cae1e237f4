"""The adaptive softmax: frequent words in a short list, the others in clusters with narrower projections.

Grave, Joulin, Cissé, Grangier and Jégou (2017), "Efficient softmax approximation for GPUs", section 4. The
head is a softmax over the most frequent words and one entry for each cluster. The clusters divide the other
words, more frequent words first. Cluster i is a softmax over its words that reads the hidden vector through a
projection to H / factor^i:

    p(word | h) = p(cluster | h) p(word | cluster, P_i h)

Shapes: N rows, R rows of one cluster, H hidden width, P projected width, V vocabulary.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from typing_extensions import override

from memtune.models.outputs.output_layer import OutputLayer, SoftmaxOutput


def compute_projected_widths(width: int, clusters: int, factor: int) -> list[int]:
    """The projected width of each cluster: `width` / `factor`^i for cluster i, and at least 1."""
    return [max(1, width // factor**cluster) for cluster in range(1, clusters + 1)]


class AdaptiveOutput(OutputLayer):
    """A softmax over the head and one over each cluster."""

    def __init__(
        self, width: int, vocabulary_size: int, cutoffs: Sequence[int], factor: int, bias: bool = True
    ) -> None:
        """`cutoffs` are the first words of the clusters, in ascending order."""
        super().__init__()
        self.borders = [*cutoffs, vocabulary_size]
        self.head = SoftmaxOutput(width, self.borders[0] + len(cutoffs), bias=bias)
        widths = compute_projected_widths(width, len(cutoffs), factor)
        self.clusters = nn.ModuleList(
            _Cluster(width, narrow, end - first, bias)
            for narrow, (first, end) in zip(widths, pairwise(self.borders), strict=True)
        )

    @override
    def forward(self, hidden_H: Tensor) -> Tensor:
        """Log-probabilities of all words."""
        parts = [self.borders[0], *(1 for _ in self.clusters)]
        in_head, *of_clusters = self.head(hidden_H).log_softmax(-1).split(parts, -1)
        in_clusters = [
            of_cluster + cluster.words(cluster.projection(hidden_H)).log_softmax(-1)
            for of_cluster, cluster in zip(of_clusters, self._list_clusters(), strict=True)
        ]
        return torch.cat([in_head, *in_clusters], -1)

    @override
    def negative_log_likelihood_by_row(
        self, hidden_NH: Tensor, targets_N: Tensor, weights_N: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        edges = torch.tensor(self.borders, device=targets_N.device)
        cluster_N = torch.bucketize(targets_N.contiguous(), edges, right=True)  # 0 is the head
        head_N = torch.where(cluster_N == 0, targets_N, self.borders[0] - 1 + cluster_N)
        nats, nats_N = self.head.negative_log_likelihood_by_row(hidden_NH, head_N, weights_N)
        for number, cluster in enumerate(self._list_clusters()):
            row_R = (cluster_N == number + 1).nonzero().squeeze(1)
            projected_RP = cluster.projection(hidden_NH[row_R])
            words_R = targets_N[row_R] - self.borders[number]
            weights_R = None if weights_N is None else weights_N[row_R]
            within, within_R = cluster.words.negative_log_likelihood_by_row(projected_RP, words_R, weights_R)
            nats, nats_N = nats + within, nats_N.index_add(0, row_R, within_R)
        return nats, nats_N

    def _list_clusters(self) -> list["_Cluster"]:
        return cast(list[_Cluster], list(self.clusters))


class _Cluster(nn.Module):
    """The parameters of one cluster."""

    def __init__(self, width: int, projected_width: int, words: int, bias: bool) -> None:
        super().__init__()
        self.projection = nn.Linear(width, projected_width, bias=False)
        self.words = SoftmaxOutput(projected_width, words, bias=bias)
