"""Intervals over seeds: mean and standard deviation, and a paired comparison of two methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mlcl.errors import InputError
from mlcl.metrics.inputs import check_level, vector


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its confidence interval, which holds with probability ``level``, such as 0.95.

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
    runs = vector(values, "values")
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
    first, second = vector(a, "a"), vector(b, "b")
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


def paired_by_seed(mine: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Return `paired_interval` over the seeds where both values are finite; nan ends for one seed, None without any.

    >>> paired_by_seed({0: 71.0, 1: 73.0}, {1: 71.0, 2: 70.0})
    Interval(estimate=2.0, low=nan, high=nan, level=0.95)
    """
    seeds = [seed for seed in sorted(mine.keys() & theirs.keys()) if np.isfinite(mine[seed] - theirs[seed])]
    if len(seeds) < 2:
        return Interval(mine[seeds[0]] - theirs[seeds[0]], np.nan, np.nan, 0.95) if seeds else None
    return paired_interval([mine[seed] for seed in seeds], [theirs[seed] for seed in seeds])
