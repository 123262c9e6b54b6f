"""A committee: a trained network, and linear layers beside it that are solved in closed form, joined as one score.

Two kinds of layers can be members: one on the features of a fixed encoder, which drift with nothing that is learnt,
and one on the network's own features. Whoever solves them (`mlcl.training.heads`) brings their scores to the scale
of the network's logits, so that the committee's score is a weighted mean of logits. Members are never trained, and the
network does not see them: unless a member teaches it, it learns the same weights as without a committee.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from mlcl.models.network import MODELS, Backbone, Bounded, Network, pool, seeded

ENCODER, MOMENTS = "encoder", "moments"
"""The members that there can be: on the features of a fixed encoder, and on the network's own."""


class CommitteeMember(nn.Module):
    """A linear layer that is solved, on the features of a fixed encoder or of the network itself."""

    scale: Tensor
    shift: Tensor

    def __init__(
        self, width: int, classes: int, input_shape: tuple[int, ...], *, encoder: Backbone | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.linear = nn.Linear(width, classes)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        shape = (1, input_shape[0], *(1 for _ in input_shape[1:]))
        self.register_buffer("scale", torch.ones(shape))
        self.register_buffer("shift", torch.zeros(shape))
        self.requires_grad_(False)
        self.eval()

    def adapt(self, scale: Tensor, shift: Tensor) -> None:
        """Set how the network's inputs become the encoder's, where the two are normalised differently."""
        self.scale.copy_(scale)
        self.shift.copy_(shift)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the encoder's features [B, width] of the network's inputs."""
        return pool(cast(Backbone, self.encoder)(torch.addcmul(self.shift, inputs, self.scale)))

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002
        """Stay in evaluation mode: nothing here is trained, nor are statistics of a normalisation."""
        return super().train(False)


class Committee(nn.Module):
    """A network and its members: ``committee(x)`` are the joint scores [B, K].

    Args:
        weights: of each member's score, where the network's logit has weight 1.

    >>> from mlcl.models import build_model
    >>> network = build_model("mlp", (4,), 3)
    >>> member = CommitteeMember(4, 3, (4,), encoder=MODELS.build("linear", (4,)))
    >>> committee = Committee(network, {"encoder": member}, {"encoder": 3.0})
    >>> rows = torch.ones(2, 4)
    >>> torch.allclose(committee(rows), network(rows) / 4)  # nothing is solved yet
    True
    """

    def __init__(
        self, network: Network, members: Mapping[str, CommitteeMember], weights: Mapping[str, float]
    ) -> None:
        super().__init__()
        self.network = network
        self.members = nn.ModuleDict(members)
        total = 1.0 + sum(weights[name] for name in members)
        self.shares = {name: weights[name] / total for name in members}
        self.share = 1.0 / total

    @property
    def encoder(self) -> Backbone | None:
        """Return the fixed encoder, if there is one."""
        return self.member(ENCODER).encoder if ENCODER in self.members else None

    def member(self, name: str) -> CommitteeMember:
        """Return a member by name."""
        return cast(CommitteeMember, self.members[name])

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scores [B, K]: the weighted mean of the network's logits and the members' scores."""
        return self.features_and_scores(inputs)[1]

    def features_and_scores(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the network's pooled features [B, d] and the scores [B, K]."""
        features = self.network.backbone(inputs)
        scores = self._of_features(features)
        if self.shares.get(ENCODER):  # a member of weight 0 has only taught the network
            scores = scores + self.of_encoder(self.member(ENCODER).features(inputs))
        return pool(features), scores

    def of_network(self, inputs: Tensor) -> Tensor:
        """Return what depends on the network, its own logits and the member on its features: [B, K]."""
        return self._of_features(self.network.backbone(inputs))

    def _of_features(self, features: Tensor) -> Tensor:
        scores: Tensor = self.share * self.network.head(features)
        if MOMENTS in self.members:
            scores = scores + self.shares[MOMENTS] * self.member(MOMENTS).linear(pool(features))
        return scores

    def of_encoder(self, features: Tensor) -> Tensor:
        """Return what the member on the encoder adds, from its features [B, width]: [B, K]."""
        scores: Tensor = self.shares[ENCODER] * self.member(ENCODER).linear(features)
        return scores


def build_committee(
    network: Network,
    input_shape: tuple[int, ...],
    classes: int,
    *,
    encoder: str | None,
    weight: float = 1.0,
    moments: float = 0.0,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Committee:
    """Build the committee around a network.

    Args:
        encoder: name of the fixed encoder in `MODELS`; None: no such member.
        weight: of the encoder's member.
        moments: weight of the member on the network's own features; 0: no such member.

    >>> from mlcl.models import build_model
    >>> committee = build_committee(build_model("mlp", (4,), 3), (4,), 3, encoder="fixed", moments=0.5)
    >>> sorted(committee.members), committee.share
    (['encoder', 'moments'], 0.4)
    """
    members: dict[str, CommitteeMember] = {}
    if encoder is not None:
        with seeded(seed), Bounded():
            built: Backbone = MODELS.build(encoder, input_shape, **(options or {}))
        members[ENCODER] = CommitteeMember(built.width, classes, input_shape, encoder=built)
    if moments:
        members[MOMENTS] = CommitteeMember(network.backbone.width, classes, input_shape)
    return Committee(network, members, {ENCODER: weight, MOMENTS: moments})
