"""How long it takes until something happens: ``mlcl --help``, and the first step of ``mlcl run``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benches.timing import Row, limit, told

# Runs the command and ends when the first step is done. Fabric imports torchmetrics where that is installed, as
# it is here for other subjects, but not by `pip install mlcl`; "with" keeps it.
_FIRST_STEP = """
import os, sys
if sys.argv[2] == "without":
    sys.modules["torchmetrics"] = None
import mlcl.cli, mlcl.training
learn = mlcl.training.Learner.learn
def first(*arguments):
    learn(*arguments)
    os._exit(0)
mlcl.training.Learner.learn = first
mlcl.cli.main(["run", "--quiet", "--out", sys.argv[1], "--overwrite"])
os._exit(1)
"""

# The least that trains: PyTorch alone, a network of one layer, one step.
_BARE_STEP = """
import torch
layer = torch.nn.Linear(8, 2)
optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
layer(torch.zeros(4, 8)).sum().backward()
optimiser.step()
"""


def seconds_of(command: list[str], repeats: int) -> float:
    """Return the least wall time of a command, after one run that fills the caches."""
    found = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found.append(time.perf_counter() - start)
    return min(found[1:])


def measure(*, quick: bool) -> list[Row]:
    """Time processes from their start."""
    repeats = 1 if quick else 3
    with tempfile.TemporaryDirectory(prefix="mlcl-bench-") as place:
        out = str(Path(place) / "run")
        shown = seconds_of([sys.executable, "-m", "mlcl", "--help"], repeats)
        torch = seconds_of([sys.executable, "-c", "import torch"], repeats)
        bare = seconds_of([sys.executable, "-c", _BARE_STEP], repeats)
        first = seconds_of([sys.executable, "-c", _FIRST_STEP, out, "without"], repeats)
        laden = seconds_of([sys.executable, "-c", _FIRST_STEP, out, "with"], repeats)
    note = (
        f"{first:.2f} s, of which `import torch` takes {torch:.2f} s, and what torch itself loads when the first "
        f"optimiser is made (`torch._dynamo`) with one step of a linear layer {bare - torch:.2f} s; the rest is "
        f"{first - bare:.2f} s"
    )
    return [
        limit("start", "mlcl --help", shown, 0.5, "s"),
        limit(
            "start",
            "mlcl run (c-digits) to its first step, beyond torch's import",
            first - torch,
            1.5,
            "s",
            note,
        ),
        told("start", "the same beyond a PyTorch script that makes one step", first - bare),
        told("start", "what an installed torchmetrics adds, which Fabric then imports", laden - first),
    ]
