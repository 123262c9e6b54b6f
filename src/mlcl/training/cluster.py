"""A Ray cluster for this process: connected to or started, and left again. Ray is an extra."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from mlcl.errors import InputError, one_line


class EngineFailure(RuntimeError):
    """Workers or nodes were lost and the work cannot go on now; what was done stays, and the same call goes on."""


def import_ray() -> Any:
    """Return the module; without it, raise an `InputError` that names the extra to install."""
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray; install it with: pip install 'mlcl[ray]'") from None
    return ray


def check_engine(*, jobs: int | None, engine: str, address: str | None) -> None:
    """Refuse options of the engine that contradict each other, before anything is executed."""
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs is {jobs}; expected at least 1.")
    if address is not None and engine != "ray":
        raise InputError(f"--address {address} is for --engine ray; the engine is {engine!r}.")
    if engine == "ray":
        import_ray()


@contextlib.contextmanager
def connected(*, address: str | None, jobs: int | None) -> Iterator[Any]:
    """Yield Ray's module while this process is part of a cluster.

    Args:
        address: address of a cluster; a local one is started if not given.
        jobs: cores of the local one; all of the machine if not given.
    """
    ray = import_ray()
    if address is not None:
        _check_address(address)
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(address=address, num_cpus=jobs if address is None else None, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"--address {address}: no Ray cluster answers there: {one_line(error)}.") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def cores_of(ray: Any) -> int:
    """Return how many cores a cluster has now, at least 1."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _check_address(address: str) -> None:
    """Try to connect first: Ray itself tries for minutes before it reports that nothing answers."""
    place = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = place.hostname, place.port
    except ValueError:
        raise InputError(
            f"--address {address} is not an address; expected host:port, ray://host:port or auto."
        ) from None
    if host is None or port is None:  # "auto", or a name that Ray resolves
        return
    try:
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        raise InputError(
            f"--address {address}: no Ray cluster answers there: {error.strerror or error}."
        ) from None
