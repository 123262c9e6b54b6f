"""Has the world moved since a run was trained? Its inputs, as the network sees them, and the labels it predicts.

What is compared with are test rows of the run's own data: rows of training would do, were it not that a network knows
them, so that its features of them differ from those of any new row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets import is_given_arrays, load_dataset
from mlcl.errors import InputError, check_number
from mlcl.metrics.drift import RateChanges, TwoSampleTest, mmd_test, rate_changes
from mlcl.runs import folder as files
from mlcl.runs.continuing import benchmark_of, load_base
from mlcl.runs.trained import Trained, load_trained
from mlcl.runs.versions import now_text
from mlcl.taggers.gate import check_inputs
from mlcl.taggers.predict import read_groups, read_inputs
from mlcl.training.batches import slices

LEVEL = 0.01
"""Below this p-value something has moved, by default."""


@dataclass(frozen=True, eq=False)
class Drift:
    """What moved between the reference rows and new inputs.

    Attributes:
        reference: where the reference rows come from.
        reference_rows: how many there are.
        rows: the number of new inputs.
        labels: names of the labels.
        inputs: the test on the features of the inputs.
        rates: the tests on the rates of predicted labels.
        level: the p-value below which something has moved.
    """

    reference: str
    reference_rows: int
    rows: int
    labels: tuple[str, ...]
    inputs: TwoSampleTest
    rates: RateChanges
    level: float

    @property
    def inputs_moved(self) -> bool:
        """Return whether the distribution of the inputs has moved."""
        return self.inputs.p_value < self.level

    @property
    def moved(self) -> tuple[str, ...]:
        """Return the labels whose rate has moved; the level holds for all labels together."""
        return tuple(self.labels[k] for k in np.flatnonzero(self.rates.adjusted < self.level))

    def record(self) -> dict[str, Any]:
        """Return everything as plain values."""
        rates = self.rates
        columns = {name: getattr(rates, name) for name in ("before", "after", "p_values", "adjusted")}
        return {
            "time": now_text(),
            "reference": self.reference,
            "reference_rows": self.reference_rows,
            "rows": self.rows,
            "level": self.level,
            "inputs_moved": self.inputs_moved,
            "p_value": self.inputs.p_value,
            "mmd": self.inputs.statistic,
            "moved": self.moved,
            "labels": {
                label: {name: column[k] for name, column in columns.items()}
                for k, label in enumerate(self.labels)
            },
        }


def drift(
    folder: str | Path,
    inputs: str | Path,
    *,
    reference: str | Path | None = None,
    group: str | None = None,
    level: float = LEVEL,
    seed: int = 0,
) -> Drift:
    """Compare new inputs with the test rows of the data that a run was trained on.

    The tests take rows for independent. Of inputs that are not, such as images of one burst, one of each ``group`` is
    drawn; otherwise every burst is an alarm.

    Args:
        folder: the run; of one with versions the current one.
        inputs: as for `mlcl.taggers.predict.predict`: an image folder, an array, or a store (all its rows).
        reference: a store whose test rows to compare with instead.
        group: which inputs depend on one another, see `mlcl.taggers.predict.read_groups`.
        level: the p-value below which something has moved.
        seed: of the permutations, and of the rows drawn for them.
    """
    check_number("--level", level, high=1)
    trained = load_trained(folder)
    names, batches = read_inputs(Path(inputs), trained)
    if len(names) < 2:
        raise InputError(f"{inputs} has {len(names)} input; expected at least 2 to speak of a distribution.")
    groups = names if group is None else read_groups(Path(inputs), names, group)
    chosen = np.arange(len(names)) if group is None else one_of_each(np.array(groups), seed)
    if len(chosen) < 2:
        raise InputError(
            "--group: all inputs are of one group; expected at least 2, one row of each is compared."
        )
    where, rows = _reference(trained, reference)
    known = _described(trained, (rows[piece] for piece in slices(len(rows), _size(trained))))
    new = [part[chosen] for part in _described(trained, batches)]
    return Drift(
        reference=where,
        reference_rows=len(rows),
        rows=len(chosen),
        labels=trained.classes,
        inputs=mmd_test(known[0], new[0], seed=seed),
        rates=rate_changes(known[1], new[1]),
        level=float(level),
    )


def one_of_each(groups: NDArray[Any], seed: int) -> NDArray[np.int64]:
    """Return a row of each group, drawn at random: rows that are independent, as groups are."""
    shuffled = np.random.default_rng(seed).permutation(len(groups))
    return np.sort(shuffled[np.unique(groups[shuffled], return_index=True)[1]])


def _reference(trained: Trained, store: str | Path | None) -> tuple[str, NDArray[Any]]:
    """Return the rows to compare with, and where they come from."""
    if store is not None:
        data = load_dataset(str(store))
        check_inputs(trained, data, store)
        return f"test rows of {store}", data.test.inputs
    config = trained.config
    try:
        if is_given_arrays(config.data):
            raise InputError("they were given as arrays in Python")
        if files.read_extends(trained.folder) is not None:
            found = benchmark_of(load_base(trained.folder)).dataset.test
        else:
            found = load_dataset(config.data).test
        if len(found) < 2:
            raise InputError("they have no test rows")
    except InputError as error:
        raise InputError(
            f"the data of {trained.folder} cannot be compared with ({str(error).rstrip('.')}); "
            "expected a store of such data: --reference STORE."
        ) from None
    return f"test rows of {config.data}", found.inputs


def _size(trained: Trained) -> int:
    return trained.config.train.eval_batch_size


def _described(
    trained: Trained, batches: Iterable[NDArray[Any]]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return what the network sees of inputs, its features [n, D], and which labels it predicts, [n, K]."""
    features, tags = [], []
    for batch in batches:
        seen, logits = trained.features_and_logits(batch)
        features.append(seen)
        tags.append(trained.calibration.probabilities(logits).astype(np.float32) > trained.thresholds.values)
    return np.concatenate(features), np.concatenate(tags)
