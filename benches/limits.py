"""How far from what the machine can do: reading memory, the network alone, the bare forward pass."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.linalg import blas

from benches.step import SHAPES, made_up
from benches.timing import Row, best
from mlcl.config.resolve import config_from
from mlcl.datasets import prepare_source
from mlcl.exact import ExactLearner
from mlcl.exact.counting import Counter
from mlcl.runs.features import Recipe
from mlcl.training.learner import Learner as Trainer


def measure(*, quick: bool) -> list[Row]:
    """Time each beside its limit, in turns."""
    return [*_counting(quick=quick), *_training(quick=quick), *_features(quick=quick)]


def _counting(*, quick: bool) -> list[Row]:
    """The sums of rows without tags: beside the product alone, and beside reading the rows once."""
    found = []
    for d, share in ((16, "read"), (64, "read"), (256, "syrk")):
        n = (2**17 if quick else 2**24) // d
        rows = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
        wide = rows.astype(np.float64)
        features = ExactLearner.begin(rows[: 10 * d]).features
        nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        times = best(
            {
                "ours": partial(_count, rows, features, nothing),
                "syrk": partial(blas.dsyrk, 1.0, wide.T),
                "read": rows.sum,
            },
            repeats=2 if quick else 5,
        )
        size = f"{n:,} x {d}, float32 rows, float64 sums"
        gigabytes = f"{rows.nbytes / times['ours'] / 1e9:.2g} GB/s of rows"
        rivals = {"syrk": "BLAS dsyrk alone, of float64 rows", "read": "one sum over the rows"}
        for name, words in rivals.items():
            goal = 0.5 if name == share == "syrk" else None
            speed = times[name] / times["ours"]
            found.append(
                Row(
                    "exact: counting rows", size, times["ours"], words, times[name], speed, goal,
                    above=True, unit="of its speed", note=gigabytes,
                )
            )  # fmt: skip
    return found


def _count(rows: np.ndarray, features: object, nothing: tuple[np.ndarray, np.ndarray]) -> object:
    counter = Counter(features)  # type: ignore[arg-type]
    step = max(1, 2**22 // rows.shape[1])
    for start in range(0, len(rows), step):
        counter.add(rows[start : start + step], nothing, [])
    return counter.part()


def _training(*, quick: bool) -> list[Row]:
    """A whole training step beside forward and backward of the network alone, on inputs that are ready."""
    found = []
    for name, (shape, classes, tasks, model, memory) in SHAPES.items():
        settings = {"method": "rldam-wru", "model": model, "memory": {"size": memory}}
        settings["train"] = {"epochs": 1, "batch_size": 32, "lr": 0.01}
        learner = Trainer(config_from(settings), made_up(shape, classes, tasks))
        for task in learner.tasks[:2]:
            learner.start_task(task)
            learner.learn(*learner.plan.step(0))
            learner.finish_task(task)
        learner.start_task(learner.tasks[2])
        batches = [learner.plan.step(number) for number in range(min(8, len(learner.plan)))]
        network = learner.network
        inputs = torch.rand((64, *shape)).to(memory_format=learner.normaliser.layout)
        ones = torch.ones(64, classes)

        network.train()
        ours, theirs = _in_turns(
            partial(_step, learner, batches),
            partial(_network_alone, network, inputs, ones),
            rounds=3 if quick else 40,
        )
        size = f"{name}: {'x'.join(map(str, shape))}, {model['kind']}, 32 + 32 rows"
        note = f"{1 - theirs / ours:.0%} of a step is not the network; {torch.get_num_threads()} threads"
        found.append(
            Row("training step", size, ours, "forward + backward of the network alone", theirs, ours / theirs, 1.25,
                above=False, note=note)
        )  # fmt: skip
    return found


def _step(learner: Trainer, batches: list, number: int) -> object:
    return learner.learn(*batches[number % len(batches)])


def _network_alone(network: torch.nn.Module, inputs: torch.Tensor, ones: torch.Tensor, _: int) -> None:
    network(inputs).backward(ones)
    network.zero_grad()


def _in_turns(
    ours: Callable[[int], object], theirs: Callable[[int], object], *, rounds: int
) -> tuple[float, float]:
    """Return the medians of seconds per call, each in rounds of five."""
    times: list[list[float]] = [[], []]
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            begin = time.perf_counter()
            for call in range(5):
                (ours, theirs)[which](5 * number + call)
            times[which].append((time.perf_counter() - begin) / 5)
    return float(np.median(times[0])), float(np.median(times[1]))


def _features(*, quick: bool) -> list[Row]:
    """``mlcl data features`` beside the forward pass on batches that are ready."""
    n, side, batch = (128, 32, 32) if quick else (1024, 64, 32)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="mlcl-bench-") as place:
        arrays: dict[str, Any] = {}
        for split, rows in (("train", n), ("test", 2)):
            arrays[f"x_{split}"] = rng.integers(0, 256, (rows, 3, side, side), dtype=np.uint8)
            arrays[f"y_{split}"] = np.eye(2, dtype=np.uint8)[np.arange(rows) % 2]
        np.savez(Path(place) / "images.npz", **arrays)
        store = prepare_source("arrays", Path(place) / "images.npz", out=Path(place) / "store", jobs=1).path
        embedder = Recipe(str(store), "mobilenetv2", batch_size=batch).open()
        network = embedder.encoder.network
        normaliser = embedder.encoder.normaliser
        ready = [
            normaliser(torch.from_numpy(arrays["x_train"][start : start + batch]))
            for start in range(0, n, batch)
        ]

        def bare() -> None:
            with torch.inference_mode():
                for inputs in ready:
                    network.features(inputs)

        times = best({"ours": lambda: embedder(0, n), "theirs": bare}, repeats=1 if quick else 3)
    size = f"mobilenetv2, {side} x {side}, batches of {batch}"
    note = f"{n / times['ours']:,.0f} images per second, {n / times['theirs']:,.0f} in the bare pass"
    share = times["theirs"] / times["ours"]
    return [
        Row("features", size, times["ours"], "bare forward pass, inputs ready", times["theirs"], share, 0.9,
            above=True, unit="of its speed", note=note)
    ]  # fmt: skip
