"""A Ray cluster for this process: connected to or started, and left again. Ray is an extra."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from mlcl.errors import InputError, one_line

PATIENCE = 600.0
"""Seconds to wait while nothing is done and nothing can be: a cluster may still be growing."""
SILENCE = 20.0
"""Seconds for which the head node may not answer: after 60, Ray ends this process without a word of ours."""
LOOK = 5.0
"""Seconds between two looks at the cluster while no result comes."""


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
    """Return how many cores a cluster has now, at least 1; fail if its head node is lost."""
    return max(1, int(_resources(ray).get("CPU", 1)))


def next_result(ray: Any, results: Iterable[Any]) -> Any:
    """Return a result that is there, however long it takes; but fail if the cluster cannot bring any.

    Args:
        ray: the module, in a cluster.
        results: references to what remote functions will return.

    Raises:
        EngineFailure: the cluster has had no core for `PATIENCE` seconds, or its head node is lost.
    """
    waiting = list(results)
    able = time.monotonic()
    while True:
        with noticing_loss(ray):
            ready, _ = ray.wait(waiting, num_returns=1, timeout=LOOK, fetch_local=False)
            if ready:
                return ready[0]
            if _resources(ray).get("CPU", 0) >= 1:
                able = time.monotonic()
        if time.monotonic() - able >= PATIENCE:
            raise EngineFailure(
                f"the Ray cluster has had no core to work on for {PATIENCE:g} s: its nodes were lost"
            )


@contextlib.contextmanager
def noticing_loss(ray: Any) -> Iterator[None]:
    """Raise an `EngineFailure` where the connection to the cluster is lost in the block."""
    try:
        yield
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise EngineFailure(f"the connection to the Ray cluster was lost: {one_line(error)}") from None


def _resources(ray: Any) -> dict[str, float]:
    """Return what a cluster has now; fail if its head node does not answer for `SILENCE` seconds."""
    found: list[dict[str, float] | Exception] = []

    def ask() -> None:
        try:
            found.append(ray.cluster_resources())
        except Exception as error:  # raised again below
            found.append(error)

    # Without its head node, Ray's call would wait until Ray ends this process.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(SILENCE)
    if not found:
        raise EngineFailure(f"the head node of the Ray cluster has not answered for {SILENCE:g} s")
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


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
