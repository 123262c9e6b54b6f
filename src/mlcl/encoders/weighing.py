"""Weights of encoders that are joined, chosen on rows that were not learnt from.

What a weight changes is how much of a ridge the dimensions of an encoder bear. So a ridge regression of all labels,
penalised as the exact learner does (by the root of the variance of a dimension), is solved for each weight and ridge,
on a part of the first rows, in its dual form: the size of the problem is the number of rows, not of dimensions. The
weights with the best mean of AUC and average precision on other rows are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_matrix

from mlcl.encoders.joined import Join
from mlcl.metrics.ranking import average_precision, macro_auc

WEIGHTS = (1.0, 0.25, 0.5, 2.0, 4.0)
"""The weights to choose from, of each encoder beside the first; the first one stays unless another one is better."""
RIDGES = np.logspace(-3, 1, 9)
MOST, SHARE = 2000, 1 / 3
"""So many rows are looked at, and so large a share of them is not learnt from."""
BETTER = 0.001
"""Another weight must be better by so much."""
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def weighed(
    encoder: Join,
    texts: Sequence[str],
    labels: NDArray[np.uint8],
    known: Bools | None = None,
    *,
    groups: Sequence[object] | None = None,
    seed: int = 0,
) -> Join:
    """Return the encoder with the weights that are best for some labels, as far as some of the texts can tell.

    Args:
        encoder: several encoders side by side.
        texts: the first texts.
        labels: of the texts, 0 or 1, ``[n, K]``.
        known: which are known, ``[n, K]``; all by default.
        groups: texts of one group, such as near copies, are all learnt from, or none of them.
        seed: of the rows that are looked at.
    """
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(texts))[:MOST]
    names = rows if groups is None else np.array([str(groups[k]) for k in rows])
    place = np.unique(names, return_inverse=True)[1]
    apart = (rng.random(place.max(initial=-1) + 1) < SHARE)[place]
    truth = labels[rows].astype(np.bool_)
    seen = np.ones(truth.shape, np.bool_) if known is None else known[rows]
    truth &= seen
    used = (truth[~apart].sum(0) >= 2) & (truth[apart].sum(0) >= 2) & ((seen & ~truth)[apart].sum(0) >= 1)
    if not used.any():
        return encoder
    chosen = [texts[k] for k in rows]
    products = [_products(csr_matrix(part.encode(chosen)), apart) for part in encoder.parts]
    targets = truth[np.ix_(~apart, used)].astype(np.float64)
    judged = (truth[np.ix_(apart, used)], seen[np.ix_(apart, used)])
    best = [1.0] * len(products)
    top = _worth(products, best, targets, *judged, apart)
    for number in range(1, len(products)):
        for weight in WEIGHTS[1:]:
            tried = [*best[:number], weight, *best[number + 1 :]]
            if (found := _worth(products, tried, targets, *judged, apart)) > top + BETTER:
                top, best = found, tried
    return replace(encoder, weights=tuple(best))


def _products(rows: csr_matrix, apart: Bools) -> Floats:
    """Return the products of all rows with those that are learnt from, as an encoder of weight 1 has them."""
    learnt = rows[~apart].astype(np.float64)
    mean = np.asarray(learnt.mean(axis=0)).ravel()
    variance = np.asarray(learnt.multiply(learnt).mean(axis=0)).ravel() - mean**2
    scale = np.divide(
        1.0, np.sqrt(variance), out=np.zeros_like(variance), where=variance > 1e-12 * variance.max()
    )
    scaled = rows.astype(np.float64).multiply(scale).tocsr()
    products = (scaled @ learnt.T).toarray() - np.asarray(scaled @ mean)[:, None]
    return np.asarray(products - (np.asarray(learnt @ (mean * scale)) - mean @ (mean * scale)))


def _worth(
    products: Sequence[Floats],
    weights: Sequence[float],
    targets: Floats,
    truth: Bools,
    seen: Bools,
    apart: Bools,
) -> float:
    """Return the mean of AUC and average precision for the best ridge."""
    # A weight w multiplies the variance by w^2 and its penalty by w, so what is left of it is w.
    every = sum(weight * one for weight, one in zip(weights, products, strict=True))
    kernel, others = np.asarray(every)[~apart], np.asarray(every)[apart]
    values, vectors = eigh((kernel + kernel.T) / 2)
    values = np.maximum(values, 0.0)
    inner, outer = vectors.T @ (targets - targets.mean(0)), others @ vectors
    found = []
    for ridge in RIDGES:
        scores = outer @ (inner / (values + ridge * values.mean() + 1e-300)[:, None])
        both = [one(scores, truth, average=None, mask=seen) for one in (macro_auc, average_precision)]
        found.append(float(np.nanmean(both)))
    return max(found)
