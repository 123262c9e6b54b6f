"""A finished run, loaded for use: the network, how inputs are normalised, and the names of the classes.

Everything comes from ``result.json``, ``config.yaml`` and ``weights.safetensors``; nothing in them can run code, and
files that do not belong together are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.batches import Normaliser, gather, slices
from mlcl.config import Config, options
from mlcl.errors import InputError
from mlcl.files import read_object
from mlcl.models import IncrementalAttentionHead, Network, build_model, fast_layout
from mlcl.models.packages import PackageError
from mlcl.run_folder import is_finished
from mlcl.settings import config_from

_MAX_RESULT_BYTES = 1 << 30


@dataclass(frozen=True)
class Trained:
    """What a finished run left to use.

    Attributes:
        config: every setting of the run.
        network: in evaluation mode, on the CPU or the GPU it found.
        normaliser: how raw inputs become the network's.
        classes: names of the K outputs.
        tasks: class ids of each task, in the order they were learnt.
        input_shape: of one raw input, (C, H, W) or (D,).
    """

    config: Config
    network: Network
    normaliser: Normaliser
    classes: tuple[str, ...]
    tasks: tuple[NDArray[np.int64], ...]
    input_shape: tuple[int, ...]

    def logits(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the logits [n, K] of raw inputs: uint8 images [n, C, H, W] or float32 features [n, D]."""
        device = self.normaliser.scale.device
        found = [np.zeros((0, len(self.classes)), np.float32)]
        with torch.inference_mode():
            for piece in slices(len(inputs), self.config.train.eval_batch_size):
                raw = gather(inputs, np.arange(piece.start, piece.stop)).to(device)
                found.append(self.network(self.normaliser(raw)).float().cpu().numpy())
        return np.concatenate(found)


def load_trained(folder: str | Path) -> Trained:
    """Load a finished run; an unfinished or damaged one is an `InputError` of one sentence."""
    path = Path(folder)
    if not is_finished(path):
        raise InputError(f"{path} is not finished; go on with: mlcl resume {path}")
    config = config_from(path / "config.yaml")
    result = read_object(path / "result.json", limit=_MAX_RESULT_BYTES)
    classes, tasks, shape = _layout(result, path / "result.json")
    tensors = read_tensors(path / "weights.safetensors", sums=result.get("sha256"))
    try:
        network = build_model(config.model.kind, shape, len(classes), load=False, **options(config.model))
        weights = result.get("weights")
        network.backbone.provenance = weights if isinstance(weights, dict) else None
        if isinstance(network.head, IncrementalAttentionHead):
            joint = config.protocol == "joint"
            for ids in [np.arange(len(classes))] if joint else tasks:
                network.head.add_session(ids)
        layout = fast_layout(network)
        normaliser = Normaliser(tensors.pop("normaliser.scale"), tensors.pop("normaliser.shift"), layout)
        if normaliser.scale.numel() != shape[0] or normaliser.shift.numel() != shape[0]:
            raise InputError(f"the normaliser is not one of inputs of shape {shape}")
        network.load_state_dict(tensors)
    except PackageError:
        raise  # it says what to install
    except Exception as error:  # names and shapes come from files
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise InputError(f"{path / 'weights.safetensors'} does not fit the run: {reason}.") from None
    wants_gpu = config.train.device in ("auto", "cuda", "gpu") and torch.cuda.is_available()
    device = torch.device("cuda" if wants_gpu else "cpu")
    network.to(device).to(memory_format=layout)  # type: ignore[call-overload]
    network.eval().requires_grad_(False)
    return Trained(config, network, normaliser.to(device), classes, tasks, shape)


def read_tensors(path: Path, *, sums: Any = None) -> dict[str, Tensor]:
    """Read a safetensors file, or say why not; ``sums`` are the checksums in ``result.json``, if it has any."""
    from safetensors.torch import load

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from None
    if isinstance(sums, dict) and hashlib.sha256(content).hexdigest() != sums.get(path.name):
        raise InputError(f"{path}: is damaged: its checksum is not the one in result.json.")
    try:
        return dict(load(content))
    except Exception as error:  # the parser of an untrusted file: whatever it trips over, the file is bad
        raise InputError(f"{path}: is damaged: {' '.join(str(error).split())[:200]}.") from None


def _layout(
    result: Mapping[str, Any], path: Path
) -> tuple[tuple[str, ...], tuple[NDArray[np.int64], ...], tuple[int, ...]]:
    """Return class names, tasks and input shape from ``result.json``, having checked them."""
    classes: Any = result.get("classes")
    tasks: Any = result.get("tasks")
    shape: Any = result.get("input_shape")
    if shape is None:
        raise InputError(f"{path}: has no field 'input_shape'; the run was made by an older mlcl.")
    sound = (
        isinstance(classes, list)
        and all(type(name) is str for name in classes)
        and isinstance(shape, list)
        and len(shape) in (1, 3)
        and all(type(side) is int and 0 < side < 1 << 20 for side in shape)
        and isinstance(tasks, list)
        and all(isinstance(ids, list) and all(type(k) is int for k in ids) for ids in tasks)
        and sorted(k for ids in tasks for k in ids) == list(range(len(classes)))
        and all(tasks)
    )
    if not sound:
        raise InputError(
            f"{path}: classes, tasks and input_shape contradict each other; the file is damaged."
        )
    return tuple(classes), tuple(np.array(ids, np.int64) for ids in tasks), tuple(shape)
