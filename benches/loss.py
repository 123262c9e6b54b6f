"""RLDAM, forward and backward, beside BCE-with-logits and the loss over all pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benches.problems import labels_of
from benches.rivals import pairwise_logistic
from benches.timing import Row, best, faster, within
from mlcl.labels import LabelCounts
from mlcl.losses import MarginLoss

BATCH = 128


def measure(*, quick: bool) -> list[Row]:
    """Time the paper's form and the one with counts of the batch."""
    matrix = labels_of("coco2017", 40_504)
    counts = LabelCounts.of(matrix)
    labels = torch.from_numpy(matrix[np.random.default_rng(0).permutation(len(matrix))[:BATCH]]).float()
    logits = torch.randn(labels.shape, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def both_ways(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], None]:
        def job() -> None:
            logits.grad = None
            loss(logits, labels).backward()

        return job

    forms = {"dataset": MarginLoss(counts), "batch": MarginLoss(counts, reweight="batch")}
    plain = MarginLoss(counts, margin=0, reweight="none")
    assert torch.equal(plain(logits, labels), F.binary_cross_entropy_with_logits(logits, labels))
    jobs = {name: both_ways(form) for name, form in forms.items()}
    jobs |= {"bce": both_ways(F.binary_cross_entropy_with_logits)}
    size = f"B {BATCH}, K {labels.shape[1]}"
    rows, cores = [], torch.get_num_threads()
    for threads in dict.fromkeys([1, cores]):
        torch.set_num_threads(threads)
        times = best(jobs, repeats=20 if quick else 200)
        times |= best({"pairs": both_ways(pairwise_logistic)}, repeats=3 if quick else 20)
        where = f"{size}, {threads} thread{'s' * (threads > 1)}"
        for name, words in (("dataset", "weights of the data set"), ("batch", "weights of the batch")):
            subject = f"RLDAM forward + backward, {words}"
            rows.append(within(subject, where, times[name], "BCE with logits", times["bce"], 1.5))
            rows.append(faster(subject, where, times[name], "all pairs, logistic", times["pairs"], 100))
    torch.set_num_threads(cores)
    return rows
