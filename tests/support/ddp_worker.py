"""One process of `test_torchmetrics.py`: RANK WORLD RENDEZVOUS. Prints what the metric computes, as JSON."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

CASES = ("plain", "mask", "float64", "half", "empty", "nothing")


def data(case: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[int]]:
    """Return scores, labels, mask, and how many rows each process sees."""
    rng = np.random.default_rng(7)
    labels = torch.from_numpy((rng.random((90, 5)) < (0.4, 0.1, 0.5, 0.06, 0.0)).astype(np.int64))
    scores = torch.from_numpy(rng.integers(0, 12, (90, 5)) / 4)  # with ties
    mask = torch.from_numpy(rng.random((90, 5)) < (0.7 if case == "mask" else 1.1))
    kind = {"float64": torch.float64, "half": torch.bfloat16}.get(case, torch.float32)
    shares = {"empty": [90, 0], "nothing": [0, 0]}.get(case, [37, 53])
    return scores.to(kind), labels, mask, shares


def measured(rank: int, case: str) -> dict[str, Any]:
    """Update with the rows of this process in three batches, compute, update, and compute again."""
    from mlcl.metrics import MacroAUC

    scores, labels, mask, shares = data(case)
    start = sum(shares[:rank])
    metric = MacroAUC(average=None)
    for rows in torch.arange(start, start + shares[rank]).tensor_split(3):
        if len(rows):
            metric.update(scores[rows], labels[rows], mask[rows] if case == "mask" else None)
    first = metric.compute().tolist()
    local = sum(part.numel() for part in metric.scores)  # after computing, a process has its own rows again
    more = slice(0, 9 if rank == 0 else 0)
    metric.update(scores[more], labels[more], mask[more])
    return {"first": first, "local": local, "second": metric.compute().tolist()}


def main(rank: int, world: int, rendezvous: str) -> None:
    """Compute all cases in the same order as the other process."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world, timeout=timedelta(minutes=10)
    )
    print(json.dumps({case: measured(rank, case) for case in CASES}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
