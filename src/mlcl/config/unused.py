"""Settings that a config does not use: of training where nothing is trained, of a memory where there is none.

Shipped configs, copies of them and the ``config.yaml`` of a run have the settings of all methods, and a sweep sets them
for all of its rows: there they are no mistake. What somebody sets by hand for one run is meant to change it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from mlcl.config.parts import NEUTRAL, part_settings
from mlcl.config.schema import Config, flat

OF_STEPS = (
    *("epochs", "batch_size", "optimiser", "lr", "momentum", "weight_decay", "backbone_lr", "freeze"),
    *("freeze_statistics", "schedule", "lr_drops", "lr_factor", "class_power", "average"),
)
"""Settings of ``train`` that only training steps use; the others are also about evaluation, or about the machine."""
OF_DROPS = ("lr_drops", "lr_factor")
"""Settings of ``train`` that only the schedule ``steps`` uses."""
NONE = {"train.epochs": 0, "memory.size": 0}
"""Values that ask for nothing: they agree with what happens."""


def unused_settings(config: Config) -> dict[str, str]:
    """Return the settings that have no effect on a run, by dotted name, each with the reason.

    >>> from mlcl.config.resolve import resolve
    >>> found = unused_settings(resolve(given={"method": "exact"}))
    >>> found["train.lr"]
    "model.head is 'exact', which is solved and not trained"
    >>> found["memory.size"]
    "memory.kind is 'none'"
    >>> unused_settings(resolve(given={"method": "er"}))
    {}
    """
    found: dict[str, str] = {}
    if config.train.schedule == "cosine":
        found |= dict.fromkeys((f"train.{name}" for name in OF_DROPS), "train.schedule is 'cosine'")
    if config.model.head == "exact":
        names = [f"train.{name}" for name in OF_STEPS] + ["checkpoint.every", *_of_part("loss")]
        found |= dict.fromkeys(names, "model.head is 'exact', which is solved and not trained")
    if config.memory.kind == NEUTRAL["memory"]:
        found |= dict.fromkeys(_of_part("memory"), "memory.kind is 'none'")
    return found


def _of_part(part: str) -> list[str]:
    """Return the settings of a part that stands for none, except for its kind."""
    return [f"{part}.{name}" for name in part_settings(part, NEUTRAL[part]) if name != "kind"]


def without_effect(config: Config, layer: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each setting of a layer that has no effect on a run.

    Args:
        config: of the run.
        layer: settings, all of them by hand.

    >>> from mlcl.config.resolve import resolve
    >>> given = {"method": "ft", "memory": {"size": 100}}
    >>> list(without_effect(resolve(given=given), given))
    ["memory.size is 100, which has no effect: memory.kind is 'none' (method 'ft')"]
    """
    reasons = unused_settings(config)
    for name, value in flat(layer).items():
        if name in reasons and value is not None and NONE.get(name) != value:
            yield f"{name} is {value!r}, which has no effect: {reasons[name]} (method {config.method!r})"


def warn_of_unused(
    config: Config, *, file: Mapping[str, Any], given: Mapping[str, Any] | None = None
) -> None:
    """Warn of settings that somebody set by hand and that have no effect.

    A file that names its data is whole, such as a copy of a shipped config: it has the settings of all methods. And the
    settings of a file are not meant for a method that the command line names instead of the file's.

    Args:
        config: of the run.
        file: the settings of the user's file, or of a mapping in its place.
        given: the settings of the command line.
    """
    given = given or {}
    whole = "data" in file or "method" in given
    for layer in (given,) if whole else (file, given):
        for sentence in without_effect(config, layer):
            warnings.warn(sentence, UserWarning, stacklevel=3)
