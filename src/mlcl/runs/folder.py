"""The run folder: the one module that knows its files, their formats and checksums, and reads and writes them.

A run folder holds ``config.yaml`` (every setting), ``environment.json`` (versions, commit, machine, data fingerprint,
plugins), ``metrics.jsonl`` (one line per measured value), ``result.json``, ``weights.safetensors``,
``memory.safetensors``, ``calibration.json`` (from logits to probabilities), ``thresholds.json`` (from probabilities to
tags), if rows were held out, their scores in ``held-out.safetensors`` and, if its vectors were made of other inputs,
what made them in ``encoder.safetensors``. While it is not finished it also holds
``checkpoints`` (see `checkpoints`) and the lock of the process that works on it; a run that began from another has
``extends.json``, and one whose tasks lack something ``warnings.txt``, one line each. A run with later versions has them
in ``versions``, each a run folder, and ``current.json`` says which one is in use (see `mlcl.runs.versions`); a version
may have ``gate.json``, how it compared with the one before, or ``receipt.json``, what it forgot. Task numbers and class
ids in JSON count from 0, in texts for people from 1. Its files may come from anywhere: what is read is bounded and
checked, nothing in them runs, and files that do not belong together are refused.

**Checksums.** ``result.json``, which is written last, lists the SHA-256 of every file that a finished run never
changes; one that is missing then, or another, is refused. ``thresholds.json`` and ``gate.json``, which may come later,
hold the checksum of their own content. A result that does not list ``calibration.json`` is of an mlcl that did not do
so yet: its weights and memory are checked alone, and without calibration and thresholds it has the defaults of then.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mlcl.arrays import Format, section, to_arrays, to_tensors
from mlcl.config.resolve import config_from, to_yaml
from mlcl.config.schema import Config, flat, to_dict
from mlcl.datasets import is_given_arrays
from mlcl.errors import InputError, check_number, one_line
from mlcl.files import (
    LOCK,
    TEMPORARY,
    append_bytes,
    cut_file,
    file_sha256,
    foreign_names,
    is_there,
    json_digest,
    json_text,
    own_folder,
    parse_object,
    plain,
    read_bounded,
    read_object,
    remove_own,
    remove_temporary,
    sync_file,
    write_bytes,
    write_json,
    write_text,
)
from mlcl.labels import LabelCounts
from mlcl.memories import Memory
from mlcl.metrics import Calibration, HeldOut, LogOddsLines, Thresholds
from mlcl.plugins import Plugin, load_entry_points, load_recorded
from mlcl.runs.calibration import (
    Calibrated,
    calibration_json,
    parse_calibration,
    parse_thresholds,
    thresholds_json,
)
from mlcl.runs.checkpoints import OWN
from mlcl.runs.result import Result, check_result, kept_arrays, summarise
from mlcl.training.batches import enlarged
from mlcl.training.learner import Learner
from mlcl.training.state import with_prefix

CONFIG, ENVIRONMENT, METRICS, RESULT = "config.yaml", "environment.json", "metrics.jsonl", "result.json"
WEIGHTS, MEMORY, EXTENDS, TRACKERS = (
    "weights.safetensors",
    "memory.safetensors",
    "extends.json",
    "trackers.json",
)
CHECKPOINTS, WARNINGS = "checkpoints", "warnings.txt"
VERSIONS, CURRENT, GATE, RECEIPT = "versions", "current.json", "gate.json", "receipt.json"
CALIBRATION, THRESHOLDS, HELD_OUT = "calibration.json", "thresholds.json", "held-out.safetensors"
ENCODER = "encoder.safetensors"
FILES = (
    *(CONFIG, ENVIRONMENT, METRICS, RESULT, WEIGHTS, MEMORY, EXTENDS, WARNINGS, GATE, RECEIPT),
    *(CALIBRATION, THRESHOLDS, HELD_OUT, ENCODER),
)
OLD_TAGGER = "tagger.safetensors"
"""What `mlcl learn` of version 0.1 wrote alone."""
CARD = "model-card.md"
EXPORTS = ("model.pt2", "model.onnx", CARD)
"""What ``mlcl export`` and ``mlcl card`` put beside them; it goes when the run is replaced."""

MAX_RECORD_BYTES = 1 << 20
MAX_RESULT_BYTES = 64 << 20
MAX_METRICS_BYTES = 256 << 20
MAX_MEMORY_BYTES = 16 << 30
MAX_WEIGHTS_BYTES = 16 << 30
FORMATS = {
    WEIGHTS: Format("mlcl-weights", 1, what="the weights of a run", limit=MAX_WEIGHTS_BYTES, plain=True),
    MEMORY: Format("mlcl-memory", 1, what="the memory of a run", limit=MAX_MEMORY_BYTES, plain=True),
    HELD_OUT: Format("mlcl-held-out", 1, what="held-out rows and their scores", limit=64 << 20, plain=True),
}
"""Version 0.1 wrote them without a header; ``result.json`` has their checksums."""

T = TypeVar("T")
_HELD_OUT_ARRAYS = ("logits", "labels", "known", "rows", "inputs", "keys")


@dataclass(frozen=True)
class Kept:
    """All that a finished run keeps of the past.

    Attributes:
        memory: the stored samples, their labels, and the constants of every task.
        inputs: the stored samples' inputs ``[M, ...]`` as they are stored, in the order of the memory; None in runs of
            mlcl before 0.1.
    """

    memory: Memory
    inputs: Tensor | None
    regulariser: dict[str, Tensor]
    exact: dict[str, Tensor]


def claim_folder(path: Path, *, overwrite: bool) -> None:
    """Make an empty run folder; an existing one is refused, or replaced if it holds nothing but a run."""
    refuse_folder(path, overwrite=overwrite)
    make_folder(path)
    clear_folder(path)


def refuse_folder(path: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something; with ``overwrite`` only what would lose more than a run of ours."""
    if path.exists() and not path.is_dir():
        raise InputError(f"--out {path} is a file; expected a folder to make.")
    names = sorted(entry.name for entry in path.iterdir() if _counts(entry.name)) if path.is_dir() else []
    if names and not overwrite:
        raise InputError(
            f"--out {path} exists; choose another folder, or add --overwrite to replace the run."
        )
    if os.path.lexists(path / VERSIONS):
        raise InputError(f"--out {path} has later versions in {path / VERSIONS}; nothing was overwritten.")
    lost = foreign_names(path / CHECKPOINTS, OWN)
    if _is_ours(path):  # what bears none of our names is left alone then
        lost += [name for name in names if name in _replaced() - {CHECKPOINTS} and (path / name).is_dir()]
    else:
        lost += names
    if lost:
        raise InputError(
            f"--out {path} holds {lost[0]}, which is of no run of mlcl; nothing was overwritten."
        )


def _counts(name: str) -> bool:
    """Return whether an entry is more than what a process that was stopped at once leaves."""
    return name != LOCK and not TEMPORARY.fullmatch(name)


def _replaced() -> set[str]:
    """Return the names that go when a run is replaced; an older mlcl wrote files by way of their name and .tmp."""
    names = (*FILES, *EXPORTS)
    return {*names, *(f"{name}.tmp" for name in names), CHECKPOINTS}


def strangers(path: Path) -> list[str]:
    """Return the names in the folder of a run that are not of mlcl, or are not what such a name stands for."""
    known = _replaced() | {TRACKERS}
    return foreign_names(path / CHECKPOINTS, OWN) + [
        entry.name
        for entry in path.iterdir()
        if _counts(entry.name)
        and (entry.name not in known or entry.is_dir() != (entry.name == CHECKPOINTS) or entry.is_symlink())
    ]


def _is_ours(path: Path) -> bool:
    """Return whether mlcl made a folder: it writes the record of what made the run first, and removes it last."""
    with contextlib.suppress(InputError):
        versions = read_environment(path).get("versions")
        return isinstance(versions, dict) and "mlcl" in versions
    return False


def make_folder(path: Path) -> None:
    """Make a folder that can be written to, or say why not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {path} cannot be made: {error.strerror}.") from None
    if not os.access(path, os.W_OK):
        raise InputError(f"--out {path} cannot be written to.")


def clear_folder(path: Path) -> None:
    """Remove the files of a run, and no others."""
    remove_own(path / CHECKPOINTS, OWN)
    remove_temporary(path)
    for name in sorted(_replaced() - {CHECKPOINTS}, key=lambda name: name == ENVIRONMENT):
        (path / name).unlink(missing_ok=True)


def remove_checkpoints(path: Path) -> None:
    """Remove the checkpoints of a run that is finished; what cannot be removed does no harm."""
    with contextlib.suppress(OSError):
        remove_own(path / CHECKPOINTS, OWN)


def free_folder(base: Path) -> Path:
    """Return a folder that does not exist yet: ``base``, or ``base`` with a number."""
    candidates = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in range(1, sys.maxsize))
    return next(path for path in candidates if not path.exists())


def default_folder(config: Config, root: Path = Path("runs")) -> Path:
    """Return a folder that does not exist yet, named after benchmark, method and seed."""
    return free_folder(root / f"{config.benchmark}-{config.method}-seed{config.seed}")


def is_run(path: Path) -> bool:
    """Return whether a folder holds a run."""
    # Not Path.is_file: that raises where a name is too long to be one.
    return os.path.isfile(path / CONFIG)  # noqa: PTH113


def has_result(path: Path) -> bool:
    """Return whether a folder holds a result, whatever is in it."""
    return is_there(path / RESULT)


def is_finished(path: Path) -> bool:
    """Return whether a folder holds a finished run; a folder that holds none, or a damaged one, is an `InputError`."""
    if not is_run(path):
        if os.path.isfile(path) or os.path.isfile(path / OLD_TAGGER):  # noqa: PTH113  (as in is_run)
            raise InputError(
                f"{path} is a tagger in one file, as of mlcl 0.1; make a folder of it with: mlcl convert {path} DIR"
            )
        raise InputError(f"{path} holds no run: {path / CONFIG} was not found.")
    if not has_result(path):
        return False
    try:
        found = read_object(path / RESULT, limit=MAX_RESULT_BYTES)
        if not isinstance(found.get("matrix"), list):
            raise InputError(f"{path / RESULT}: has no matrix.")
    except InputError as error:
        if (path / CHECKPOINTS).is_dir():
            return False  # the last checkpoint makes it again
        raise InputError(
            f"{one_line(error, limit=1000)}; to do the run again: mlcl run {path / CONFIG} --out {path} --overwrite"
        ) from None
    return True


def require_finished(path: Path) -> None:
    """Refuse a run that is not finished."""
    if not is_finished(path):
        how = (
            "repeat the `mlcl learn`"
            if (path / OLD_TAGGER).exists()
            else f"resume it with: mlcl resume {path}"
        )
        raise InputError(f"{path} is not finished; {how}")


def write_config(path: Path, config: Config, *, command: str, plugins: tuple[Plugin, ...] = ()) -> None:
    """Write the settings below a first line that says how to run them."""
    if is_given_arrays(config.data):
        command = f"trained on arrays given in Python ({ENVIRONMENT} describes them), so not by:"
    given = "".join(f" --plugin {shlex.quote(plugin.source)}" for plugin in plugins)
    write_text(path / CONFIG, f"# {command} {shlex.quote(str(path / CONFIG))}{given}\n{to_yaml(config)}")


def read_config(path: Path) -> Config:
    """Read the settings of a run, having loaded the plugins that it was made with."""
    load_entry_points()
    records = read_environment(path).get("plugins", []) if is_there(path / ENVIRONMENT) else []
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(
            f"{path / ENVIRONMENT}: plugins is {str(records)[:40]!r}; expected a list of records."
        )
    load_recorded(records, folder=path)
    return config_from(path / CONFIG)


def check_settings(path: Path, settings: Mapping[str, Any], result: Result) -> None:
    """Refuse settings of what scores that are not those which a finished run was made with: scores would be others."""
    then, now = flat(result.settings), flat(plain(settings))
    for name in now.keys() & then.keys():
        if name.startswith(("model.", "committee.", "protocol")) and now[name] != then[name]:
            raise InputError(
                f"{path / CONFIG}: {name} is {str(now[name])[:40]!r}, but {RESULT} says that the run was made with "
                f"{str(then[name])[:40]!r}; change it back."
            )


def write_warnings(path: Path, notes: Sequence[str]) -> None:
    """Write what the tasks lack, one line each; the terminal shows a count of it. No file if there is nothing."""
    if notes:
        write_text(path / WARNINGS, "".join(f"{note}\n" for note in notes))


def write_environment(path: Path, record: Mapping[str, Any]) -> None:
    """Write what made the run."""
    write_json(path / ENVIRONMENT, dict(record))


def read_environment(path: Path) -> dict[str, Any]:
    """Read what made the run: versions, commit, machine, data, plugins."""
    return read_object(path / ENVIRONMENT, limit=MAX_RECORD_BYTES)


def read_data_record(path: Path) -> dict[str, Any]:
    """Return name, fingerprint and tasks of a run's data; empty if they are not known."""
    found = read_environment(path).get("data")
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Gate:
    """What a run is compared on with its parent, before it is taken into use.

    Attributes:
        store: whose test rows are scored, by absolute folder or name.
        fingerprint: of the store.
        allow: points of AUC that a label may lose.
        groups: a table that names the groups of rows, by absolute path; None: rows are independent.
    """

    store: str
    fingerprint: str
    allow: float
    groups: str | None = None


@dataclass(frozen=True)
class Extends:
    """Which run another one began from: its parent.

    Attributes:
        run: the parent's folder.
        known: whether labels that the parent knew were learnt again, or new ones alone.
        gate: what it must pass, whoever finishes it.
        gate_known: whether that was recorded; an older mlcl did not.
        thresholds: the parent's when they were read, as `thresholds_print`; empty where that is not known.
    """

    run: Path
    fingerprint: str
    known: bool = False
    gate: Gate | None = None
    gate_known: bool = True
    thresholds: str = ""


def write_extends(path: Path, extends: Extends) -> None:
    """Write which run another one began from; versions in one folder name each other so that it can be moved."""
    parent, root = extends.run.resolve(), path.resolve().parent.parent
    inside = path.resolve().parent.name == VERSIONS and (parent == root or parent.parent == root / VERSIONS)
    run = os.path.relpath(parent, path.resolve()) if inside else str(parent)
    gate = None if extends.gate is None else asdict(extends.gate)
    record = {"run": run, "fingerprint": extends.fingerprint, "known": extends.known, "gate": gate}
    write_json(path / EXTENDS, record | {"thresholds": extends.thresholds})


def read_extends(path: Path) -> Extends | None:
    """Return which run another one began from; None for a run that began from nothing."""
    if not is_there(path / EXTENDS):
        return None
    record = read_object(path / EXTENDS, limit=MAX_RECORD_BYTES)
    run = record.get("run")
    if not isinstance(run, str):
        raise InputError(f"{path / EXTENDS}: names no run.")
    return Extends(
        # Joining leaves an absolute path as it is. Not resolved: a name from a file may be too long to be one.
        Path(os.path.normpath(path / run)),
        str(record.get("fingerprint")),
        bool(record.get("known")),
        _gate(record.get("gate"), source=path / EXTENDS),
        "gate" in record,
        str(record.get("thresholds", "")),
    )


def _gate(record: Any, *, source: Path) -> Gate | None:
    if record is None:
        return None
    try:
        gate = Gate(**record)
        check_number("allow", gate.allow, high=100)
        texts = (gate.store, gate.fingerprint, gate.groups or "")
        if not all(isinstance(one, str) for one in texts):
            raise TypeError
    except (TypeError, InputError):
        raise InputError(
            f"{source}: gate is {str(record)[:60]}; expected store, fingerprint and allow."
        ) from None
    return gate


def read_current(path: Path) -> dict[str, Any] | None:
    """Return which version is in use, and how that came about; None for a run without later versions."""
    if not is_there(path / CURRENT):
        return None
    try:
        return read_object(path / CURRENT, limit=MAX_RECORD_BYTES)
    except InputError as error:
        raise InputError(f"{one_line(error).rstrip('.')}; mend it with: mlcl check {path} --repair") from None


def write_current(path: Path, record: Mapping[str, Any]) -> None:
    """Write which version is in use."""
    write_json(path / CURRENT, dict(record))


def write_gate(path: Path, record: Mapping[str, Any]) -> None:
    """Write how a version compared with the one before."""
    _write_with_digest(path / GATE, record)


def read_gate(path: Path) -> dict[str, Any] | None:
    """Return how a version compared with the one before; None if it was not compared."""
    if not is_there(path / GATE):
        return None
    extends = read_extends(path)
    return _read_with_digest(path / GATE, required=extends is not None and extends.gate_known)


def write_receipt(path: Path, record: Mapping[str, Any]) -> None:
    """Write what a version is to forget; `write_result` replaces it by what it forgot."""
    write_json(path / RECEIPT, dict(record))


def read_receipt(path: Path) -> dict[str, Any] | None:
    """Return what a version forgot; None if it forgot nothing."""
    try:
        sums = read_object(path / RESULT, limit=MAX_RESULT_BYTES).get("sha256")
    except InputError:  # not finished, or damaged, which is for others to say
        sums = None
    content = _read_optional(path / RECEIPT, sums if isinstance(sums, dict) else {})
    return None if content is None else parse_object(content, source=path / RECEIPT)


def append_metrics(path: Path, lines: list[dict[str, Any]]) -> None:
    """Append measured values."""
    append_bytes(path / METRICS, "".join(json.dumps(plain(line)) + "\n" for line in lines).encode())


def flush_metrics(path: Path) -> int:
    """Bring the measured values to the disk and return the size of their file."""
    return sync_file(path / METRICS)


def cut_metrics(path: Path, size: int) -> None:
    """Cut the measured values back to the size that their file had when a checkpoint was taken."""
    file = path / METRICS
    found = sync_file(file)
    if found < size:
        warnings.warn(
            f"{file} has {found} bytes, but had {size} when the checkpoint was taken: earlier lines are lost.",
            UserWarning,
            stacklevel=2,
        )
    else:
        cut_file(file, size)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the measured values; a line that is no JSON object is skipped, as the last line of a killed run may be."""
    file = path / METRICS
    if not is_there(file):
        return []
    try:
        content = read_bounded(file, limit=MAX_METRICS_BYTES, expected="the measured values of a run")
    except InputError as error:
        warnings.warn(f"{one_line(error, limit=1000)}; training curves are left out.", stacklevel=2)
        return []
    found = []
    for line in content.decode(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def write_result(
    path: Path, learner: Learner, calibrated: Calibrated, *, receipt: Mapping[str, Any] | None = None
) -> Result:
    """Write all that a run leaves, and last the result, so that a folder with ``result.json`` is a whole run.

    Args:
        receipt: what the run forgot, if that is how it was made; the fingerprint of what is left is added.
    """
    result = summarise(learner, calibrated, path)
    contents = _contents(learner)
    if receipt is not None:
        after = hashlib.sha256(contents[WEIGHTS] + contents[MEMORY]).hexdigest()[:16]
        contents[RECEIPT] = json_text({**receipt, "after": after}).encode()
    write_finished(path, contents, result, calibrated.calibration, calibrated.thresholds, calibrated.held_out)
    remove_checkpoints(path)
    return result


def write_finished(
    path: Path,
    contents: Mapping[str, bytes],
    result: Result,
    calibration: Calibration,
    thresholds: Thresholds,
    held_out: HeldOut | None,
) -> None:
    """Write the files of a finished run, and last its result with their checksums."""
    classes = result.classes
    written = dict(contents)
    if held_out is not None:
        written[HELD_OUT] = FORMATS[HELD_OUT].pack(
            {name: getattr(held_out, name) for name in _HELD_OUT_ARRAYS}
        )
    written[CALIBRATION] = json_text(calibration_json(calibration, classes)).encode()
    for name, content in written.items():
        write_bytes(path / name, content)
    write_thresholds(path, thresholds, classes)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in written.items()}
    write_json(path / RESULT, {**result.to_json(), "sha256": sums})


def remove_result(path: Path) -> None:
    """Make a finished run unfinished, before its files are replaced."""
    (path / RESULT).unlink(missing_ok=True)


def _contents(learner: Learner) -> dict[str, bytes]:
    """Return the files of a finished run that nothing changes any more."""
    tensors = dict(learner.network.state_dict())
    tensors |= with_prefix("committee", learner.head.members.state_dict())
    tensors["normaliser.scale"] = learner.normaliser.scale
    tensors["normaliser.shift"] = learner.normaliser.shift
    return packed(to_arrays(tensors), kept_arrays(learner)) | encoder_file(learner.data.encoder)


def packed(weights: Mapping[str, NDArray[Any]], memory: Mapping[str, NDArray[Any]]) -> dict[str, bytes]:
    """Return the content of the files of weights and memory, by name."""
    return {WEIGHTS: FORMATS[WEIGHTS].pack(weights), MEMORY: FORMATS[MEMORY].pack(memory)}


def encoder_file(encoder: bytes | None) -> dict[str, bytes]:
    """Return the file of an encoder by name; nothing without one."""
    return {} if encoder is None else {ENCODER: encoder}


def write_diverged(path: Path, config: Config, *, error: str) -> None:
    """Write as the result of a run that it diverged; only `ENVIRONMENT` says on which data."""
    record = {"benchmark": config.benchmark, "method": config.method, "seed": config.seed, "error": error}
    write_json(path / RESULT, record | {"macro_auc": None, "matrix": [], "config": to_dict(config)})
    keep_record(path)


def keep_record(path: Path) -> None:
    """Remove everything of a finished run but what it was and what it measured."""
    for name in set(FILES) - {CONFIG, ENVIRONMENT, RESULT}:
        (path / name).unlink(missing_ok=True)
    remove_checkpoints(path)


def read_calibration(path: Path, result: Result) -> Calibration:
    """Return how a run's logits become probabilities; for a run of an mlcl before calibration, by the sigmoid alone."""
    file = path / CALIBRATION
    content = _read_optional(file, result.sha256)
    if content is None:
        classes = len(result.classes)
        return Calibration.from_counts(LogOddsLines.identity(classes), np.full(classes, 0.5))
    return _parsed(file, parse_object(content, source=file), result, parse_calibration)


def write_thresholds(path: Path, thresholds: Thresholds, classes: Sequence[str]) -> None:
    """Write which probabilities are tags; a file that was there is replaced in one go."""
    _write_with_digest(path / THRESHOLDS, thresholds_json(thresholds, classes))


def read_thresholds(path: Path, result: Result) -> Thresholds:
    """Return which probabilities of a run are tags; 0.5 for all classes if a run of an older mlcl has no file."""
    file, listed = path / THRESHOLDS, CALIBRATION in result.sha256
    if not listed and not is_there(file):
        return Thresholds.half(len(result.classes))
    try:
        return _parsed(file, _read_with_digest(file, required=listed), result, parse_thresholds)
    except InputError as error:
        again = f"choose thresholds anew with: mlcl thresholds {path}"
        raise InputError(f"{one_line(error, limit=1000).rstrip('.')}; {again}") from None


def thresholds_print(thresholds: Thresholds, classes: Sequence[str]) -> str:
    """Return 16 hexadecimal digits of a SHA-256 over thresholds: whether they are still the same."""
    return json_digest(plain(thresholds_json(thresholds, classes)))[:16]


def read_held_out(path: Path, result: Result) -> HeldOut | None:
    """Return the scores of a run's held-out rows; None if it held out none."""
    if HELD_OUT not in result.sha256 and not is_there(path / HELD_OUT):
        return None
    arrays = _read_arrays(path / HELD_OUT, result.sha256)
    try:
        names = [
            name for name in _HELD_OUT_ARRAYS if name in arrays or name not in ("inputs", "keys")
        ]  # version 0.1 had none
        held_out = HeldOut(**{name: arrays[name] for name in names})
        if held_out.logits.shape[1] != len(result.classes) or held_out.known.dtype != np.bool_:
            raise InputError(f"it has {held_out.logits.shape[1]} classes")
        LabelCounts.of(held_out.labels)
    except Exception as error:  # names, shapes and values come from files
        raise InputError(f"{path / HELD_OUT} does not fit the run: {one_line(error)}.") from None
    return held_out


def read_encoder(path: Path, result: Result) -> bytes | None:
    """Return the file of what makes vectors of raw inputs, as it was written; None if inputs are scored as they are."""
    return read_listed(path / ENCODER, result.sha256) if ENCODER in result.sha256 else None


def _parsed(
    path: Path,
    content: Mapping[str, Any],
    result: Result,
    parse: Callable[[Mapping[str, Any], Sequence[str]], T],
) -> T:
    """Check the content of a file of one value per class."""
    try:
        return parse(content, result.classes)
    except KeyError as missing:
        raise InputError(f"{path}: has no field {missing}.") from None
    except InputError as error:
        raise InputError(f"{path}: {one_line(error)}.") from None


def read_result_json(path: Path) -> dict[str, Any]:
    """Read ``result.json`` as it is; a missing or corrupt one is an `InputError`."""
    content = read_object(path / RESULT, limit=MAX_RESULT_BYTES, expected="the result of a finished run")
    check_result(content, source=path / RESULT)
    return content


def read_result(path: Path) -> Result:
    """Read ``result.json`` with every field checked; anything missing or wrong is an `InputError`."""
    return Result.from_json(read_result_json(path), source=path / RESULT)


def read_weights(path: Path, result: Result) -> dict[str, Tensor]:
    """Read the network's tensors, and those of the normaliser."""
    return to_tensors(_read_arrays(path / WEIGHTS, result.sha256))


def read_memory(path: Path, result: Result) -> Kept:
    """Read all that a finished run keeps of the past; a file that does not fit the run is an `InputError`."""
    arrays = _read_arrays(path / MEMORY, result.sha256)
    # Entries of `Memory.state`: the header, or one of a numbered task.
    state = {name: one for name, one in arrays.items() if name == "header" or name[:1].isdecimal()}
    try:
        memory = Memory.from_state(state)
        # In masked joint training a class is counted on the rows of its own task only.
        masked = result.settings.get("protocol") == "joint-masked"
        _check_memory(memory, len(result.classes), whole=not masked)
    except Exception as error:  # names, shapes and values come from files
        raise InputError(f"{path / MEMORY} does not fit the run: {one_line(error)}.") from None
    tensors = to_tensors(arrays)
    regulariser, exact = (section(tensors, part) for part in ("regulariser", "exact"))
    return Kept(memory, tensors.get("inputs"), regulariser, exact)


def _check_memory(memory: Memory, classes: int, *, whole: bool) -> None:
    """Refuse a memory whose parts contradict each other; ``whole``: each class is counted on all rows of its task."""
    for samples in memory.tasks:
        ids, total = samples.classes, samples.counts.positive + samples.counts.negative
        if not len(ids) or ids.min() < 0 or ids.max() >= classes or len(np.unique(ids)) != len(ids):
            raise ValueError(f"task {samples.task + 1} has the classes {ids.tolist()[:20]}")
        exact = whole and "known" not in samples.extra
        wrong = total != samples.counts.total if exact else total > samples.counts.total
        if wrong.any() or len(samples) > samples.counts.total:
            raise ValueError(f"the counts of task {samples.task + 1} contradict each other")
        LabelCounts.of(samples.labels)


def _read_arrays(path: Path, sums: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Read a file of arrays; ``sums`` are the checksums of ``result.json``, if it has any."""
    kind = FORMATS[path.name]
    return kind.unpack(read_listed(path, sums, limit=kind.limit), source=path)[1]


def _read_optional(path: Path, sums: Mapping[str, Any]) -> bytes | None:
    """Read a file that a run need not have, None without it; one that ``result.json`` lists must be there as it was."""
    if path.name in sums:
        return read_listed(path, sums, limit=MAX_RESULT_BYTES, expected=f"the file that {RESULT} lists")
    return (
        read_listed(path, {}, limit=MAX_RESULT_BYTES, expected="a file of a run") if is_there(path) else None
    )


def read_listed(
    path: Path,
    sums: Mapping[str, Any],
    *,
    limit: int = MAX_MEMORY_BYTES,
    expected: str = "a file of a finished run",
) -> bytes:
    """Return the bytes of a file as the result lists it; without any checksums, as it is."""
    content = read_bounded(path, limit=limit, expected=expected)
    if sums and hashlib.sha256(content).hexdigest() != sums.get(path.name):
        raise InputError(f"{path}: is damaged: its checksum is not the one in {RESULT}.")
    return content


def _write_with_digest(path: Path, record: Mapping[str, Any]) -> None:
    """Write a file that may come after the result with the checksum of its own content: both change in one go."""
    fields = plain(dict(record))
    write_json(path, {**fields, "sha256": json_digest(fields)})


def _read_with_digest(path: Path, *, required: bool) -> dict[str, Any]:
    """Read what `_write_with_digest` wrote; with ``required`` one without a checksum is refused too."""
    fields = read_object(path, limit=MAX_RESULT_BYTES)
    found = fields.pop("sha256", None)
    if (required or found is not None) and found != json_digest(fields):
        raise InputError(f"{path}: is damaged: its checksum is not that of its content.")
    return fields


def fingerprint(path: Path) -> str:
    """Return 16 hexadecimal digits of a SHA-256 over weights and memory: whether a run is still the same."""
    return file_sha256(path / WEIGHTS, path / MEMORY)[:16]


def write_tracker_ids(path: Path, ids: Mapping[str, str]) -> None:
    """Write under which ids trackers know the run."""
    write_text(path / TRACKERS, json.dumps(dict(ids)) + "\n")


def read_tracker_ids(path: Path) -> dict[str, str]:
    """Return under which ids trackers know the run; none if that cannot be read."""
    try:
        found = read_object(path / TRACKERS, limit=MAX_RECORD_BYTES)
    except InputError:
        return {}
    return {str(name): str(value) for name, value in found.items()}


def pack_folder(path: Path) -> dict[str, bytes]:
    """Return all files of a finished run by relative name, to be copied, or sent to another machine."""
    files = [
        file for file in path.rglob("*") if file.is_file() and not file.is_symlink() and _counts(file.name)
    ]
    return {
        file.relative_to(path).as_posix(): read_bounded(
            file, limit=MAX_WEIGHTS_BYTES, expected="a file of a run"
        )
        for file in files
    }


def copy_finished(path: Path, out: Path, *, overwrite: bool) -> None:
    """Write a finished run into another folder as a run of its own: it has no parent, gate or versions there."""
    require_finished(path)
    if out.resolve() == path.resolve():
        raise InputError(f"{out} is the folder that was loaded; expected another one.")
    read_result(path)
    claim_folder(out, overwrite=overwrite)
    names = [name for name in FILES if name not in (EXTENDS, GATE, RECEIPT, RESULT) and is_there(path / name)]
    for name in [*sorted(names, key=lambda name: name != ENVIRONMENT), RESULT]:
        content = read_bounded(path / name, limit=MAX_WEIGHTS_BYTES, expected="a file of a run")
        write_bytes(out / name, content)


def unpack_folder(files: Mapping[str, bytes], path: Path) -> None:
    """Write the files of a run, the record of what made it first and the result last: a folder with one is whole."""
    claim_folder(path, overwrite=True)
    for name in sorted(files, key=lambda name: (name == RESULT) - (name == ENVIRONMENT)):
        for inner in reversed(Path(name).parents[:-1]):
            own_folder(path / inner)
        write_bytes(path / name, files[name])


def inputs_of_memory(kept: Kept, config: Config, shape: tuple[int, ...], *, path: Path) -> NDArray[Any]:
    """Return the stored inputs at the size of the run's inputs; what does not fit is an `InputError`."""
    if kept.inputs is None:
        raise InputError(
            f"{path / MEMORY}: has no inputs of the stored samples; the run was made by an older mlcl."
        )
    factor = config.memory.downscale
    first, *sides = kept.inputs.shape[1:]
    if len(kept.inputs) != len(kept.memory) or (first, *(factor * side for side in sides)) != shape:
        raise InputError(
            f"{path / MEMORY} does not fit the run: its inputs have the shape {tuple(kept.inputs.shape)}."
        )
    # Not before the sides are known to fit: the factor comes from a file.
    found: NDArray[Any] = enlarged(kept.inputs, factor).numpy()
    return found
