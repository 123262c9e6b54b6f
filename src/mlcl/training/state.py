"""A learner's state as tensors and plain values: what a checkpoint holds (`runs.checkpoints` writes it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mlcl.arrays import section


@dataclass(frozen=True)
class State:
    """All that is needed to resume: tensors by name, and plain values that JSON can hold (except for nan).

    The tensors are those in use, not copies: write them, or copy them, before training continues.
    """

    tensors: dict[str, Tensor]
    values: dict[str, Any]

    def section(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with ``prefix`` and a dot, without it.

        >>> import torch
        >>> State({"memory.rows": torch.zeros(1), "network.w": torch.zeros(1)}, {}).section("memory")
        {'rows': tensor([0.])}
        """
        return section(self.tensors, prefix)


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors under longer names: ``prefix.name``."""
    return {f"{prefix}.{name}": value for name, value in tensors.items()}
