"""Trackers: TensorBoard, Weights & Biases and MLflow hear what a run measures. All are extras, imported when asked for.

A tracker is an `Observer`, so it goes with any run: ``run(config, out=folder, observer=observer)`` within
``with tracked(("tensorboard",), folder, config) as observer``. The ids of its runs are kept in the folder's
``trackers.json``, and a run that is gone on with goes on under the same id.
"""

from __future__ import annotations

import importlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mlcl.errors import InputError, nearest
from mlcl.launching import rank
from mlcl.sweeps.plan import flat

if TYPE_CHECKING:
    from mlcl.config import Config
    from mlcl.observers import Observer
    from mlcl.training import Learner

IDS = "trackers.json"
PROJECT = "mlcl"


class Tracker(Protocol):
    """What is told to a tracker."""

    id: str

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Take in measured values at a step."""

    def close(self, *, failed: bool) -> None:
        """Come to an end."""


class TensorBoard:
    """Writes event files into the run's folder; another file in the same folder goes on with the curves."""

    def __init__(self, folder: Path, config: Mapping[str, Any], known: str | None) -> None:  # noqa: ARG002
        from torch.utils.tensorboard import SummaryWriter

        self.id = known or "tensorboard"
        self.writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write the values."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self, *, failed: bool) -> None:  # noqa: ARG002
        """Close the file."""
        self.writer.close()


class WandB:
    """Sends to Weights & Biases, or keeps for later if ``WANDB_MODE`` is offline."""

    def __init__(self, folder: Path, config: Mapping[str, Any], known: str | None) -> None:
        wandb = importlib.import_module("wandb")
        self.id = known or secrets.token_hex(6)
        options = {"id": self.id, "resume": "allow", "dir": str(folder), "reinit": True}
        self.run = wandb.init(project=PROJECT, name=folder.name, config=dict(config), **options)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send the values."""
        self.run.log(dict(values), step=step)

    def close(self, *, failed: bool) -> None:
        """End the run."""
        self.run.finish(exit_code=1 if failed else 0)


class MLflow:
    """Sends to the MLflow server that ``MLFLOW_TRACKING_URI`` names."""

    def __init__(self, folder: Path, config: Mapping[str, Any], known: str | None) -> None:
        self.client = importlib.import_module("mlflow").tracking.MlflowClient()
        if known:
            self.id = known
            self.client.update_run(known, status="RUNNING")
            return
        found = self.client.get_experiment_by_name(PROJECT)
        experiment = found.experiment_id if found else self.client.create_experiment(PROJECT)
        self.id = self.client.create_run(experiment, run_name=folder.name).info.run_id
        for name, value in config.items():
            self.client.log_param(self.id, name, str(value)[:500])

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send the values."""
        for name, value in values.items():
            self.client.log_metric(self.id, name, value, step=step)

    def close(self, *, failed: bool) -> None:
        """End the run."""
        self.client.set_terminated(self.id, status="FAILED" if failed else "FINISHED")


TRACKERS: dict[str, Callable[[Path, Mapping[str, Any], str | None], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def parse_trackers(text: str) -> tuple[str, ...]:
    """Return the trackers named in ``--track a,b``, checked and importable.

    >>> parse_trackers("tensorbored")
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: unknown tracker 'tensorbored'; known are: tensorboard, wandb, mlflow. Did you mean ...
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in TRACKERS:
            raise InputError(
                f"unknown tracker {name!r}; known are: {', '.join(TRACKERS)}.{nearest(name, TRACKERS)}"
            )
        try:
            importlib.import_module(name)
        except ImportError:
            raise InputError(
                f"--track {name} needs a package; install it with: pip install 'mlcl[{name}]'"
            ) from None
    return names


@contextmanager
def tracked(names: Sequence[str], folder: Path, config: Config) -> Iterator[Observer]:
    """Give an observer that tells the trackers, and end them with the run, well or not."""
    from mlcl.config import to_dict
    from mlcl.observers import Observer as Base

    if not names or rank() > 0:  # of several processes the first one tells them
        yield Base()
        return
    opened: list[Tracker] = []
    settings = flat(to_dict(config))

    class Telling(Base):
        """Tells every tracker what is measured; the step is the number of epochs done."""

        def on_task_start(self, learner: Learner, stage: Any, steps: int) -> None:  # noqa: ARG002
            """Open the trackers when the folder is there; a run from its very start has ids of its own."""
            if not opened:
                path = folder / IDS
                fresh = (learner.task, learner.epoch, learner.step) == (0, 0, 0)
                ids = {} if fresh else _read_ids(path)
                opened.extend(TRACKERS[name](folder, settings, ids.get(name)) for name in names)
                ids = {name: tracker.id for name, tracker in zip(names, opened, strict=True)}
                path.write_text(json.dumps(ids) + "\n", encoding="utf-8")

        def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:
            """Tell loss, rate and time."""
            done = learner.task * learner.config.train.epochs + learner.epoch + 1
            self.tell({"train/loss": loss, "train/lr": learner.lr, "train/seconds": seconds}, done)

        def on_task_end(self, learner: Learner) -> None:
            """Tell the row of the matrix and the pooled measures, in points."""
            row, learnt = learner.measured.matrix[-1], len(learner.measured.matrix)
            seen = row if learner.joint else row[:learnt]
            values = {f"test/macro_auc_task_{i + 1}": 100 * value for i, value in enumerate(seen)}
            values["test/macro_auc"] = 100 * sum(seen) / len(seen)
            values |= {
                f"test/pooled_{name}": 100 * value for name, value in learner.measured.pooled[-1].items()
            }
            values["memory/samples"] = float(len(learner.memory))
            self.tell(values, learnt * learner.config.train.epochs)

        def tell(self, values: Mapping[str, float], step: int) -> None:
            """Tell every tracker."""
            for tracker in opened:
                tracker.log(values, step)

    failed = True
    try:
        yield Telling()
        failed = False
    finally:
        for tracker in opened:
            tracker.close(failed=failed)


def known_trackers(folder: Path) -> tuple[str, ...]:
    """Return the trackers that a run in this folder told before."""
    return tuple(name for name in _read_ids(folder / IDS) if name in TRACKERS)


def _read_ids(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
