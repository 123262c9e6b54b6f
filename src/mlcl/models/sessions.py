"""Heads that grow session by session, and freeze what earlier sessions learnt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from mlcl.errors import InputError
from mlcl.models.network import Head, seeded


class SessionHead(Head):
    """A head with parameters of its own for each session's classes; those of earlier sessions are frozen.

    Subclasses say what belongs to sessions (`_earlier`) and add a session's parameters (`_grow`). To load a saved
    state, call `add_session` with sessions of the same sizes first.
    """

    freezes = True
    slots: Tensor
    like: Tensor

    def __init__(self, classes: int, *, seed: int = 0) -> None:
        super().__init__()
        self.seed = seed
        self.sizes: list[int] = []
        # Where class k stands among the sessions' outputs, counted from 1; 0 is a class of no session yet.
        self.register_buffer("slots", torch.zeros(classes, dtype=torch.int64))
        # Moves with the head: new parameters are created on its device and with its type.
        self.register_buffer("like", torch.zeros(()), persistent=False)

    @property
    def sessions(self) -> tuple[tuple[int, ...], ...]:
        """The class ids of every session, in the order of its outputs."""
        seen = iter(self.slots.argsort()[(self.slots == 0).sum() :].tolist())
        return tuple(tuple(islice(seen, size)) for size in self.sizes)

    def add_session(self, classes: Tensor | NDArray[np.integer] | Sequence[int]) -> None:
        """Add parameters for new class ids, and freeze those of all sessions before.

        The frozen parameters lose their gradient too, so that no optimiser moves them, not even by weight
        decay or momentum. New parameters are created on the head's device; create the optimiser after this call.
        """
        ids = self._new_ids(classes)
        for old in self._earlier():
            old.requires_grad_(False)
            old.grad = None
        with seeded(self.seed, 1 + len(self.sizes)):  # key 0 drew what all sessions share
            self._grow(len(ids))
        self.slots[ids] = sum(self.sizes) + torch.arange(1, len(ids) + 1, device=ids.device)
        self.sizes.append(len(ids))

    def _earlier(self) -> Iterable[nn.Parameter]:
        """Return the parameters of the sessions so far."""
        raise NotImplementedError

    def _grow(self, classes: int) -> None:
        """Add the parameters of one more session, with this many outputs."""
        raise NotImplementedError

    def _new_ids(self, classes: Tensor | NDArray[np.integer] | Sequence[int]) -> Tensor:
        given = classes.tolist() if isinstance(classes, Tensor | np.ndarray) else list(classes)
        total = len(self.slots)
        if (
            not isinstance(given, list)
            or not given
            or not all(isinstance(k, int) and 0 <= k < total for k in given)
        ):
            raise InputError(f"classes of a session are {given}, expected ids from 0 to {total - 1}")
        taken = {k for session in self.sessions for k in session}.intersection(given)
        if taken or len(set(given)) < len(given):
            raise InputError(
                f"classes of a session are {given}, expected each once and none of an earlier session "
                f"(taken already: {sorted(taken) or 'none'})"
            )
        return torch.tensor(given, device=self.slots.device)

    def require_session(self) -> None:
        """Refuse to be called before the first session."""
        if not self.sizes:
            raise InputError("the head has no session yet, expected add_session to be called before")

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the sessions' outputs, [B, its classes] each, in class-id order, [B, K]; 0 for classes of none."""
        # A leading column of zeros is what classes of no session read.
        return F.pad(torch.cat(list(parts), 1), (1, 0)).index_select(1, self.slots)


def token(*shape: int) -> Tensor:
    """Draw learned tokens as vision transformers do, from a truncated normal of standard deviation 0.02."""
    return nn.init.trunc_normal_(torch.empty(shape), std=0.02)
