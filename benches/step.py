"""One training step of `mlcl run` beside a bare PyTorch loop that does the same work."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benches.timing import Row, within
from mlcl.config.resolve import config_from
from mlcl.config.schema import Config
from mlcl.streams import Benchmark
from mlcl.training.learner import Learner

# Like c-digits and c-voc-small: channels, pixels, classes, tasks, model, memory.
SHAPES: dict[str, tuple[Any, ...]] = {
    "c-digits": ((3, 16, 16), 20, 5, {"kind": "resnet8", "width": 16}, 200),
    "c-voc-small": ((3, 32, 32), 20, 5, {"kind": "resnet8"}, 500),
}


def made_up(shape: tuple[int, int, int], classes: int, tasks: int, rows: int = 3000) -> Benchmark:
    """Return images of noise with a long tail of labels."""
    rng = np.random.default_rng(0)
    labels = (rng.random((rows, classes)) < np.geomspace(0.3, 0.03, classes)).astype(np.uint8)
    labels[np.arange(rows), rng.integers(0, classes, rows)] = 1
    images = rng.integers(0, 256, (rows, *shape), dtype=np.uint8)
    half = rows // 10
    return Benchmark.from_arrays(images, labels, images[:half], labels[:half], tasks=tasks, seed=0)


class Bare:
    """The step as one would write it by hand: no observers, no checks, no parts to choose from.

    The loss is RLDAM with the weights of the batch: for each task of the batch its own rows and classes.
    """

    def __init__(self, learner: Learner, config: Config) -> None:
        self.network = copy.deepcopy(learner.network).train()
        train = config.train
        self.optimiser = torch.optim.SGD(
            self.network.parameters(), lr=train.lr, momentum=train.momentum, weight_decay=train.weight_decay
        )
        self.images = learner.data.train.inputs
        self.labels = torch.from_numpy(np.array(learner.data.train.labels)).float()
        self.scale, self.shift = learner.normaliser.scale, learner.normaliser.shift
        self.layout = learner.normaliser.layout
        self.classes = [torch.from_numpy(task.classes) for task in learner.benchmark.tasks]
        self.margins = [
            torch.from_numpy(config.loss.options.get("margin", 1.0) * task.counts.positive**-0.25).float()
            for task in learner.benchmark.tasks
        ]
        self.weights = learner.optimisation.weights.tolist()

    def loss(self, logits: Tensor, rows: Tensor, tags: Tensor) -> Tensor:
        """Return RLDAM over the tasks of a batch."""
        total = logits.new_zeros(())
        for task in tags.unique().tolist():
            mine = (tags == task).nonzero().squeeze(1)
            f = logits[mine][:, self.classes[task]]
            y = self.labels[rows[mine]][:, self.classes[task]]
            positives, negatives = y.sum(0), (1 - y).sum(0)
            both = ((positives > 0) & (negatives > 0)).float()
            cells = F.binary_cross_entropy_with_logits(
                f + self.margins[task] * (1 - 2 * y), y, reduction="none"
            )
            means = (cells * y).sum(0) / positives.clamp_min(1) + (cells * (1 - y)).sum(0) / (
                negatives.clamp_min(1)
            )
            total = total + self.weights[task] * (means * both).sum() / both.sum().clamp_min(1)
        return total

    def step(self, rows: np.ndarray, tags: np.ndarray) -> float:
        """Learn from a batch."""
        inputs = torch.from_numpy(self.images[rows]).to(torch.float32, memory_format=self.layout)
        logits = self.network(inputs * self.scale + self.shift)
        loss = self.loss(logits, torch.from_numpy(rows), torch.from_numpy(tags))
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.item()


def measure(*, quick: bool) -> list[Row]:
    """Time steps inside the third task, with a memory, ours and the bare ones in turns."""
    found = []
    for name, (shape, classes, tasks, model, memory) in SHAPES.items():
        benchmark = made_up(shape, classes, tasks)
        config = config_from(
            {
                "method": "rldam-wru",
                "model": model,
                "memory": {"size": memory},
                "train": {"epochs": 1, "batch_size": 32, "lr": 0.01},
            }
        )
        learner = Learner(config, benchmark)
        for stage in learner.tasks[:2]:
            learner.start_task(stage)
            learner.learn(*learner.plan.step(0))
            learner.finish_task(stage)
        learner.start_task(learner.tasks[2])
        bare = Bare(learner, config)
        batches = [learner.plan.step(number) for number in range(len(learner.plan))]
        first = batches[0]
        assert abs(bare.step(*first[:2]) - learner.learn(*first)) < 1e-4  # the same loss of the same network
        rounds = 3 if quick else 40
        ours, theirs = _in_turns(
            lambda batch, learner=learner: learner.learn(*batch),
            lambda batch, bare=bare: bare.step(*batch[:2]),
            [batches[1 + number % (len(batches) - 1)] for number in range(rounds * 5)],
        )
        size = f"{name}: {'x'.join(map(str, shape))}, {model['kind']}, 32 + 32 rows, task 3 of {tasks}"
        note = f"median of {rounds} rounds of 5 steps, {torch.get_num_threads()} threads"
        found.append(within("training step", size, ours, "bare PyTorch loop", theirs, 1.05, note))
    return found


def _in_turns(
    ours: Callable[[Any], object], theirs: Callable[[Any], object], batches: list, length: int = 5
) -> tuple[float, float]:
    """Return seconds a step of both, from rounds of some steps each; the median, as a step has no floor."""
    times: tuple[list[float], list[float]] = ([], [])
    for start in range(0, len(batches), length):
        order = (0, 1) if start // length % 2 == 0 else (1, 0)
        for which in order:
            begin = time.perf_counter()
            for batch in batches[start : start + length]:
                (ours, theirs)[which](batch)
            times[which].append((time.perf_counter() - begin) / length)
    return float(np.median(times[0])), float(np.median(times[1]))
