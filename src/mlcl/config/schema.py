"""Every setting of a run, as frozen dataclasses. Only the standard library is imported here.

Settings of the loop are listed with their defaults. A part (the loss, the memory, the model, ...) is a ``kind`` and the
``options`` of that kind, which the part itself declares by its signature: an option that is not set has the part's own
default, and one that the chosen part does not take is refused when the config is resolved.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from mlcl.errors import InputError

PARTS = ("loss", "memory", "regulariser", "labels", "augment", "model")
"""Settings with a ``kind``: ``--loss ru`` and ``loss: ru`` are short for ``loss.kind``."""


SEEDS = 2**64
"""A seed is below it: 64 bits."""


def _check_seed(name: str, seed: int | None) -> None:
    if seed is not None and not 0 <= seed < SEEDS:
        shown = str(seed) if abs(seed) < SEEDS**2 else f"a number of {seed.bit_length()} bits"
        raise InputError(f"{name} is {shown}; expected a whole number from 0 to 2^64 - 1.")


def _at_least(section: str, config: Any, **bounds: float) -> None:
    """Refuse numbers below their bound, and numbers that are not finite."""
    for name, low in bounds.items():
        value = getattr(config, name)
        if value is not None and not (math.isfinite(value) and value >= low):
            raise InputError(f"{section}{name} is {value}; expected a number of at least {low:g}.")


@dataclass(frozen=True)
class StreamConfig:
    """How a dataset becomes tasks.

    Args:
        tasks: number of tasks; the classes are cut into equal slices. Not set: 5, or as many as ``order`` or
            ``increment`` give.
        order: ``random`` (by seed), ``sorted`` (by class id), ``alphabetical`` (by name), ``paper`` (the released
            code's order for VOC, COCO and NUS-WIDE), or a list of lists of class ids or names.
        base: classes of the first task, for the field's B-C protocols (needs ``increment``).
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
        _at_least("stream.", self, tasks=1, base=0, increment=1)
        _check_seed("stream.seed", self.seed)


@dataclass(frozen=True, init=False)
class PartConfig:
    """A part by its kind, and the options of that kind that are set.

    Args:
        kind: name of the part; the default of the section if not given.
        options: of the part, as a mapping.
        more: of the part, by keyword.

    >>> LossConfig("rldam", margin=3.5)
    LossConfig(kind='rldam', options={'margin': 3.5})
    """

    kind: str
    options: Mapping[str, Any]
    default: ClassVar[str]

    def __init__(
        self, kind: str | None = None, options: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        # Two ways to give options: by keyword for people, as a mapping for `dataclasses.replace`.
        given = {name: value for name, value in {**(options or {}), **more}.items() if value is not None}
        self._set(kind=self.default if kind is None else kind, options=given)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, init=False)
class ModelConfig(PartConfig):
    """The network: a backbone and a head.

    Args:
        kind: a name from ``mlcl ls models``; ``timm:NAME`` and ``torchvision:NAME`` are models of those packages.
        head: a name from ``mlcl ls heads``: ``linear`` (one layer of width K), ``attention`` (KRT's incremental
            cross-attention), ``lanes`` (after MULTI-LANE: a lane per task, for an encoder that is frozen), ``graph``
            (after CSC: one layer and a learnable graph over the classes), ``exact`` (one layer whose weights are
            solved in closed form, see ``exact``; nothing is trained), or one of your own.
        options: of the model, as a mapping.
        more: of the model, by keyword.
    """

    head: str
    default = "resnet8"

    def __init__(
        self,
        kind: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        head: str = "linear",
        **more: Any,
    ) -> None:
        super().__init__(kind, options, **more)
        self._set(head=head)


@dataclass(frozen=True, init=False)
class LossConfig(PartConfig):
    """The loss.

    Attributes:
        kind: a name from ``mlcl ls losses``.
    """

    default = "rldam"


@dataclass(frozen=True, init=False)
class MemoryConfig(PartConfig):
    """The memory of old samples and how it enters the loss.

    Args:
        kind: a name from ``mlcl ls memories``.
        size: samples that may be stored, over all tasks.
        downscale: store images at 1/downscale of their side, so that downscale^2 times as many fit into the same bytes.
        batch_size: memory samples per step; the training batch size if not set.
        sampling: memory batches drawn ``uniform`` from the whole memory, or ``balanced`` over past tasks.
        weight: w_i of an old task's loss: ``equal`` 1, ``mean`` 1/(t-1), ``size`` weight_scale * |M_i| / n_t.
        weight_scale: the factor s of ``size``.
        options: of the memory's strategy, as a mapping.
        more: of the memory's strategy, by keyword.
    """

    size: int
    downscale: int
    batch_size: int | None
    sampling: Literal["uniform", "balanced"]
    weight: Literal["equal", "mean", "size"]
    weight_scale: float | None
    default = "wru"

    def __init__(
        self,
        kind: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        size: int = 200,
        downscale: int = 1,
        batch_size: int | None = None,
        sampling: Literal["uniform", "balanced"] = "uniform",
        weight: Literal["equal", "mean", "size"] = "mean",
        weight_scale: float | None = None,
        **more: Any,
    ) -> None:
        super().__init__(kind, options, **more)
        self._set(size=size, downscale=downscale, batch_size=batch_size, sampling=sampling)
        self._set(weight=weight, weight_scale=weight_scale)
        _at_least("memory.", self, size=0, downscale=1, batch_size=1, weight_scale=0)
        if weight_scale is not None and weight != "size":
            raise InputError(
                f"memory.weight_scale is {weight_scale} but memory.weight is {weight!r}; "
                "it is used with memory.weight 'size' only."
            )

    @property
    def samples(self) -> int:
        """How many samples fit.

        >>> MemoryConfig(size=100, downscale=2).samples
        400
        """
        return self.size * self.downscale**2


@dataclass(frozen=True, init=False)
class RegulariserConfig(PartConfig):
    """The regulariser: a penalty that keeps the network close to what it was before the task.

    Attributes:
        kind: a name from ``mlcl ls regularisers``.
    """

    default = "none"


@dataclass(frozen=True, init=False)
class LabelsConfig(PartConfig):
    """For which classes a sample contributes to the loss, and with which targets.

    Attributes:
        kind: a name from ``mlcl ls labels``.
    """

    default = "task"


@dataclass(frozen=True, init=False)
class AugmentConfig(PartConfig):
    """Random changes of training images.

    Attributes:
        kind: a name from ``mlcl ls augmentations``; ``auto`` is what suits the data.
    """

    default = "none"


@dataclass(frozen=True)
class TrainConfig:
    """Optimiser and learning-rate schedule, restarted for each task, the same for every method.

    Args:
        epochs: epochs per task; 0 with model.head ``exact``, whatever is set.
        batch_size: samples of the current task per step, over all processes.
        optimiser: ``sgd`` (all methods except KRT), or ``adam``.
        lr: learning rate.
        momentum: momentum of SGD; Adam's first beta.
        weight_decay: weight decay.
        backbone_lr: learning rate of the backbone as a share of ``lr``, which is the head's.
        freeze: the backbone's layers up to this one do not learn, such as ``blocks.3``; ``all``: none of it learns.
        freeze_statistics: batch normalisations of the backbone use and keep the statistics that they come with.
        schedule: the learning rate falls in ``steps`` (the released code), or along a half ``cosine`` to zero.
        lr_drops: where in a task the learning rate is cut, as shares of its epochs (15/40 and 25/40 in the released
            code).
        lr_factor: what is left of the learning rate after a cut.
        class_power: the loss of a task of K classes is its mean over them times (K / 4)^class_power, if K is above 4:
            0 is the mean, 1 a sum.
        average: decay of a running average of the weights; at the end of a task the network becomes the average.
        normalise: shift and scale inputs by mean and standard deviation of the first task's training rows; else images
            are in [0, 1].
        eval_batch_size: samples per forward pass in evaluation.
        device: ``auto``, ``cpu``, ``cuda``, ``mps``.
        devices: processes that train together, each on its own GPU or share of the cores.
        precision: lightning-fabric's precision, such as ``32-true`` or ``bf16-mixed``.
        in_memory: copy a store into RAM before training.
        threads: CPU threads per process; sums on another number of threads may differ in the last digits. Not set:
            torch's choice.
        compile: compile the network with torch.compile; it starts slowly and pays in long runs.
        portable: give the same bits on every x86-64 machine: one CPU thread, AVX2 whatever else the processor offers,
            deterministic algorithms.
    """

    epochs: int = 8
    batch_size: int = 32
    optimiser: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.2
    momentum: float = 0.9
    weight_decay: float = 1e-5
    backbone_lr: float = 1.0
    freeze: str | None = None
    freeze_statistics: bool = False
    schedule: Literal["steps", "cosine"] = "steps"
    lr_drops: list[float] = field(default_factory=lambda: [0.375, 0.625])
    lr_factor: float = 0.4
    class_power: float = 0.5
    average: float | None = None
    normalise: bool = True
    eval_batch_size: int = 512
    device: str = "auto"
    devices: int = 1
    precision: str = "32-true"
    in_memory: bool = False
    threads: int | None = None
    compile: bool = False
    portable: bool = False

    def __post_init__(self) -> None:
        _at_least("train.", self, epochs=0, batch_size=1, lr=0, momentum=0, weight_decay=0, eval_batch_size=1)
        _at_least("train.", self, lr_factor=0, class_power=0, backbone_lr=0, threads=1, devices=1)
        if self.optimiser == "adam" and self.momentum >= 1:
            raise InputError(f"train.momentum is {self.momentum}; expected a number below 1 with Adam.")
        if self.average is not None and not 0 <= self.average < 1:
            raise InputError(f"train.average is {self.average}; expected a decay from 0 to below 1.")
        for share in self.lr_drops:
            if not 0 <= share <= 1:
                raise InputError(f"train.lr_drops holds {share}; expected shares of the epochs from 0 to 1.")
        if self.portable:
            self._make_portable()

    def _make_portable(self) -> None:
        """Settle what was left open, so that the config says what was computed with; refuse what cannot be portable."""
        allowed: dict[str, tuple[Any, ...]] = {
            "device": ("cpu", "auto"),
            "threads": (1, None),
            "precision": ("32-true", "64-true"),
            "compile": (False,),
        }
        for name, values in allowed.items():
            if (value := getattr(self, name)) not in values:
                raise InputError(
                    f"train.{name} is {value!r} but train.portable is true; expected {values[0]!r}."
                )
        object.__setattr__(self, "device", "cpu")
        object.__setattr__(self, "threads", 1)


@dataclass(frozen=True)
class ExactConfig:
    """The exact head: the weights of each class in closed form, from sums over the rows of all tasks so far.

    Args:
        solver: what is solved: ``pairs``, the square loss over pairs; or ``l3a``, weighted ridge regression with
            pseudo-labels, which uses ``ridge`` and ``pseudo`` alone. Not set: ``pairs``.
        pseudo: of ``l3a``: an old class is a pseudo-label where the sigmoid of its score is above this. Not set: 0.7.
        unlabelled: weight of rows that nobody annotated for a class, as its negatives, from 0 to 1; or the best for
            unseen rows of the class's own task (``in-task``), or for all unseen rows (``pooled``), as far as the sums
            can predict. 0 suits the in-task measure, 1 the pooled one.
        goal: what is chosen is chosen for: AUC (``auc``), average precision (``ap``), or the mean of both.
        form: ``shared``: one covariance for all classes of a task, and per class three vectors and a covariance along
            48 leading directions; ``full``: a covariance per class; ``auto``: ``full`` for up to 64 dimensions.
        spread: weight, from 0 to 1, of the spread of a class's positives beside that of its negatives; ``auto``: by the
            goal.
        dimensions: more features than this are projected to so many principal components of the first task's. Not set:
            256 in the full form, 8,192 in the shared one, and ``patches`` as many as it has.
        ridge: strength of the ridge, or ``auto``: the best for unseen rows.
        exponent: the ridge on a feature grows with its variance to this power: 0, as features are; 1, as if they were
            standardised; or ``auto``: the best for unseen rows.
    """

    unlabelled: float | Literal["in-task", "pooled"] = 0.1
    goal: Literal["auc", "ap", "both"] = "both"
    form: Literal["shared", "full", "auto"] = "auto"
    spread: float | Literal["auto"] = "auto"
    dimensions: int | None = None
    ridge: float | Literal["auto"] = "auto"
    exponent: float | Literal["auto"] = "auto"
    solver: Literal["pairs", "l3a"] | None = None
    pseudo: float | None = None

    def _check_l3a(self) -> None:
        """Refuse what L3A does not use, and the ridge that it cannot choose."""
        if self.ridge == "auto" or self.ridge == 0:
            raise InputError(
                f"exact.ridge is {self.ridge!r}; expected a number above 0 with exact.solver 'l3a'."
            )
        for name in ("unlabelled", "goal", "form", "spread", "dimensions", "exponent"):
            default = next(f.default for f in dataclasses.fields(self) if f.name == name)
            if (value := getattr(self, name)) != default:
                raise InputError(f"exact.{name} is {value!r}, which exact.solver 'l3a' does not use.")

    def __post_init__(self) -> None:
        if self.solver == "l3a":
            self._check_l3a()
        if self.pseudo is not None and (self.solver != "l3a" or not 0 <= self.pseudo <= 1):
            expected = "nothing" if self.solver != "l3a" else "a probability from 0 to 1"
            raise InputError(
                f"exact.pseudo is {self.pseudo}; expected {expected} with exact.solver {self.solver!r}."
            )
        _at_least("exact.", self, dimensions=1)
        for name, high in (("unlabelled", 1.0), ("ridge", math.inf), ("exponent", 1.0), ("spread", 1.0)):
            value, words = getattr(self, name), ("in-task", "pooled") if name == "unlabelled" else ("auto",)
            number = isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= high
            if not number and value not in words:
                expected = "a number of at least 0" if math.isinf(high) else f"a number from 0 to {high:g}"
                raise InputError(
                    f"exact.{name} is {value}; expected {expected}, or {' or '.join(map(repr, words))}."
                )


@dataclass(frozen=True)
class CommitteeConfig:
    """Members beside the trained network, solved in closed form (``exact``); their scores join its logits.

    Args:
        encoder: a member on the features of a fixed encoder, by a name from ``mlcl ls models``: ``fixed`` is
            ``patches`` for images and the vectors themselves for vectors. Not set: none.
        encoder_options: of the encoder, such as ``{pretrained: FILE}``.
        weight: of the encoder's score, where the network's logit has 1; both are brought to the same scale.
        moments: the same of a member on the network's own features, whose sums are carried over from task to task; 0:
            none.
        teach: how strongly the encoder's member teaches the network while it is trained, for the classes that a row
            was not annotated for; 0: not at all.
    """

    encoder: str | None = None
    encoder_options: dict[str, Any] = field(default_factory=dict)
    weight: float = 1.0
    moments: float = 0.0
    teach: float = 0.0

    def __post_init__(self) -> None:
        _at_least("committee.", self, weight=0, moments=0, teach=0)
        if self.teach and self.encoder is None:
            raise InputError(
                f"committee.teach is {self.teach:g}, but there is no committee.encoder, whose member would teach."
            )

    def __bool__(self) -> bool:
        return self.encoder is not None or self.moments > 0


@dataclass(frozen=True)
class CheckpointConfig:
    """When a run writes a checkpoint, from which ``mlcl resume`` continues.

    Args:
        every: steps between checkpoints inside a task. Not set: at the end of each task only.
    """

    every: int | None = None

    def __post_init__(self) -> None:
        _at_least("checkpoint.", self, every=1)


@dataclass(frozen=True)
class Config:
    """A whole run. A method's name is a preset of loss, memory, regulariser, labels, augment and protocol.

    >>> Config(method="er", seed=3).train.epochs
    8

    Args:
        benchmark: a name from ``mlcl ls benchmarks``, or the folder of a prepared store; its name is that in tables.
        data: ``digits``, the name of a prepared store, or its folder.
        method: a name from ``mlcl ls methods``.
        protocol: ``continual``; ``joint``: every image for every class at once, no tasks; or ``joint-masked``: at once,
            every image for the classes of the tasks that it is in.
        seed: seed of everything that is random.
        validate: evaluate on a fifth of the training split instead of the test split, to choose settings.
        held_out: share of the training rows that are not trained on but used to make scores into probabilities and to
            choose thresholds; not set: none, and probabilities follow from the counts of labels alone.
        threshold: a class is predicted where its probability is above this, for CF1, OF1 and the false-positive rate.
            Not set: 0.5.
        stream: tasks.
        model: network.
        loss: loss.
        memory: memory.
        regulariser: regulariser.
        labels: label policy.
        augment: augmentation.
        train: optimiser, learning-rate schedule, device.
        exact: what is solved instead of trained: the head, or members of the committee.
        committee: members beside the trained network.
        checkpoint: when to write checkpoints.
    """

    benchmark: str = "c-digits"
    data: str = "digits"
    method: str = "rldam-wru"
    protocol: Literal["continual", "joint", "joint-masked"] = "continual"
    seed: int = 0
    validate: bool = False
    held_out: float | None = None
    threshold: float | None = None
    stream: StreamConfig = field(default_factory=StreamConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    regulariser: RegulariserConfig = field(default_factory=RegulariserConfig)
    labels: LabelsConfig = field(default_factory=LabelsConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    exact: ExactConfig = field(default_factory=ExactConfig)
    committee: CommitteeConfig = field(default_factory=CommitteeConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        _check_seed("seed", self.seed)
        if self.held_out is not None and not 0 < self.held_out < 1:
            raise InputError(f"held_out is {self.held_out}; expected a share above 0 and below 1.")
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise InputError(f"threshold is {self.threshold}; expected a probability above 0 and below 1.")
        if self.model.head != "exact":
            _at_least("train.", self.train, epochs=1)
        elif self.committee:
            raise InputError("model.head is 'exact', which is solved alone; expected no committee with it.")

    @property
    def decision_threshold(self) -> float:
        """The probability above which a class is predicted.

        >>> Config().decision_threshold, Config(threshold=0.8).decision_threshold
        (0.5, 0.8)
        """
        return 0.5 if self.threshold is None else self.threshold

    @property
    def joint(self) -> bool:
        """Whether all tasks are learnt at once."""
        return self.protocol != "continual"

    @property
    def solves(self) -> bool:
        """Whether anything is solved in closed form."""
        return self.model.head == "exact" or bool(self.committee)


SECTIONS: dict[str, Any] = {
    f.name: f.default_factory
    for f in dataclasses.fields(Config)
    if f.default_factory is not dataclasses.MISSING
}
"""The sections of a config: name to dataclass."""


def settings_of(section: Any) -> list[str]:
    """Return the settings of a section's dataclass (or object) that do not depend on the kind of a part.

    >>> settings_of(MemoryConfig)[:3]
    ['kind', 'size', 'downscale']
    """
    return [f.name for f in dataclasses.fields(section) if f.name != "options"]


def to_dict(config: Any) -> dict[str, Any]:
    """Turn a config into plain nested dicts, without what is not set; ``exact`` and ``committee`` only where used.

    >>> to_dict(LossConfig("ru", scale=0.5))
    {'kind': 'ru', 'scale': 0.5}
    """
    values = {name: getattr(config, name) for name in settings_of(config)} | dict(
        getattr(config, "options", {})
    )
    return {
        name: to_dict(value) if dataclasses.is_dataclass(value) else value
        for name, value in values.items()
        if value is not None and not _idle(value, config)
    }


def _idle(value: Any, config: Any) -> bool:
    """Return whether a section says nothing about a run."""
    if isinstance(value, ExactConfig):
        return not config.solves
    return isinstance(value, CommitteeConfig) and not value


def from_dict(settings: Mapping[str, Any]) -> Config:
    """Return the config of plain nested dicts; bad values are an `InputError`.

    >>> from_dict({"loss": {"kind": "ru", "scale": 0.5}}).loss
    LossConfig(kind='ru', options={'scale': 0.5})
    """
    sections = {name: SECTIONS[name](**value) for name, value in settings.items() if name in SECTIONS}
    return Config(**{**settings, **sections})


def upgraded(exact: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of the exact learner as they are now: of version 0.1, ``goal`` was of the unlabelled rows alone.

    >>> upgraded({"unlabelled": "auto", "goal": "in-task"}), upgraded({"unlabelled": 0.1, "goal": "pooled"})
    ({'unlabelled': 'in-task'}, {'unlabelled': 0.1})
    """
    found = dict(exact)
    old = found.pop("goal") if found.get("goal") in ("in-task", "pooled") else "pooled"
    return found | ({"unlabelled": old} if found.get("unlabelled") == "auto" else {})


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted name.

    >>> flat({"seed": 1, "memory": {"size": 5}})
    {'seed': 1, 'memory.size': 5}
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
