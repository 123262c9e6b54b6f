"""A tagger as one safetensors file: tensors, and JSON in its header. Files are untrusted: nothing in them runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from mlcl.errors import InputError
from mlcl.files import write_bytes
from mlcl.labels import LabelCounts
from mlcl.memories import Memory
from mlcl.sklearn.learning import Learnt, new_network
from mlcl.sklearn.targets import Name, check_names
from mlcl.training.batches import Normaliser

FORMAT, VERSION = "mlcl-tagger", 1
KEY = "mlcl"


def write_tagger(
    path: Path,
    learnt: Learnt,
    *,
    params: Mapping[str, Any],
    classes: list[Name],
    feature_names: list[str] | None,
    overwrite: bool,
) -> None:
    """Write a tagger, whole or not at all."""
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; expected a new file, or overwrite=True")
    tensors = {f"network.{name}": value for name, value in learnt.network.state_dict().items()}
    tensors |= {f"memory.{name}": torch.from_numpy(v) for name, v in learnt.memory.state().items()}
    tensors |= {"normaliser.scale": learnt.normaliser.scale, "normaliser.shift": learnt.normaliser.shift}
    tensors["inputs"] = torch.from_numpy(learnt.inputs)
    for name in ("positive", "negative"):
        tensors[f"counts.{name}"] = torch.tensor(getattr(learnt.counts, name))
    state = params.get("random_state")
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "params": plain | {"random_state": int(state) if isinstance(state, int | np.integer) else None},
        "classes": classes,
        "feature_names": feature_names,
        "model": learnt.model,
        "label_sets": [ids.tolist() for ids in learnt.label_sets],
        "total": learnt.counts.total,
        "seed": learnt.seed,
        "calls": learnt.calls,
        "sha256": _digest(tensors),
    }
    write_bytes(path, save({k: v.contiguous() for k, v in tensors.items()}, {KEY: json.dumps(header)}))


def read_tagger(path: Path) -> tuple[Learnt, dict[str, Any], list[Name], list[str] | None]:
    """Return what is known, the parameters, the names of classes, and those of features."""
    if not path.is_file():
        raise InputError(f"{path}: cannot be read: no such file.")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get(KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
    except Exception as error:  # the parser of an untrusted file: whatever it trips over, the file is bad
        raise InputError(f"{path}: is no tagger, or damaged: {_brief(error)}.") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{path}: is a safetensors file, but not one of a ContinualTagger.")
    if header.get("version") != VERSION:
        raise InputError(
            f"{path} has the format version {header.get('version')!r}, but this mlcl reads {VERSION}."
        )
    if header.get("sha256") != _digest(tensors):
        raise InputError(f"{path}: is damaged: its checksum is not that of its content.")
    try:
        return _restore(header, tensors)
    except Exception as error:  # names, shapes and values come from a file
        raise InputError(f"{path}: is damaged: {_brief(error)}.") from None


def _restore(
    header: Mapping[str, Any], tensors: dict[str, Tensor]
) -> tuple[Learnt, dict[str, Any], list[Name], list[str] | None]:
    """Put a tagger together; anything that does not fit raises something."""
    classes, sets = (
        check_names(header["classes"], "classes", []),
        [np.array(ids, np.int64) for ids in header["label_sets"]],
    )
    width, inputs = len(classes), tensors["inputs"]
    counts = LabelCounts(
        tensors["counts.positive"].numpy(), tensors["counts.negative"].numpy(), header["total"]
    )
    weights = _section(tensors, "network.")
    _refuse_bombs(header["model"], sum(value.numel() for value in weights.values()))
    network = new_network(header["model"], inputs.shape[1], width, 0)
    network.load_state_dict(weights)
    memory = Memory.from_state({name: value.numpy() for name, value in _section(tensors, "memory.").items()})
    scale, shift = tensors["normaliser.scale"], tensors["normaliser.shift"]
    names = header["feature_names"]
    sound = (
        type(header["seed"]) is int
        and header["seed"] >= 0
        and type(header["calls"]) is int
        and header["calls"] >= 1
        and width == len(counts)
        and all(
            np.array_equal(ids, np.unique(ids)) and len(ids) and ids[0] >= 0 and ids[-1] < width
            for ids in sets
        )
        and inputs.dtype == torch.float32
        and inputs.shape == (len(memory), scale.shape[1])
        and scale.shape == shift.shape == (1, scale.shape[1])
        and scale.dtype == shift.dtype == torch.float32
        and np.array_equal(memory.rows, np.arange(len(memory)))
        and sorted(part.task for part in memory.tasks) == list(range(len(sets)))
        and all(np.array_equal(part.classes, sets[part.task]) for part in memory.tasks)
        and (names is None or (len(names) == inputs.shape[1] and all(type(name) is str for name in names)))
    )
    if not sound:
        raise ValueError("its parts do not fit together")
    learnt = Learnt(
        network=network.eval(),
        normaliser=Normaliser(scale, shift),
        memory=memory,
        inputs=inputs.numpy(),
        label_sets=tuple(sets),
        counts=counts,
        model=header["model"],
        seed=header["seed"],
        calls=header["calls"],
    )
    return learnt, dict(header["params"]), classes, names


def _refuse_bombs(model: Mapping[str, int], weights: int) -> None:
    """Refuse a network that would be larger than its weights before any memory is taken for it."""
    if any(model.get(name, 1) > weights for name in ("hidden", "depth")) or (
        model.get("hidden", 1) ** 2 * (model.get("depth", 1) - 1) > weights
    ):
        raise ValueError("its network is not one of these weights")


def _section(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a SHA-256 over names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _brief(error: Exception) -> str:
    return (" ".join(str(error).split())[:200] or type(error).__name__).rstrip(".")
