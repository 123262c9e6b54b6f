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
import mlcl.cli.main, mlcl.training.learner
learn = mlcl.training.learner.Learner.learn
def first(*arguments):
    learn(*arguments)
    os._exit(0)
mlcl.training.learner.Learner.learn = first
mlcl.cli.main.main(["run", "--quiet", "--out", sys.argv[1], "--overwrite"])
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


def seconds_of(commands: list[list[str]], repeats: int) -> list[float]:
    """Return the least wall time of each command; they take turns, after one turn that fills the caches."""
    found: list[list[float]] = [[] for _ in commands]
    for _ in range(repeats + 1):
        for command, times in zip(commands, found, strict=True):
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - start)
    return [min(times[1:]) for times in found]


def measure(*, quick: bool) -> list[Row]:
    """Time processes from their start."""
    repeats = 1 if quick else 5
    with tempfile.TemporaryDirectory(prefix="mlcl-bench-") as place:
        out = str(Path(place) / "run")
        arguments = [
            ["-m", "mlcl", "--help"],
            ["-c", "import torch"],
            ["-c", _BARE_STEP],
            ["-c", _FIRST_STEP, out, "without"],
            ["-c", _FIRST_STEP, out, "with"],
        ]
        shown, torch, bare, first, laden = seconds_of([[sys.executable, *a] for a in arguments], repeats)
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
