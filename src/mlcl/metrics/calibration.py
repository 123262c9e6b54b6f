"""How far probabilities are probabilities: Brier score, log-loss, calibration error, bins of reliability diagrams.

All of them are means over cells (row, class) whose label is known. See docs/howto/probabilities.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from mlcl.errors import check_choice, check_int
from mlcl.labels import Labels
from mlcl.metrics.columns import column_means, mean_defined
from mlcl.metrics.inputs import Bools, Floats, check_scores, refuse_cells

Average = Literal["macro", "pooled"]
Binning = Literal["width", "mass"]
BINS = 15
"""Bins of the calibration error, as is usual since Guo et al., 2017."""


@dataclass(frozen=True, eq=False)
class Reliability:
    """The bins of a reliability diagram; a bin without cells has the count 0 and nan.

    Attributes:
        edges: from 0 to 1, ascending, ``[bins + 1]``.
        count: cells in each bin, int64 ``[bins]``.
        probability: their mean probability, ``[bins]``.
        share: the share of positives among them, ``[bins]``.
    """

    edges: Floats
    count: np.ndarray[tuple[int], np.dtype[np.int64]]
    probability: Floats
    share: Floats

    @property
    def error(self) -> float:
        """Return the calibration error: the mean over cells of how far their bin is off; nan without cells."""
        total = self.count.sum()
        gaps = np.abs(self.probability - self.share)[self.count > 0]
        return float(gaps @ self.count[self.count > 0] / total) if total else float("nan")


@overload
def brier_score(
    probabilities: ArrayLike, labels: ArrayLike, *, average: Average = ..., mask: ArrayLike | None = ...
) -> float: ...
@overload
def brier_score(
    probabilities: ArrayLike, labels: ArrayLike, *, average: None, mask: ArrayLike | None = ...
) -> Floats: ...
def brier_score(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    average: Average | None = "macro",
    mask: ArrayLike | None = None,
) -> float | Floats:
    """Return the mean of ``(p - y)^2``: 0 is best, and the share q of positives as a constant p gives ``q (1 - q)``.

    Args:
        probabilities: ``[n, K]``, from 0 to 1.
        labels: 0 or 1, ``[n, K]``.
        average: ``macro``: the mean over classes; ``pooled``: over all cells, which is the same without a mask; None:
            one value per class, nan where no label is known.
        mask: which labels are known, ``[n, K]``; all by default.

    >>> brier_score([[0.8, 0.1], [0.4, 0.5]], [[1, 0], [0, 1]], average=None)
    array([0.1 , 0.13])
    """
    values, truth, known = check_probabilities(probabilities, labels, mask)
    return _averaged((values - truth) ** 2, known, average)


@overload
def log_loss(
    probabilities: ArrayLike, labels: ArrayLike, *, average: Average = ..., mask: ArrayLike | None = ...
) -> float: ...
@overload
def log_loss(
    probabilities: ArrayLike, labels: ArrayLike, *, average: None, mask: ArrayLike | None = ...
) -> Floats: ...
def log_loss(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    average: Average | None = "macro",
    mask: ArrayLike | None = None,
) -> float | Floats:
    """Return the mean of ``-log`` of the probability that was given to the label as it is, in nats.

    Probabilities of exactly 0 or 1 count as the nearest that float64 can tell from them (2.2e-16), so that the loss is
    finite.

    Args:
        probabilities: as in `brier_score`, like the other arguments.
        labels: 0 or 1, ``[n, K]``.
        average: ``macro``, ``pooled`` or None.
        mask: which labels are known.

    >>> round(log_loss([[0.5], [0.5]], [[1], [0]]), 4)
    0.6931
    """
    values, truth, known = check_probabilities(probabilities, labels, mask)
    least = np.finfo(np.float64).eps
    given = np.clip(np.where(truth, values, 1 - values), least, 1.0)
    return _averaged(-np.log(given), known, average)


@overload
def calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = ...,
    binning: Binning = ...,
    average: Average = ...,
    mask: ArrayLike | None = ...,
) -> float: ...
@overload
def calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = ...,
    binning: Binning = ...,
    average: None,
    mask: ArrayLike | None = ...,
) -> Floats: ...
def calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = BINS,
    binning: Binning = "width",
    average: Average | None = "macro",
    mask: ArrayLike | None = None,
) -> float | Floats:
    """Return the expected calibration error: how far the share of positives is from the probability, bin by bin.

    Few rows per bin give a positive value for perfect probabilities too; compare values on the same rows only.

    Args:
        probabilities: ``[n, K]``, from 0 to 1.
        labels: 0 or 1, ``[n, K]``.
        bins: the number of bins.
        binning: ``width``: bins of equal width; ``mass``: bins with about as many cells, cut at quantiles.
        average: ``macro``: the mean over classes; ``pooled``: the cells of all classes in the same bins, where errors
            of classes in opposite directions cancel; None: one value per class.
        mask: which labels are known, ``[n, K]``; all by default.

    >>> calibration_error([[0.2], [0.2], [0.2], [0.2]], [[1], [1], [0], [0]])
    0.3
    """
    values, truth, known = check_probabilities(probabilities, labels, mask)
    _check_average(average)
    if average == "pooled":
        return _bins(values[known], truth[known], bins, binning).error
    found = [
        _bins(p[cells], y[cells], bins, binning).error
        for p, y, cells in zip(values.T, truth.T, known.T, strict=True)
    ]
    return mean_defined(np.array(found)) if average == "macro" else np.array(found)


def reliability(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 10,
    binning: Binning = "width",
    mask: ArrayLike | None = None,
) -> Reliability:
    """Return the bins of a reliability diagram over all cells; pass one column for the diagram of one class.

    Args:
        probabilities: ``[n, K]``, from 0 to 1.
        labels: 0 or 1, ``[n, K]``.
        bins: the number of bins.
        binning: ``width`` or ``mass``, as in `calibration_error`.
        mask: which labels are known, ``[n, K]``; all by default.

    >>> found = reliability([[0.1], [0.2], [0.9], [0.7]], [[0], [1], [1], [1]], bins=2)
    >>> found.count, found.probability.round(2), found.share
    (array([2, 2]), array([0.15, 0.8 ]), array([0.5, 1. ]))
    """
    values, truth, known = check_probabilities(probabilities, labels, mask)
    return _bins(values[known], truth[known], bins, binning)


def measure(
    probabilities: Floats, labels: Labels, *, prior: Floats, known: Bools | None = None
) -> dict[str, Any]:
    """Return what ``result.json`` says of probabilities: over all cells, and per class.

    Args:
        probabilities: ``[n, K]``.
        labels: 0 or 1, ``[n, K]``.
        prior: the share of positives of each class, ``[K]``: what its Brier score is compared with.
        known: which labels are known; all by default.

    >>> found = measure(np.array([[0.9], [0.2]]), np.array([[1], [0]], np.uint8), prior=np.array([0.5]))
    >>> round(found["brier"], 3), found["brier_prior"], round(found["calibration_error"], 3)
    (0.025, 0.25, 0.15)
    """
    constant = np.broadcast_to(prior, probabilities.shape)
    scores: dict[str, Callable[..., Any]]
    scores = {"brier": brier_score, "log_loss": log_loss, "calibration_error": calibration_error}
    pooled = {
        name: score(probabilities, labels, average="pooled", mask=known) for name, score in scores.items()
    }
    return {
        "brier": pooled.pop("brier"),
        "brier_prior": brier_score(constant, labels, average="pooled", mask=known),
        **pooled,
        "calibration_error_classes": calibration_error(probabilities, labels, average="macro", mask=known),
        "per_class": {
            name: score(probabilities, labels, average=None, mask=known) for name, score in scores.items()
        },
    }


def not_calibrated(measured: Mapping[str, Any]) -> str:
    """Return a warning if what `measure` found is worse than the share of each class as a constant, else nothing.

    >>> not_calibrated({"brier": 0.2, "brier_prior": 0.1}), not_calibrated({"brier": 0.1, "brier_prior": 0.1})
    ('not calibrated: the Brier score is worse than that of a constant', '')
    """
    brier, prior = measured.get("brier"), measured.get("brier_prior")
    worse = isinstance(brier, float) and isinstance(prior, float) and brier > prior
    return "not calibrated: the Brier score is worse than that of a constant" if worse else ""


def check_probabilities(
    probabilities: ArrayLike, labels: ArrayLike, mask: ArrayLike | None
) -> tuple[Floats, Bools, Bools]:
    """Return probabilities, labels and what is known; a number outside [0, 1] that is known is refused."""
    values, truth, known = check_scores(probabilities, labels, mask)
    cells = np.ones_like(truth) if known is None else known
    bad = ((values < 0) | (values > 1)) & cells
    refuse_cells("probabilities", values, bad, "numbers from 0 to 1 were expected")
    return np.where(cells, values, 0.5).astype(np.float64), truth, cells


def _check_average(average: object) -> None:
    if average is not None:
        check_choice("average", average, ("macro", "pooled"))


def _averaged(losses: Floats, known: Bools, average: Average | None) -> float | Floats:
    _check_average(average)
    if average == "pooled":
        return float(column_means(losses.reshape(-1, 1), known.reshape(-1, 1))[0])
    per_class = column_means(losses, known)
    return mean_defined(per_class) if average == "macro" else per_class


def _bins(values: Floats, truth: Bools, bins: int, binning: Binning) -> Reliability:
    """Sort cells into bins; a value on an edge is in the bin below it, as in scikit-learn's calibration_curve."""
    check_int("bins", bins, 1)
    check_choice("binning", binning, ("width", "mass"))
    edges = np.linspace(0.0, 1.0, bins + 1)
    if binning == "mass" and len(values):
        edges = np.percentile(values, 100 * edges)
    number = np.searchsorted(edges[1:-1], values)
    count = np.bincount(number, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(number, values, minlength=bins) / count
        share = np.bincount(number, truth, minlength=bins) / count
    return Reliability(edges, count, mean, share)
