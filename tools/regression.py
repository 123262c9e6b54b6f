"""Joint logistic regression on all true labels, an upper bound for linear learners on fixed features.

``python tools/regression.py voc2012-96-mobilenetv2_100 coco2017-96-mobilenetv2_100`` writes ``results/regression.csv``.
One regression per class on standardised features, positives and negatives weighing the same; its strength C is chosen
for all classes together on the validation part (a fifth of the training split), and the test split is looked at once.
"""

from __future__ import annotations

import csv
import sys
import time

import numpy as np
from ledger import ROOT
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import mlcl
from mlcl.datasets import load_dataset
from mlcl.datasets.base import Dataset
from mlcl.streams.holdout import hold_out

STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3)
FIELDS = ("data", "C", "validation", "pooled_macro_auc", "seconds")


def pooled(data: Dataset, strength: float) -> float:
    """Return the Macro-AUC in points over all test rows and classes, trained on all rows and labels."""
    scale = StandardScaler().fit(rows(data.train.inputs))
    x, test = scale.transform(rows(data.train.inputs)), scale.transform(rows(data.test.inputs))
    scores = [
        LogisticRegression(C=strength, class_weight="balanced", max_iter=500)
        .fit(x, data.train.labels[:, k])
        .decision_function(test)
        for k in range(data.train.labels.shape[1])
    ]
    return 100 * float(mlcl.macro_auc(np.stack(scores, axis=1), data.test.labels))


def rows(inputs: object) -> NDArray[np.float32]:
    """Return inputs as a matrix."""
    return np.asarray(inputs, dtype=np.float32)


def main(names: list[str]) -> int:
    """Choose C and measure, for each store."""
    with (ROOT / "results" / "regression.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for name in names:
            data = load_dataset(name)
            part = hold_out(data, seed=0)
            found = {strength: pooled(part, strength) for strength in STRENGTHS}
            best = max(found, key=lambda strength: found[strength])
            started = time.perf_counter()
            values = (name, best, round(found[best], 4), round(pooled(data, best), 4))
            writer.writerow(
                dict(zip(FIELDS, (*values, round(time.perf_counter() - started, 1)), strict=True))
            )
            file.flush()
            print(name, {strength: round(value, 2) for strength, value in found.items()}, *values[1:])  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
