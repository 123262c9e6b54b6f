"""Weights of a committee on the validation part, from one network per seed (lab/decisions.md#committee-choices).

    python tools/committee.py c-voc-small --seed 0 --out FOLDER

trains ``distilled-replay`` once with ``--validate``, records features and logits after each task and the features of
``patches``, and prints the in-task and pooled Macro-AUC of committees with other weights. What is recorded is not
trained again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mlcl.config.resolve import resolve
from mlcl.exact import ExactLearner, Options, carried, solve
from mlcl.metrics import macro_auc
from mlcl.runs.recording import load_benchmark
from mlcl.training.callbacks import Callback
from mlcl.training.learner import Learner
from mlcl.training.loop import train
from mlcl.training.solving import ScoreScale

Floats = NDArray[np.float64]
UNLABELLED, WEIGHTS = (0.0, 0.1, 0.3, 1.0), (0.25, 0.5, 1.0, 2.0, 4.0)
BOTH = ((0.5, 0.25), (0.5, 0.5), (0.5, 1.0), (1.0, 0.25), (1.0, 0.5), (1.0, 1.0))


def learner_of(method: str, benchmark: str, seed: int) -> Learner:
    """Return a new learner of a method on the validation part."""
    given = {"benchmark": benchmark, "method": method, "seed": seed, "validate": True}
    config = resolve(given=given | {"train": {"threads": 1}})
    return Learner(config, load_benchmark(config))


class Recording(Callback):
    """Keeps features, logits and the memory after each task."""

    def __init__(self, found: dict[str, NDArray[Any]]) -> None:
        self.found = found

    def on_task_end(self, learner: Learner) -> None:
        """Pass all rows of both splits through the network."""
        task = learner.task_index - 1
        for split, part in (("tr", learner.data.train), ("te", learner.data.test)):
            features = learner.setup.scorer(learner.network.features, part.inputs, np.arange(len(part)))
            with torch.inference_mode():
                logits = learner.network.head(torch.from_numpy(features)).numpy()
            self.found |= {f"f{split}{task}": features, f"z{split}{task}": logits}
        self.found[f"mem{task}"] = learner.memory.rows
        tags = [np.full(len(samples), samples.task) for samples in learner.memory.tasks]
        self.found[f"memtask{task}"] = np.concatenate(tags)


def record(benchmark: str, seed: int, path: Path) -> None:
    """Train the network, and write all that the weights are chosen from."""
    network, patches = (learner_of(method, benchmark, seed) for method in ("distilled-replay", "exact"))
    data = network.data
    found: dict[str, NDArray[Any]] = {
        "ytr": np.asarray(data.train.labels),
        "yte": np.asarray(data.test.labels),
    }
    for task in network.tasks:
        named = {"classes": task.classes, "train": task.train, "test": task.test}
        found |= {f"{name}{task.index}": rows for name, rows in named.items()}
    train(network, callback=Recording(found))
    patches.start_task(patches.tasks[0])
    for split, part in (("train", data.train), ("test", data.test)):
        found[f"p{split}"] = patches.setup.scorer(patches.network.features, part.inputs, np.arange(len(part)))
    np.savez(path, allow_pickle=False, **found)


@dataclass(frozen=True)
class Recorded:
    """A recorded run."""

    arrays: dict[str, NDArray[Any]]

    @property
    def tasks(self) -> int:
        """Return how many tasks it has."""
        return sum(name.startswith("classes") for name in self.arrays)

    def each(self, name: str) -> list[NDArray[Any]]:
        """Return an array of each task."""
        return [self.arrays[f"{name}{task}"] for task in range(self.tasks)]

    def measures(self, scores: Floats) -> str:
        """Return the in-task and the pooled Macro-AUC of scores, in points."""
        labels, pairs = self.arrays["yte"], list(zip(self.each("test"), self.each("classes"), strict=True))
        inside = np.mean([macro_auc(scores[np.ix_(*pair)], labels[np.ix_(*pair)]) for pair in pairs])
        every = np.ix_(np.unique(np.concatenate(self.each("test"))), np.concatenate(self.each("classes")))
        return f"{100 * inside:.2f} / {100 * macro_auc(scores[every], labels[every]):.2f}"

    def logits(self) -> tuple[Floats, ScoreScale]:
        """Return the last network's logits of the test rows, and their spread over the rows at hand."""
        last = self.tasks - 1
        own, stored = self.arrays[f"train{last}"], self.arrays[f"mem{last - 1}"]
        tags = self.arrays[f"memtask{last - 1}"]
        counts = np.array([len(rows) for rows in self.each("train")])
        weights = np.concatenate(
            [np.ones(len(own)), (counts / np.maximum(np.bincount(tags, minlength=len(counts)), 1))[tags]]
        )
        return self.arrays[f"zte{last}"], ScoreScale.of(
            self.arrays[f"ztr{last}"][np.concatenate([own, stored])], weights
        )

    def sums(self, features: list[NDArray[Any]], *, carry: bool) -> ExactLearner:
        """Return the sums of the features after each task; ``carry`` fits a map from task to task."""
        labels, stored = self.arrays["ytr"], self.each("mem")
        learner = ExactLearner.begin(features[0][self.each("train")[0]], dimensions=None)
        learner = learner.learn(features[0][:0], labels[:0], range(labels.shape[1]))
        for task, (rows, classes) in enumerate(zip(self.each("train"), self.each("classes"), strict=True)):
            if carry and task:
                hand = np.concatenate([rows, stored[task - 1]])
                learner = carried(learner, features[task - 1][hand], features[task][hand], dimensions=None)
            learner = learner.learn(features[task][rows], labels[np.ix_(rows, classes)], classes.tolist())
        return learner


def table(run: Recorded) -> Iterator[str]:
    """Yield one line per weight of unlabelled rows and kind of committee."""
    logits, like = run.logits()
    yield f"network alone: {run.measures(logits)}"
    drifting, last = run.each("ftr"), run.tasks - 1
    members = {
        "patches": (run.sums([run.arrays["ptrain"]] * run.tasks, carry=False), run.arrays["ptest"]),
        "moments, carried": (run.sums(drifting, carry=True), run.arrays[f"fte{last}"]),
        "moments, not carried": (run.sums(drifting, carry=False), run.arrays[f"fte{last}"]),
        "moments, recomputed": (
            run.sums([drifting[last]] * run.tasks, carry=False),
            run.arrays[f"fte{last}"],
        ),
    }
    for u in UNLABELLED:
        scaled = {}
        for name, (learner, rows) in members.items():
            found = solve(learner, Options(unlabelled=u))
            scores = found.scores(rows)
            scaled[name] = (scores - found.means) / found.deviations * like.deviations
            joined = ", ".join(f"w {w:g}: {run.measures(logits + w * scaled[name])}" for w in WEIGHTS)
            yield f"u {u:g}, {name}: alone {run.measures(scores)}; {joined}"
        both = [
            f"{w:g} and {v:g}: {run.measures(logits + w * scaled['patches'] + v * scaled['moments, carried'])}"
            for w, v in BOTH
        ]
        yield f"u {u:g}, patches and carried moments: {', '.join(both)}"


def main() -> None:
    """Record a seed, unless that is done, and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benchmark")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path())
    given = parser.parse_args()
    path = given.out / f"{given.benchmark}-{given.seed}.npz"
    if not path.exists():
        record(given.benchmark, given.seed, path)
    with np.load(path, allow_pickle=False) as arrays:
        run = Recorded({name: arrays[name] for name in arrays.files})
    for line in table(run):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
