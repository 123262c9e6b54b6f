"""The Ray engine: the same runs on the cores of a cluster. Ray is an extra and imported only here."""

from __future__ import annotations

import logging
import socket
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mlcl.errors import InputError
from mlcl.runs.folder import pack_folder, read_result_json, unpack_folder
from mlcl.sweeps.plan import PlannedRun
from mlcl.sweeps.work import Finished, Watch, attempt

Files = dict[str, bytes]


def run_ray(
    runs: Sequence[PlannedRun], *, jobs: int | None, address: str | None, watch: Watch
) -> Generator[Finished, None, None]:
    """Do runs on Ray and yield each as it ends.

    The nodes need mlcl and the data, under the same name or path, but no shared folder: the files of a run
    travel back.

    Args:
        runs: what to do.
        jobs: runs at a time; as many as the cluster has cores if not given.
        address: of a cluster; a local one is started if not given.
        watch: told what happens.
    """
    ray: Any = import_ray()
    if address is not None:
        _check_address(address)
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(address=address, num_cpus=jobs if address is None else None, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"--address {address}: no Ray cluster answers there: {reason}.") from None
    try:
        yield from _run_on(ray, runs, jobs, watch)
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Knock first: Ray itself tries for minutes before it says that nobody is there."""
    place = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = place.hostname, place.port
    except ValueError:
        raise InputError(
            f"--address {address} is no address; expected host:port, ray://host:port or auto."
        ) from None
    if host is None or port is None:  # "auto", or a name that Ray knows better
        return
    try:
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        raise InputError(
            f"--address {address}: no Ray cluster answers there: {error.strerror or error}."
        ) from None


def _run_on(
    ray: Any, runs: Sequence[PlannedRun], jobs: int | None, watch: Watch
) -> Generator[Finished, None, None]:
    resources = ray.cluster_resources()
    limit = jobs or max(1, int(resources.get("CPU", 1)))
    remote = ray.remote(max_retries=1)(_far)
    queue = iter(runs)
    waiting: dict[Any, PlannedRun] = {}
    while True:
        while len(waiting) < limit and (run := next(queue, None)) is not None:
            gpus = 1 if resources.get("GPU", 0) >= 1 and run.config.train.device != "cpu" else 0
            handle = remote.options(num_cpus=run.config.train.threads or 1, num_gpus=gpus).remote(run)
            waiting[handle] = run
            watch.started(run)
        if not waiting:
            return
        ready, _ = ray.wait(list(waiting), num_returns=1)
        run = waiting.pop(ready[0])
        try:
            files, error, trace = ray.get(ready[0])
        except ray.exceptions.RayError as failure:
            yield Finished(run, None, " ".join(str(failure).split())[:500])
            continue
        if files is None:
            if trace:
                run.error_file.parent.mkdir(parents=True, exist_ok=True)
                run.error_file.write_text(trace, encoding="utf-8")
            yield Finished(run, None, error + (f" (all of it: {run.error_file})" if trace else ""))
        else:
            unpack_folder(files, run.folder)
            yield Finished(run, read_result_json(run.folder))


def _far(run: PlannedRun) -> tuple[Files | None, str, str]:
    """Do a run on whatever node this is, in a folder of its own; return its files, or error and trace."""
    import warnings

    warnings.simplefilter("ignore", UserWarning)
    with tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        here = replace(run, folder=Path(folder) / run.folder.name)
        result, error = attempt(here)
        if result is None:
            trace = here.error_file.read_text(encoding="utf-8") if here.error_file.exists() else ""
            return None, error, trace
        return pack_folder(here.folder), "", ""


def import_ray() -> Any:
    """Return the module, or say how to install it."""
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray; install it with: pip install 'mlcl[ray]'") from None
    return ray
