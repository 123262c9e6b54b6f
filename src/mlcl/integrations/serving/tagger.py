"""The model behind the service: a finished run, loaded once; bytes and numbers from clients in, tags out."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mlcl._version import __version__
from mlcl.datasets.images import FORMATS
from mlcl.errors import InputError
from mlcl.runs.folder import fingerprint
from mlcl.runs.trained import Trained, load_trained
from mlcl.taggers.predict import decode_input


@dataclass(frozen=True)
class Limits:
    """What a client may ask for.

    Attributes:
        image_bytes: of one encoded image.
        image_pixels: of one image, by its header; nothing of a larger one is decoded.
        body_bytes: of one request.
        items: images or vectors of one request.
        waiting: requests at work or waiting at once; further ones are sent away.
        seconds: for a client to send its request, and for an answer to be computed.
    """

    image_bytes: int = 10 << 20
    image_pixels: int = 40_000_000
    body_bytes: int = 32 << 20
    items: int = 256
    waiting: int = 64
    seconds: float = 20.0


class Tagger:
    """A finished run that tags inputs; safe to call from several threads.

    Args:
        folder: of the run; of one with versions the current one.
        limits: what is taken of one input.
    """

    def __init__(self, folder: str | Path, *, limits: Limits | None = None) -> None:
        self.trained: Trained = load_trained(folder)
        self.limits = limits or Limits()
        self.fingerprint = fingerprint(self.trained.folder)

    @property
    def takes(self) -> str:
        """Return what the run was trained on: ``images`` or ``vectors``."""
        return "images" if len(self.trained.input_shape) == 3 else "vectors"

    def about(self) -> dict[str, Any]:
        """Return what ``/version`` shows: no path of the machine is in it."""
        result = self.trained.result
        return {
            "mlcl": __version__,
            "fingerprint": self.fingerprint,
            "method": result.method,
            "takes": self.takes,
            "input_shape": list(self.trained.input_shape),
            "labels": list(self.trained.classes),
            "limits": {name: getattr(self.limits, name) for name in ("image_bytes", "image_pixels", "items")},
        }

    def images(self, encoded: Sequence[bytes], *, end: float = math.inf) -> NDArray[np.uint8]:
        """Decode images as a store does; what is none, or too large, is an `InputError` that names its place.

        Args:
            encoded: the files.
            end: the time, of `time.monotonic`, after which nobody waits for an answer, and no further image is decoded.
        """
        shape = self.trained.input_shape
        if self.takes != "images" or shape[1] != shape[2]:
            raise InputError(f"the model takes inputs of shape {list(shape)}, not images")
        found = []
        for place, data in enumerate(encoded):
            if time.monotonic() > end:
                raise InputError(f"{place} of {len(encoded)} images took all the time there is")
            name = "the image" if len(encoded) == 1 else f"image {place}"
            self._check_image(data, name)
            found.append(decode_input(data, shape, name=name))
        return np.stack(found)

    def _check_image(self, data: bytes, name: str) -> None:
        if len(data) > self.limits.image_bytes:
            raise InputError(f"{name} has {len(data)} bytes; at most {self.limits.image_bytes} were expected")
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height = image.size
        except Exception:  # a reader of untrusted bytes: whatever it trips over, this is no image
            raise InputError(f"{name} is not an image that can be read") from None
        if width * height > self.limits.image_pixels:
            raise InputError(
                f"{name} has {width} x {height} pixels; at most {self.limits.image_pixels} were expected"
            )

    def vectors(self, values: Any) -> NDArray[np.float32]:
        """Return vectors from lists of numbers; anything else is an `InputError`."""
        if self.takes != "vectors":
            raise InputError("the model takes images, not vectors")
        (width,) = self.trained.input_shape
        try:
            array = np.array(values)
        except (ValueError, TypeError, OverflowError, RecursionError):
            array = np.empty(0, object)
        if array.dtype.kind not in "iuf" or array.ndim != 2 or array.shape[1] != width:
            raise InputError(f"vectors is no list of lists of {width} numbers")
        with np.errstate(over="ignore"):
            found = array.astype(np.float32)
        if not np.isfinite(found).all():
            raise InputError("vectors holds a value that is not finite")
        return found

    def tag(self, inputs: NDArray[Any]) -> list[dict[str, Any]]:
        """Return tags, the surest first, and the probability of every label, for each input."""
        return [self._answer(row) for row in self.trained.probabilities(inputs)]

    def _answer(self, row: NDArray[Any]) -> dict[str, Any]:
        names, values = self.trained.classes, [round(float(value), 6) for value in row]
        chosen = sorted(np.flatnonzero(row > self.trained.thresholds.values), key=lambda k: -row[k])
        return {
            "tags": [{"label": names[k], "probability": values[k]} for k in chosen],
            "probabilities": dict(zip(names, values, strict=True)),
        }
