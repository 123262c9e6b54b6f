"""The parts that a config names: their options, read from their signatures, and the check that they fit together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_origin

import numpy as np

from mlcl.config.schema import PARTS, SECTIONS, Config, settings_of
from mlcl.config.values import fits, shown_kind
from mlcl.errors import InputError, one_line
from mlcl.labels import LabelCounts
from mlcl.losses import LOSSES
from mlcl.memories import MEMORIES, Memory
from mlcl.methods.augment import AUGMENTATIONS, Augmentation
from mlcl.methods.labels import LABEL_POLICIES, LabelPolicy
from mlcl.methods.presets import PRESETS
from mlcl.methods.regularisers import REGULARISERS, Regulariser
from mlcl.models import HEADS, MODELS
from mlcl.plugins import Plugin, loaded_plugins
from mlcl.registry import Option, Registry, members, read_options, union
from mlcl.seeds import derive_seed

REGISTRIES: dict[str, Registry[Any]] = {
    "loss": LOSSES,
    "memory": MEMORIES,
    "regulariser": REGULARISERS,
    "labels": LABEL_POLICIES,
    "augment": AUGMENTATIONS,
    "model": MODELS,
}
RESERVED, PLAIN = ("options", "seed", "load"), (bool, int, float, str, type(None))
"""Names that no option of a part may have, beside the settings of its section; and types that it may have."""
GIVEN_BY_THE_RUN = {"augment": ("suits",), "memory": ("batch_size",)}
"""Options of parts that are no settings of their own: the run knows their value."""
NEUTRAL = {"loss": "bce", "memory": "none", "regulariser": "none", "labels": "task", "augment": "none"}
"""Parts that only training uses, and the kind of each that stands for none."""


@dataclass(frozen=True)
class MethodParts:
    """The parts of a method beside loss and memory."""

    labels: LabelPolicy
    regulariser: Regulariser
    augment: Augmentation | None

    @property
    def needs_teacher(self) -> bool:
        """Return whether a part compares with the network as it was before the task."""
        return self.labels.needs_teacher or self.regulariser.needs_teacher


def general_settings(part: str) -> list[str]:
    """Return the settings of a part that belong to the loop, whatever the part's kind.

    >>> general_settings("model")
    ['head']
    """
    return [name for name in settings_of(SECTIONS[part]) if name != "kind"]


def part_settings(part: str, kind: str) -> tuple[str, ...]:
    """Return the settings that a part of this kind uses.

    >>> part_settings("loss", "bce")
    ('kind', 'scale')
    """
    own = [name for name in REGISTRIES[part].options(kind) if name not in GIVEN_BY_THE_RUN.get(part, ())]
    return ("kind", *general_settings(part), *own)


def section_options(part: str) -> dict[str, Option]:
    """Return all options that parts of one section take, each with the union of its types and who takes it.

    >>> section_options("regulariser")["strength"].type
    float | None
    """
    found = {}
    for name, takers in REGISTRIES[part].all_options().items():
        if name in GIVEN_BY_THE_RUN.get(part, ()):
            continue
        for kind, option in takers:
            _check_option(part, kind, option)
        texts = dict.fromkeys(option.help.rstrip(".") for _, option in takers if option.help)
        who = ", ".join(kind for kind, _ in takers)
        kind = union([*(option.type for _, option in takers), type(None)])
        found[name] = Option(name, kind, None, f"{'; '.join(texts)}. ({who})" if texts else f"({who})")
    return found


def _check_option(part: str, kind: str, option: Option) -> None:
    """Refuse options that a config cannot set: names that are taken, and types that YAML has no values of."""
    where = f"{REGISTRIES[part].where(kind)}: {part} {kind!r} has the option {option.name!r}"
    if option.name in (*settings_of(SECTIONS[part]), *RESERVED):
        raise InputError(f"{where}, which is a setting of every {part}; expected another name.")
    for member in members([option.type]):
        if get_origin(member) not in (Literal, list, tuple) and member not in PLAIN:
            raise InputError(
                f"{where} of type {getattr(member, '__name__', member)}; expected bool, int, float, str, a Literal, a "
                "list, or None."
            )


def _check_options(part: str, section: str, kind: str, given: Mapping[str, Any]) -> None:
    """Refuse options that a part does not take, and values that are not of the type that it declares.

    Args:
        part: the registry of the part.
        section: where the options are set.
        kind: of the part.
        given: its options; another kind may take another type.
    """
    REGISTRIES[part].check(kind, given)
    for option in read_options(REGISTRIES[part].get(kind)):
        value = given.get(option.name)
        kinds = [kind for kind in members([option.type]) if kind is not type(None)]
        if value is not None and not any(fits(value, kind) for kind in kinds):
            expected = " or ".join(map(shown_kind, kinds))
            raise InputError(f"{section}.{option.name} is {value!r}; expected {expected}.")


def build_parts(config: Config, *, suits: str = "flip-crop") -> MethodParts:
    """Build label policy, regulariser and augmentation; ``suits`` is the augmentation that the dataset names."""
    chosen = dict(config.augment.options)
    if "suits" in AUGMENTATIONS.options(config.augment.kind):
        chosen["suits"] = suits
    augment = AUGMENTATIONS.build(config.augment.kind, **chosen)
    return MethodParts(
        LABEL_POLICIES.build(config.labels.kind, **config.labels.options),
        REGULARISERS.build(config.regulariser.kind, **config.regulariser.options),
        augment if config.augment.kind != "none" else None,
    )


def build_memory(config: Config) -> Memory:
    """Build the memory."""
    memory, seed = config.memory, derive_seed(config.seed, "memory")
    chosen = dict(memory.options)
    if "batch_size" in MEMORIES.options(memory.kind):
        chosen["batch_size"] = config.train.batch_size  # OCDM is offered what a training step sees
    return Memory(memory.kind, memory.samples, seed=seed, **chosen)


def check_combination(config: Config) -> None:
    """Refuse unknown kinds, options that a part does not use, bad values, and parts that do not go together."""
    for part in PARTS:
        section = getattr(config, part)
        _check_options(part, part, section.kind, section.options)
    _check_values(config)
    HEADS.get(config.model.head)
    if config.committee.encoder is not None:
        given = config.committee.encoder_options
        _check_options("model", "committee.encoder_options", config.committee.encoder, given)
    elif config.committee.encoder_options:
        raise InputError("committee.encoder_options are set, but no committee.encoder.")
    if config.regulariser.kind == "tokens" and config.model.head != "attention":
        raise InputError(
            "regulariser 'tokens' holds the embeddings of KRT's head; it needs model.head 'attention'."
        )
    if config.regulariser.kind == "der" and config.memory.kind == "none":
        raise InputError("regulariser 'der' holds the logits of stored samples; memory.kind is 'none'.")
    if config.model.head == "exact":
        for part, neutral in NEUTRAL.items():
            if (kind := getattr(config, part).kind) != neutral:
                raise InputError(
                    f"model.head 'exact' is solved and not trained; {part}.kind is {kind!r}, expected {neutral!r}."
                )
    if config.joint and config.memory.kind != "none":
        raise InputError(
            f"protocol {config.protocol!r} learns everything at once; memory.kind is {config.memory.kind!r}, "
            "expected 'none'."
        )


def _check_values(config: Config) -> None:
    """Build every part except the model once: each one checks the values of its own options."""
    counts = LabelCounts.of(np.zeros((0, 1), np.uint8))
    built: dict[str, Callable[[], object]] = {
        "loss": lambda: LOSSES.build(config.loss.kind, counts, **config.loss.options),
        "memory": lambda: build_memory(config),
        "regulariser": lambda: REGULARISERS.build(config.regulariser.kind, **config.regulariser.options),
        "labels": lambda: LABEL_POLICIES.build(config.labels.kind, **config.labels.options),
        "augment": lambda: build_parts(config),
    }
    for part, build in built.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that this class has no samples
                build()
        except InputError as error:
            named = str(error).partition(" is ")[0] in getattr(config, part).options
            raise InputError(f"{part}.{error}" if named else str(error)) from None
        except Exception as error:
            kind = getattr(config, part).kind
            if not (owner := REGISTRIES[part].owner(kind)):
                raise
            raise InputError(
                f"{part} {kind!r} of the plugin {owner} cannot be built: {type(error).__name__}: {one_line(error)}."
            ) from None


def used_plugins(config: Config) -> tuple[Plugin, ...]:
    """Return the plugins that registered a part, or the method, of a config."""
    owners = {REGISTRIES[part].owner(getattr(config, part).kind) for part in PARTS}
    owners |= {PRESETS.owner(config.method), HEADS.owner(config.model.head)}
    if config.committee.encoder is not None:
        owners.add(MODELS.owner(config.committee.encoder))
    return tuple(plugin for plugin in loaded_plugins() if plugin.source in owners)
