"""ER: equal quotas, uniform choice, uniform removal."""

from __future__ import annotations

import numpy as np
import pytest

from mlcl.memories import Memory, TaskSamples


@pytest.mark.slow
def test_choice_and_removal_are_uniform() -> None:
    """Chosen 6 of 12, then cut to 3: every row of each task is held with the same probability."""
    runs = 1500
    held = np.zeros((2, 12))
    for seed in range(runs):
        memory = Memory("random", 6, seed=seed)
        for number in range(2):
            memory.update(TaskSamples.of(number, [number], np.arange(12), np.ones((12, 1))))
        for samples, count in zip(memory.tasks, held, strict=True):
            assert len(samples) == 3
            count[samples.rows] += 1
    p = 3 / 12
    for count in held:
        # Inclusion counts of a draw of fixed size: this scaled sum is chi-square with 11 degrees of freedom.
        assert ((count - runs * p) ** 2).sum() / (runs * p * (1 - p)) * 11 / 12 < 31.3  # 0.999 quantile


def test_a_small_task_gives_its_spare_room_to_the_others() -> None:
    memory = Memory("random", 9)
    for number, n in enumerate([20, 1, 20]):
        memory.update(TaskSamples.of(number, [number], np.arange(n), np.ones((n, 1))))
    assert [len(samples) for samples in memory.tasks] == [4, 1, 4]
