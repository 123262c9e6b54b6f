"""`mlcl learn` on a Ray cluster of which a process is killed when the first part is written.

A program of its own: 60 seconds after its head node is lost, Ray ends every process that still waits for an answer.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from mlcl.cli.main import main
from mlcl.engines import cluster
from mlcl.exact.parts import Part
from mlcl.sklearn import shards
from mlcl.sklearn.shard_parts import Counted, Job, count, write_part


def learn(data: str, out: str, address: str, victim: str) -> int:
    """Learn on a cluster and kill a process of it on the way; return the exit code."""

    def write(folder: Path, part: Part, counted: list[Counted]) -> str:
        key = write_part(folder, part, counted)
        os.kill(int(victim), signal.SIGKILL)
        return key

    def slowly(job: Job) -> tuple[Part, list[Counted]]:
        time.sleep(0.5)  # so that the loss meets work that is not done
        return count(job)

    cluster.PATIENCE = cluster.SILENCE = 2.0
    cluster.LOOK = 0.5
    setattr(shards, "write_part", write)  # noqa: B010  (not a public name)
    setattr(shards, "count", slowly)  # noqa: B010
    return main(["learn", "--data", data, "--out", out, "--quiet", "--engine", "ray", "--address", address])


if __name__ == "__main__":
    sys.exit(learn(*sys.argv[1:]))
