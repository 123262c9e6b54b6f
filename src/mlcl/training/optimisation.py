"""How a task is optimised: the weight of each past task in the loss, the optimiser, and the learning-rate schedule."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mlcl.config.schema import TrainConfig
from mlcl.labels import LabelCounts
from mlcl.losses import LOSSES
from mlcl.memories import Memory
from mlcl.models import Network
from mlcl.streams import Task
from mlcl.training.setup import Setup, training_mode
from mlcl.training.state import State, with_prefix


class TrainingError(RuntimeError):
    """Training cannot continue: the loss is no longer a finite number."""


def memory_weights(
    kind: Literal["equal", "mean", "size"], stored: Sequence[int], rows: int, *, scale: float | None = None
) -> Tensor:
    """Return the weights w_i of all tasks up to the current one; the current task has weight 1.

    See specification.md#memory-weight.

    Args:
        kind: ``equal`` (w_i = 1), ``mean`` (w_i = 1 / number of past tasks) or ``size`` (w_i = scale * |M_i| / n_t).
        stored: |M_i|, the number of stored samples of each past task.
        rows: n_t, the number of rows of the current task.
        scale: the factor of ``size``; 1 if not given.

    >>> memory_weights("mean", [10, 10], 100), memory_weights("size", [10, 20], 100)
    (tensor([0.5000, 0.5000, 1.0000]), tensor([0.1000, 0.2000, 1.0000]))
    """
    weights = torch.ones(len(stored) + 1)
    if kind == "mean" and stored:
        weights[:-1] = 1 / len(stored)  # Eq. 19: one term for the batch, one for the memory
    elif kind == "size":
        weights[:-1] = (1.0 if scale is None else scale) * torch.tensor(stored) / rows
    return weights


PLAIN_CLASSES = 4
"""Classes per task up to which the mean over classes is as it is; the paper's VOC tasks have so many."""


def class_factors(classes: Sequence[int], *, power: float) -> Tensor:
    """Return a factor on the loss of each task, which makes up for the mean over its classes.

    The mean over K classes divides the gradient of each class's own weights by K, so that with hundreds of classes
    nothing is learnt at the learning rate that suits a few. The factor is ``(K / 4)^power``, and 1 up to four classes;
    power 1 is a sum over the classes, power 0 the mean (lab/decisions.md).

    >>> class_factors([2, 4, 400], power=0.5)
    tensor([ 1.,  1., 10.])
    """
    return (torch.tensor(classes) / PLAIN_CLASSES).clamp_min(1) ** power


def learning_rate(settings: TrainConfig, epoch: int, epochs: int) -> float:
    """Return the learning rate of an epoch of a task.

    >>> [round(learning_rate(TrainConfig(lr=1, schedule="cosine"), epoch, 4), 2) for epoch in range(4)]
    [1.0, 0.85, 0.5, 0.15]
    """
    if settings.schedule == "cosine":
        return settings.lr * (1 + math.cos(math.pi * epoch / epochs)) / 2
    drops = [math.ceil(share * epochs) for share in settings.lr_drops]
    return settings.lr * settings.lr_factor ** sum(drop <= epoch for drop in drops)


def parameter_groups(settings: TrainConfig, network: nn.Module) -> list[dict[str, Any]]:
    """Return what learns of a network, each group with its ``share`` of the learning rate.

    One group, or the backbone's and the head's if they learn at different rates.

    >>> from mlcl.models import build_model
    >>> groups = parameter_groups(TrainConfig(backbone_lr=0.1), build_model("mlp", (4,), 3))
    >>> [(len(group["params"]), group["share"]) for group in groups]
    [(8, 0.1), (2, 1.0)]
    """
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            share = settings.backbone_lr if name.startswith("backbone.") else 1.0
            groups.setdefault(share, []).append(parameter)
    return [{"params": parameters, "share": share} for share, parameters in groups.items()]


def make_optimiser(settings: TrainConfig, network: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser of a task; `set_learning_rate` sets its learning rates."""
    groups = parameter_groups(settings, network)
    if settings.optimiser == "adam":
        betas = (settings.momentum, 0.999)
        # Otherwise Adam takes MKL's square root, whose last bit depends on the processor even so.
        fused = settings.portable or None
        return torch.optim.Adam(
            groups, lr=settings.lr, betas=betas, weight_decay=settings.weight_decay, fused=fused
        )
    return torch.optim.SGD(
        groups,
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        # One kernel: half to a quarter of the time, and on a CPU the same bits.
        fused=groups[0]["params"][0].device.type in ("cpu", "cuda"),
    )


def set_learning_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Set the head's learning rate, and the backbone's to its share of it."""
    for group in optimiser.param_groups:
        group["lr"] = lr * group["share"]


def optimiser_state(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors of an optimiser, named by parameter number and slot (``3.momentum_buffer``)."""
    slots = optimiser.state_dict()["state"].items()
    return {f"{number}.{k}": v for number, slot in slots for k, v in slot.items() if isinstance(v, Tensor)}


def load_optimiser_state(optimiser: torch.optim.Optimizer, state: dict[str, Tensor]) -> None:
    """Restore what `optimiser_state` returned, in the memory layout of the parameters."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    slots: dict[int, dict[str, Tensor]] = {}
    for key, value in state.items():
        number, name = key.split(".")
        like = parameters[int(number)]
        same = value if value.shape != like.shape else torch.empty_like(like).copy_(value)
        slots.setdefault(int(number), {})[name] = same
    optimiser.load_state_dict(optimiser.state_dict() | {"state": slots})


class RunningAverage:
    """An exponential average of all floating-point weights and statistics (Polyak and Juditsky, 1992).

    The first updates weigh more than ``1 - decay``, so that the start is forgotten soon: after n updates the decay is
    ``min(decay, (1 + n) / (10 + n))``.

    >>> from mlcl.models import build_model
    >>> network = build_model("linear", (1,), 1)
    >>> average = RunningAverage(network, decay=0.9)
    >>> with torch.no_grad():
    ...     _ = network.head.linear.bias.fill_(network.head.linear.bias.item() + 1)
    >>> before = average.state()["head.linear.bias"].item()
    >>> average.update()  # the first update keeps a tenth
    >>> round(average.state()["head.linear.bias"].item() - before, 4)
    0.9
    """

    def __init__(self, network: Network, *, decay: float) -> None:
        self.decay, self.updates = decay, 0
        # The tensors themselves, which change in place: a state_dict per step would cost more than the average.
        live = {name: value for name, value in network.state_dict().items() if value.is_floating_point()}
        self._names, self._live = list(live), list(live.values())
        self._values = [value.clone() for value in self._live]

    def update(self) -> None:
        """Update the average with the network's weights, after a step."""
        keep = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(self._values, self._live, 1 - keep)
        self.updates += 1

    def give(self) -> None:
        """Copy the average into the network."""
        torch._foreach_copy_(self._live, self._values)

    def state(self) -> dict[str, Tensor]:
        """Return the average by name."""
        return dict(zip(self._names, self._values, strict=True))

    def load_state(self, state: dict[str, Tensor], *, updates: int) -> None:
        """Restore what `state` returned after ``updates`` updates."""
        for name, value in zip(self._names, self._values, strict=True):
            value.copy_(state[name])
        self.updates = updates


class Optimisation:
    """How the network learns one task: loss, weights of the tasks in it, optimiser, running average of weights."""

    def __init__(self, setup: Setup, task: Task, counts: LabelCounts, memory: Memory) -> None:
        self.setup, self.task = setup, task
        config, settings = setup.config, setup.config.train
        with warnings.catch_warnings():
            # Classes of later tasks have no counts yet; of classes that lack positives or negatives the stream warned.
            warnings.simplefilter("ignore", UserWarning)
            self.criterion: Any = LOSSES.build(config.loss.kind, counts, **config.loss.options)
        self.criterion.to(setup.device)
        fabric = setup.processes.fabric
        self.model, self.optimiser = fabric.setup(setup.outputs, make_optimiser(settings, setup.network))
        self.weights = self._task_weights(memory).to(setup.device)
        decay = settings.average
        self.average = None if decay is None else RunningAverage(setup.network, decay=decay)

    def _task_weights(self, memory: Memory) -> Tensor:
        """Return w_i of every task so far, times what makes up for the mean over its classes."""
        config, index = self.setup.config, self.task.index
        stored = [0] * index
        for samples in memory.tasks:
            stored[samples.task] = len(samples)
        weights = memory_weights(
            config.memory.weight, stored, len(self.task.train), scale=config.memory.weight_scale
        )
        classes = [len(each.classes) for each in self.setup.tasks[: index + 1]]
        return weights * class_factors(classes, power=config.train.class_power)

    @property
    def balanced(self) -> bool:
        """Return whether the loss gives positives and negatives of a class the same total weight."""
        return bool(getattr(self.criterion, "balanced", False))

    def start_epoch(self, epoch: int, epochs: int) -> float:
        """Set the learning rate of an epoch, and return it."""
        settings = self.setup.config.train
        lr = learning_rate(settings, epoch, max(epochs, 1))
        set_learning_rate(self.optimiser, lr)
        training_mode(self.setup.network, self.setup.frozen, statistics=settings.freeze_statistics)
        return lr

    def outputs(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the network's logits and embeddings."""
        try:
            found: tuple[Tensor, Tensor] = self.model(inputs)
        except ValueError as error:  # of batch normalisation: one row and a map of one pixel have no spread
            if len(inputs) > 1:
                raise
            config = self.setup.config
            raise TrainingError(
                f"task {self.task.index + 1} has a step of one row, from which {config.model.kind} cannot learn "
                f"({error}); larger images, or a train.batch_size (now {config.train.batch_size}) above 1, may help."
            ) from None
        return found

    def step(self, loss: Tensor, adjust: Callable[[], None]) -> None:
        """Change the weights; ``adjust`` may change the gradients first."""
        self.optimiser.zero_grad()
        self.setup.processes.fabric.backward(loss)
        adjust()
        self.optimiser.step()
        if self.average is not None:
            self.average.update()
        self.criterion.validate = False  # shapes are those of the first step

    def finish(self) -> None:
        """Give the network its averaged weights, where they are averaged."""
        if self.average is not None:
            self.average.give()

    def state(self) -> tuple[dict[str, Tensor], int]:
        """Return what is needed to resume inside the task, and how many updates the average had."""
        tensors = {} if self.average is None else with_prefix("average", self.average.state())
        tensors |= with_prefix("optimiser", optimiser_state(self.optimiser))
        tensors |= with_prefix("loss", self.criterion.state_dict())
        return tensors, 0 if self.average is None else self.average.updates

    def load_state(self, state: State) -> None:
        """Restore what `state` returned."""
        load_optimiser_state(self.optimiser, state.section("optimiser"))
        self.criterion.load_state_dict(state.section("loss"))
        if self.average is not None:
            self.average.load_state(state.section("average"), updates=state.values["updates"])
