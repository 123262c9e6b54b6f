"""From a config to the parts of a method, and the check that they fit together before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcl.config import PARTS, Config, options
from mlcl.errors import InputError
from mlcl.losses import LOSSES
from mlcl.memories import MEMORIES, Memory
from mlcl.methods.augment import AUGMENTATIONS, Augmentation
from mlcl.methods.labels import LABEL_POLICIES, LabelPolicy
from mlcl.methods.regularisers import REGULARISERS, Regulariser
from mlcl.models import MODELS
from mlcl.registry import Registry
from mlcl.seeds import derive_seed

REGISTRIES: dict[str, Registry[Any]] = {
    "loss": LOSSES,
    "memory": MEMORIES,
    "regulariser": REGULARISERS,
    "labels": LABEL_POLICIES,
    "augment": AUGMENTATIONS,
    "model": MODELS,
}
GENERAL = {
    "memory": ("size", "downscale", "batch_size", "sampling", "weight", "weight_scale"),
    "model": ("head",),
}
"""Settings of a part that belong to the loop, whatever the part's kind."""


@dataclass(frozen=True)
class Parts:
    """The parts of a method beside loss and memory."""

    labels: LabelPolicy
    regulariser: Regulariser
    augment: Augmentation | None

    @property
    def needs_teacher(self) -> bool:
        """Return whether a part compares with the network as it was before the task."""
        return self.labels.needs_teacher or self.regulariser.needs_teacher


def part_options(part: str, kind: str) -> tuple[str, ...]:
    """Return the settings that a part of this kind uses.

    >>> part_options("loss", "bce")
    ('kind', 'scale')
    """
    return ("kind", *GENERAL.get(part, ()), *REGISTRIES[part].options(kind))


def build_parts(config: Config, *, suits: str = "flip-crop") -> Parts:
    """Build label policy, regulariser and augmentation; ``suits`` is the augmentation that the data set names."""
    chosen = options(config.augment)
    if "suits" in AUGMENTATIONS.options(config.augment.kind):
        chosen["suits"] = suits
    augment = AUGMENTATIONS.build(config.augment.kind, **chosen)
    return Parts(
        LABEL_POLICIES.build(config.labels.kind, **options(config.labels)),
        REGULARISERS.build(config.regulariser.kind, **options(config.regulariser)),
        augment if config.augment.kind != "none" else None,
    )


def build_memory(config: Config) -> Memory:
    """Build the memory."""
    memory, seed = config.memory, derive_seed(config.seed, "memory")
    chosen = options(memory, without=GENERAL["memory"])
    if "batch_size" in MEMORIES.options(memory.kind):
        chosen["batch_size"] = config.train.batch_size  # OCDM is offered what a training step sees
    return Memory(memory.kind, memory.samples, seed=seed, **chosen)


def check_parts(config: Config) -> None:
    """Refuse unknown kinds, options that a part does not use, and parts that do not go together."""
    for part in PARTS:
        section = getattr(config, part)
        general = GENERAL.get(part, ())
        REGISTRIES[part].check(section.kind, options(section, without=general))
    if config.regulariser.kind == "tokens" and config.model.head != "attention":
        raise InputError(
            "regulariser 'tokens' holds the embeddings of KRT's head; it needs model.head 'attention'."
        )
    if config.regulariser.kind == "der" and config.memory.kind == "none":
        raise InputError("regulariser 'der' holds the logits of stored samples; memory.kind is 'none'.")
    if config.protocol == "joint" and config.memory.kind != "none":
        raise InputError(
            f"protocol 'joint' learns everything at once; memory.kind is {config.memory.kind!r}, expected 'none'."
        )
