"""Memories: which samples of past tasks are kept. One file a strategy, found by name in ``MEMORIES``."""

from mlcl.memories import herding, ocdm, prs, reservoir, uniform  # noqa: F401  importing registers them
from mlcl.memories.base import MEMORIES, Memory, TaskSamples, joined_task, own_rows, quotas
from mlcl.memories.sharded import gather_samples, select_wru_sharded
from mlcl.memories.wru import select_wru, wru_gap

__all__ = [
    "MEMORIES",
    "Memory",
    "TaskSamples",
    "gather_samples",
    "joined_task",
    "own_rows",
    "quotas",
    "select_wru",
    "select_wru_sharded",
    "wru_gap",
]
