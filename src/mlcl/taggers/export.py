"""A finished run as one file for other programs: a ``torch.export`` program (.pt2) or ONNX.

The file takes raw inputs (uint8 images or float32 features), normalises them itself, and gives what ``mlcl predict``
gives: probabilities, or logits. Before it is written its scores are compared with the network's own. An ONNX file has
``classes`` and ``thresholds`` in its metadata, as JSON. TorchScript is not written: PyTorch has ended it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlcl.errors import InputError, check_choice
from mlcl.files import write_bytes
from mlcl.runs.trained import Trained, load_trained

Format = Literal["torch", "onnx"]
SUFFIXES: dict[Format, tuple[str, ...]] = {"torch": (".pt2",), "onnx": (".onnx",)}
TOLERANCE = 1e-4
"""Largest difference of an exported score from ours: other kernels add in another order."""


class ExportError(RuntimeError):
    """The exported model does not give the scores of the network."""


class Deployed(nn.Module):
    """Raw inputs to scores: normalisation, network, and calibrated probabilities unless logits are wanted."""

    scale: Tensor
    shift: Tensor
    slope: Tensor
    offset: Tensor

    def __init__(self, trained: Trained, *, logits: bool) -> None:
        super().__init__()
        self.network = trained.scorer
        self.register_buffer("scale", trained.normaliser.scale)
        self.register_buffer("shift", trained.normaliser.shift)
        lines = trained.calibration.lines
        self.register_buffer("slope", torch.tensor(lines.slope, dtype=torch.float32))
        self.register_buffer("offset", torch.tensor(lines.offset, dtype=torch.float32))
        self.logits = logits

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores [n, K]."""
        scores: Tensor = self.network(inputs.to(torch.float32) * self.scale + self.shift)
        return scores if self.logits else (scores * self.slope + self.offset).sigmoid()


def export(folder: str | Path, out: str | Path, *, format: Format = "torch", logits: bool = False) -> float:
    """Write the network of a finished run to a file; return the largest difference of its scores from ours.

    Args:
        folder: the folder of the run.
        out: the file, .pt2 or .onnx.
        format: ``torch`` (load with ``torch.export.load(file).module()``) or ``onnx`` (needs ``mlcl[onnx]``).
        logits: give logits instead of probabilities.
    """
    check_choice("format", format, SUFFIXES)
    if format == "onnx":
        require_onnx()
    trained = load_trained(folder)
    if trained.encoder is not None:
        warnings.warn(
            f"{folder} tags texts, and what is exported takes the vectors of its encoder (mlcl.load(DIR).text_encoder)",
            UserWarning,
            stacklevel=2,
        )
    trained.scorer.cpu().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    deployed = Deployed(trained, logits=logits).cpu().eval()
    example = torch.from_numpy(examples(trained.input_shape, 2))
    with _quiet():
        program = torch.export.export(
            deployed, (example,), dynamic_shapes={"inputs": {0: torch.export.Dim("batch")}}
        )
        content, score = _torch(program) if format == "torch" else _onnx(program, _notes(trained))
        gap = 0.0
        for rows in (1, 2, 5):  # the number of rows must be free
            inputs = examples(trained.input_shape, rows)
            with torch.inference_mode():
                ours = deployed.network(_normalised(deployed, inputs)).numpy()
            wanted = ours if logits else trained.calibration.probabilities(ours)
            gap = max(gap, float(np.abs(score(inputs) - wanted).max()))
    if not gap <= TOLERANCE:
        raise ExportError(
            f"the exported model's scores differ by {gap:.2g} from the network's; nothing was written."
        )
    write_bytes(Path(out), content)
    return gap


def format_of(out: Path | None) -> Format:
    """Return the format that a file's name says; ``torch`` without a name.

    >>> format_of(Path("m.onnx")), format_of(None)
    ('onnx', 'torch')
    """
    if out is None:
        return "torch"
    for name, suffixes in SUFFIXES.items():
        if out.suffix.lower() in suffixes:
            return name
    if out.suffix.lower() in (".pt", ".pth", ".torchscript"):
        raise InputError(
            f"--out {out}: TorchScript is not written, since PyTorch has ended it in favour of torch.export; expected "
            ".pt2 (torch.export) or .onnx."
        )
    raise InputError(f"--out {out} ends in {out.suffix!r}; expected .pt2 or .onnx.")


def require_onnx() -> None:
    """Raise an `InputError` that says what to install, unless ONNX is there."""
    try:
        for name in ("onnx", "onnxscript"):
            importlib.import_module(name)
    except ImportError:
        raise InputError("--format onnx needs ONNX; install it with: pip install 'mlcl[onnx]'") from None


def examples(shape: tuple[int, ...], rows: int) -> NDArray[Any]:
    """Return random raw inputs of one shape, always the same."""
    rng = np.random.default_rng(rows)
    if len(shape) == 3:
        return rng.integers(0, 256, (rows, *shape), dtype=np.uint8)
    return rng.standard_normal((rows, *shape)).astype(np.float32)


def _normalised(deployed: Deployed, inputs: NDArray[Any]) -> Tensor:
    return torch.from_numpy(inputs).to(torch.float32) * deployed.scale + deployed.shift


def _torch(program: torch.export.ExportedProgram) -> tuple[bytes, Callable[[NDArray[Any]], NDArray[Any]]]:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    read = torch.export.load(io.BytesIO(buffer.getvalue())).module()
    return buffer.getvalue(), lambda inputs: np.asarray(read(torch.from_numpy(inputs)).detach())


def _notes(trained: Trained) -> dict[str, str]:
    """Return what a program needs to make tags of an ONNX model's probabilities."""
    return {
        "classes": json.dumps(list(trained.classes)),
        "thresholds": json.dumps(trained.thresholds.values.tolist()),
    }


def _onnx(
    program: torch.export.ExportedProgram, notes: dict[str, str]
) -> tuple[bytes, Callable[[NDArray[Any]], NDArray[Any]]]:
    onnx = importlib.import_module("onnx")
    reference = importlib.import_module("onnx.reference")
    with tempfile.TemporaryDirectory(prefix="mlcl-onnx-") as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            program,
            (),
            path,
            input_names=["inputs"],
            output_names=["scores"],
            dynamo=True,
            external_data=False,
        )
        model = onnx.load_from_string(path.read_bytes())
    onnx.helper.set_model_props(model, notes)
    onnx.checker.check_model(model)
    content = model.SerializeToString()
    evaluator = reference.ReferenceEvaluator(model)
    return content, lambda inputs: np.asarray(evaluator.run(None, {"inputs": inputs})[0])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters' chatter off the terminal; what matters is checked by numbers."""
    loggers = [logging.getLogger(name) for name in ("torch.export", "torch.onnx", "onnxscript")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
