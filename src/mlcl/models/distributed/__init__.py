"""What a network needs to train in several processes.

A package of its own because `batch_norm` takes about a second to load (for torch.compiler), which only runs with
several processes should pay: the discovery of models imports this package and not the modules in it.
"""

from __future__ import annotations

import torch

from mlcl.models.network import Network


def share_statistics(network: Network, device: torch.device) -> Network:
    """Return the network with batch normalisations over the rows of all processes."""
    from mlcl.models.distributed import batch_norm

    return batch_norm.share_statistics(network, device)
