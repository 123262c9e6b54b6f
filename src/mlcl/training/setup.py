"""What a run is made of before its first task: the network, how rows reach it, who is annotated for what, processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mlcl.config.schema import Config
from mlcl.datasets import Dataset
from mlcl.errors import InputError, nearest
from mlcl.labels import Labels
from mlcl.models import Network, Outputs, build_model, fast_layout
from mlcl.seeds import derive_seed
from mlcl.streams import Benchmark, Task, joint_mask, joint_task
from mlcl.training.batches import Normaliser, Rows, check_downscale
from mlcl.training.processes import Processes, join_processes
from mlcl.training.scoring import Scorer

ALL = "all"


class KnownLabels:
    """Which labels of which training rows a run knows: those of the classes of a row's task, as far as the data do.

    Args:
        labels: of the training split, ``[N, K]``.
        cells: which labels of each row are known at all, ``[N, K]``; None: all.
    """

    def __init__(
        self, tasks: Sequence[Task], labels: Labels, cells: NDArray[np.bool_] | None, device: torch.device
    ) -> None:
        self.all, self.cells = labels, cells
        of_tasks = np.zeros((len(tasks), labels.shape[1]), np.bool_)
        for task in tasks:  # a class may belong to several: an update brings more rows of known classes
            of_tasks[task.index, task.classes] = True
        self.of_tasks = torch.from_numpy(of_tasks).to(device)
        self.on_device = torch.from_numpy(np.array(labels)).to(device)
        self.mask = None if cells is None else torch.from_numpy(cells).to(device)

    def of_rows(self, rows: Tensor, tags: Tensor) -> tuple[Tensor, Tensor]:
        """Return the labels of rows that belong to the tasks ``tags``, 0 where unknown, and which are known, [B, K]."""
        known = self.of_tasks[tags]
        known = known if self.mask is None else known & self.mask[rows]
        return self.on_device[rows] * known, known

    def of_task(self, task: Task) -> tuple[Labels, NDArray[np.bool_] | None]:
        """Return the labels of a task's rows and classes, and which of them are known; None: all."""
        labels = self.all[task.train][:, task.classes]
        return labels, None if self.cells is None else self.cells[task.train][:, task.classes]


@dataclass(frozen=True, eq=False)
class Setup:
    """What stays in a run: its parts change, but are not exchanged.

    Attributes:
        tasks: the tasks to learn; a single one with all classes for joint training.
        outputs: the network as a step calls it.
        frozen: its modules that do not learn.
        normaliser: of its inputs, measured on the first task's rows: a run does not know later ones yet.
        known: the labels.
        scorer: applies functions of the network to rows.
    """

    config: Config
    benchmark: Benchmark
    tasks: list[Task]
    processes: Processes
    network: Network
    outputs: Outputs
    frozen: tuple[nn.Module, ...]
    normaliser: Normaliser
    known: KnownLabels
    scorer: Scorer

    @classmethod
    def of(cls, config: Config, benchmark: Benchmark) -> Setup:
        """Build all of it; weights are those of the seed."""
        data, train, masked = benchmark.dataset, config.train, config.protocol == "joint-masked"
        shape = data.train.inputs.shape[1:]
        check_downscale(config.memory.downscale, shape)
        processes = join_processes(train)
        device = processes.fabric.device
        if train.threads is not None:
            torch.set_num_threads(train.threads)
        network, layout = _network(config, shape, len(data.classes), processes)
        frozen = frozen_layers(network, train.freeze, model=config.model.kind)
        freeze(frozen)
        outputs = Outputs(network, compile=train.compile)
        normalise = train.normalise and not network.backbone.normalises
        normaliser = Normaliser.fit(data.train, normalise=normalise, rows=benchmark.tasks[0].train)
        normaliser = replace(normaliser, layout=layout).to(device)
        tasks = [joint_task(benchmark, masked=masked)] if config.joint else list(benchmark.tasks)
        cells = joint_mask(benchmark) if masked else data.train.known
        known = KnownLabels(tasks, data.train.labels, cells, device)
        scorer = Scorer(network, normaliser, train.eval_batch_size, processes)
        return cls(config, benchmark, tasks, processes, network, outputs, frozen, normaliser, known, scorer)

    @property
    def data(self) -> Dataset:
        """Return the dataset."""
        return self.benchmark.dataset

    @property
    def device(self) -> torch.device:
        """Return where steps are made."""
        return self.processes.fabric.device

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """Return an array as a tensor where steps are made."""
        return torch.from_numpy(array).to(self.device)

    def of_train(self, function: Any, rows: Rows) -> NDArray[np.float32]:
        """Apply a function of the network to training rows."""
        return self.scorer(function, self.data.train.inputs, rows)


def _network(
    config: Config, shape: tuple[int, ...], classes: int, processes: Processes
) -> tuple[Network, torch.memory_format]:
    chosen, device = config.model, processes.fabric.device
    seed = derive_seed(config.seed, "model")
    network = build_model(
        chosen.kind, shape, classes, seed=seed, load=False, head=chosen.head, **chosen.options
    )
    network.to(device)
    layout = fast_layout(network)
    network.to(memory_format=layout)  # type: ignore[call-overload]
    if processes.size > 1:
        # Loaded here: it takes about a second, for torch.compiler.
        from mlcl.engines.batch_norm import share_statistics

        network = share_statistics(network, device)
    return network, layout


def frozen_layers(network: Network, up_to: str | None, *, model: str = "") -> tuple[nn.Module, ...]:
    """Return the modules of a backbone up to and including the layer of a name, in the order of their registration.

    Parameters that a module around that layer owns itself, such as a transformer's position embeddings, come before the
    layers in it.

    Args:
        up_to: name of a layer, such as ``blocks.3`` or ``layer2``; ``all``: the whole backbone; None: nothing.

    >>> from mlcl.models import build_model
    >>> network = build_model("mlp", (4,), 3, hidden=8)
    >>> [type(module).__name__ for module in frozen_layers(network, "layers.1")]
    ['VectorBackbone', 'Sequential', 'Linear', 'LayerNorm']
    """
    if up_to is None:
        return ()
    backbone = network.backbone
    modules = dict(backbone.named_modules())
    if up_to == ALL:
        return tuple(modules.values())
    # Models of packages are one level down.
    name = next((name for name in (up_to, f"model.{up_to}") if name and name in modules), None)
    if name is None:
        known = [other.removeprefix("model.") for other in modules if other not in ("", "model")]
        raise InputError(
            f"train.freeze is {up_to!r}; expected 'all' or a layer of model {model!r}, such as {known[-1]!r}."
            f"{nearest(up_to, known)}"
            if known
            else f"train.freeze is {up_to!r}, but model {model!r} has no layers; expected 'all' or nothing."
        )
    last = max(place for place, other in enumerate(modules) if other == name or other.startswith(f"{name}."))
    return tuple(modules.values())[: last + 1]


def freeze(modules: Sequence[nn.Module]) -> None:
    """Exclude the parameters of modules from learning; those of modules in them are the caller's to list."""
    for module in modules:
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(False)


def training_mode(network: Network, frozen: Sequence[nn.Module], *, statistics: bool) -> None:
    """Switch a network to training, except for what is frozen.

    Args:
        frozen: modules that do not learn, of `frozen_layers`: they are as in evaluation, without dropout, and with
            their running statistics; except for those around layers that learn.
    """
    network.train()
    whole = set(frozen)
    for module in frozen:
        if whole.issuperset(module.modules()):
            module.training = False
    if statistics:
        for module in network.backbone.modules():
            if isinstance(module, _BatchNorm):
                module.eval()
