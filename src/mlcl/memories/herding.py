"""Herding (iCaRL): per class, the samples whose mean feature stays nearest to the class mean.

See specification.md#herding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError
from mlcl.labels import Labels
from mlcl.memories.base import MEMORIES, TaskSamples, quotas


@MEMORIES.register(
    "herding",
    summary="Per class, samples whose mean feature is nearest to the class mean (iCaRL, made multi-label).",
    reference="Rebuffi et al., iCaRL: Incremental Classifier and Representation Learning, CVPR 2017",
)
def update_herding(
    stored: tuple[TaskSamples, ...],
    new: TaskSamples,
    size: int,
    rng: np.random.Generator,
    features: NDArray[Any],
) -> tuple[TaskSamples, ...]:
    """Cut old tasks to the first rows of their order, as iCaRL does; choose the new quota by herding."""
    *old, fresh = quotas(size, [len(samples) for samples in (*stored, new)])
    kept = [samples.take(np.arange(quota)) for samples, quota in zip(stored, old, strict=True)]
    return (*kept, new.take(select_herding(features, new.labels, fresh, rng)))


def select_herding(
    features: NDArray[Any], labels: Labels, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Choose rows so that each class's own picks have a mean feature near the class mean.

    With ``phi`` the L2-normalised features, ``mu_k`` their mean over the positives of class ``k`` and
    ``p_1 .. p_m`` the picks of ``k`` so far, class ``k`` picks ``argmin_x || mu_k - (phi(x) + sum_j
    phi(p_j)) / (m + 1) ||`` among its positives (iCaRL, algorithm 4; like most implementations, averages
    are not normalised again).

    The departure for multi-label data: classes take turns, in the order of their columns, so that each
    gets an equal quota and any prefix of the result is balanced; a row is chosen once, and a class passes
    over rows that another class has picked; a class without rows left gives up its turn. On single-label
    data this is iCaRL's choice. Rows without any label come last, in random order.
    """
    values = np.asarray(features)
    if values.ndim != 2 or len(values) != len(labels):
        raise InputError(
            f"features have shape {values.shape}, expected ({len(labels)}, D): a row for each label row"
        )
    if not np.isfinite(values).all():
        raise InputError("features hold NaN or infinite values, expected finite numbers")
    phi = values.astype(np.result_type(values.dtype, np.float32), copy=False)
    phi = phi / np.maximum(np.linalg.norm(phi, axis=1, keepdims=True), np.finfo(phi.dtype).tiny)
    weights = labels.T.astype(phi.dtype)
    mean = (weights @ phi) / np.maximum(weights.sum(axis=1, keepdims=True), 1)
    # || mu - (phi + S)/(m+1) || is least where phi . ((m+1) mu - S) is greatest, because all phi have
    # length 1.
    wanted = mean.copy()
    free = labels.T.astype(bool)
    chosen: list[int] = []
    while len(chosen) < size and free.any():
        alignment = np.where(free, wanted @ phi.T, -np.inf)
        for k in range(len(alignment)):
            if len(chosen) == size or not free[k].any():
                continue
            pick = int(np.argmax(np.where(free[k], alignment[k], -np.inf)))
            chosen.append(pick)
            free[:, pick] = False
            wanted[k] += mean[k] - phi[pick]
    bare = rng.permutation(np.flatnonzero(~labels.any(axis=1)))
    return np.concatenate([np.array(chosen, dtype=np.int64), bare[: max(size - len(chosen), 0)]])
