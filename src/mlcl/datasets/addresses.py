"""Addresses of files: on this machine, or wherever fsspec reaches (``s3://``, ``gs://``, ``memory://``, ...)."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from mlcl.datasets.archives import reason
from mlcl.errors import InputError
from mlcl.files import open_regular

SUFFIX = ".parquet"
_BLOCK = 2**20


def expand(given: Sequence[str]) -> list[str]:
    """Return the files that addresses, folders and globs stand for, sorted, each once.

    Local files get absolute paths, so that a file has one address wherever the command is started.

    Args:
        given: paths, globs such as ``data/*.parquet``, folders of .parquet files, or addresses of fsspec.
    """
    found: set[str] = set()
    for pattern in given:
        more = _remote(pattern) if is_remote(pattern) else _local(pattern)
        if not more:
            raise InputError(
                f"{pattern} has no files, but a {SUFFIX} file, a folder of them, or a glob was expected"
            )
        found |= set(more)
    return sorted(found)


def is_remote(address: str) -> bool:
    """Return whether an address is one of fsspec.

    >>> is_remote("s3://bucket/a.parquet"), is_remote("data/a.parquet")
    (True, False)
    """
    return "://" in address


def _local(pattern: str) -> list[str]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        names = [str(one) for one in path.glob(f"*{SUFFIX}")]
    else:
        names = [str(path)] if path.exists() else glob.glob(str(path), recursive=True)  # noqa: PTH207  (absolute, with **)
    return [os.path.abspath(name) for name in names if Path(name).is_file()]  # noqa: PTH100  (resolve follows links)


def _remote(pattern: str) -> list[str]:
    files, path = _filesystem(pattern)
    try:
        if files.isdir(path):
            path = f"{path.rstrip('/')}/*{SUFFIX}"
        names = files.glob(path) if glob.has_magic(path) else [path] if files.exists(path) else []
    except Exception as error:  # of whatever protocol
        raise InputError(f"{pattern} cannot be listed: {reason(error)}") from None
    return [str(files.unstrip_protocol(name)) for name in names]


def _filesystem(address: str) -> tuple[Any, str]:
    try:
        import fsspec.core
    except ImportError:
        raise InputError(f"{address} needs fsspec: pip install fsspec") from None
    try:
        files, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:  # a protocol that needs another package, or an unknown one
        raise InputError(f"{address} cannot be opened: {reason(error)}") from None
    return files, str(path)


@contextlib.contextmanager
def opened(address: str) -> Iterator[BinaryIO]:
    """Open a file for reading at any place; that it cannot be opened is an `InputError`."""
    try:
        if is_remote(address):
            files, path = _filesystem(address)
            file = files.open(path, "rb")
        else:
            file = open_regular(Path(address))
    except InputError:
        raise
    except Exception as error:  # of whatever protocol
        raise InputError(f"{address} cannot be read: {reason(error)}") from None
    with file:
        yield file


def version(address: str) -> int:
    """Return a number that changes when a file does: when it was modified, or what its place says of it."""
    if not is_remote(address):
        return Path(address).stat().st_mtime_ns
    files, path = _filesystem(address)
    try:
        return int(files.checksum(path))
    except Exception as error:  # of whatever protocol
        raise InputError(f"{address} cannot be read: {reason(error)}") from None


def fingerprint(address: str) -> str:
    """Return the SHA-256 of a file's bytes."""
    with opened(address) as file:
        return _digest(file, address)


@contextlib.contextmanager
def fetched(address: str) -> Iterator[tuple[Path, str]]:
    """Bring a file to this machine for the block, if it is elsewhere; yield its path and its SHA-256.

    A local file is read through once, so that what reads it next finds it in the system's cache.
    """
    if not is_remote(address):
        yield Path(address), fingerprint(address)
        return
    with tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        path = Path(folder) / "file"
        with opened(address) as file, path.open("wb") as copy:
            digest = _digest(file, address, copy)
        yield path, digest


def _digest(file: BinaryIO, address: str, copy: BinaryIO | None = None) -> str:
    digest = hashlib.sha256()
    while True:
        try:
            block = file.read(_BLOCK)
        except Exception as error:  # of whatever protocol
            raise InputError(f"{address} cannot be read: {reason(error)}") from None
        if not block:
            return digest.hexdigest()
        digest.update(block)
        if copy is not None:
            copy.write(block)
