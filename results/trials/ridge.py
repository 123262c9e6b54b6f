"""How much Macro-AUC the choice of the ridge loses to the best of its grid, on training rows that were not learnt.

    python results/trials/ridge.py    # results/trials/ridge.csv and means on the terminal; minutes on one thread

Needs the stores ``scene``, ``enron``, ``music`` (``mlcl data prepare arff``) and ``voc2012-96-mobilenetv2_100``
(docs/howto/frozen-features.md) in the user's cache. Of each dataset's training rows some are learnt, in one call and
annotated for all labels, and up to 1,500 others score. No test row is read. The rules: ``bounded``, with the bound of
0.01 on one minus a leverage that was in force until commit c46802e; ``unbounded``, without it; ``doubt``, what is in
force now.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from mlcl.datasets import load_dataset
from mlcl.exact import Learner, leave_one_out, ridge
from mlcl.exact.solution import class_ridge, directions, feature_scale
from mlcl.metrics import macro_auc

STORES = {
    "scene": ("scene", (100, 200, 1000)),
    "music": ("music", (60, 260)),
    "enron": ("enron", (300, 750)),
    "VOC features": ("voc2012-96-mobilenetv2_100", (100, 300, 1000, 3800)),
}
KINDS = ("raw", "standardised", "components", "one column x 1e4")
RULES = {"bounded": (1e-2, 0.0), "unbounded": (1e-6, 0.0), "doubt": (leave_one_out.LEAST_REST, ridge.DOUBT)}
SEEDS = range(3)


def variant(rows, others, kind):
    """Return both sets of rows in other coordinates or units."""
    centre, deviation = rows.mean(0), rows.std(0)
    deviation[deviation == 0] = 1
    if kind == "standardised":
        return (rows - centre) / deviation, (others - centre) / deviation
    if kind == "components":
        turned = np.linalg.svd(rows - centre, full_matrices=False)[2].T
        return (rows - centre) @ turned, (others - centre) @ turned
    units = np.where(np.arange(rows.shape[1]) == 3, 1e4 if kind == KINDS[3] else 1.0, 1.0)
    return rows * units, others * units


def grid(learner, others, truth):
    """Return the Macro-AUC of every exponent and ridge."""
    sums, mapped = learner.sums, learner.features(others)
    found = np.zeros((len(ridge.EXPONENTS), len(ridge.RIDGES)))
    for row, exponent in zip(found, ridge.EXPONENTS, strict=True):
        scale = feature_scale(sums.total.variances, exponent)
        weights = [
            directions(
                *sums.sides(k, 1.0),
                ridges=class_ridge(
                    ridge.RIDGES, max(sums.positive[k].count, 1.0), int(np.count_nonzero(scale))
                ),
                scale=scale,
            )
            for k in range(sums.classes)
        ]
        row[:] = [macro_auc(mapped @ one.T, truth) for one in np.stack(weights, axis=1)]
    return found


def main():
    """Measure all, and write the table."""
    found = []
    for name, (store, sizes) in STORES.items():
        train = load_dataset(store).train
        inputs, labels = np.array(train.inputs, np.float64), np.array(train.labels)
        for size, kind, seed in ((size, kind, seed) for size in sizes for kind in KINDS for seed in SEEDS):
            order = np.random.default_rng(seed).permutation(len(inputs))
            some, others = order[:size], order[size : size + 1500]
            x, new = variant(inputs[some], inputs[others], kind)
            learner = Learner.begin(x).learn(x, labels[some], range(labels.shape[1]))
            values = 100 * grid(learner, new, labels[others])
            for rule, (least, doubt) in RULES.items():
                leave_one_out.LEAST_REST, ridge.DOUBT = least, doubt
                choice = ridge.choose(learner.sums)
                a = ridge.EXPONENTS.index(choice.exponent)
                lost = values.max() - values[a, ridge.RIDGES.tolist().index(choice.ridge)]
                found.append(
                    (name, size, kind, seed, rule, choice.exponent, f"{choice.ridge:.4g}", f"{lost:.3f}")
                )
            sys.stderr.write(f"{name}, {size} rows, {kind}, seed {seed}\n")
    with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("data", "rows", "features", "seed", "rule", "exponent", "ridge", "lost"))
        table.writerows(found)
    for name, (_, sizes) in STORES.items():
        for size in sizes:
            means = [
                np.mean([float(row[-1]) for row in found if row[:2] == (name, size) and row[4] == rule])
                for rule in RULES
            ]
            sys.stdout.write(f"| {name} | {size:,} | " + " | ".join(f"{mean:.2f}" for mean in means) + " |\n")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
