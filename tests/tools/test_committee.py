"""The table of a committee's weights: measures of what was recorded, against scores put together here."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from mlcl.metrics import macro_auc

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import committee


@pytest.fixture(scope="module")
def recorded():
    """Two tasks of two classes, with features that hardly drift."""
    rng = np.random.default_rng(0)
    labels = {split: (rng.random((n, 4)) < 0.4).astype(np.uint8) for split, n in (("tr", 160), ("te", 120))}
    arrays = {f"y{split}": found for split, found in labels.items()}
    for task, classes in enumerate(([0, 1], [2, 3])):
        arrays[f"classes{task}"] = np.array(classes)
        for split, name in (("tr", "train"), ("te", "test")):
            found = labels[split]
            arrays[f"{name}{task}"] = np.flatnonzero(found[:, classes].any(1))
            arrays[f"f{split}{task}"] = found + rng.normal(0, 0.8, found.shape) + task
            arrays[f"z{split}{task}"] = found + rng.normal(0, 1.0, found.shape)
        arrays[f"mem{task}"] = arrays["train0"][:20]
        arrays[f"memtask{task}"] = np.zeros(20, np.int64)
    for split, name in (("tr", "train"), ("te", "test")):
        arrays[f"p{name}"] = labels[split] + rng.normal(0, 0.8, labels[split].shape)
    return committee.Recorded(arrays)


def test_the_measures_are_those_inside_the_tasks_and_over_all(recorded):
    scores = recorded.arrays["zte1"]
    labels, tests = recorded.arrays["yte"], recorded.each("test")
    inside = np.mean(
        [
            macro_auc(scores[rows][:, ids], labels[rows][:, ids])
            for rows, ids in zip(tests, ([0, 1], [2, 3]), strict=True)
        ]
    )
    seen = np.union1d(*tests)
    assert (
        recorded.measures(scores) == f"{100 * inside:.2f} / {100 * macro_auc(scores[seen], labels[seen]):.2f}"
    )


def test_a_committee_is_above_the_network_where_the_noise_of_both_is_independent(recorded):
    lines = list(committee.table(recorded))
    alone = float(lines[0].split(": ")[1].split(" / ")[0])
    joined = next(line for line in lines if line.startswith("u 0.1, patches:"))
    assert float(joined.split("w 1: ")[1].split(" / ")[0]) > alone + 2
    assert len(lines) == 1 + len(committee.UNLABELLED) * 5
