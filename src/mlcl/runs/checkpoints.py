"""Checkpoints: the state of a run on disk, from which it resumes as if nothing had happened.

A checkpoint is two files of one number: ``000007.safetensors`` holds the tensors, ``000007.json``, written last, is a
manifest that people can read: what the checkpoint belongs to, the position, all plain values, and the SHA-256 of the
tensors and of itself. A checkpoint without a manifest is none. The newest two are kept, and the older of them until
the newer one was read back.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from mlcl._version import __version__
from mlcl.arrays import ENDING, Format, to_arrays, to_tensors
from mlcl.config.schema import Config, flat, to_dict
from mlcl.errors import InputError, one_line
from mlcl.files import (
    TEMPORARY,
    json_digest,
    own_folder,
    plain,
    read_bounded,
    read_object,
    refuse_link,
    sync_folder,
    write_bytes,
    write_json,
)
from mlcl.streams import Benchmark
from mlcl.training.learner import Learner
from mlcl.training.state import State

FORMAT, VERSION = "mlcl-checkpoint", 1
KEPT = 2
_MAX_MANIFEST_BYTES = 256 << 20
TENSORS = Format("mlcl-checkpoint-tensors", 1, what="the tensors of a checkpoint", plain=True)
OWN = re.compile(r"\d{6,}\.(json|safetensors)(\.tmp)?")
"""The names of files of checkpoints; an older mlcl wrote them by way of the name and .tmp."""
_FREE = ("data", "train.in_memory", "train.devices", "train.compile", "checkpoint.every")
"""Settings that may change before a resume: where the data lie (their fingerprint counts), how often to save, and
what changes the last digits at most (a warning says so)."""


class CorruptCheckpoint(InputError):
    """A checkpoint that cannot be used, because its files are not what was written."""


@dataclass(frozen=True)
class Identity:
    """What a checkpoint belongs to: a run resumes only where all of it is the same.

    Attributes:
        run: number of the run, drawn when its folder was made.
    """

    run: str
    config: dict[str, Any]
    data: str
    tasks: str

    @classmethod
    def of(cls, run: str, config: Config, benchmark: Benchmark) -> Identity:
        """Describe a run."""
        settings = json.loads(json.dumps(to_dict(config)))
        return cls(run, settings, benchmark.dataset.fingerprint, benchmark.tasks_fingerprint)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read: the state, what it belongs to, and how long ``metrics.jsonl`` was."""

    path: Path
    state: State
    identity: Identity
    metrics_bytes: int
    versions: dict[str, str]


def write_checkpoint(folder: Path, state: State, identity: Identity, *, metrics_bytes: int) -> Path:
    """Write a checkpoint, read it back, and only then drop all but the newest two; return its manifest."""
    own_folder(folder)
    number = max(_numbers(folder), default=0) + 1
    manifest, tensors = folder / f"{number:06d}.json", folder / f"{number:06d}{ENDING}"
    content = TENSORS.pack(to_arrays(state.tensors))
    task, epoch, step, in_task = state.values["position"]
    fields = {
        "format": FORMAT,
        "version": VERSION,
        "position": {"task": task, "epoch": epoch, "step": step, "in_task": in_task},
        "versions": _versions(),
        **asdict(identity),
        "metrics_bytes": metrics_bytes,
        "tensors": {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()},
        "names": list(state.tensors),
        "values": plain(state.values),
    }
    try:
        write_bytes(tensors, content)
        write_json(manifest, {**fields, "sha256": json_digest(fields)})
        _verify(manifest)
    except (OSError, CorruptCheckpoint):
        for path in (manifest, tensors):  # what is half there takes room, and is of no use to anybody
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise
    _tidy(folder)
    return manifest


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint that can be read, None if there is none yet.

    A corrupt one is a warning, and the one before it is used; if none of several is good, that is an error: to start
    anew should be somebody's decision.
    """
    refuse_link(folder)
    reasons = []
    for number in sorted(_numbers(folder), reverse=True):
        try:
            found = read_checkpoint(folder / f"{number:06d}.json")
        except CorruptCheckpoint as error:
            reasons.append(str(error))
            continue
        for reason in reasons:
            warnings.warn(f"{reason} The checkpoint before it is used.", UserWarning, stacklevel=2)
        return found
    if reasons:
        raise InputError(f"no checkpoint in {folder} can be used: {reasons[0]}")
    return None


def read_checkpoint(manifest: Path) -> Checkpoint:
    """Read a checkpoint; files that are not what was written raise `CorruptCheckpoint`, another version
    an `InputError`.
    """
    fields, content = _verify(manifest)
    try:
        loaded = to_tensors(TENSORS.unpack(content, source=manifest)[1])
        # The file sorts its tensors; sums over them (the penalty of EWC) are the same bits in the same order only.
        tensors = {name: loaded[name] for name in fields["names"]}
        identity = Identity(**{name: fields[name] for name in ("run", "config", "data", "tasks")})
        values, size = fields["values"], fields["metrics_bytes"]
        if not isinstance(values, dict) or not isinstance(identity.config, dict) or type(size) is not int:
            raise TypeError("a field has the wrong type")
        return Checkpoint(manifest, State(tensors, values), identity, size, dict(fields["versions"]))
    except Exception as error:  # parsers of untrusted bytes: whatever they trip over, the file is bad
        raise CorruptCheckpoint(f"{manifest} is damaged: {one_line(error)}.") from None


def restore(learner: Learner, checkpoint: Checkpoint) -> None:
    """Move a new learner to where the checkpoint was taken."""
    try:
        learner.load_state(checkpoint.state)
    except Exception as error:  # names and shapes come from a file
        raise InputError(f"{checkpoint.path} does not fit the run: {one_line(error)}.") from None


def refuse_changes(before: Identity, now: Identity, *, source: Path) -> None:
    """Raise an `InputError` that says what changed since ``before`` was written to ``source``."""
    changes = [
        f"{key} was {_shown(old)} and is {_shown(new)}"
        for key, (old, new) in _differences(before.config, now.config).items()
        if key not in _FREE
    ]
    if changes:
        raise InputError(f"the settings changed since {source} was written: {'; '.join(changes)}.")
    for name, what in (("data", "the data"), ("tasks", "the tasks"), ("run", "the number of the run")):
        old, new = getattr(before, name), getattr(now, name)
        if old != new:
            raise InputError(f"{what} changed since {source} was written: it had {old} and now has {new}.")


def warn_of_versions(checkpoint: Checkpoint, identity: Identity) -> None:
    """Warn where another version, number of threads or processes, or compilation may change the last digits."""
    changes = {
        name: (checkpoint.versions.get(name), now) for name, now in _versions().items() if name != "mlcl"
    }
    settings = _differences(checkpoint.identity.config, identity.config)
    changes |= {name: settings[name] for name in ("train.devices", "train.compile") if name in settings}
    for name, (before, now) in changes.items():
        if before != now:
            warnings.warn(
                f"the run was begun with {name} {before} and resumes with {now}: "
                "the last digits may differ from those of a run in one go.",
                UserWarning,
                stacklevel=2,
            )


def _versions() -> dict[str, str]:
    return {"mlcl": __version__, "torch": torch.__version__, "threads": str(torch.get_num_threads())}


def _numbers(folder: Path) -> list[int]:
    """Return the numbers of the checkpoints that have a manifest."""
    if not folder.is_dir():
        return []
    return [int(path.stem) for path in folder.glob("*.json") if OWN.fullmatch(path.name)]


def _verify(manifest: Path) -> tuple[dict[str, Any], bytes]:
    """Return manifest and bytes of the tensors, if both are what was written."""
    try:
        fields = read_object(manifest, limit=_MAX_MANIFEST_BYTES)
    except InputError as error:
        raise CorruptCheckpoint(str(error)) from None
    known = fields.pop("sha256", None)
    if known != json_digest(fields) or fields.get("format") != FORMAT:
        raise CorruptCheckpoint(f"{manifest} is damaged: its checksum is not that of its content.")
    if fields.get("version") != VERSION:
        raise InputError(
            f"{manifest} has the format version {fields.get('version')!r}, but this mlcl reads {VERSION}."
        )
    tensors = manifest.with_suffix(ENDING)
    entry = fields.get("tensors")
    try:
        content = read_bounded(tensors, limit=TENSORS.limit, expected=TENSORS.what)
    except InputError as error:
        raise CorruptCheckpoint(str(error)) from None
    found = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    if found != entry:
        raise CorruptCheckpoint(f"{tensors} is damaged: its checksum is not the one in {manifest.name}.")
    return fields, content


def _tidy(folder: Path) -> None:
    """Remove all but the newest checkpoints, manifests first, and what a kill in the middle of a write left."""
    kept = {f"{number:06d}" for number in sorted(_numbers(folder))[-KEPT:]}
    ours = [path for path in folder.iterdir() if OWN.fullmatch(path.name) or TEMPORARY.fullmatch(path.name)]
    old = [path for path in ours if path.name.split(".")[0] not in kept or path.suffix == ".tmp"]
    for path in sorted(old, key=lambda path: path.suffix != ".json"):
        path.unlink(missing_ok=True)
    sync_folder(folder)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, by dotted name.

    >>> _differences({"memory": {"size": 3}}, {"memory": {"size": 4, "rho": 1.0}})
    {'memory.rho': (None, 1.0), 'memory.size': (3, 4)}
    """
    old, new = flat(before), flat(now)
    return {key: (old.get(key), new.get(key)) for key in sorted({*old, *new}) if old.get(key) != new.get(key)}


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)[:80]
