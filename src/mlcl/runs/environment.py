"""What made a run: versions, commit, machine, data."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mlcl.streams import Benchmark


def environment(benchmark: Benchmark) -> dict[str, Any]:
    """Return what made the run: versions, commit, machine, and the fingerprint of the data."""
    return machine_record() | {"data": data_record(benchmark)}


def machine_record() -> dict[str, Any]:
    """Return what everything on this machine is made with: versions, commit, processor, command."""
    import importlib.metadata as metadata

    import torch

    packages = ("mlcl", "torch", "numpy", "scikit-learn", "lightning-fabric")
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name in packages},
        "commit": source_commit(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),  # another set of them gives other bits
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "command": sys.argv,
    }


def data_record(benchmark: Benchmark) -> dict[str, Any]:
    """Return what identifies the data of a run: name, fingerprints of content and tasks, and shapes."""
    data = benchmark.dataset
    return {
        "name": data.name,
        "fingerprint": data.fingerprint,
        "tasks": benchmark.tasks_fingerprint,
        "kind": data.kind,
        "train": list(data.train.inputs.shape),
        "test": list(data.test.inputs.shape),
        "classes": len(data.classes),
    }


def source_commit() -> str | None:
    """Return the commit of the source tree that is running, with ``-dirty`` after local changes; None outside one."""
    git = shutil.which("git")
    here = Path(__file__).parent
    if git is None or not (here.parents[2] / ".git").exists():
        return None
    command = [git, "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return found.stdout.strip() or None
