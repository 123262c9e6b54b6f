"""A finished run for reports: its result, and on demand its training losses and its memory."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError, one_line
from mlcl.memories import Memory
from mlcl.models.provenance import describe_weights
from mlcl.runs.folder import MEMORY, read_environment, read_memory, read_metrics, read_result
from mlcl.runs.result import Result
from mlcl.sweeps.record import settings_hash

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Run(Result):
    """The result of a run. AUC values are in points.

    Attributes:
        environment: the content of its ``environment.json``; empty if it cannot be read.
    """

    folder: Path = Path()
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def joint(self) -> bool:
        """Return whether all tasks were learnt at once."""
        return len(self.matrix) == 1 and self.summary.tasks > 1

    @property
    def versions(self) -> Mapping[str, Any]:
        """Return the versions of the packages that made the run; empty if they are not known."""
        found = self.environment.get("versions")
        return found if isinstance(found, dict) else {}

    @property
    def version(self) -> str:
        """Return the version of mlcl that made the run, or an empty string."""
        return str(self.versions.get("mlcl", ""))

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the data, or an empty string if it is unknown."""
        return str(self.data.get("fingerprint", ""))

    @property
    def commit(self) -> str:
        """Return the commit that made the run, or an empty string."""
        return str(self.environment.get("commit") or "")

    @property
    def provenance(self) -> list[tuple[str, str]]:
        """Return where weights and features come from, and warnings about that, each with its name."""
        found = []
        for name in ("weights", "encoder_weights", "features"):
            record = getattr(self, name)
            if record is not None:
                found.append((name.capitalize().replace("_", " "), describe_weights(record, file=True)))
                found += [("Warning", str(record["leak"]))] if record.get("leak") else []
        return found

    @property
    def settings_hash(self) -> str:
        """Return the hash of its settings, which is the same for all seeds."""
        return settings_hash(self.settings)

    @cached_property
    def losses(self) -> Floats:
        """Return the mean training loss of each epoch, task after task; empty if it was not logged."""
        found: dict[tuple[int, int], float] = {}
        for line in read_metrics(self.folder):
            task, epoch, value = line.get("task"), line.get("epoch"), line.get("value")
            if line.get("name") == "train/loss" and isinstance(task, int) and isinstance(epoch, int):
                found[task, epoch] = float(value) if isinstance(value, int | float) else math.nan
        return np.array([found[position] for position in sorted(found)])

    @cached_property
    def memory(self) -> Memory | None:
        """Return the memory after the last task; None if it is empty or cannot be read."""
        if not (self.folder / MEMORY).exists():
            return None
        try:
            memory = read_memory(self.folder, self).memory
        except InputError as error:  # the rest of the report does not depend on it
            warnings.warn(f"the memory is left out: {one_line(error)}", stacklevel=2)
            return None
        return memory if len(memory) else None


def read_run(folder: Path) -> Run:
    """Read a run folder; missing or wrong content raises an `InputError` of one sentence."""
    result = read_result(folder)
    environment: Mapping[str, Any] = {}
    with contextlib.suppress(InputError):
        environment = read_environment(folder)
    found = vars(result) | {"folder": folder, "environment": environment}
    if isinstance(environment.get("data"), dict):
        found["data"] = environment["data"]
    return Run(**found)
