"""Intervals over seeds: mean and standard deviation, and a paired comparison of two methods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mlcl.errors import InputError
from mlcl.metrics.inputs import Floats, check_level, to_array


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval.

    Attributes:
        estimate: the value itself.
        low: lower end.
        high: upper end.
        level: the confidence level, such as 0.95.

    >>> 0.5 in Interval(estimate=0.6, low=0.55, high=0.65, level=0.95)
    False
    """

    estimate: float
    low: float
    high: float
    level: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def mean_std(values: ArrayLike) -> tuple[float, float]:
    """Return mean and sample standard deviation (``ddof=1``) over seeds; the latter is nan for one value.

    Args:
        values: ``[R]``, one value per seed. A nan makes both nan, so that a run without a value is not overlooked.

    >>> mean_std([70.0, 72.0, 74.0])
    (72.0, 2.0)
    """
    runs = _vector(values, "values")
    if not runs.size:
        raise InputError("values is empty, but at least one value was expected")
    return float(runs.mean()), float(runs.std(ddof=1)) if runs.size > 1 else float("nan")


def paired_interval(a: ArrayLike, b: ArrayLike, *, level: float = 0.95) -> Interval:
    """Return the t-interval of the mean of ``a - b``, where run r of both had the same seed, order and split.

    What two runs of a seed have in common cancels in the differences. If 0 lies outside the interval, the methods
    differ at that level. It assumes that the differences are about normal; with few seeds it is wide.

    Args:
        a: ``[R]``, R >= 2, one value per seed.
        b: ``[R]``, the other method on the same seeds.
        level: confidence level.

    >>> gain = paired_interval([71.0, 73.0, 75.0], [70.0, 71.0, 74.0])
    >>> round(gain.estimate, 3), round(gain.low, 3), round(gain.high, 3)
    (1.333, -0.101, 2.768)
    """
    # Imported here so that importing mlcl does not wait for it.
    from scipy.special import stdtrit

    check_level(level)
    first, second = _vector(a, "a"), _vector(b, "b")
    if first.size != second.size or first.size < 2:
        raise InputError(
            f"a has {first.size} values and b has {second.size}, but equally many, at least 2, were expected"
        )
    for name, runs in (("a", first), ("b", second)):
        if not np.isfinite(runs).all():
            raise InputError(f"{name} is {runs.tolist()}, but finite values were expected")
    difference = first - second
    mean, std = mean_std(difference)
    half_width = float(stdtrit(difference.size - 1, (1 + level) / 2)) * std / difference.size**0.5
    return Interval(estimate=mean, low=mean - half_width, high=mean + half_width, level=level)


def share_interval(gain: ArrayLike, gap: ArrayLike, *, level: float = 0.95) -> Interval | None:
    """Return ``mean(gain) / mean(gap)`` with Fieller's interval, or None where the gap itself is within noise.

    Which share of the gap from a baseline to an upper bound does a method close? Both differences vary from seed to
    seed and together, and the share is of use only if the gap is certainly not 0.

    Args:
        gain: ``[R]``, R >= 2, the method minus the baseline, one value per seed.
        gap: ``[R]``, the upper bound minus the baseline on the same seeds.
        level: confidence level.

    References:
        Fieller, Some problems in interval estimation, 1954.

    >>> share = share_interval([4.0, 5.0, 4.5], [8.0, 9.0, 10.0])
    >>> round(share.estimate, 3), round(share.low, 3), round(share.high, 3)
    (0.5, 0.376, 0.666)
    >>> share_interval([1.0, 2.0], [-1.0, 3.0]) is None
    True
    """
    from scipy.special import stdtrit

    check_level(level)
    a, b = _vector(gain, "gain"), _vector(gap, "gap")
    if a.size != b.size or a.size < 2 or not np.isfinite([a, b]).all():
        raise InputError(
            f"gain is {a.tolist()} and gap is {b.tolist()}, but equally many finite values, at least 2, were expected"
        )
    critical = float(stdtrit(a.size - 1, (1 + level) / 2)) ** 2 / a.size
    (va, vab), (_, vb) = np.cov(a, b)
    top, bottom = float(a.mean()), float(b.mean())
    # All shares rho for which mean(a - rho b) is not significantly different from 0: a quadratic inequality.
    square, linear, constant = (
        bottom**2 - critical * vb,
        top * bottom - critical * vab,
        top**2 - critical * va,
    )
    if square <= 0:
        return None
    half_width = float(np.sqrt(max(linear**2 - square * constant, 0.0)))
    low, high = (linear - half_width) / square, (linear + half_width) / square
    return Interval(estimate=top / bottom, low=float(low), high=float(high), level=level)


def _vector(values: ArrayLike, name: str) -> Floats:
    try:
        array = to_array(values).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not a vector of numbers: {error}") from None
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}, but a vector with one value per seed was expected")
    return array
