"""The loss, the memory, the sampler and the metric in a plain PyTorch loop: five tasks of four labels each.

    python examples/pytorch_loop.py [MEMORY_SIZE]

Every use of mlcl is marked with a comment; the rest is a standard training loop. With MEMORY_SIZE 0 nothing is stored.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import mlcl
from mlcl.datasets import load_digits_dataset
from mlcl.training.replay import ReplaySampler, replay_loader


def network() -> nn.Module:
    """Return any network with one output per label."""
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 20)),
    )


def main(memory_size: int = 300, *, train_size: int = 6000, epochs: int = 4, seed: int = 0) -> float:
    """Learn the tasks one after the other and return the Macro-AUC over all labels at the end."""
    torch.manual_seed(seed)
    digits = load_digits_dataset(train=train_size, test=1000)  # small images with 20 labels
    images, labels = torch.from_numpy(np.array(digits.train.inputs)) / 255, digits.train.labels
    dataset = TensorDataset(images, torch.from_numpy(labels).float())
    test_images = torch.from_numpy(np.array(digits.test.inputs)) / 255

    tasks = np.random.default_rng(seed).permutation(20).reshape(5, 4)
    task_of_class = torch.full((20,), -1)
    model = network()
    counts = mlcl.LabelCounts.of(np.zeros((0, 20)))
    memory = mlcl.Memory("wru", memory_size, seed=seed)

    for task, classes in enumerate(tasks):
        rows = np.flatnonzero(labels[:, classes].any(axis=1))  # images with a label of this task
        known = labels[np.ix_(rows, classes)]  # only these labels are known, the others are not
        task_of_class[classes] = task

        # mlcl: the label counts of the task, which the loss needs now and the memory later
        samples = mlcl.TaskSamples.of(task, classes, rows, known)
        counts = counts + samples.counts.place(classes, 20)
        loss = mlcl.MarginLoss(counts, margin=1.0, reweight="batch")
        weights = torch.ones(task + 1)
        weights[:task] /= max(task, 1)  # all past tasks together have the weight of the current one
        # mlcl: batches of rows of the task and rows of the memory
        sampler = ReplaySampler(rows, memory, batch_size=32, task=task, seed=seed)
        loader = replay_loader(dataset, sampler)

        model.train()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for (x, y), task_of_row in loader:
                known = task_of_class == task_of_row[:, None]  # each row has the labels of its own task
                value = loss(model(x), y, mask=known, groups=task_of_row, group_weights=weights)
                optimiser.zero_grad()
                value.backward()
                optimiser.step()

        memory.update(samples)  # mlcl: select the samples of this task to keep
        model.eval()
        with torch.no_grad():
            scores = model(test_images)
        seen = np.concatenate(tasks[: task + 1])
        auc = mlcl.macro_auc(scores[:, seen], digits.test.labels[:, seen])  # mlcl: exact Macro-AUC
        print(
            f"after task {task + 1}: Macro-AUC {100 * auc:.2f} over {len(seen)} labels, {len(memory)} rows stored"
        )
    return auc


if __name__ == "__main__":
    main(*(int(size) for size in sys.argv[1:2]))
