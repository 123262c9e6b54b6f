"""The model, in a process of its own: what clients sent is parsed, decoded and tagged here.

The process that talks to clients never does any of it: no request can keep it busy, and what ends this process (a
decoder that crashes, a request that never ends) does not end the service.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import json
import math
import os
import re
import signal
import socket
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from mlcl._version import __version__
from mlcl.datasets.images import FORMATS
from mlcl.errors import InputError, one_line
from mlcl.integrations.serving.limits import Limits
from mlcl.integrations.serving.workers import ANSWER, HEAVY, KINDS, QUESTION, Answer
from mlcl.plugins import ensure_loaded, find_plugin
from mlcl.runs.folder import fingerprint
from mlcl.runs.trained import load_trained
from mlcl.runs.versions import current_folder
from mlcl.taggers.predict import decode_input

LIGHT_PIXELS = 4_000_000
ONE, BATCH = ("vector", "text"), ("images", "vectors", "texts")
"""What a request in JSON may hold."""
STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Strings of JSON, and the rest of a text in which one does not end."""


class Heavy(Exception):
    """A request that turned out not to be light."""


class Model:
    """A tagger that answers what clients send.

    Args:
        folder: of the tagger; of one with versions the one in use.
        limits: what is taken.
        current: whether ``folder`` may have versions; else it is used as it is.
    """

    def __init__(self, folder: str | Path, *, limits: Limits | None = None, current: bool = True) -> None:
        self.folder = current_folder(Path(folder)) if current else Path(folder)
        self.trained = load_trained(self.folder, current=False)
        self.limits = limits or Limits()
        self.fingerprint = fingerprint(self.folder)

    @property
    def takes(self) -> str:
        """Return what the tagger learnt from: ``images``, ``vectors`` or ``texts``."""
        if self.trained.encoder is not None:
            return "texts"
        return "images" if len(self.trained.input_shape) == 3 else "vectors"

    def about(self) -> dict[str, Any]:
        """Return what ``/version`` shows: no path of the machine is in it."""
        return {
            "mlcl": __version__,
            "fingerprint": self.fingerprint,
            "method": self.trained.result.method,
            "takes": self.takes,
            "input_shape": list(self.trained.input_shape),
            "labels": list(self.trained.classes),
            "limits": {
                name: getattr(self.limits, name)
                for name in ("image_bytes", "image_pixels", "request_pixels", "text_bytes", "items")
            },
        }

    def answer(self, kind: str, body: bytes, *, end: float = math.inf, light: bool = False) -> Answer:
        """Answer one request; what is wrong with it is an answer too.

        Args:
            kind: see `mlcl.integrations.serving.workers.Pending`.
            body: as it came.
            end: the time, of `time.monotonic`, after which nobody waits for an answer.
            light: leave what takes long, with the status `HEAVY`.
        """
        try:
            found = self._tag(self._read(kind, body, end=end, light=light))
        except Heavy:
            return Answer(HEAVY, b"")
        except InputError as error:
            return Answer(400, json.dumps({"error": one_line(error, limit=300)}).encode())
        text = json.dumps({"results": found} if kind == "batch" else found[0]).encode()
        return Answer(200, text, len(found), sum(len(each["tags"]) for each in found))

    def _read(self, kind: str, body: bytes, *, end: float, light: bool) -> NDArray[Any] | list[str]:
        if kind == "image":
            return self.images([body], end=end, light=light)
        items = self.limits.items if kind == "batch" else 1
        name, values = parse(body, *(BATCH if kind == "batch" else ONE), lists=items + 1)
        if kind != "batch":
            name, values = f"{name}s", [values]
        elif not isinstance(values, list) or not 1 <= len(values) <= items:
            raise InputError(f"{name} must be a list of 1 to {items} items")
        if name != "images":
            return self.vectors(values) if name == "vectors" else self.texts(values)
        return self.images([decoded(value, place) for place, value in enumerate(values)], end=end)

    def images(
        self, encoded: Sequence[bytes], *, end: float = math.inf, light: bool = False
    ) -> NDArray[np.uint8]:
        """Decode images as a store does; what is none, or too large, is an `InputError` that names its place.

        Args:
            encoded: the files.
            end: the time after which no further image is decoded.
            light: raise `Heavy` where many pixels are to be decoded.
        """
        shape = self.trained.input_shape
        if self.takes != "images" or shape[1] != shape[2]:
            raise InputError(f"the model takes inputs of shape {list(shape)}, not images")
        names = ["the image"] if len(encoded) == 1 else [f"image {place}" for place in range(len(encoded))]
        pixels = sum(map(self._pixels, encoded, names))
        if pixels > self.limits.request_pixels:
            raise InputError(
                f"the images have {pixels} pixels to decode; at most {self.limits.request_pixels} were expected"
            )
        if light and pixels > LIGHT_PIXELS:
            raise Heavy
        found = []
        for place, (data, name) in enumerate(zip(encoded, names, strict=True)):
            if time.monotonic() > end:
                raise InputError(f"{place} of {len(encoded)} images took all the time there is")
            found.append(decode_input(data, shape, name=name))
        return np.stack(found)

    def _pixels(self, data: bytes, name: str) -> int:
        """Return how many pixels of an image are to be decoded: of a JPEG not all, see `mlcl.datasets.images`."""
        if len(data) > self.limits.image_bytes:
            raise InputError(f"{name} has {len(data)} bytes; at most {self.limits.image_bytes} were expected")
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height = image.size
                image.draft(None, (2 * self.trained.input_shape[1],) * 2)
                count = image.size[0] * image.size[1]
        except Exception:  # a reader of untrusted bytes: whatever it trips over, this is no image
            raise InputError(f"{name} is not an image that can be read") from None
        if width * height > self.limits.image_pixels:
            raise InputError(
                f"{name} has {width} x {height} pixels; at most {self.limits.image_pixels} were expected"
            )
        return count

    def vectors(self, values: Any) -> NDArray[np.float32]:
        """Return vectors from lists of numbers; anything else is an `InputError`."""
        if self.takes != "vectors":
            raise InputError(f"the model takes {self.takes}, not vectors")
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

    def texts(self, values: list[Any]) -> list[str]:
        """Return texts; anything else is an `InputError`."""
        if self.takes != "texts":
            raise InputError(f"the model takes {self.takes}, not texts")
        if not all(isinstance(value, str) and len(value) <= self.limits.text_bytes for value in values):
            raise InputError(f"texts is no list of texts of at most {self.limits.text_bytes} letters each")
        return values

    def probabilities(self, inputs: NDArray[Any] | list[str]) -> NDArray[np.float32]:
        """Return the probability of every label, for each input."""
        if isinstance(inputs, list):
            return self.trained.probabilities_of_texts(inputs)
        return self.trained.probabilities(inputs)

    def warm_up(self) -> None:
        """Compute once: the first time takes longer than all later ones."""
        kind = np.uint8 if self.takes == "images" else np.float32
        self.probabilities([""] if self.takes == "texts" else np.zeros((1, *self.trained.input_shape), kind))

    def _tag(self, inputs: NDArray[Any] | list[str]) -> list[dict[str, Any]]:
        """Return tags, the surest first, and the probability of every label, for each input.

        Where a precision or recall is wanted, also the labels that are unsure: likely, but withheld.
        """
        names, decided = self.trained.classes, self.trained.thresholds
        certified = decided.goal is not None and decided.goal.certified
        found = []
        for row in self.probabilities(inputs):
            values = [round(float(value), 6) for value in row]
            marked = {"tags": decided.tags(row)} | ({"unsure": decided.unsure(row)} if certified else {})
            named = {
                name: [
                    {"label": names[k], "probability": values[k]}
                    for k in sorted(np.flatnonzero(marks), key=lambda k: -row[k])
                ]
                for name, marks in marked.items()
            }
            found.append(named | {"probabilities": dict(zip(names, values, strict=True))})
        return found


def parse(data: bytes, *names: str, lists: int) -> tuple[str, Any]:
    """Return the only field of a JSON object, and its value.

    Args:
        data: the JSON.
        names: of the fields that are expected.
        lists: how many lists there may be. They are counted before anything is parsed: a text of many, within one
            another or not, takes far more memory and time than its bytes say.
    """
    expected = " or ".join(repr(name) for name in names)
    outline = STRINGS.sub(b"", data)
    if outline.count(b"{") == 1 and outline.count(b"[") <= lists:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):  # of bytes that are no UTF-8, too
            raise InputError(f"the request is no JSON; expected an object with {expected}") from None
        if isinstance(found, dict) and len(found) == 1 and next(iter(found)) in names:
            ((name, value),) = found.items()
            return name, value
    raise InputError(f"the request is no JSON object with {expected} alone and at most {lists} lists in it")


def decoded(value: object, place: int) -> bytes:
    """Return the bytes of an image in base64."""
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise InputError(f"image {place} is not text in base64")


def work(number: int) -> None:
    """Be a process that answers on an open socket, by its number, until the other end closes it."""
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # the process that talks to clients decides when to stop
    warnings.simplefilter("ignore")
    stream = socket.socket(fileno=number).makefile("rwb")
    model: Model | None = None
    light = True
    with contextlib.suppress(ConnectionError):
        while len(head := stream.read(QUESTION.size)) == QUESTION.size:
            kind, seconds, size = QUESTION.unpack(head)
            end, body = time.monotonic() + seconds, stream.read(size)
            if model is None:
                settings = json.loads(body)
                light = settings["light"]
                model, answer = _loaded(settings)
            else:
                answer = model.answer(KINDS[kind], body, end=end, light=light)
            stream.write(ANSWER.pack(answer.status, answer.inputs, answer.tags, len(answer.body)))
            stream.write(answer.body)
            stream.flush()


def _loaded(settings: dict[str, Any]) -> tuple[Model | None, Answer]:
    """Return the model, if it can be loaded, and what is to be said of it."""
    if not settings["light"]:
        os.nice(10)
    try:
        for source in settings["plugins"]:
            ensure_loaded(find_plugin(source))
        # Never more than torch would take by itself (OMP_NUM_THREADS): on a busy machine threads wait for each other.
        torch.set_num_threads(max(1, torch.get_num_threads() // settings["workers"]))
        limits = Limits(**settings["limits"])
        model = Model(settings["folder"], limits=limits, current=settings["current"])
        model.warm_up()
    except Exception as error:  # files from anywhere, plugins: the process that asked says what to do
        return None, Answer(400, one_line(error, limit=1000).encode())
    return model, Answer(200, json.dumps([str(model.folder), model.about()]).encode())
