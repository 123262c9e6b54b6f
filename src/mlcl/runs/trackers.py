"""Trackers: callbacks that report a run to TensorBoard, Weights & Biases and MLflow (extras, imported when named).

``with tracked(("tensorboard",), folder, config) as callback`` gives the callback for
``run(config, out=folder, callback=callback)``. The run folder keeps the ids of the trackers, so that a resumed run is
reported under the same ids.
"""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from mlcl.config.schema import Config, flat, to_dict
from mlcl.engines.launching import rank
from mlcl.errors import InputError, nearest
from mlcl.files import own_folder, refuse_link
from mlcl.runs.folder import read_tracker_ids, write_tracker_ids
from mlcl.streams import Task
from mlcl.training.callbacks import Callback
from mlcl.training.learner import Learner

PROJECT = "mlcl"


class Tracker(Protocol):
    """What a tracker can do."""

    id: str

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Take in measured values at a step."""

    def close(self, *, failed: bool) -> None:
        """Come to an end."""


class TensorBoard:
    """Writes event files into the run's folder; another file in the same folder continues the curves."""

    def __init__(self, folder: Path, config: Mapping[str, Any], known: str | None) -> None:  # noqa: ARG002
        from torch.utils.tensorboard import SummaryWriter

        self.id = known or "tensorboard"
        self.writer: Any = SummaryWriter(str(own_folder(folder / "tensorboard")))

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
        refuse_link(folder / "wandb")
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


class _Reporting(Callback):
    """Reports to every tracker what is measured; the step is the number of finished epochs."""

    def __init__(self, names: Sequence[str], folder: Path, settings: Mapping[str, Any]) -> None:
        self.names, self.folder, self.settings = names, folder, settings
        self.trackers: list[Tracker] = []

    def on_task_start(self, learner: Learner, task: Task, steps: int) -> None:  # noqa: ARG002
        """Open the trackers when the folder is there; a run from its very start has ids of its own."""
        if not self.trackers:
            fresh = (learner.task_index, learner.epoch, learner.step) == (0, 0, 0)
            ids = {} if fresh else read_tracker_ids(self.folder)
            self.trackers += [
                TRACKERS[name](self.folder, self.settings, ids.get(name)) for name in self.names
            ]
            found = {name: tracker.id for name, tracker in zip(self.names, self.trackers, strict=True)}
            write_tracker_ids(self.folder, found)

    def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:
        """Report loss, learning rate and time."""
        done = learner.task_index * learner.epochs + learner.epoch + 1
        self.report({"train/loss": loss, "train/lr": learner.lr, "train/seconds": seconds}, done)

    def on_task_end(self, learner: Learner) -> None:
        """Report the row of the matrix and the pooled measures, in points."""
        measured = learner.evaluations
        row, learnt = measured.matrix[-1], len(measured.matrix)
        seen = row if learner.config.joint else row[:learnt]
        values = {f"test/macro_auc_task_{i + 1}": 100 * value for i, value in enumerate(seen)}
        values["test/macro_auc"] = 100 * sum(seen) / len(seen)
        values |= {f"test/pooled_{name}": 100 * value for name, value in measured.pooled[-1].items()}
        values["memory/samples"] = float(len(learner.memory))
        self.report(values, learnt * max(learner.epochs, 1))

    def report(self, values: Mapping[str, float], step: int) -> None:
        """Report to every tracker."""
        for tracker in self.trackers:
            tracker.log(values, step)


@contextmanager
def tracked(names: Sequence[str], folder: Path, config: Config) -> Iterator[Callback]:
    """Give a callback that reports to the trackers, and close them with the run, well or not."""
    if not names or rank() > 0:  # of several processes the first one reports
        yield Callback()
        return
    callback = _Reporting(names, folder, flat(to_dict(config)))
    failed = True
    try:
        yield callback
        failed = False
    finally:
        for tracker in callback.trackers:
            tracker.close(failed=failed)


def known_trackers(folder: Path) -> tuple[str, ...]:
    """Return the trackers that a run in this folder reported to before."""
    return tuple(name for name in read_tracker_ids(folder) if name in TRACKERS)
