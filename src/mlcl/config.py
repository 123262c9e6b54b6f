"""Every setting of a run, as frozen dataclasses: the one place that lists all options with their defaults.

Nothing is imported here but the standard library, so that a config can be read and refused before torch is loaded.
An option that is None has no value of its own: the part (the loss, the memory, ...) uses its own default, and a
value that the chosen part would not use is refused when the run is built.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from mlcl.errors import InputError

PARTS = ("loss", "memory", "regulariser", "labels", "augment", "model")
"""Settings with a ``kind``: ``--loss ru`` and ``loss: ru`` are short for ``loss.kind``."""


def _at_least(section: str, config: Any, **bounds: float) -> None:
    """Refuse numbers below their bound, and numbers that are not finite."""
    for name, low in bounds.items():
        value = getattr(config, name)
        if value is not None and not (math.isfinite(value) and value >= low):
            raise InputError(f"{section}{name} is {value}; expected a number of at least {low:g}.")


@dataclass(frozen=True)
class StreamConfig:
    """How a data set becomes tasks (SPEC 2).

    Args:
        tasks: number of tasks; the classes are cut into equal slices. Not set: 5, or as many as ``order`` or
            ``increment`` give.
        order: ``random`` (by seed), ``sorted``, ``paper`` (the released code's order for VOC, COCO and NUS-WIDE), or a
            list of lists of class ids or names.
        base: classes of the first task, when the field's B-C protocols are wanted (needs ``increment``).
        increment: classes of each task after the first (``B10-C2`` is base 10, increment 2).
        setting: ``overlap``: an image comes back with each task's labels; ``disjoint``: it is in one task only.
        negatives: ``in_task``: only images with a class of the task; ``all``: every image, as negatives.
        imbalance: ``official`` deletes training images as the released code does; ``none`` keeps all.
        seed: seed of order, disjoint choice and deletion; the run's seed if not set.
    """

    tasks: int | None = None
    order: str | list[list[int]] | list[list[str]] = "random"
    base: int = 0
    increment: int | None = None
    setting: Literal["overlap", "disjoint"] = "overlap"
    negatives: Literal["in_task", "all"] = "in_task"
    imbalance: Literal["none", "official"] = "none"
    seed: int | None = None

    def __post_init__(self) -> None:
        _at_least("stream.", self, tasks=1, base=0, increment=1, seed=0)


@dataclass(frozen=True)
class ModelConfig:
    """The network: a backbone and one linear head of width K.

    Args:
        kind: a name from ``mlcl ls models``; ``timm:NAME`` and ``torchvision:NAME`` are models of those packages.
        width: channels of the first stage (small ResNets).
        hidden: width of the hidden layers (MLP).
        depth: number of hidden layers (MLP).
        pretrained: weights of a package's model: true (its default), their name, or a file.
        resize: side to which images are resized for a package's model.
        head: ``linear``, or ``attention`` (KRT's incremental cross-attention).
    """

    kind: str = "resnet8"
    width: int | None = None
    hidden: int | None = None
    depth: int | None = None
    pretrained: bool | str | None = None
    resize: int | None = None
    head: Literal["linear", "attention"] = "linear"

    def __post_init__(self) -> None:
        _at_least("model.", self, width=1, hidden=1, depth=1, resize=1)


@dataclass(frozen=True)
class LossConfig:
    """The loss (SPEC 3). Options not set take the loss's own default; see ``mlcl ls losses``.

    Args:
        kind: a name from ``mlcl ls losses``.
        margin: lambda of the margin lambda / P_k^power.
        reweight: weights from the counts of the data set, or from those of the batch (the default of rldam and ru).
        base: the loss of a margin.
        power: power of the count in the margin.
        margin_count: P_k, or min(P_k, N_k).
        scale: factor on the whole loss.
        gamma: focusing power (focal).
        alpha: weight of positives (focal), or floor of the weights (distribution-balanced).
        gamma_positive: focusing power on positives (ASL).
        gamma_negative: focusing power on negatives (ASL).
        clip: probability shift of negatives (ASL).
        beta: steepness of the weights (distribution-balanced; ``alpha`` is their floor).
        mu: centre of the weights (distribution-balanced).
        kappa: initial bias of the logits (distribution-balanced).
        lambda_negative: tolerance for negatives (distribution-balanced).
    """

    kind: str = "rldam"
    margin: float | None = None
    reweight: Literal["dataset", "batch"] | None = None
    base: Literal["logistic", "hinge", "squared-hinge", "exponential"] | None = None
    power: float | None = None
    margin_count: Literal["positive", "minority"] | None = None
    scale: float | None = None
    gamma: float | None = None
    alpha: float | None = None
    gamma_positive: float | None = None
    gamma_negative: float | None = None
    clip: float | None = None
    beta: float | None = None
    mu: float | None = None
    kappa: float | None = None
    lambda_negative: float | None = None

    def __post_init__(self) -> None:
        _at_least("loss.", self, margin=0, power=0, scale=0, gamma=0, alpha=0, gamma_positive=0)
        _at_least("loss.", self, gamma_negative=0, clip=0)


@dataclass(frozen=True)
class MemoryConfig:
    """The memory of old samples (SPEC 4) and how it enters the loss (SPEC 3).

    Args:
        kind: a name from ``mlcl ls memories``.
        size: samples that may be stored, over all tasks.
        downscale: store images at 1/downscale of their side, so that downscale^2 times as many fit into the same bytes.
        batch_size: memory samples a step; the training batch size if not set.
        sampling: memory batches drawn ``uniform`` from the whole memory, or ``balanced`` over past tasks.
        weight: w_i of an old task's loss: ``equal`` 1, ``mean`` 1/(t-1), ``size`` weight_scale * |M_i| / n_t.
        weight_scale: the factor s of ``size``.
        candidates: WRU looks at this many random samples a step instead of all.
        criterion: WRU keeps the ``ratio`` P/N (paper) or the ``prevalence`` P/n.
        shrink: how WRU cuts old tasks.
        rho: power of the target distribution (PRS, OCDM).
        distance: divergence from the target (OCDM).
    """

    kind: str = "wru"
    size: int = 200
    downscale: int = 1
    batch_size: int | None = None
    sampling: Literal["uniform", "balanced"] = "uniform"
    weight: Literal["equal", "mean", "size"] = "mean"
    weight_scale: float | None = None
    candidates: int | None = None
    criterion: Literal["ratio", "prevalence"] | None = None
    shrink: Literal["prefix", "greedy_removal", "random"] | None = None
    rho: float | None = None
    distance: Literal["kl", "l1"] | None = None

    def __post_init__(self) -> None:
        _at_least("memory.", self, size=0, downscale=1, batch_size=1, weight_scale=0, candidates=1)
        if self.weight_scale is not None and self.weight != "size":
            raise InputError(
                f"memory.weight_scale is {self.weight_scale} but memory.weight is {self.weight!r}; "
                "it is used with memory.weight 'size' only."
            )

    @property
    def samples(self) -> int:
        """How many samples fit.

        >>> MemoryConfig(size=100, downscale=2).samples
        400
        """
        return self.size * self.downscale**2


@dataclass(frozen=True)
class RegulariserConfig:
    """What holds the network near its old self; see ``mlcl ls regularisers``.

    Args:
        kind: ``none``, ``ewc``, ``lwf``, ``der`` or ``tokens`` (KRT's).
        strength: factor on the penalty.
        online: EWC keeps one running Fisher instead of one anchor a task.
        decay: EWC online: what is kept of the old Fisher.
        samples: EWC: samples of a task that the Fisher is estimated on.
        fisher: EWC: labels of the data (``empirical``) or drawn from the model (``true``).
        distance: LwF: ``bce`` on soft targets, ``mse`` on logits, or ``huber``: mse that is linear beyond 1.
        temperature: LwF: softens both sides of ``bce``.
    """

    kind: str = "none"
    strength: float | None = None
    online: bool | None = None
    decay: float | None = None
    samples: int | None = None
    fisher: Literal["empirical", "true"] | None = None
    distance: Literal["bce", "mse", "huber"] | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        _at_least("regulariser.", self, strength=0, decay=0, samples=1)


@dataclass(frozen=True)
class LabelsConfig:
    """Which classes a sample is judged on; see ``mlcl ls labels``.

    Args:
        kind: ``task`` (its own task's classes), ``seen``, ``none`` (all K), or ``pseudo`` (old classes as the old
            network sees them), or ``negatives`` (rows of other tasks as negatives, where that is likely).
        mean_labels: pseudo: the mean number of labels an image over all classes; estimated if not set.
        trust: negatives: share of the rows of other tasks, those least like a class, that are its negatives.
    """

    kind: str = "task"
    mean_labels: float | None = None
    trust: float | None = None

    def __post_init__(self) -> None:
        _at_least("labels.", self, mean_labels=0)


@dataclass(frozen=True)
class AugmentConfig:
    """Random changes of training images; see ``mlcl ls augmentations``.

    Args:
        kind: ``none`` (the paper), ``flip``, ``crop``, ``flip-crop``, or ``auto`` (what suits the data).
        padding: pixels of padding before a crop; an eighth of the image if not set.
    """

    kind: str = "none"
    padding: int | None = None

    def __post_init__(self) -> None:
        _at_least("augment.", self, padding=0)


@dataclass(frozen=True)
class TrainConfig:
    """Optimiser and schedule, restarted for each task, the same for every method (SPEC 3).

    Args:
        epochs: epochs a task.
        batch_size: samples of the current task a step, over all processes.
        optimiser: ``sgd`` (all methods but KRT), or ``adam``.
        lr: learning rate.
        momentum: momentum of SGD; Adam's first beta.
        weight_decay: weight decay.
        schedule: the rate falls in ``steps`` (the released code), or along a half ``cosine`` to zero.
        lr_drops: where in a task the rate is cut, as shares of its epochs (15/40 and 25/40 in the released code).
        lr_factor: what is left of the rate after a cut.
        average: decay of a running average of the weights; at the end of a task the network becomes the average.
        normalise: shift and scale inputs by mean and deviation of the training split; else images are in [0, 1].
        eval_batch_size: samples a forward pass in evaluation.
        device: ``auto``, ``cpu``, ``cuda``, ``mps``.
        devices: processes that train together, each on its own GPU or share of the cores; ``--devices`` for short.
        precision: lightning-fabric's precision, such as ``32-true`` or ``bf16-mixed``.
        in_memory: copy a store into RAM before training.
        threads: CPU threads of a process; sums on another number of threads may differ in the last digits. Not set:
            torch's choice.
        compile: compile the network with torch.compile; it takes long to begin and pays in long runs.
    """

    epochs: int = 8
    batch_size: int = 32
    optimiser: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.2
    momentum: float = 0.9
    weight_decay: float = 1e-5
    schedule: Literal["steps", "cosine"] = "steps"
    lr_drops: list[float] = field(default_factory=lambda: [0.375, 0.625])
    lr_factor: float = 0.4
    average: float | None = None
    normalise: bool = True
    eval_batch_size: int = 512
    device: str = "auto"
    devices: int = 1
    precision: str = "32-true"
    in_memory: bool = False
    threads: int | None = None
    compile: bool = False

    def __post_init__(self) -> None:
        _at_least("train.", self, epochs=1, batch_size=1, lr=0, momentum=0, weight_decay=0, eval_batch_size=1)
        _at_least("train.", self, lr_factor=0, threads=1, devices=1)
        if self.optimiser == "adam" and self.momentum >= 1:
            raise InputError(f"train.momentum is {self.momentum}; expected a number below 1 with Adam.")
        if self.average is not None and not 0 <= self.average < 1:
            raise InputError(f"train.average is {self.average}; expected a decay from 0 to below 1.")
        for share in self.lr_drops:
            if not 0 <= share <= 1:
                raise InputError(f"train.lr_drops holds {share}; expected shares of the epochs from 0 to 1.")


@dataclass(frozen=True)
class CheckpointConfig:
    """When a run writes down where it stands, so that ``mlcl resume`` can go on.

    Args:
        every: steps between checkpoints inside a task. Not set: at the end of each task only.
    """

    every: int | None = None

    def __post_init__(self) -> None:
        _at_least("checkpoint.", self, every=1)


@dataclass(frozen=True)
class Config:
    """A whole run. A method's name is a preset of loss, memory, regulariser, labels, augment and protocol.

    Args:
        benchmark: name of the benchmark in tables.
        data: ``digits``, the name of a prepared store, or its folder.
        method: a name from ``mlcl ls methods``.
        protocol: ``continual``, or ``joint``: all classes and images at once, no tasks.
        seed: seed of everything that is random.
        validate: judge on a fifth of the training split instead of the test split, to choose settings.
        stream: tasks.
        model: network.
        loss: loss.
        memory: memory.
        regulariser: regulariser.
        labels: label policy.
        augment: augmentation.
        train: optimiser, schedule, device.
        checkpoint: when to write checkpoints.
    """

    benchmark: str = "c-digits"
    data: str = "digits"
    method: str = "rldam-wru"
    protocol: Literal["continual", "joint"] = "continual"
    seed: int = 0
    validate: bool = False
    stream: StreamConfig = field(default_factory=StreamConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    regulariser: RegulariserConfig = field(default_factory=RegulariserConfig)
    labels: LabelsConfig = field(default_factory=LabelsConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        _at_least("", self, seed=0)


def to_dict(config: Any) -> dict[str, Any]:
    """Turn a config into plain nested dicts, without the options that are not set.

    >>> to_dict(LossConfig(kind="ru"))
    {'kind': 'ru'}
    """
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    return {
        name: to_dict(value) if dataclasses.is_dataclass(value) else value
        for name, value in values.items()
        if value is not None
    }


def options(config: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a part's options that are set, without ``kind`` and the names given.

    >>> options(LossConfig(kind="ru", scale=0.5))
    {'scale': 0.5}
    """
    return {name: value for name, value in to_dict(config).items() if name != "kind" and name not in without}
