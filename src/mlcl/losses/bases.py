"""The base losses ``l(z)`` (specification.md#base-losses), each a convex bound on the error ``z <= 0``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

Base = Literal["logistic", "hinge", "squared-hinge", "exponential"]

# exp(50) is 5e21: times a logit of 1e4 and a large weight it is still far from the largest float32.
EXPONENTIAL_LIMIT = 50.0


def hinge(z: Tensor) -> Tensor:
    """Return ``max(0, 1 - z)``.

    >>> hinge(torch.tensor([-1.0, 0.5, 2.0]))
    tensor([2.0000, 0.5000, 0.0000])
    """
    return (1 - z).clamp_min(0)


def squared_hinge(z: Tensor) -> Tensor:
    """Return ``max(0, 1 - z)^2``.

    >>> squared_hinge(torch.tensor([-1.0, 0.5, 2.0]))
    tensor([4.0000, 0.2500, 0.0000])
    """
    return hinge(z).square()


def exponential(z: Tensor) -> Tensor:
    """Return ``exp(-z)``, continued by its tangent line where z is below -50.

    It is still convex, and loss and gradient are finite for logits of 1e4 in float32.

    >>> exponential(torch.tensor([0.0, 1.0, -1e4])).isfinite().all()
    tensor(True)
    """
    clamped = z.clamp_min(-EXPONENTIAL_LIMIT)
    return torch.exp(-clamped) * (1 + clamped - z)


# The logistic base, log(1 + exp(-z)), is not here: the margin loss calls its fused form with the labels.
BASES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "hinge": hinge,
    "squared-hinge": squared_hinge,
    "exponential": exponential,
}
