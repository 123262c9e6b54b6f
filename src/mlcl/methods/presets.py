"""A method is a name for a choice of parts. Most are one line of data here; nothing else has to know them.

A preset sets the parts in which it differs from the neutral run: no regulariser, no augmentation, every sample
contributing for its own task's classes. What a user sets by hand overrides it, so any part combines with any other:
``mlcl run --method replay --memory ocdm --loss rldam --regulariser ewc``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlcl.errors import InputError, nearest
from mlcl.registry import NamedValues


@dataclass(frozen=True)
class Preset:
    """A named choice of parts: ``parts`` has the form of a config file."""

    summary: str
    reference: str
    parts: dict[str, Any] = field(default_factory=dict)


def _parts(loss: str, memory: str = "none", **others: Any) -> dict[str, Any]:
    return {"loss": {"kind": loss}, "memory": {"kind": memory}, **others}


_DISTILLED_REPLAY = _parts(
    "rldam",
    "wru",
    regulariser={"kind": "lwf", "distance": "huber"},
    augment={"kind": "auto"},
    train={"schedule": "cosine"},
)
_COMMITTEE = {"encoder": "fixed", "moments": 0.5}
_KRT: dict[str, Any] = {
    "labels": {"kind": "pseudo"},
    "regulariser": {"kind": "tokens"},
    "model": {"head": "attention"},
    "train": {"optimiser": "adam", "lr": 0.003},
}

_SHIPPED: dict[str, Preset] = {
    "ft": Preset(
        "Fine-tuning: one task after the other with BCE, no memory; what forgetting costs.",
        "baseline",
        _parts("bce"),
    ),
    "ft-rldam": Preset(
        "Fine-tuning with the RLDAM loss, no memory.", "Zhang et al., AAAI 2025", _parts("rldam")
    ),
    "er": Preset(
        "Experience replay: BCE, equal quotas, samples chosen at random.",
        "Chaudhry et al., 2019",
        _parts("bce", "random"),
    ),
    "rldam-wru": Preset(
        "The paper's method: RLDAM loss and Weight Retain Updating memory.",
        "Zhang et al., AAAI 2025",
        _parts("rldam", "wru"),
    ),
    "er-rs": Preset(
        "Experience replay with Vitter's reservoir: every sample of the stream has an equal chance to be stored.",
        "Vitter, 1985; Chaudhry et al., 2019",
        _parts("bce", "reservoir"),
    ),
    "prs": Preset(
        "Partitioning reservoir sampling: the memory's classes are balanced as samples come and go.",
        "Kim et al., ECCV 2020",
        _parts("bce", "prs"),
    ),
    "ocdm": Preset(
        "Optimising class distribution in memory: greedy removal keeps the memory near a target distribution.",
        "Liang and Li, 2022",
        _parts("bce", "ocdm"),
    ),
    "krt": Preset(
        "Knowledge restore and transfer: pseudo-labels, incremental cross-attention, ASL; no memory.",
        "Dong et al., ICCV 2023",
        _parts("asl", **_KRT),
    ),
    "krt-r": Preset(
        "KRT with replay of samples chosen by herding.",
        "Dong et al., ICCV 2023",
        _parts("asl", "herding", **_KRT),
    ),
    "ewc": Preset(
        "Elastic weight consolidation with BCE, no memory.",
        "Kirkpatrick et al., PNAS 2017",
        _parts("bce", regulariser={"kind": "ewc"}),
    ),
    "ewc-rldam": Preset(
        "Elastic weight consolidation with the RLDAM loss, no memory.",
        "Zhang et al., AAAI 2025, appendix",
        _parts("rldam", regulariser={"kind": "ewc"}),
    ),
    "lwf": Preset(
        "Learning without Forgetting: BCE and distillation of the old logits, no memory.",
        "Li and Hoiem, ECCV 2016",
        _parts("bce", regulariser={"kind": "lwf"}),
    ),
    "distilled-replay": Preset(
        "RLDAM, WRU and distillation of the old logits on old and new images, with augmentation and a cosine schedule.",
        "docs/evidence/verdicts.md",
        _DISTILLED_REPLAY,
    ),
    "committee": Preset(
        "Distilled replay, and the exact learner on fixed features and on the network's own, as one score.",
        "docs/explanation/exact.md",
        _DISTILLED_REPLAY | {"committee": _COMMITTEE, "exact": {"unlabelled": 0.3}},
    ),
    "taught-committee": Preset(
        "A committee whose exact learner also teaches the network, for the classes that a row was not annotated for.",
        "this project (docs/explanation/exact.md)",
        _DISTILLED_REPLAY | {"committee": _COMMITTEE | {"teach": 1.0}, "exact": {"unlabelled": 0.3}},
    ),
    "csc": Preset(
        "Confidence self-calibration: BCE, distillation of the old probabilities and a max-entropy term; no memory.",
        "Du et al., ECCV 2024; its label graph is model.head graph",
        {
            "loss": {"kind": "bce", "scale": 0.5},
            "memory": {"kind": "none"},
            "regulariser": {
                "kind": "lwf",
                "strength": 0.5,
                "distance": "bce",
                "temperature": 1.0,
                "entropy": 0.04,
            },
        },
    ),
    "rebll": Preset(
        "Replay with RebLL's relabelling of missing labels, and distillation that decays where it is over-confident.",
        "RebLL: Du et al., AAAI 2025",
        _parts(
            "bce",
            "random",
            labels={"kind": "relabel"},
            regulariser={"kind": "lwf", "distance": "bce", "temperature": 1.0, "decay": 1.0},
        ),
    ),
    "lanes": Preset(
        "A lane per task on a frozen encoder: nothing of an earlier task changes; BCE, no memory.",
        "after MULTI-LANE: De Min et al., CoLLAs 2024",
        _parts("bce", model={"kind": "fixed", "head": "lanes"}, train={"freeze": "all"}),
    ),
    "l3a": Preset(
        "Ridge regression on random ReLU features with weighted rows and pseudo-labels: solved, nothing stored.",
        "Zhang et al., ICML 2025, on features that are fixed from the start",
        _parts(
            "bce",
            model={"kind": "random-relu", "head": "exact"},
            exact={"solver": "l3a", "ridge": 1000.0},  # at 1 it fails on features (docs/reference/methods.md)
            train={"epochs": 0},
        ),
    ),
    "exact": Preset(
        "Closed form on fixed features, from sums over rows: nothing is trained, stored or forgotten.",
        "specification.md",
        _parts("bce", model={"kind": "fixed", "head": "exact"}, train={"epochs": 0}),
    ),
    "joint": Preset(
        "Batch learning: every image for every class at once, with any loss; the upper bound of the pooled measure.",
        "baseline",
        _parts("bce", protocol="joint"),
    ),
    "joint-masked": Preset(
        "Batch learning with the tasks' masks: the upper bound in-task of networks trained from scratch.",
        "Zhang et al., AAAI 2025, Eq. 6",
        _parts("bce", protocol="joint-masked"),
    ),
    "replay": Preset(
        "Replay as a base to build on: BCE and a random memory until a part is set by hand.",
        "baseline",
        _parts("bce", "random"),
    ),
}

PRESETS: NamedValues[Preset] = NamedValues("method", _SHIPPED)
"""All methods by name; ``PRESETS["name"] = Preset(...)`` adds one."""

ALIASES = {"best": "taught-committee"}
"""Other names of presets. ``best`` is always the method that we recommend; runs and tables say which one that was."""

ON_FEATURES = {"best": "exact"}
"""What an alias means where features are fixed: on vectors, and on images with a pre-trained encoder."""


def method_name(name: str, *, features: bool = False) -> str:
    """Return the name behind an alias, or the name itself.

    Args:
        features: whether features are fixed, so that nothing but a head is to be learnt.
    """
    return (ON_FEATURES if features and name in ON_FEATURES else ALIASES).get(name, name)


def describe_alias(alias: str) -> str:
    """Return what an alias means."""
    other = ON_FEATURES.get(alias)
    return ALIASES[alias] + (f"; {other} on feature vectors and with a pre-trained encoder" if other else "")


def get_preset(name: str) -> Preset:
    """Return a preset by name; an unknown name is an `InputError` with the nearest match.

    >>> get_preset("er").parts["memory"]
    {'kind': 'random'}
    """
    if method_name(name) not in PRESETS:
        known = [*PRESETS, *ALIASES]
        raise InputError(f"unknown method {name!r}; known are: {', '.join(known)}.{nearest(name, known)}")
    return PRESETS[method_name(name)]
