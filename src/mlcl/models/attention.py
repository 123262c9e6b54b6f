"""KRT's incremental cross-attention head (Dong et al., ICCV 2023; specification.md#krt): one token per session."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor, nn

from mlcl.errors import InputError
from mlcl.models.network import HEADS, Backbone, seeded
from mlcl.models.sessions import SessionHead, token


def cross_attention(query: Tensor, transfer: Tensor, retention: Tensor, patches: Tensor) -> Tensor:
    """Attend from one query to [transfer; retention_i; patches] for every session i at once.

    The sessions differ in one key of 2 + N, so the patches are attended to once: their softmax average
    counts as one key whose score is the log-sum-exp of theirs. It is the same softmax, in O(N + S) instead
    of O(N S).

    Args:
        query: [H, e].
        transfer: key and value of the transfer token, [2, H, e].
        retention: keys and values of the retention tokens, [2, S, H, e].
        patches: keys and values of the patches, [2, B, N, H, e].

    Returns:
        [B, S, H, e].
    """
    query = query * query.shape[-1] ** -0.5
    on_transfer = torch.einsum("he,he->h", query, transfer[0])
    on_retention = torch.einsum("he,she->sh", query, retention[0])
    on_patches = torch.einsum("he,bnhe->bhn", query, patches[0])
    average = torch.einsum("bhn,bnhe->bhe", on_patches.softmax(-1), patches[1])
    shape = (average.shape[0], *on_retention.shape)  # len() would fix the batch size in an exported graph
    scores = [
        on_transfer.expand(shape),
        on_retention.expand(shape),
        on_patches.logsumexp(-1).unsqueeze(1).expand(shape),
    ]
    weights = torch.stack(scores, -1).softmax(-1).unsqueeze(-1)  # [B, S, H, 3, 1]
    mixed: Tensor = (
        weights[..., 0, :] * transfer[1]
        + weights[..., 1, :] * retention[1]
        + weights[..., 2, :] * average.unsqueeze(1)
    )
    return mixed


class IncrementalAttentionHead(SessionHead):
    """A shared attention block, with a retention token and a linear classifier per session.

    For session i: z = [u; s_i; patches]; e_i = u + attention(u from LN(z)); e_i += MLP(LN(e_i)); the logits
    of its classes are Linear(LN(e_i)). The transfer token u, the positions of the patches and the block are
    shared and continue to learn; `add_session` freezes the tokens s_i and the classifiers of earlier sessions.

    To load a saved state, call `add_session` with sessions of the same sizes first.

    Args:
        map_size: (h, w).
        dim: the width d of the tokens, a multiple of ``heads``; ``width`` by default.
        mlp_ratio: hidden width of the MLP, in multiples of ``dim``.

    >>> head = IncrementalAttentionHead(16, 5, (4, 4))
    >>> head.add_session([3, 0])
    >>> head(torch.randn(2, 16, 4, 4))[0] == 0  # classes not yet added score a constant 0
    tensor([False,  True,  True, False,  True])
    >>> head.add_session([1])
    >>> head.sessions, head.embeddings(torch.zeros(2, 16, 4, 4)).shape
    (((3, 0), (1,)), torch.Size([2, 2, 16]))
    """

    def __init__(
        self,
        width: int,
        classes: int,
        map_size: tuple[int, int],
        *,
        dim: int | None = None,
        heads: int = 8,
        mlp_ratio: int = 4,
        seed: int = 0,
    ) -> None:
        super().__init__(classes, seed=seed)
        dim = width if dim is None else dim
        if dim < 1 or heads < 1 or dim % heads:
            raise InputError(f"dim of the attention head is {dim}, expected a multiple of its {heads} heads")
        self.dim, self.heads = dim, heads
        with seeded(seed, 0):
            self.project = nn.Conv2d(width, dim, 1)
            self.positions = nn.Parameter(token(map_size[0] * map_size[1], dim))
            self.transfer = nn.Parameter(token(dim))
            self.retention = nn.ParameterList()
            self.norm = nn.LayerNorm(dim)
            self.query = nn.Linear(dim, dim)
            self.key_value = nn.Linear(dim, 2 * dim)
            self.output = nn.Linear(dim, dim)
            self.mlp = nn.Sequential(
                nn.LayerNorm(dim), nn.Linear(dim, mlp_ratio * dim), nn.GELU(), nn.Linear(mlp_ratio * dim, dim)
            )
        self.classifiers = nn.ModuleList()

    def _earlier(self) -> Iterator[nn.Parameter]:
        return chain(self.retention.parameters(), self.classifiers.parameters())

    def _grow(self, classes: int) -> None:
        self.retention.append(nn.Parameter(token(self.dim).to(self.like)))
        classifier = nn.Sequential(nn.LayerNorm(self.dim), nn.Linear(self.dim, classes))
        self.classifiers.append(classifier.to(self.like))

    def embeddings(self, feature_map: Tensor) -> Tensor:
        """Return e_i of every session, [B, S, d], for a feature map [B, width, h, w]."""
        self.require_session()
        patches = self.project(feature_map).flatten(2).transpose(1, 2) + self.positions
        query = self.norm(self.transfer)
        mixed = cross_attention(
            self.query(query).unflatten(-1, (self.heads, -1)),
            self._keys_values(query),
            self._keys_values(self.norm(torch.stack(list(self.retention)))),
            self._keys_values(self.norm(patches)),
        )
        embeddings = self.transfer + self.output(mixed.flatten(2))
        result: Tensor = embeddings + self.mlp(embeddings)
        return result

    def _keys_values(self, tokens: Tensor) -> Tensor:
        """Project normalised tokens [..., d] to keys and values [2, ..., heads, d / heads]."""
        both: Tensor = self.key_value(tokens).unflatten(-1, (2, self.heads, -1))
        return both.movedim(-3, 0)

    def forward_with_embeddings(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [B, K] in class-id order (0 for classes of no session) and embeddings [B, S, d]."""
        embeddings = self.embeddings(features)
        parts = [head(e) for head, e in zip(self.classifiers, embeddings.unbind(1), strict=True)]
        return self.join(parts), embeddings


@HEADS.register(
    "attention",
    summary="KRT's incremental cross-attention: a token and a classifier per session; needs a feature map.",
    reference="Dong et al., ICCV 2023",
)
def attention_head(
    backbone: Backbone, input_shape: tuple[int, ...], classes: int, seed: int
) -> IncrementalAttentionHead:
    """Return the head, without a session."""
    if not backbone.use_map():
        raise InputError(f"the attention head needs a feature map; model {backbone.name!r} gives vectors")
    return IncrementalAttentionHead(backbone.width, classes, backbone.map_size(input_shape), seed=seed)
