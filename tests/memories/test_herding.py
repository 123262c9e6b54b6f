"""Herding against iCaRL's definition with explicit loops."""

from __future__ import annotations

import numpy as np
import pytest

from mlcl.errors import InputError
from mlcl.memories import Memory, TaskSamples
from mlcl.memories.herding import select_herding


def twin(features: np.ndarray, labels: np.ndarray, size: int) -> list[int]:
    """Classes take turns; each picks the free row that keeps the mean of its picks nearest to its mean."""
    phi = [x / np.linalg.norm(x) for x in features]
    own: dict[int, list[int]] = {k: [] for k in range(labels.shape[1])}
    chosen: list[int] = []
    while len(chosen) < size:
        before = len(chosen)
        for k, picks in own.items():
            rows = [i for i in range(len(labels)) if labels[i, k]]
            free = [i for i in rows if i not in chosen]
            if not free or len(chosen) == size:
                continue
            mean = sum(phi[i] for i in rows) / len(rows)
            gaps = [np.linalg.norm(mean - sum(phi[j] for j in [*picks, i]) / (len(picks) + 1)) for i in free]
            picks.append(free[int(np.argmin(gaps))])
            chosen.append(picks[-1])
        if len(chosen) == before:
            break
    return chosen


@pytest.mark.parametrize("seed", range(6))
def test_selection_equals_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(25, 4)) * rng.uniform(0.1, 10, size=(25, 1))
    labels = (rng.random((25, 3)) < 0.4).astype(np.uint8)
    labelled = int(labels.any(axis=1).sum())
    for size in (0, 1, 7, labelled):
        assert select_herding(features, labels, size, rng).tolist() == twin(features, labels, size)


def test_single_label_data_gives_icarl() -> None:
    """Per class and alone: the same rows in the same order as herding within the class."""
    rng = np.random.default_rng(0)
    features, kinds = rng.normal(size=(60, 5)), rng.integers(3, size=60)
    chosen = select_herding(features, np.eye(3, dtype=np.uint8)[kinds], 30, rng)
    for k in range(3):
        rows = np.flatnonzero(kinds == k)
        alone = select_herding(features[rows], np.ones((len(rows), 1), np.uint8), 10, rng)
        assert chosen[kinds[chosen] == k].tolist() == rows[alone].tolist()


def test_rows_without_labels_come_last() -> None:
    rng = np.random.default_rng(0)
    labels = np.array([[0], [1], [0], [1]], dtype=np.uint8)
    chosen = select_herding(rng.normal(size=(4, 2)), labels, 9, rng)
    assert sorted(chosen[:2].tolist()) == [1, 3]
    assert sorted(chosen[2:].tolist()) == [0, 2]


def test_the_class_mean_is_kept_better_than_by_random_rows() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 8)).astype(np.float32)
    phi = features / np.linalg.norm(features, axis=1, keepdims=True)
    chosen = select_herding(features, np.ones((300, 1), np.uint8), 20, rng)
    gaps = [
        np.linalg.norm(phi[rng.choice(300, 20, replace=False)].mean(axis=0) - phi.mean(axis=0))
        for _ in range(50)
    ]
    assert np.linalg.norm(phi[chosen].mean(axis=0) - phi.mean(axis=0)) < 0.3 * min(gaps)


def test_old_tasks_keep_a_prefix() -> None:
    rng = np.random.default_rng(0)
    memory = Memory("herding", 10)
    memory.update(
        TaskSamples.of(0, [0, 1], np.arange(30), rng.integers(0, 2, (30, 2))), rng.normal(size=(30, 3))
    )
    first = memory.tasks[0].rows
    memory.update(TaskSamples.of(1, [2], np.arange(30), np.ones((30, 1))), rng.normal(size=(30, 3)))
    assert np.array_equal(memory.tasks[0].rows, first[:5])


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros((4, 2)), r"features have shape \(4, 2\), expected \(5, D\)"),
        (np.zeros(5), r"features have shape \(5,\)"),
        (np.full((5, 2), np.nan), "features hold NaN"),
    ],
)
def test_bad_features_are_refused(features: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Memory("herding", 3).update(TaskSamples.of(0, [0], np.arange(5), np.ones((5, 1))), features)


def test_zero_features_and_integers_are_fine() -> None:
    rng = np.random.default_rng(0)
    labels = np.ones((4, 1), np.uint8)
    assert len(select_herding(np.zeros((4, 2)), labels, 2, rng)) == 2
    assert len(select_herding(np.arange(8).reshape(4, 2), labels, 2, rng)) == 2
