"""Task streams: a dataset becomes tasks, each with its own classes, rows and counts.

What a stream is made of is defined in specification.md#streams.
"""

from mlcl.streams.benchmark import (
    Benchmark,
    TaskInfo,
    build_benchmark,
    hold_out,
    joint_mask,
    joint_task,
    keep_out,
)
from mlcl.streams.notes import measurable
from mlcl.streams.orders import PAPER_ORDERS, class_groups
from mlcl.streams.tasks import Task, build_tasks, official_imbalance

__all__ = [
    "PAPER_ORDERS",
    "Benchmark",
    "Task",
    "TaskInfo",
    "build_benchmark",
    "build_tasks",
    "class_groups",
    "hold_out",
    "joint_mask",
    "joint_task",
    "keep_out",
    "measurable",
    "official_imbalance",
]
