"""Where torch.compile pays: seconds to compile, seconds a step without and with it, and the steps until it has paid.

    OMP_NUM_THREADS=1 python benches/compile.py [--sides 16 32] [--model resnet8] [--rows 64]

Processor time, compilers included, since a busy machine tells nothing else; steps with and without take turns. It is
not part of `make bench`: to compile takes longer than all of that.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from typing import Any

import numpy as np
import torch

from mlcl.config.schema import Config, ModelConfig, TrainConfig
from mlcl.streams import Benchmark
from mlcl.training.learner import Learner


def learner(side: int, model: str, rows: int, *, compiled: bool) -> Learner:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4 * rows, 3, side, side), dtype=np.uint8)
    labels = (rng.random((4 * rows, 20)) < 0.2).astype(np.uint8)
    benchmark = Benchmark.from_arrays(images, labels, images, labels, tasks=1)
    train = TrainConfig(batch_size=rows, lr=0.01, device="cpu", compile=compiled)
    found = Learner(Config(model=ModelConfig(kind=model), train=train), benchmark)
    found.start_task(found.tasks[0])
    return found


def seconds(made: Learner, steps: int) -> float:
    started = time.process_time()
    for _ in range(steps):
        made.learn(*made.plan.step(0))
    return (time.process_time() - started) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sides", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--model", default="resnet8")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    inductor: Any = importlib.import_module("torch._inductor.config")
    inductor.compile_threads = 1  # in this process, where its time is counted
    inductor.force_disable_caches = True
    print(
        f"{given.model}, {given.rows} rows a step, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    print(
        "| pixels | compile, s | step, ms | compiled, ms | ratio | paid after steps |\n|---:|---:|---:|---:|---:|---:|"
    )
    for side in given.sides:
        plain, fast = (learner(side, given.model, given.rows, compiled=c) for c in (False, True))
        begun = os.times()
        fast.learn(*fast.plan.step(0))
        compiling = sum(os.times()[:4]) - sum(begun[:4])  # compilers included
        seconds(plain, 3)
        rounds = [(seconds(plain, 5), seconds(fast, 5)) for _ in range(given.rounds)]
        before, after = (float(np.median([pair[i] for pair in rounds])) for i in (0, 1))
        paid = f"{compiling / (before - after):,.0f}" if after < before else "never"
        print(
            f"| {side} | {compiling:.0f} | {1e3 * before:.1f} | {1e3 * after:.1f} | {before / after:.2f} | {paid} |"
        )


if __name__ == "__main__":
    main()
