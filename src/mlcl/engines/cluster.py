"""The choice of an engine, and jobs on a Ray cluster, which is connected to or started, and left again."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mlcl.engines.children import Failure
from mlcl.engines.cores import cores
from mlcl.engines.pool import Answer, Engine, EngineFailure, Job, LocalWorkers, Lost, Needs, Outcomes
from mlcl.errors import InputError, one_line

PATIENCE = 600.0
"""Seconds to wait while nothing is done and nothing can be: a cluster may still be growing."""
SILENCE = 20.0
"""Seconds for which the head node may not answer: after 60, Ray ends this process without a word of ours."""
LOOK = 5.0
"""Seconds between two looks at the cluster while no result comes."""


def choose_engine(name: str, *, jobs: int | None = None, address: str | None = None) -> Engine:
    """Return an engine, ``local`` or ``ray``; options that contradict each other are refused, before anything is done.

    By default there is one job per core at a time, and a Ray cluster is started on this machine.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs is {jobs}; expected at least 1.")
    if address is not None and name != "ray":
        raise InputError(f"--address {address} is for --engine ray; the engine is {name!r}.")
    if name == "ray":
        import_ray()
        return Cluster(address, jobs)
    return LocalWorkers(jobs or cores())


@dataclass(frozen=True)
class Cluster:
    """The cores of a Ray cluster.

    The nodes need mlcl, but no shared folder; a plugin that is a module must be installed there.

    Attributes:
        address: of the cluster; one is started on this machine if not given.
        jobs: number of jobs at a time; one per core if not given.
    """

    address: str | None = None
    jobs: int | None = None

    def each(
        self, function: Callable[..., Answer], jobs: Sequence[Job], *, progress: Any = None, **options: Any
    ) -> Outcomes[Job, Answer]:
        """See `Engine.each`; a job is repeated where a node was lost, and nodes report no progress."""
        del progress
        with contextlib.closing(self.sums(function, None, [(job,) for job in jobs], **options)) as stream:
            for (job,), answer in stream:
                yield job, answer

    def sums(
        self,
        function: Callable[..., Answer],
        add: Callable[[Any, Any], Any] | None,
        bundles: Sequence[Sequence[Job]],
        *,
        attempts: int = 1,
        needs: Callable[[Job], Needs] | None = None,
        started: Callable[[Job], None] | None = None,
    ) -> Outcomes[Sequence[Job], Answer]:
        """Yield bundles with the sum of their answers, which are added on the nodes, in the order of the jobs."""
        with connected(address=self.address, jobs=self.jobs) as ray:
            code, adding = ray.put(function), ray.put(add)
            # A process keeps what it has loaded for its next job.
            remote = ray.remote(max_retries=attempts, max_calls=0)(_call)
            # Without a core of its own: a sum that waited for one would keep its parts in memory.
            added = ray.remote(max_retries=attempts, num_cpus=0)(_add)
            left = deque((bundle, number) for bundle in bundles for number in range(len(bundle)))
            running: set[Any] = set()
            sums: dict[Any, Sequence[Job]] = {}
            total: Any = None
            while left or running or sums:
                with noticing_loss(ray):
                    while left and len(running) < (self.jobs or max(1, int(_resources(ray).get("CPU", 1)))):
                        bundle, number = left.popleft()
                        options = _options(ray, needs(bundle[number])) if needs is not None else {}
                        part = remote.options(**options).remote(code, bundle[number])
                        running.add(part)
                        total = added.remote(adding, total, part) if number else part
                        if number == len(bundle) - 1:
                            sums[total] = bundle
                        if started is not None:
                            started(bundle[number])
                ready = next_result(ray, running | sums.keys())
                running.discard(ready)
                if (done := sums.pop(ready, None)) is not None:
                    yield done, _answer(ray, ready)


def _options(ray: Any, needs: Needs) -> dict[str, Any]:
    gpus = 1 if needs.gpu and _resources(ray).get("GPU", 0) >= 1 else 0
    options: dict[str, Any] = {"num_cpus": needs.cores, "num_gpus": gpus}
    if needs.environment:  # a node does not inherit that of this process
        options["runtime_env"] = {"env_vars": dict(needs.environment)}
    return options


def _call(function: Callable[..., Answer], job: Any) -> Answer | Failure:
    """Do a job on a node."""
    warnings.simplefilter("ignore", UserWarning)  # the first process shows them
    try:
        return function(job)
    except Exception as error:
        return Failure.of(error)


def _add(add: Callable[[Answer, Answer], Answer], one: Any, other: Any) -> Any:
    for part in (one, other):
        if isinstance(part, Failure):
            return part
    return add(one, other)


def _answer(ray: Any, ready: Any) -> Any:
    try:
        found = ray.get(ready)
    except ray.exceptions.RayError as error:
        return Lost(one_line(error, limit=500))
    if isinstance(found, Failure):
        raise found.exception("a node failed")
    return found


def import_ray() -> Any:
    """Return the module; without it, raise an `InputError` that names the extra to install."""
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray; install it with: pip install 'mlcl[ray]'") from None
    return ray


@contextlib.contextmanager
def connected(*, address: str | None, jobs: int | None) -> Iterator[Any]:
    """Yield Ray's module while this process is part of a cluster: at an address, or a local one with some cores."""
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


def next_result(ray: Any, results: Iterable[Any]) -> Any:
    """Return a result that is there, however long it takes.

    It is an `EngineFailure` if the cluster has had no core for `PATIENCE` seconds, or its head node is lost.
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
