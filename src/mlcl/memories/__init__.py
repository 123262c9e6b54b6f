"""Memories: which samples of past tasks are kept. One file per strategy; `mlcl.memories.base` states the rules."""

from mlcl.memories.base import MEMORIES, Memory, TaskSamples, own_rows, quotas
from mlcl.memories.wru import select_wru, wru_gap
from mlcl.registry import discover

discover(__name__, __path__)

__all__ = [
    "MEMORIES",
    "Memory",
    "TaskSamples",
    "own_rows",
    "quotas",
    "select_wru",
    "wru_gap",
]
