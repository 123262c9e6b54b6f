"""What the tests of several processes do in each of them: `launching.launched` calls these functions by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from helpers import SMALL, SMALL_IMAGES, small_benchmark
from mlcl.config.resolve import config_from
from mlcl.config.schema import TrainConfig
from mlcl.engines.batch_norm import SharedBatchNorm
from mlcl.engines.launching import launched
from mlcl.labels import LabelCounts
from mlcl.losses import LOSSES
from mlcl.training.learner import Learner
from mlcl.training.loop import train
from mlcl.training.processes import join_processes
from team_failing import exchange

DEVICES = 2
RUNS: dict[str, tuple[dict[str, Any], bool]] = {
    # name -> settings, on images or features; together they use every part that looks beyond a row. With seed 0 of the
    # first a unit stands at its threshold, and what rounding decides there the next steps enlarge.
    "rldam-wru, flip-crop": ({"method": "rldam-wru", "augment": {"kind": "flip-crop"}, "seed": 1}, True),
    "krt-r": ({"method": "krt-r", "train": {"epochs": 1, "optimiser": "sgd"}}, True),
    "ewc-rldam": ({"method": "ewc-rldam", "regulariser": {"kind": "ewc", "fisher": "true"}}, False),
    "lwf, herding": ({"method": "lwf", "memory": {"kind": "herding"}}, False),
    "negatives, ocdm, average": (
        {"method": "ocdm", "labels": {"kind": "negatives"}, "train": {"average": 0.9, "batch_size": 17}},
        False,
    ),
    "der": ({"method": "er", "regulariser": {"kind": "der"}}, False),
    "joint": ({"method": "joint"}, False),
}


def settings(name, devices):
    given, images = RUNS[name]
    base = SMALL_IMAGES if images else SMALL
    merged = {
        key: {**base.get(key, {}), **value} if isinstance(value, dict) else value
        for key, value in given.items()
    }
    merged = {**base, **merged}
    short = {"epochs": 2, "eval_batch_size": 32, "device": "cpu"}
    merged["train"] = {**merged["train"], **short, **given.get("train", {}), "devices": devices}
    return config_from(merged)


def learn(name, devices):
    """Train from the first to the last step; return what must agree."""
    learner = train(Learner(settings(name, devices), small_benchmark(images=RUNS[name][1], n=70)))
    return {
        "matrix": np.array(learner.evaluations.matrix),
        "per_class": np.array(learner.evaluations.per_class),
        "rows": learner.memory.rows,
        "counts": learner.counts.positive,
        "scores": learner.predict(learner.data.test.inputs),
        "weights": {name: value.clone() for name, value in learner.network.state_dict().items()},
    }


def all_runs():
    """Do every run in every process; return the results of this one, and a sum of the weights of each process."""
    with launched(DEVICES, all_runs):
        found = {name: learn(name, DEVICES) for name in RUNS}
        join_processes(TrainConfig(device="cpu", devices=DEVICES))
        sums = [float(sum(w.double().sum() for w in run["weights"].values())) for run in found.values()]
        return found, exchange(sums)


class Tiny(nn.Module):
    """A convolution, a batch normalisation with and one without parameters, and a linear head, in float64."""

    def __init__(self, classes, norm=nn.BatchNorm2d):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.norm, self.plain, self.head = (
            norm(3),
            norm(3, affine=False, momentum=None),
            nn.Linear(3, classes),
        )
        self.double()

    def forward(self, inputs):
        hidden = self.plain(self.norm(self.conv(inputs)).tanh())
        return self.head(hidden.square().mean((2, 3)))


def batch(rows, classes=4):
    generator = torch.Generator().manual_seed(rows)
    inputs = torch.randn(rows, 2, 5, 5, generator=generator, dtype=torch.float64)
    labels = (torch.rand(rows, classes, generator=generator) < 0.4).double()
    groups = torch.arange(rows) % 2
    mask = torch.rand(rows, classes, generator=generator) < 0.8
    return inputs, labels, groups, mask


def gradients(module, loss):
    module.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in module.named_parameters()}


def loss_of(kind, logits, labels, groups, mask):
    counts = LabelCounts.of(batch(40)[1].numpy())
    criterion = LOSSES.build(kind, counts)
    return criterion(logits, labels, mask=mask, groups=groups, group_weights=torch.tensor([1.0, 0.5]))


def primitives():
    """Compare, in two processes, what they compute together with what each computes alone from all rows."""
    with launched(DEVICES, primitives):
        processes = join_processes(TrainConfig(device="cpu", devices=DEVICES))
        gaps = {}
        for rows in (9, 1):  # the one row of the second batch is the last process's: the first has none
            inputs, labels, groups, mask = batch(rows)
            own = processes.share(rows).rows
            for kind in LOSSES.names():
                torch.manual_seed(0)
                alone, shared = Tiny(4), Tiny(4, norm=SharedBatchNorm)
                shared.load_state_dict(alone.state_dict())
                wanted = gradients(alone, loss_of(kind, alone(inputs), labels, groups, mask))
                logits = processes.gather(shared(inputs[own]), total=rows)
                found = gradients(shared, loss_of(kind, logits, labels, groups, mask))
                for value in found.values():
                    torch.distributed.all_reduce(value)
                    value /= processes.size  # what DDP does
                pairs = [(found[name], wanted[name]) for name in wanted]
                pairs += [(shared.state_dict()[name], value) for name, value in alone.state_dict().items()]
                gaps[kind, rows] = max(float((a - b).abs().max()) for a, b in pairs)
                assert rows == 1 or max(float(g.abs().max()) for g in wanted.values()) > 1e-4
        return exchange(gaps)
