"""A lane per session on the features of a frozen encoder, after MULTI-LANE (specification.md#lanes)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlcl.errors import check_int
from mlcl.models.network import HEADS, Backbone
from mlcl.models.sessions import SessionHead, token


class SessionLane(nn.Module):
    """One session's way from cells to logits: selectors, a small layer, and a classifier."""

    selectors: nn.Parameter | None

    def __init__(self, width: int, classes: int, *, dim: int, selectors: int) -> None:
        super().__init__()
        self.register_parameter("selectors", nn.Parameter(token(selectors, width)) if selectors else None)
        self.layer = nn.Sequential(nn.Linear(width, dim), nn.LayerNorm(dim), nn.ReLU())
        self.classifier = nn.Linear(dim, classes)

    def forward(self, cells: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [B, classes] and embeddings [B, dim] of cells [B, N, width]."""
        chosen = cells if self.selectors is None else select(self.selectors, cells)
        embedding: Tensor = self.layer(chosen).mean(1)
        return self.classifier(embedding), embedding


def select(selectors: Tensor, cells: Tensor) -> Tensor:
    """Return one softmax average of the cells per selector: [S, width] and [B, N, width] to [B, S, width].

    A cell's score is the product of selector and normalised cell, over the square root of the width.
    """
    scores = F.layer_norm(cells, cells.shape[-1:]) @ selectors.T * cells.shape[-1] ** -0.5
    chosen: Tensor = scores.softmax(1).transpose(1, 2) @ cells
    return chosen


class LaneHead(SessionHead):
    """A lane per session; lanes share nothing, and those of earlier sessions are frozen.

    For session i and the cells z_n of the feature map, selector j gives p_ij = sum_n a_n z_n with the weights
    a = softmax_n(s_ij . LN(z_n) / sqrt(C)); e_i is the mean over j of ReLU(LN(U_i p_ij)), and the logits of its classes
    are V_i e_i + b_i. A feature vector is a single cell, of which there is nothing to select. On an encoder that does
    not change, neither do the logits of earlier sessions, whatever is learnt later.

    >>> head = LaneHead(16, 5, on_map=True)
    >>> head.add_session([3, 0])
    >>> before = head(torch.ones(1, 16, 4, 4))
    >>> head.add_session([1])
    >>> [lane.classifier.weight.requires_grad for lane in head.lanes]
    [False, True]
    >>> torch.equal(head(torch.ones(1, 16, 4, 4))[:, [3, 0]], before[:, [3, 0]])
    True
    """

    def __init__(
        self,
        width: int,
        classes: int,
        *,
        on_map: bool,
        dim: int = 256,
        selectors: int = 10,
        seed: int = 0,
    ) -> None:
        super().__init__(classes, seed=seed)
        self.width, self.on_map = width, on_map
        self.dim, self.selectors = check_int("dim", dim, 1), check_int("selectors", selectors, 1)
        self.lanes = nn.ModuleList()

    def _earlier(self) -> Iterator[nn.Parameter]:
        return self.lanes.parameters()

    def _grow(self, classes: int) -> None:
        selectors = self.selectors if self.on_map else 0
        self.lanes.append(SessionLane(self.width, classes, dim=self.dim, selectors=selectors).to(self.like))

    def forward_with_embeddings(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [B, K] in class-id order (0 for classes of no session) and embeddings [B, S, dim]."""
        self.require_session()
        cells = features.flatten(2).transpose(1, 2) if self.on_map else features.unsqueeze(1)
        parts, embeddings = zip(*(lane(cells) for lane in self.lanes), strict=True)
        return self.join(parts), torch.stack(embeddings, 1)


@HEADS.register(
    "lanes",
    summary="A lane per session on the features of a frozen encoder; lanes share nothing.",
    reference="after MULTI-LANE: De Min et al., CoLLAs 2024",
)
def lane_head(backbone: Backbone, input_shape: tuple[int, ...], classes: int, seed: int) -> LaneHead:  # noqa: ARG001
    """Return the head, without a session."""
    return LaneHead(backbone.width, classes, on_map=backbone.use_map(), seed=seed)
