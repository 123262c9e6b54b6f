"""The result matrix ``A[t, i]`` of a run, and its summaries (specification.md#result-matrix)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from mlcl.errors import InputError, check_choice
from mlcl.metrics.columns import mean_defined
from mlcl.metrics.inputs import Floats, matrix_of, refuse_cells, to_array


@dataclass(frozen=True, eq=False)
class ResultMatrix:
    """Macro-AUC on task i after learning task t, and its summaries.

    The unit, [0, 1] or points in [0, 100], is the caller's choice and is kept. A cell may be nan: a task without a
    defined class, or a future task that was not scored; means skip it.

    Attributes:
        values: ``A``, float64, read-only: ``[T, T]`` for a stream, and ``[1, T]`` for joint training, which has a
            single row, after all tasks are learnt, and therefore no forgetting and no transfer (nan).

    >>> run = ResultMatrix([[80.0, 50.0, 51.0], [78.0, 90.0, 54.0], [70.0, 86.0, 75.0]])
    >>> run.overall, run.seen_means
    (77.0, array([80., 84., 77.]))
    >>> run.forgetting(), run.backward_transfer, run.forward_transfer(baseline=50)
    (7.0, -7.0, 2.0)
    """

    values: Floats

    def __post_init__(self) -> None:
        values = matrix_of(self.values, "values of ResultMatrix").astype(np.float64)
        if not values.size or len(values) not in (1, values.shape[1]):
            raise InputError(
                f"values of ResultMatrix has shape {values.shape}, but [T, T], or [1, T] for joint training, "
                f"was expected"
            )
        bad = (values < 0) | (values > 100 + 1e-9)  # nan is neither
        expected = "a share in [0, 1] or points in [0, 100] were expected"
        refuse_cells("values of ResultMatrix", values, bad, expected)
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    @property
    def tasks(self) -> int:
        """Return ``T``, the number of tasks."""
        return int(self.values.shape[1])

    @property
    def overall(self) -> float:
        """Return the headline, ``mean_i A[T, i]``."""
        return mean_defined(self.values[-1])

    @property
    def seen_means(self) -> Floats:
        """Return, for each row t, the mean over the tasks learnt by then (``i <= t``): the paper's figure."""
        if len(self.values) == 1:
            return np.array([self.overall])
        return np.array([mean_defined(row[: t + 1]) for t, row in enumerate(self.values)])

    def forgetting_per_task(self, kind: Literal["max", "last"] = "max") -> Floats:
        """Return how much of each task except for the last was lost by the end, float64 ``[T-1]``; a loss is > 0.

        Args:
            kind: ``"max"``: ``max_{l<T} A[l, i] - A[T, i]`` (Chaudhry et al. 2018), over all earlier rows,
                including those before task i was learnt, as they define it; ``"last"``: ``A[i, i] - A[T, i]``.

        >>> ResultMatrix([[0.8, 0.5], [0.6, 0.9]]).forgetting_per_task()
        array([0.2])
        """
        check_choice("kind", kind, ("max", "last"))
        if len(self.values) == 1:
            return np.full(self.tasks - 1, np.nan)
        last = self.values[-1, :-1]
        if kind == "last":
            return np.diag(self.values)[:-1] - last
        best: Floats = np.fmax.reduce(self.values[:-1, :-1], axis=0)  # nan only where no row has a value
        return best - last

    def forgetting(self, kind: Literal["max", "last"] = "max") -> float:
        """Return the mean of `forgetting_per_task` (tasks without a value skipped); nan for joint training."""
        return mean_defined(self.forgetting_per_task(kind))

    @property
    def backward_transfer(self) -> float:
        """Return ``mean_{i<T} A[T, i] - A[i, i]``: negative if later tasks hurt; nan for joint training."""
        return -self.forgetting("last")

    def forward_transfer(self, baseline: float | ArrayLike = 0.5) -> float:
        """Return ``mean_{i>1} A[i-1, i] - baseline_i``: what a task gains from the tasks before it.

        It needs the cells of future tasks, and is nan without them and for joint training.

        Args:
            baseline: the value of an untrained model, in the unit of the matrix: chance, 0.5 (pass 50 if the
                matrix is in points), or one value per task ``[T]``, the row of the randomly initialised model.

        >>> ResultMatrix([[0.8, 0.55], [0.6, 0.9]]).forward_transfer(baseline=[0.5, 0.52])
        0.03...
        """
        base = to_array(baseline)
        if base.dtype.kind not in "uif" or base.shape not in ((), (self.tasks,)):
            raise InputError(
                f"baseline is {baseline!r}, but a number, or one for each of {self.tasks} tasks, was expected"
            )
        # Units must not be mixed silently.
        if np.fmax.reduce(self.values, axis=None) > 1 and np.fmax.reduce(base, axis=None) <= 1:
            raise InputError(
                f"baseline is {baseline!r}, but the matrix is in points (0 to 100), so a baseline in points, "
                f"such as 50, was expected"
            )
        if len(self.values) == 1:
            return float("nan")
        return mean_defined(np.diag(self.values, k=1) - np.broadcast_to(base, self.tasks)[1:])
