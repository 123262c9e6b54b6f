"""The loss, the memory, the sampler and the metric in a LightningModule: five tasks of four labels each.

    pip install 'mlcl[lightning,torchmetrics]'
    python examples/lightning_module.py [MEMORY_SIZE]

The same as `pytorch_loop.py`, with Lightning's loop. Lightning itself calls the sampler's ``set_epoch``.
On several devices pass ``rank`` and ``world_size`` to the sampler and ``use_distributed_sampler=False`` to the trainer.
"""

from __future__ import annotations

import logging
import sys
import warnings

import lightning
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import mlcl
from mlcl.datasets import load_digits_dataset
from mlcl.metrics import MacroAUC
from mlcl.training.replay import ReplaySampler, replay_loader

Batch = tuple[tuple[Tensor, Tensor], Tensor]


class Tagger(lightning.LightningModule):
    """A network whose labels arrive task by task."""

    task_of_class: Tensor

    def __init__(self, network: nn.Module, classes: int) -> None:
        super().__init__()
        self.network = network
        self.counts = mlcl.LabelCounts.of(np.zeros((0, classes)))
        self.register_buffer("task_of_class", torch.full((classes,), -1))
        self.macro_auc = MacroAUC()  # exact, on any number of devices

    def begin(self, samples: mlcl.TaskSamples) -> None:
        """Register the classes and label counts of a task."""
        self.task_of_class[torch.from_numpy(samples.classes)] = samples.task
        self.counts = self.counts + samples.counts.place(samples.classes, len(self.counts))
        self.loss = mlcl.MarginLoss(self.counts, margin=1.0, reweight="batch")
        self.weights = torch.ones(samples.task + 1)
        self.weights[: samples.task] /= max(samples.task, 1)

    def training_step(self, batch: Batch, number: int) -> Tensor:  # noqa: ARG002
        """Return the loss, to which each row contributes for the labels of its own task."""
        (x, y), task_of_row = batch
        known = self.task_of_class == task_of_row[:, None]
        return self.loss(self.network(x), y, mask=known, groups=task_of_row, group_weights=self.weights)

    def validation_step(self, batch: tuple[Tensor, Tensor], number: int) -> None:  # noqa: ARG002
        """Collect the scores of the labels seen so far."""
        x, y = batch
        seen = self.task_of_class >= 0
        self.macro_auc.update(self.network(x)[:, seen], y[:, seen])
        self.log("macro_auc", self.macro_auc)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return a new optimiser for each task."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def network() -> nn.Module:
    """Return any network with one output per label."""
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 20)),
    )


def main(memory_size: int = 300, *, train_size: int = 6000, epochs: int = 4, seed: int = 0) -> float:
    """Learn the tasks one after the other and return the Macro-AUC over all labels at the end."""
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(seed, verbose=False)
    digits = load_digits_dataset(train=train_size, test=1000)
    labels = digits.train.labels
    train, test = (
        TensorDataset(torch.from_numpy(np.array(part.inputs)) / 255, torch.from_numpy(part.labels).float())
        for part in (digits.train, digits.test)
    )
    model, memory = Tagger(network(), 20), mlcl.Memory("wru", memory_size, seed=seed)
    tasks = np.random.default_rng(seed).permutation(20).reshape(5, 4)
    for task, classes in enumerate(tasks):
        rows = np.flatnonzero(labels[:, classes].any(axis=1))
        samples = mlcl.TaskSamples.of(task, classes, rows, labels[np.ix_(rows, classes)])
        model.begin(samples)
        sampler = ReplaySampler(rows, memory, batch_size=32, task=task, seed=seed)
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="auto",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, replay_loader(train, sampler))
        memory.update(samples)
        (found,) = trainer.validate(model, DataLoader(test, batch_size=500), verbose=False)
        print(f"after task {task + 1}: Macro-AUC {100 * found['macro_auc']:.2f}, {len(memory)} rows stored")
    return float(found["macro_auc"])


if __name__ == "__main__":
    main(*(int(size) for size in sys.argv[1:2]))
