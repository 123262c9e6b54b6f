"""Avalanche (extra ``avalanche``): WRU, PRS and OCDM as storage policies, RLDAM as a criterion, on multi-hot targets.

A target is a row over all K classes: 1 positive, 0 negative, -1 unknown, because the class belongs to another
experience. The target of a replayed sample thus shows for which classes the sample contributes to the loss, and
Avalanche's own loop, replay plugin and loaders need no change:

    scenario = multilabel_benchmark(load_benchmark(config_from("c-digits")))
    strategy = Naive(
        model=model,
        optimizer=optimizer,
        criterion=MultiLabelCriterion("rldam", classes=20),
        plugins=[ReplayPlugin(mem_size=200, storage_policy=MultiLabelBuffer(200, "wru"))],
        evaluator=EvaluationPlugin(),
    )
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchDataset

from mlcl.errors import InputError, check_choice
from mlcl.labels import LabelCounts, as_labels
from mlcl.losses import LOSSES, build_loss
from mlcl.memories import MEMORIES, Memory, TaskSamples, own_rows
from mlcl.models.packages import require
from mlcl.streams import Benchmark
from mlcl.training.batches import Normaliser

require("avalanche", "mlcl.integrations.avalanche")

from avalanche.benchmarks import benchmark_from_datasets  # noqa: E402
from avalanche.benchmarks.utils import AvalancheDataset, DataAttribute  # noqa: E402
from avalanche.benchmarks.utils.utils import concat_datasets  # noqa: E402
from avalanche.training.plugins import SupervisedPlugin  # noqa: E402
from avalanche.training.storage_policy import ExemplarsBuffer  # noqa: E402

__all__ = ["UNKNOWN", "MultiLabelBuffer", "MultiLabelCriterion", "multilabel_benchmark", "multilabel_dataset"]

UNKNOWN = -1
"""The target of a class that the experience does not label."""


class _Pairs(TorchDataset[tuple[Tensor, Tensor]]):
    """A map-style dataset of inputs, each with its row of targets."""

    def __init__(self, inputs: Any, targets: NDArray[np.int8]) -> None:
        self.inputs, self.targets = inputs, torch.from_numpy(targets).float()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return torch.as_tensor(self.inputs[row]), self.targets[row]


class _Rows:
    """Some rows of a split, normalised on access."""

    def __init__(self, inputs: NDArray[Any], rows: NDArray[np.int64], normaliser: Normaliser) -> None:
        self.inputs, self.rows, self.normaliser = inputs, rows, normaliser

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Tensor:
        raw = torch.from_numpy(np.array(self.inputs[int(self.rows[row])]))
        return self.normaliser(raw[None])[0]


def multilabel_dataset(inputs: Any, labels: ArrayLike, *, classes: ArrayLike) -> Any:
    """Return an ``AvalancheDataset`` with multi-hot targets for one experience.

    Args:
        inputs: an array, a tensor, or any object with ``len`` and ``[row]`` that returns one input.
        labels: 0/1 ``[n, K]`` over the classes of all experiences.
        classes: ids of the classes that this experience labels; the others become `UNKNOWN`.
    """
    matrix = as_labels(labels, rows=len(inputs))
    ids = np.unique(np.asarray(classes, dtype=np.int64))
    if not len(ids) or ids[0] < 0 or ids[-1] >= matrix.shape[1]:
        raise InputError(f"classes is {ids.tolist()}, but ids from 0 to {matrix.shape[1] - 1} were expected")
    targets = np.full(matrix.shape, UNKNOWN, np.int8)
    targets[:, ids] = matrix[:, ids]
    rows: list[tuple[int, ...]] = [tuple(row.tolist()) for row in targets]
    attribute = DataAttribute(rows, "targets")
    return AvalancheDataset([_Pairs(inputs, targets)], data_attributes=[attribute])


def multilabel_benchmark(benchmark: Benchmark, *, normalise: bool = True) -> Any:
    """Return the tasks of a benchmark as Avalanche's ``CLScenario`` with a train and a test stream.

    Args:
        benchmark: such as ``load_benchmark(config_from("c-digits"))``.
        normalise: standardise inputs by the mean and standard deviation of the first task's training rows; otherwise
            images are in [0, 1].
    """
    data = benchmark.dataset
    normaliser = Normaliser.fit(data.train, normalise=normalise, rows=benchmark.tasks[0].train)
    streams: dict[str, list[Any]] = {"train": [], "test": []}
    for task in benchmark.tasks:
        for name, split, rows in (("train", data.train, task.train), ("test", data.test, task.test)):
            inputs = _Rows(split.inputs, rows, normaliser)
            streams[name].append(multilabel_dataset(inputs, split.labels[rows], classes=task.classes))
    return benchmark_from_datasets(**streams)


def experience_targets(dataset: Any) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Return the targets ``[n, K]`` of a dataset, and the ids of the classes that it labels."""
    found = getattr(dataset, "targets", None)
    try:
        targets = np.array(list(found), dtype=np.int8)  # type: ignore[arg-type]
        sound = targets.ndim == 2 and len(targets) > 0 and bool(np.isin(targets, (UNKNOWN, 0, 1)).all())
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise InputError(
            "the dataset has no attribute 'targets' with a row of 1, 0 or -1 for each sample; "
            "multilabel_dataset makes such datasets"
        )
    known = targets != UNKNOWN
    if (known != known[0]).any() or not known[0].any():
        row = int((known != known[0]).any(1).argmax())
        raise InputError(
            f"sample {row} of an experience labels {int(known[row].sum())} classes and sample 0 labels "
            f"{int(known[0].sum())}, but the same classes, at least one, were expected for all samples"
        )
    return targets, np.flatnonzero(known[0])


class MultiLabelBuffer(ExemplarsBuffer):  # type: ignore[misc]
    """A storage policy for ``ReplayPlugin``: the samples of past experiences that an `mlcl.Memory` selects.

    ``buffer`` is a subset of the datasets of the experiences, not a copy. The label counts of every experience
    (``P_k``, ``N_k``, ``n``) are in ``memory.tasks``.

    Args:
        max_size: Largest number of samples to store; the same as ``mem_size`` of the plugin.
        kind: ``wru``, ``prs``, ``ocdm``, ``random`` or ``reservoir``.
        seed: Seed of all random draws.
        options: Options of the memory, such as ``criterion`` of WRU or ``rho`` of PRS.
    """

    def __init__(self, max_size: int, kind: str = "wru", *, seed: int = 0, **options: Any) -> None:
        super().__init__(max_size)
        self.memory = Memory(kind, max_size, seed=seed, **options)
        if self.memory.needs:
            fitting = [name for name in MEMORIES.names() if not Memory(name, 1).needs]
            raise InputError(
                f"memory {kind!r} needs {self.memory.needs[0]}, which a storage policy does not receive; expected one "
                f"of: {', '.join(fitting)}"
            )

    def update(self, strategy: Any, **_: Any) -> None:
        """Update the buffer with the experience that a strategy has just learnt."""
        self.post_adapt(strategy, strategy.experience)

    def post_adapt(self, agent_state: Any, exp: Any) -> None:  # noqa: ARG002  (Avalanche's signature)
        """Update the buffer with a finished experience."""
        targets, classes = experience_targets(exp.dataset)
        rows = len(self.memory) + np.arange(len(targets))  # rows of the buffer come first
        self.memory.update(TaskSamples.of(len(self.memory.tasks), classes, rows, targets[:, classes]))
        self._keep(concat_datasets([self.buffer, exp.dataset]))

    def resize(self, strategy: Any, new_size: int) -> None:  # noqa: ARG002  (Avalanche's signature)
        """Change the size; surplus samples are dropped by the rule of the memory (PRS has none: at random)."""
        old, kind = self.memory, self.memory.kind
        self.max_size = new_size
        self.memory = Memory(kind, new_size, seed=old.seed, **old.options)
        self.memory.tasks = old.tasks
        if len(old) <= new_size:
            return
        nothing = np.zeros(0, np.int64)
        empty = TaskSamples.of(-1, nothing, nothing, np.zeros((0, 0), np.uint8))
        strategy_of = MEMORIES.get("random" if kind == "prs" else kind)
        options = {} if kind == "prs" else old.options
        rng = np.random.default_rng([old.seed, len(old.tasks), new_size])
        self.memory.tasks = strategy_of(old.tasks, empty, new_size, rng, **options)[:-1]
        self._keep(self.buffer)

    def _keep(self, dataset: Any) -> None:
        """Make the selected rows of a dataset the buffer, and renumber the rows of the memory accordingly."""
        self.buffer = dataset.subset(self.memory.rows.tolist())
        self.memory.tasks = tuple(own_rows(self.memory))


class MultiLabelCriterion(SupervisedPlugin):  # type: ignore[misc]
    """A loss of `mlcl.losses` as the criterion of a strategy.

    Avalanche registers it as a plugin, too, so that it can count the labels of each experience. Every row contributes
    to the loss for the classes of its own experience, with the label counts of the whole dataset of that experience.
    The losses of the experiences in a batch are added with the memory weights
    (specification.md#memory-weight). Classes of experiences that were not trained yet contribute no loss, for
    example when future experiences are evaluated.

    Args:
        kind: A name that ``mlcl ls losses`` shows.
        classes: ``K``, the width of the model's output.
        memory_weight: Weight of an old experience's loss: ``mean`` ``1/(t-1)``, or ``equal`` 1.
        options: Options of the loss, such as ``margin``.
    """

    def __init__(
        self,
        kind: str = "rldam",
        *,
        classes: int,
        memory_weight: Literal["mean", "equal"] = "mean",
        **options: Any,
    ) -> None:
        super().__init__()
        check_choice("memory_weight", memory_weight, ("mean", "equal"))
        LOSSES.check(kind, options)
        self.kind, self.options, self.memory_weight = kind, options, memory_weight
        self.counts = LabelCounts.of(np.zeros((0, classes), np.uint8))
        self.group_of_class = torch.full((classes,), -1)
        self.groups: list[tuple[int, ...]] = []
        self.counted: set[Any] = set()
        self.loss: nn.Module | None = None
        self.weights = torch.ones(0)

    def before_training_exp(self, strategy: Any, **_: Any) -> None:
        """Add the label counts of the experience that is about to be learnt."""
        self.start(strategy.experience.dataset, key=strategy.experience.current_experience)

    def start(self, dataset: Any, *, key: Any) -> None:
        """Add the label counts of a dataset, once per ``key``, and make it the current one."""
        targets, classes = experience_targets(dataset)
        if targets.shape[1] != len(self.counts):
            raise InputError(f"targets have {targets.shape[1]} classes, but {len(self.counts)} were expected")
        group = self._group(tuple(classes.tolist()))
        if key not in self.counted:  # an experience that is trained again adds no labels
            self.counted.add(key)
            self.counts = self.counts + LabelCounts.of(targets[:, classes]).place(classes, len(self.counts))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # classes of later experiences have no counts yet
            self.loss = build_loss(self.kind, self.counts, **self.options)
        self.weights = torch.ones(len(self.groups))
        if self.memory_weight == "mean" and len(self.groups) > 1:
            self.weights /= len(self.groups) - 1
            self.weights[group] = 1.0

    def _group(self, classes: tuple[int, ...]) -> int:
        """Return the number of a set of classes; a new set gets the next number."""
        if classes not in self.groups:
            known = [k for k in classes if self.group_of_class[k] >= 0]
            if known:
                raise InputError(
                    f"classes {known} were labelled by an earlier experience together with other classes, "
                    "but experiences with the same classes or with none in common were expected"
                )
            self.group_of_class[list(classes)] = len(self.groups)
            self.groups.append(classes)
        return self.groups.index(classes)

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of a mini-batch of current and replayed rows."""
        if self.loss is None:
            raise InputError("the criterion has seen no experience yet; train on one first")
        known = targets >= 0
        groups = self.group_of_class.to(targets.device)[known.to(torch.uint8).argmax(1)]
        mask = known & (groups >= 0).unsqueeze(1)
        found: Tensor = self.loss.to(logits.device)(
            logits,
            (targets > 0).to(logits.dtype),
            mask=mask,
            groups=groups.clamp_min(0),
            group_weights=self.weights.to(logits.device),
        )
        return found
