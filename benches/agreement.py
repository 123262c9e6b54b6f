"""How far two processes are from one, step by step, beside one process whose weights differ in the last digit.

    OMP_NUM_THREADS=1 python benches/agreement.py

The largest difference of the loss so far, on the first task of c-digits. What training itself does to a last digit is
in the second column; nothing that adds numbers in another order (threads, kernels, processes) agrees better than that.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mlcl.config.schema import Config, StreamConfig, TrainConfig
from mlcl.engines.launching import launched
from mlcl.runs.recording import load_benchmark
from mlcl.training.learner import Learner

STEPS = (1, 2, 5, 10, 20, 40)


def losses(devices: int, lr: float, factor: float = 1.0) -> NDArray[np.float64]:
    config = Config(
        stream=StreamConfig(tasks=3), train=TrainConfig(lr=lr, devices=devices, device="cpu", threads=1)
    )
    with launched(devices, losses, devices, lr, factor):
        learner = Learner(config, load_benchmark(config))
        with torch.no_grad():
            for weights in learner.network.parameters():
                weights.mul_(factor)
        learner.start_task(learner.tasks[0])
        return np.array([learner.learn(*learner.plan.step(step)) for step in range(max(STEPS))])


def main() -> None:
    print("| rate | after steps | two processes | last digit |\n|---:|---:|---:|---:|")
    for lr in (0.2, 0.01):
        one, two, shaken = losses(1, lr), losses(2, lr), losses(1, lr, 1 + 1e-7)
        for step in STEPS:
            apart = (float(np.abs(other - one)[:step].max()) for other in (two, shaken))
            print(f"| {lr} | {step} | " + " | ".join(f"{value:.0e}" for value in apart) + " |", flush=True)


if __name__ == "__main__":
    # The other process finds this file by its name.
    sys.path.insert(0, str(Path(__file__).parent))
    import agreement  # type: ignore[import-not-found]

    agreement.main()
