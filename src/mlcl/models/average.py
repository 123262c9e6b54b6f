"""A running average of a network's weights (Polyak and Juditsky, 1992): less noise at the same cost per step."""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.models.network import Network


class RunningAverage:
    """An exponential average of all floating-point weights and statistics of a network.

    The first updates weigh more than ``1 - decay``, so that the start is forgotten soon: after n updates the decay is
    ``min(decay, (1 + n) / (10 + n))``.

    >>> from mlcl.models import build_model
    >>> network = build_model("linear", (1,), 1)
    >>> average = RunningAverage(network, decay=0.9)
    >>> with torch.no_grad():
    ...     _ = network.head.linear.bias.fill_(network.head.linear.bias.item() + 1)
    >>> before = average.state()["head.linear.bias"].item()
    >>> average.update()  # the first update keeps a tenth
    >>> round(average.state()["head.linear.bias"].item() - before, 4)
    0.9
    """

    def __init__(self, network: Network, *, decay: float) -> None:
        self.decay, self.updates = decay, 0
        # The tensors themselves, which change in place: a state_dict per step would cost more than the average.
        live = {name: value for name, value in network.state_dict().items() if value.is_floating_point()}
        self._names, self._live = list(live), list(live.values())
        self._values = [value.clone() for value in self._live]

    def update(self) -> None:
        """Update the average with the network's weights, after a step."""
        keep = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(self._values, self._live, 1 - keep)
        self.updates += 1

    def give(self) -> None:
        """Copy the average into the network."""
        torch._foreach_copy_(self._live, self._values)

    def state(self) -> dict[str, Tensor]:
        """Return the average by name."""
        return dict(zip(self._names, self._values, strict=True))

    def load_state(self, state: dict[str, Tensor], *, updates: int) -> None:
        """Restore what `state` returned after ``updates`` updates."""
        for name, value in zip(self._names, self._values, strict=True):
            value.copy_(state[name])
        self.updates = updates
