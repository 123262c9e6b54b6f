"""Where the time of a whole `mlcl run` goes, its folder and checkpoints included."""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from lightning_fabric import Fabric

import mlcl.training.learner
from benches.timing import Row, told
from mlcl.losses import MarginLoss
from mlcl.memories import Memory
from mlcl.runs import folder
from mlcl.runs.recording import Recorder
from mlcl.runs.run import run
from mlcl.training.batches import EpochPlan, Normaliser
from mlcl.training.learner import Learner

NETWORK = ("network, forward", "network, backward", "optimiser", "evaluation")
PARTS: dict[str, list[tuple[Any, str]]] = {
    "network, forward": [(Learner, "_forward")],
    "network, backward": [(Fabric, "backward")],
    "optimiser": [(torch.optim.SGD, "step"), (torch.optim.SGD, "zero_grad")],
    "evaluation": [(Learner, "predict")],
    "loss": [(MarginLoss, "forward")],
    "batches": [
        (mlcl.training.learner, "gather"),
        (Normaliser, "__call__"),
        (EpochPlan, "step"),
        (mlcl.training.learner, "plan_epoch"),
    ],
    "memory": [(Memory, "update")],
    "files": [
        *((Recorder, name) for name in ("create", "on_step", "on_epoch", "on_task_end")),
        (folder, "write_result"),
    ],
}


class Clock:
    """Charges time to whatever is innermost."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.open = ["the rest"]
        self.last = time.perf_counter()

    def turn(self) -> None:
        """Charge what went by since the last turn."""
        now = time.perf_counter()
        self.spent[self.open[-1]] += now - self.last
        self.last = now

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its time charged to ``name``."""

        @functools.wraps(function)
        def wrapper(*args: Any, **keywords: Any) -> Any:
            self.turn()
            self.open.append(name)
            try:
                return function(*args, **keywords)
            finally:
                self.turn()
                self.open.pop()

        return wrapper

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Time the parts inside the block."""
        with contextlib.ExitStack() as stack:
            for name, places in PARTS.items():
                for owner, attribute in places:
                    timed = self.timed(name, getattr(owner, attribute))
                    stack.enter_context(mock.patch.object(owner, attribute, timed))
            self.last = time.perf_counter()
            yield
            self.turn()


def measure(*, quick: bool) -> list[Row]:
    """Run c-digits with the paper's method, and say what took how long."""
    epochs = 1 if quick else 3
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="mlcl-bench-") as place, clock.watching():
        run({"train": {"epochs": epochs}}, out=Path(place) / "run")
    total = sum(clock.spent.values())
    size = f"c-digits, rldam-wru, {epochs} epoch{'s' * (epochs > 1)} a task"
    rows = [told("whole run", size, total, f"{torch.get_num_threads()} threads")]
    for name in sorted(clock.spent, key=lambda name: -clock.spent[name]):
        share = clock.spent[name] / total
        rows.append(told(f"whole run: {name}", f"{share:.1%} of it", clock.spent[name]))
    outside = 1 - sum(clock.spent[name] for name in NETWORK) / total
    rows.append(
        told("whole run: all but network, optimiser and evaluation", f"{outside:.1%} of it", outside * total)
    )
    return rows
