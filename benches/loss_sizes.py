"""RLDAM, forward and backward, beside BCE-with-logits over sizes of batches and labels; torch.compile beside it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benches.problems import synthetic
from benches.timing import Row, best, within
from mlcl.labels import LabelCounts
from mlcl.losses import MarginLoss

BATCHES, CLASSES = (32, 128, 1024), (20, 80, 1000)


def measure(*, quick: bool) -> list[Row]:
    """Time both weights at every size, on one thread: a short loss does not gain from a second one."""
    torch.set_num_threads(1)
    found = []
    for classes in CLASSES[: 1 if quick else None]:
        matrix = synthetic(20_000, classes)
        counts = LabelCounts.of(matrix)
        forms = {"dataset": MarginLoss(counts), "batch": MarginLoss(counts, reweight="batch")}
        compiled = {} if quick else {name: torch.compile(form, dynamic=True) for name, form in forms.items()}
        for rows in BATCHES[: 1 if quick else None]:
            labels = torch.from_numpy(matrix[:rows]).float()
            logits = torch.randn(labels.shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
            jobs = {name: _both_ways(form, logits, labels) for name, form in forms.items()}
            jobs |= {f"{name}, compiled": _both_ways(form, logits, labels) for name, form in compiled.items()}
            jobs["bce"] = _both_ways(F.binary_cross_entropy_with_logits, logits, labels)
            for job in jobs.values():  # compiles
                job()
            times = best(jobs, repeats=20 if quick else 60)
            size = f"B {rows:,}, K {classes:,}, 1 thread"
            for name in forms:
                subject = f"RLDAM over sizes, weights of the {name}"
                found.append(within(subject, size, times[name], "BCE with logits", times["bce"], 1.5))
                if (fast := times.get(f"{name}, compiled")) is not None:
                    ratio = fast / times["bce"]
                    found.append(
                        Row(
                            f"{subject}, compiled",
                            size,
                            fast,
                            "BCE with logits",
                            times["bce"],
                            ratio,
                            None,
                            above=False,
                        )
                    )
    return found


def _both_ways(
    loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, labels: Tensor
) -> Callable[[], None]:
    def job() -> None:
        logits.grad = None
        loss(logits, labels).backward()

    return job
