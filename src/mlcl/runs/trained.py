"""A finished run, loaded for use: the network, how inputs are normalised, and the names of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.arrays import section
from mlcl.config.schema import Config, to_dict
from mlcl.datasets.table import vectors
from mlcl.encoders import Encoder, from_bytes
from mlcl.errors import InputError, one_line
from mlcl.metrics import Calibration, Thresholds
from mlcl.models import (
    Committee,
    Network,
    build_committee,
    build_model,
    fast_layout,
)
from mlcl.models.network import Bounded
from mlcl.models.packages import PackageError
from mlcl.runs.calibration import Decisions
from mlcl.runs.folder import (
    RESULT,
    WEIGHTS,
    check_settings,
    read_calibration,
    read_config,
    read_encoder,
    read_held_out,
    read_result,
    read_thresholds,
    read_weights,
    require_finished,
    thresholds_print,
)
from mlcl.runs.result import Result
from mlcl.runs.versions import current_folder
from mlcl.training.batches import Normaliser, slices
from mlcl.training.scoring import Scorer

TEXTS = 256
"""So many texts are made vectors of at once."""
SPARE = 2**24
"""So many numbers may be made beside those of the weights, before these replace them."""


@dataclass(frozen=True)
class Trained:
    """What a finished run left to use.

    Attributes:
        network: in evaluation mode, on the CPU or the GPU it found.
        committee: the network with its members, if it was part of one.
        normaliser: how raw inputs become the network's.
        tasks: class ids of each task, in the order they were learnt.
        input_shape: of one raw input, (C, H, W) or (D,).
        encoder: the file of what makes vectors of raw inputs; None where the network takes them as they are.
    """

    folder: Path
    config: Config
    result: Result
    network: Network
    committee: Committee | None
    normaliser: Normaliser
    classes: tuple[str, ...]
    tasks: tuple[NDArray[np.int64], ...]
    input_shape: tuple[int, ...]
    calibration: Calibration
    thresholds: Thresholds
    encoder: bytes | None = None

    @property
    def decisions(self) -> Decisions:
        """Return how logits become probabilities, and these tags, and the rows that both were fitted on."""
        return Decisions(self.calibration, self.thresholds, read_held_out(self.folder, self.result))

    @property
    def thresholds_print(self) -> str:
        """Return whether thresholds are still the same, see `mlcl.runs.folder.thresholds_print`."""
        return thresholds_print(self.thresholds, self.classes)

    @property
    def scorer(self) -> Network | Committee:
        """Return what scores inputs: the network, or the committee that it is part of."""
        return self.committee or self.network

    def logits(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the logits [n, K] of raw inputs: uint8 images [n, C, H, W] or float32 features [n, D]."""
        if not len(inputs):
            return np.zeros((0, len(self.classes)), np.float32)
        return self._rows(self.scorer, inputs)

    def features_and_logits(self, inputs: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the network's features [n, D] and the logits [n, K] of raw inputs, from one pass."""
        found = self._rows(lambda batch: torch.cat(self.scorer.features_and_scores(batch), 1), inputs)
        return found[:, : -len(self.classes)], found[:, -len(self.classes) :]

    def features(self, inputs: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the network's features [n, D] of some rows of raw inputs."""
        return self._rows(self.network.features, inputs, rows)

    @property
    def _rows(self) -> Scorer:
        return Scorer(self.scorer, self.normaliser, self.config.train.eval_batch_size)

    def logits_of_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the logits [n, K] of texts."""
        found = [np.zeros((0, len(self.classes)), np.float32)]
        for piece in slices(len(texts), TEXTS):
            found.append(self.logits(vectors(self.text_encoder, texts[piece])))
        return np.concatenate(found)

    def probabilities_of_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the probabilities [n, K] of texts."""
        return self.calibration.probabilities(self.logits_of_texts(texts)).astype(np.float32)

    @cached_property
    def text_encoder(self) -> Encoder:
        """Return what makes vectors of texts; an `InputError` if nothing does."""
        if self.encoder is None:
            raise InputError(f"{self.folder} takes no texts: its inputs have the shape {self.input_shape}")
        found = from_bytes(self.encoder, where=f"the encoder of {self.folder}")
        if (found.width,) != self.input_shape:
            raise InputError(
                f"the encoder of {self.folder} gives {found.width} numbers; expected {self.input_shape}"
            )
        return found

    def probabilities(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the probabilities [n, K] of raw inputs, see `mlcl.runs.calibration`."""
        return self.calibration.probabilities(self.logits(inputs)).astype(np.float32)


def load_trained(folder: str | Path, *, current: bool = True, thresholds: bool = True) -> Trained:
    """Load a finished run; an unfinished or damaged one is an `InputError` of one sentence.

    Args:
        current: of a run with versions load the one in use; else the run in this very folder.
        thresholds: load its thresholds; else they are 0.5, for one who will replace them, whatever they are.
    """
    path = current_folder(Path(folder)) if current else Path(folder)
    require_finished(path)
    config, result = read_config(path), read_result(path)
    check_settings(path, to_dict(config), result)
    tasks, shape = result.layout(source=path / RESULT)
    classes, tensors = result.classes, read_weights(path, result)
    written = Bounded(SPARE + 2 * sum(one.numel() for one in tensors.values()))
    try:
        with written:
            network = build_model(
                config.model.kind,
                shape,
                len(classes),
                load=False,
                head=config.model.head,
                **config.model.options,
            )
        network.backbone.provenance = None if result.weights is None else dict(result.weights)
        for ids in [np.arange(len(classes))] if config.joint else tasks:
            network.head.add_session(ids)
        layout = fast_layout(network)
        normaliser = Normaliser(tensors.pop("normaliser.scale"), tensors.pop("normaliser.shift"), layout)
        if normaliser.scale.numel() != shape[0] or normaliser.shift.numel() != shape[0]:
            raise InputError(f"the normaliser is not one of inputs of shape {shape}")
        solved = section(tensors, "committee")
        network.load_state_dict(
            {name: tensors[name] for name in tensors if not name.startswith("committee.")}
        )
        with written:
            committee = _committee(config, network, result, solved)
    except PackageError:
        raise  # it says what to install
    except Exception as error:  # names and shapes come from files
        raise InputError(f"{path / WEIGHTS} does not fit the run: {one_line(error)}.") from None
    wants_gpu = config.train.device in ("auto", "cuda", "gpu") and torch.cuda.is_available()
    device = torch.device("cuda" if wants_gpu else "cpu")
    network.to(device).to(memory_format=layout)  # type: ignore[call-overload]
    network.eval().requires_grad_(False)
    if committee is not None:
        committee.to(device).eval()
    return Trained(
        path,
        config,
        result,
        network,
        committee,
        normaliser.to(device),
        classes,
        tasks,
        shape,
        read_calibration(path, result),
        read_thresholds(path, result) if thresholds else Thresholds.half(len(classes)),
        read_encoder(path, result),
    )


def _committee(
    config: Config, network: Network, result: Result, tensors: dict[str, Tensor]
) -> Committee | None:
    """Return the committee that a network is part of, with the weights of its members."""
    if not config.committee:
        return None
    chosen = config.committee
    found = build_committee(
        network,
        cast("tuple[int, ...]", result.input_shape),
        len(result.classes),
        encoder=chosen.encoder,
        weight=chosen.weight,
        moments=chosen.moments,
        options=chosen.encoder_options,
    )
    found.members.load_state_dict(tensors)
    if found.encoder is not None and result.encoder_weights is not None:
        found.encoder.provenance = dict(result.encoder_weights)
    return found
