"""A tagger as one safetensors file: tensors, and JSON in its header. Files are untrusted; loading one runs no code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.arrays import Format, Like, check_arrays, section, to_arrays, to_tensors
from mlcl.errors import InputError, check_int
from mlcl.labels import LabelCounts
from mlcl.memories import Memory
from mlcl.metrics import LogOddsLines
from mlcl.models import Network
from mlcl.sklearn.array_files import (
    check_target,
    read_feature_names,
    reading,
    tagger_header,
)
from mlcl.sklearn.held_out import HeldOut
from mlcl.sklearn.learning import Ids, Learnt, new_network
from mlcl.sklearn.targets import Name, check_names
from mlcl.training.batches import Normaliser

TAGGERS = Format("mlcl-tagger", 2, what="a ContinualTagger")
HELD_OUT = {
    "inputs": Like("float32", ("rows", "features")),
    "labels": Like("uint8", ("rows", "classes")),
    "known": Like("bool", ("rows", "classes")),
    "keys": Like("float64", ("rows",)),
    "logits": Like("float64", ("rows", "classes")),
}


def write_tagger(
    path: Path,
    learnt: Learnt,
    *,
    params: Mapping[str, Any],
    classes: list[Name],
    feature_names: list[str] | None,
    overwrite: bool,
) -> None:
    """Write a tagger; a failure leaves no partial file."""
    check_target(path, overwrite=overwrite)
    header = tagger_header(params, classes, feature_names) | {
        "model": learnt.model,
        "label_sets": [ids.tolist() for ids in learnt.label_sets],
        "total": learnt.counts.total,
        "seed": learnt.seed,
        "calls": learnt.calls,
    }
    TAGGERS.write(path, _arrays(learnt), header)


def _arrays(learnt: Learnt) -> dict[str, NDArray[Any]]:
    """Return all arrays of a tagger by name."""
    tensors = {f"network.{name}": value for name, value in learnt.network.state_dict().items()}
    tensors |= {"normaliser.scale": learnt.normaliser.scale, "normaliser.shift": learnt.normaliser.shift}
    arrays = to_arrays(tensors)
    arrays |= {f"memory.{name}": value for name, value in learnt.memory.state().items()}
    arrays["inputs"] = learnt.inputs
    for name in ("positive", "negative"):
        arrays[f"counts.{name}"] = getattr(learnt.counts, name)
    arrays |= {"lines.slope": learnt.lines.slope, "lines.offset": learnt.lines.offset}
    return arrays | {f"held_out.{name}": getattr(learnt.held_out, name) for name in HELD_OUT}


def read_tagger(path: Path) -> tuple[Learnt, dict[str, Any], list[Name], list[str] | None]:
    """Return the state, the parameters, the class names and the feature names of a saved tagger."""
    header, arrays = TAGGERS.read(path)
    with reading(path):
        return _restore(header, arrays)


def _restore(
    header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[Learnt, dict[str, Any], list[Name], list[str] | None]:
    """Rebuild a tagger from untrusted values; whatever does not fit raises an error."""
    tensors = to_tensors(arrays)
    classes = check_names(header["classes"], "classes", [])
    label_sets = _read_label_sets(header["label_sets"], len(classes))
    memory = _read_memory(tensors, label_sets)
    inputs = _read_inputs(tensors["inputs"], len(memory))
    features = inputs.shape[1]
    counts = _read_counts(tensors, header["total"], len(classes))
    learnt = Learnt(
        network=_read_network(header["model"], section(tensors, "network"), features, len(classes)),
        normaliser=_read_normaliser(arrays, features),
        memory=memory,
        inputs=inputs.numpy(),
        label_sets=label_sets,
        counts=counts,
        held_out=_read_held_out(arrays, features, len(classes)),
        lines=_read_lines(arrays, len(classes)),
        model=header["model"],
        seed=check_int("seed", header["seed"], 0),
        calls=check_int("calls", header["calls"], 1),
    )
    return learnt, dict(header["params"]), classes, read_feature_names(header["feature_names"], features)


def _read_lines(arrays: Mapping[str, NDArray[Any]], classes: int) -> LogOddsLines:
    lines = LogOddsLines(arrays["lines.slope"], arrays["lines.offset"])
    if len(lines) != classes:
        raise InputError(f"lines has {len(lines)} classes; expected {classes}")
    return lines


def _read_held_out(arrays: Mapping[str, NDArray[Any]], features: int, classes: int) -> HeldOut:
    """Read the held-out rows: finite, with as many features and classes as the tagger."""
    held_out = section(arrays, "held_out")
    check_arrays(held_out, HELD_OUT, features=features, classes=classes)
    found = HeldOut(**held_out)
    if not (np.isfinite(found.inputs).all() and np.isfinite(found.logits).all()):
        raise InputError("the held-out rows are not finite")
    LabelCounts.of(found.labels)
    return found


def _read_label_sets(content: Any, classes: int) -> tuple[Ids, ...]:
    """Read the class numbers of each label set: ascending, distinct, at least one."""
    label_sets = tuple(np.array(ids, np.int64) for ids in content)
    for ids in label_sets:
        if not ids.size or not np.array_equal(ids, np.unique(ids)) or ids[0] < 0 or ids[-1] >= classes:
            raise InputError(
                f"a label set is {ids.tolist()}; expected ascending class numbers from 0 to {classes - 1}"
            )
    return label_sets


def _read_counts(tensors: Mapping[str, Tensor], total: Any, classes: int) -> LabelCounts:
    counts = LabelCounts(tensors["counts.positive"].numpy(), tensors["counts.negative"].numpy(), total)
    if len(counts) != classes:
        raise InputError(f"counts has {len(counts)} classes; expected {classes}")
    return counts


def _read_memory(tensors: Mapping[str, Tensor], label_sets: Sequence[Ids]) -> Memory:
    """Read the memory: one task per label set, with the classes of that set, and rows numbered from 0."""
    memory = Memory.from_state({name: value.numpy() for name, value in section(tensors, "memory").items()})
    if not np.array_equal(memory.rows, np.arange(len(memory))):
        raise InputError(f"the rows of the memory are not numbered from 0 to {len(memory) - 1}")
    tasks = sorted(part.task for part in memory.tasks)
    if tasks != list(range(len(label_sets))):
        raise InputError(f"the memory has the tasks {tasks}; expected one per label set ({len(label_sets)})")
    for part in memory.tasks:
        if not np.array_equal(part.classes, label_sets[part.task]):
            raise InputError(f"task {part.task + 1} of the memory does not have the classes of its label set")
    return memory


def _read_inputs(inputs: Tensor, rows: int) -> Tensor:
    """Check the stored rows, one for each row of the memory."""
    if inputs.dtype != torch.float32 or inputs.ndim != 2 or len(inputs) != rows:
        raise InputError(
            f"inputs is {inputs.dtype} of shape {tuple(inputs.shape)}; expected float32 [{rows}, features]"
        )
    return inputs


def _read_normaliser(arrays: Mapping[str, NDArray[Any]], features: int) -> Normaliser:
    found = section(arrays, "normaliser")
    check_arrays(
        found, dict.fromkeys(("scale", "shift"), Like("float32", (1, "features"))), features=features
    )
    tensors = to_tensors(found)
    return Normaliser(tensors["scale"], tensors["shift"])


def _read_network(
    model: Mapping[str, Any], weights: dict[str, Tensor], features: int, classes: int
) -> Network:
    """Build the network and load its weights, unless it would be larger than they are: that check needs no memory."""
    size = sum(value.numel() for value in weights.values())
    hidden, depth = model.get("hidden", 1), model.get("depth", 1)
    if hidden > size or depth > size or hidden**2 * (depth - 1) > size:
        raise InputError(f"its network, {dict(model)}, is larger than its {size} weights")
    network = new_network(dict(model), features, classes, 0)
    network.load_state_dict(weights)
    return network.eval()
