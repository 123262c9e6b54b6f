"""A store: a folder with all inputs in one memory map, their labels and ids, and a readable manifest.

``inputs.npy`` is uint8 ``[N, C, H, W]`` or float32 ``[N, D]``, training rows first; ``labels.npy`` is uint8
``[N, K]``, and ``known.npy``, of the same shape, says which labels are known, where not all are; ``ids.json`` has one
name per row; ``encoder.safetensors`` is what made vectors of texts, if that did; ``manifest.json`` records what the
store holds, where it came from, and the SHA-256 of each file. A folder without a manifest that agrees with its files is
not a store.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from mlcl.arrays import ENDING
from mlcl.datasets.base import Dataset, Kind, Split, known_labels
from mlcl.datasets.npy import map_npy
from mlcl.errors import InputError
from mlcl.files import file_sha256, is_there, read_bounded, read_object
from mlcl.labels import as_labels

FORMAT, VERSION = "mlcl-store", 1
INPUTS, LABELS, IDS, MANIFEST = "inputs.npy", "labels.npy", "ids.json", "manifest.json"
KNOWN = "known.npy"
ENCODER = f"encoder{ENDING}"
FEATURES = "features"
"""The source of a store whose inputs a model computed from another store (``mlcl data features``)."""
_MAX_JSON_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Manifest:
    """The content of ``manifest.json``.

    Attributes:
        dropped: how many items were left out by the rules of the source, by reason.
        skipped: the rows that could not be read, each as ``[id, reason]``.
        provenance: source, root, options, and how images were resized.
        plan: the fingerprint of the plan that the store was made from.
        files: for each file its ``bytes`` and ``sha256``.
    """

    format: str
    version: int
    name: str
    kind: str
    dtype: str
    shape: list[int]
    classes: list[str]
    train: int
    test: int
    dropped: dict[str, int]
    skipped: list[list[str]]
    provenance: dict[str, Any]
    plan: str
    files: dict[str, dict[str, Any]]

    def dumps(self) -> str:
        """Return the manifest as readable JSON."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @property
    def origin(self) -> dict[str, Any] | None:
        """Return how a model computed the features, if one did."""
        found = self.provenance.get("options")
        return found if self.provenance.get("source") == FEATURES and isinstance(found, dict) else None

    @property
    def options(self) -> dict[str, Any] | None:
        """Return the options that the data, or the source of features, were prepared with; None if not recorded."""
        recorded = self.provenance if self.origin is None else self.origin.get("of")
        found = recorded.get("options") if isinstance(recorded, dict) else None
        return found if isinstance(found, dict) else None

    @property
    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits of a SHA-256 over class names, split and checksums."""
        names = [name for name in (INPUTS, LABELS, KNOWN) if name in self.files]
        parts = [self.classes, self.train, [self.files[name]["sha256"] for name in names]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class StoreInfo:
    """What `mlcl.datasets.prepare` did.

    Attributes:
        path: folder of the store.
        name: name of the dataset.
        rows: the number of rows.
        classes: their names.
        dropped: how many items are not in the store, by reason; unreadable ones count as ``unreadable``.
        skipped: the id of each unreadable item, and the reason.
        bytes: the size of the store.
        already_there: whether the store was there already, so that nothing was done.
        seconds: the time that it took.
    """

    path: Path
    name: str
    rows: int
    classes: tuple[str, ...]
    dropped: Mapping[str, int]
    skipped: tuple[tuple[str, str], ...]
    bytes: int
    already_there: bool
    seconds: float


def is_store(path: Path) -> bool:
    """Return whether a folder has a manifest of this format, whatever else may be wrong with it."""
    try:
        return _parsed_manifest(path).get("format") == FORMAT
    except InputError:
        return False


def _parsed_manifest(path: Path) -> dict[str, Any]:
    return read_object(path / MANIFEST, limit=_MAX_JSON_BYTES, expected="the manifest of a store")


def store_kind(path: Path) -> Kind | None:
    """Return whether a store has images or features, from its manifest alone; None if it has no such manifest."""
    try:
        found = _parsed_manifest(path)
    except InputError:
        return None
    kind = found.get("kind") if found.get("format") == FORMAT else None
    return "images" if kind == "images" else "features" if kind == "features" else None


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a store; check it, and that the files have the sizes in it."""
    file = path / MANIFEST
    if not is_there(file):
        raise InputError(f"{path} is no finished store: {file} was looked for and does not exist")
    found = _parsed_manifest(path)
    if found.get("format") != FORMAT:
        raise InputError(f"{file} is not the manifest of a store: its format is not {FORMAT!r}")
    if found.get("version") != VERSION:
        raise InputError(f"{file} has the version {found.get('version')!r}, but {VERSION} was expected")
    fields = {name: get_origin(kind) or kind for name, kind in get_type_hints(Manifest).items()}
    for key, kind in fields.items():
        if not isinstance(found.get(key), kind) or isinstance(found[key], bool):
            raise InputError(
                f"{file} has {key} = {str(found.get(key))[:80]!r}, but a {kind.__name__} was expected"
            )
    manifest = Manifest(**{key: found[key] for key in fields})
    _check(manifest, path)
    return manifest


def _check(manifest: Manifest, path: Path) -> None:
    """Refuse a manifest whose parts do not fit together, and files of other sizes than it states."""
    types = {"images": ("uint8", 4), "features": ("float32", 2)}
    sizes = all(type(n) is int and n > 0 for n in manifest.shape)
    rows = manifest.shape[:1] == [manifest.train + manifest.test]
    texts = all(type(name) is str for name in manifest.classes)
    sound = {
        "kind, dtype and shape": sizes and (manifest.dtype, len(manifest.shape)) == types.get(manifest.kind),
        "train and test": rows and manifest.train >= 0 < manifest.test,
        "classes": texts and 0 < len(manifest.classes) == len(set(manifest.classes)),
        "dropped": all(type(count) is int for count in manifest.dropped.values()),
        "skipped": all(isinstance(one, list) and [*map(type, one)] == [str, str] for one in manifest.skipped),
        "files": set(manifest.files) - {KNOWN, ENCODER} == {INPUTS, LABELS, IDS}
        and all(_is_file_entry(entry) for entry in manifest.files.values()),
    }
    if wrong := [part for part, good in sound.items() if not good]:
        raise InputError(
            f"{path / MANIFEST} contradicts itself in {'; '.join(wrong)}: the store is damaged, prepare it again"
        )
    for name, entry in manifest.files.items():
        length = (path / name).stat().st_size if (path / name).is_file() else None
        if length != entry["bytes"]:
            raise InputError(
                f"{path / name} has {'no' if length is None else length} bytes, but {entry['bytes']} were "
                f"expected: the store is damaged, prepare it again"
            )


def _is_file_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and type(entry.get("bytes")) is int and type(entry.get("sha256")) is str


def open_store(path: str | Path, *, in_memory: bool = False, check: bool = False) -> Dataset:
    """Open a finished store as a `Dataset` whose inputs are views on one read-only memory map.

    Args:
        path: the folder.
        in_memory: copy the inputs into memory.
        check: read everything and compare the checksums.
    """
    path = Path(path)
    manifest = read_manifest(path)
    if check:
        for name, entry in manifest.files.items():
            if file_sha256(path / name) != entry["sha256"]:
                raise InputError(f"{path / name} is damaged: its SHA-256 is not the one in {MANIFEST}")
    inputs = _mapped(path / INPUTS, manifest.shape, manifest.dtype)
    labels = _mapped(path / LABELS, [len(inputs), len(manifest.classes)], "uint8")
    matrix = np.array(as_labels(labels, name=str(path / LABELS)))
    known = None if KNOWN not in manifest.files else map_npy(path / KNOWN)
    matrix, known = known_labels(matrix, known, name=str(path / KNOWN))
    inputs = np.array(inputs) if in_memory else inputs
    n = manifest.train
    train, test = (
        Split(inputs[part], matrix[part], None if known is None else known[part])
        for part in (slice(n), slice(n, None))
    )
    origin = manifest.origin
    if origin is not None and isinstance(origin.get("leak"), str):
        warnings.warn(f"{path}: {origin['leak']}", UserWarning, stacklevel=2)
    return Dataset(
        manifest.name,
        tuple(manifest.classes),
        train,
        test,
        manifest.fingerprint,
        origin=origin,
        options=manifest.options or {},
        dropped=manifest.dropped,
        encoder=_read_encoder(path, manifest),
    )


def _mapped(file: Path, shape: list[int], dtype: str) -> NDArray[Any]:
    found = map_npy(file)
    if [*found.shape] != shape or found.dtype != dtype:
        raise InputError(
            f"{file} has shape {found.shape} of {found.dtype}, but {tuple(shape)} of {dtype} was expected"
        )
    return found


def _read_encoder(path: Path, manifest: Manifest) -> bytes | None:
    if ENCODER not in manifest.files:
        return None
    content = read_bounded(path / ENCODER, limit=_MAX_JSON_BYTES, expected="the encoder of a store")
    if hashlib.sha256(content).hexdigest() != manifest.files[ENCODER]["sha256"]:
        raise InputError(f"{path / ENCODER} is damaged: its SHA-256 is not the one in {MANIFEST}")
    return content


def read_ids(path: str | Path) -> list[str]:
    """Return the ids of a store's rows, training rows first."""
    rows, file = read_manifest(Path(path)).shape[0], Path(path) / IDS
    content = read_bounded(file, limit=_MAX_JSON_BYTES, expected="the ids of a store")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) != rows or {type(i) for i in found} != {str}:
        raise InputError(f"{file} is not a list of {rows} ids; the store is damaged")
    return found
