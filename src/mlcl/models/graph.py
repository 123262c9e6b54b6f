"""A linear head with a learnable graph over the classes, after CSC (specification.md#label-graph)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from mlcl.errors import check_int
from mlcl.models.network import HEADS, Backbone, Head, pool

SLOPE = 0.2
"""Of the leaky ReLU."""


class GraphHead(Head):
    """A linear head, and a second score per class from nodes that a learnable graph connects; their mean.

    Class k has the score s_k = w_k . mean(z) + b_k and the node v_k = g_k * (T p_k), where p_k is the average of the
    cells z_n with the weights softmax_n(w_k . z_n), or the feature vector itself. With the adjacency A, a number for
    each pair of classes seen so far, v'_k = v_k + f(M f(sum_j A_kj v_j)), f the leaky ReLU; the second score is
    u_k . v'_k + c_k. A starts at 0, and classes of later tasks have no edges, so taking them in changes no score.

    >>> head = GraphHead(8, 3)
    >>> head.add_session([0, 2])
    >>> head.edges()[1].tolist(), head(torch.zeros(2, 8, 4, 4)).shape
    ([0.0, 0.0, 0.0], torch.Size([2, 3]))
    """

    seen: Tensor

    def __init__(self, width: int, classes: int, *, dim: int = 64) -> None:
        super().__init__()
        check_int("dim", dim, 1)
        self.linear = nn.Linear(width, classes)
        self.transform = nn.Linear(width, dim)
        self.gates = nn.Parameter(torch.ones(classes, dim))
        self.adjacency = nn.Parameter(torch.zeros(classes, classes))
        self.mix = nn.Linear(dim, dim, bias=False)
        self.output = nn.Linear(dim, classes)
        self.register_buffer("seen", torch.zeros(classes, dtype=torch.bool))

    def add_session(self, classes: Tensor | NDArray[np.integer] | Sequence[int]) -> None:
        """Connect further classes with those so far; the new edges start at 0."""
        ids = classes if isinstance(classes, Tensor) else torch.from_numpy(np.array(classes, np.int64))
        self.seen[ids.to(self.seen.device)] = True

    def edges(self) -> Tensor:
        """Return the adjacency [K, K], 0 where a class was not seen yet: row k is what class k takes from others."""
        return self.adjacency * (self.seen[:, None] & self.seen)

    def nodes(self, features: Tensor) -> Tensor:
        """Return the nodes [B, K, dim] of features [B, C, h, w] or [B, C]."""
        if features.ndim == 4:
            cells = features.flatten(2).transpose(1, 2)  # [B, N, C]
            weights = F.linear(cells, self.linear.weight).softmax(1)
            own = self.transform(weights.transpose(1, 2) @ cells)
        else:
            own = self.transform(features).unsqueeze(1)
        nodes: Tensor = own * self.gates
        return nodes

    def forward_with_embeddings(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [B, K] and the pooled features as one session's embedding, [B, 1, C]."""
        pooled, nodes = pool(features), self.nodes(features)
        taken = F.leaky_relu(self.edges() @ nodes, SLOPE)
        nodes = nodes + F.leaky_relu(self.mix(taken), SLOPE)
        related = (nodes * self.output.weight).sum(-1) + self.output.bias
        return (self.linear(pooled) + related) / 2, pooled.unsqueeze(1)


@HEADS.register(
    "graph",
    summary="One linear layer, and a learnable graph over the classes.",
    reference="after CSC: Du et al., ECCV 2024",
)
def graph_head(backbone: Backbone, input_shape: tuple[int, ...], classes: int, seed: int) -> GraphHead:  # noqa: ARG001
    """Return the head, without an edge."""
    backbone.use_map()
    return GraphHead(backbone.width, classes)
