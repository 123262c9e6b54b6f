"""Has a distribution moved? A two-sample test on features, and a test per label on the rates of predicted labels.

Both give p-values that hold for samples of any size: the first by permutations, the second by Fisher's exact test with
Holm's correction for the number of labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import InputError, check_int
from mlcl.metrics.inputs import Floats


@dataclass(frozen=True)
class TwoSampleTest:
    """The result of a two-sample test.

    Attributes:
        statistic: the squared maximum mean discrepancy; 0 for equal samples.
        p_value: the chance of so large a statistic if both samples come from one distribution.
        permutations: how many were drawn.
    """

    statistic: float
    p_value: float
    permutations: int


@dataclass(frozen=True, eq=False)
class RateChanges:
    """The share of rows that each label was predicted for, in two samples, ``[K]`` each.

    Attributes:
        before: in the first sample.
        after: in the second sample.
        p_values: of Fisher's exact test, label by label.
        adjusted: the same by Holm's method, so that a bound on them holds for all labels together.
    """

    before: Floats
    after: Floats
    p_values: Floats
    adjusted: Floats


def mmd_test(
    first: ArrayLike, second: ArrayLike, *, permutations: int = 500, most: int = 1000, seed: int = 0
) -> TwoSampleTest:
    """Test whether two samples come from one distribution: maximum mean discrepancy with a Gaussian kernel.

    Columns are scaled to standard deviation 1 over both samples, and the width of the kernel is the median distance
    between rows of both. All this is the same however the rows are divided into two samples, so that the p-value, from
    random divisions, is uniform (on ``1/(permutations + 1)``, ..., 1) if nothing has moved.

    Args:
        first: ``[n, D]``, finite, n at least 2.
        second: ``[m, D]``, likewise.
        permutations: random divisions of all rows.
        most: of a larger sample so many rows are drawn.
        seed: of the draws.

    References:
        Gretton et al., A kernel two-sample test, JMLR 2012.

    >>> rng = np.random.default_rng(0)
    >>> mmd_test(rng.normal(size=(80, 3)), rng.normal(0.8, 1, size=(60, 3))).p_value
    0.001996007984031936
    """
    rng = np.random.default_rng(seed)
    check_int("permutations", permutations, 1)
    check_int("most", most, 2)
    one, other = (_sample(rows, name, most, rng) for rows, name in ((first, "first"), (second, "second")))
    if one.shape[1] != other.shape[1]:
        raise InputError(
            f"first has {one.shape[1]} columns and second has {other.shape[1]}; expected as many"
        )
    rows = np.concatenate([one, other])
    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    kernel = _kernel(rows)
    n, m = len(one), len(other)
    signs = np.concatenate([np.full(n, 1 / n), np.full(m, -1 / m)])
    drawn = rng.permuted(np.tile(signs, (permutations, 1)), axis=1)
    found = np.einsum("pi,pi->p", drawn @ kernel, drawn)
    seen = float(signs @ kernel @ signs)
    # Divisions that are the same sets in other orders tie with the observed one, up to rounding.
    as_large = int(np.count_nonzero(found >= seen - 1e-12))
    return TwoSampleTest(max(seen, 0.0), (1 + as_large) / (1 + permutations), permutations)


def rate_changes(first: ArrayLike, second: ArrayLike) -> RateChanges:
    """Test, label by label, whether the share of rows with a predicted label differs between two samples.

    Args:
        first: predictions, 0 or 1, ``[n, K]``.
        second: ``[m, K]``.

    >>> found = rate_changes(np.eye(2)[[0] * 30 + [1] * 30], np.eye(2)[[0] * 55 + [1] * 5])
    >>> found.before, found.after.round(2), (found.adjusted < 0.01)
    (array([0.5, 0.5]), array([0.92, 0.08]), array([ True,  True]))
    """
    from scipy.stats import fisher_exact

    one, other = (np.asarray(rows).astype(np.bool_) for rows in (first, second))
    if one.ndim != 2 or other.ndim != 2 or one.shape[1] != other.shape[1] or not len(one) or not len(other):
        raise InputError(
            f"first has shape {one.shape} and second has shape {other.shape}; expected rows of as many labels"
        )
    n, m = len(one), len(other)
    hits = zip(one.sum(axis=0).tolist(), other.sum(axis=0).tolist(), strict=True)
    found = [fisher_exact([[a, n - a], [b, m - b]]).pvalue for a, b in hits]
    p_values = np.array(found, np.float64).clip(0, 1)
    return RateChanges(one.mean(axis=0), other.mean(axis=0), p_values, holm(p_values))


def holm(p_values: ArrayLike) -> Floats:
    """Return p-values adjusted for their number by Holm's step-down method.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values)
    steps = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    return np.asarray(np.minimum(steps, 1.0)[np.argsort(order)])


def _sample(rows: ArrayLike, name: str, most: int, rng: np.random.Generator) -> Floats:
    array = np.asarray(rows, np.float64)
    if array.ndim != 2 or len(array) < 2 or not array.shape[1]:
        raise InputError(f"{name} has shape {array.shape}; expected at least 2 rows of numbers")
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds values that are not finite")
    if len(array) > most:
        array = array[np.sort(rng.choice(len(array), most, replace=False))]
    return array


def _kernel(rows: Floats) -> Floats:
    """Return the Gaussian kernel between all rows; its width is their median distance."""
    squares = (rows**2).sum(axis=1)
    distances: NDArray[np.float64] = squares[:, None] + squares - 2 * rows @ rows.T
    np.maximum(distances, 0.0, out=distances)
    between = distances[np.triu_indices(len(rows), 1)]
    width = float(np.median(between)) or float(between.mean()) or 1.0
    return np.asarray(np.exp(-distances / width))
