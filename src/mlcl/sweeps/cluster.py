"""The Ray engine: executes runs on the cores of a cluster. Ray is an extra and is imported only here."""

from __future__ import annotations

import logging
import socket
import tempfile
import warnings
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mlcl.errors import InputError, one_line
from mlcl.runs.folder import pack_folder, read_result_json, unpack_folder
from mlcl.sweeps.plan import PlannedRun
from mlcl.sweeps.work import Finished, SweepCallback, attempt
from mlcl.training.portable import ENVIRONMENT

Files = dict[str, bytes]


def run_ray(
    runs: Sequence[PlannedRun], *, jobs: int | None, address: str | None, callback: SweepCallback
) -> Generator[Finished, None, None]:
    """Execute runs on Ray and yield each as it ends.

    The nodes need mlcl and the data, under the same name or path, but no shared folder: the files of a run are sent
    back. Plugin files are sent along with the runs; a plugin that is a module must be installed on the nodes.

    Args:
        runs: the planned runs.
        jobs: number of runs at a time; as many as the cluster has cores if not given.
        address: address of a cluster; a local one is started if not given.
        callback: called when a run starts and ends; progress within a run is not reported.
    """
    ray: Any = import_ray()
    if address is not None:
        _check_address(address)
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(address=address, num_cpus=jobs if address is None else None, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"--address {address}: no Ray cluster answers there: {one_line(error)}.") from None
    try:
        yield from _run_on(ray, runs, jobs, callback)
    finally:
        ray.shutdown()


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


def _run_on(
    ray: Any, runs: Sequence[PlannedRun], jobs: int | None, callback: SweepCallback
) -> Generator[Finished, None, None]:
    resources = ray.cluster_resources()
    limit = jobs or max(1, int(resources.get("CPU", 1)))
    remote = ray.remote(max_retries=1)(_run_on_node)
    queue = iter(runs)
    waiting: dict[Any, PlannedRun] = {}
    while True:
        while len(waiting) < limit and (run := next(queue, None)) is not None:
            gpus = 1 if resources.get("GPU", 0) >= 1 and run.config.train.device != "cpu" else 0
            train = run.config.train
            # A node does not inherit this process's environment.
            portable = {"runtime_env": {"env_vars": dict(ENVIRONMENT)}} if train.portable else {}
            handle = remote.options(num_cpus=train.threads or 1, num_gpus=gpus, **portable).remote(run)
            waiting[handle] = run
            callback.on_run_start(run)
        if not waiting:
            return
        ready, _ = ray.wait(list(waiting), num_returns=1)
        run = waiting.pop(ready[0])
        try:
            files, error, trace = ray.get(ready[0])
        except ray.exceptions.RayError as failure:
            yield Finished(run, None, one_line(failure, limit=500))
        else:
            yield _received(run, files, error, trace)


def _received(run: PlannedRun, files: Files | None, error: str, trace: str) -> Finished:
    """Write what a node has sent into the folder of the run: its files, or the traceback of its failure."""
    if files is not None:
        unpack_folder(files, run.folder)
        return Finished(run, read_result_json(run.folder))
    if trace:
        run.error_file.parent.mkdir(parents=True, exist_ok=True)
        run.error_file.write_text(trace, encoding="utf-8")
        error = f"{error} (traceback in {run.error_file})"
    return Finished(run, None, error)


def _run_on_node(run: PlannedRun) -> tuple[Files | None, str, str]:
    """Execute a run on a node, in a temporary folder; return its files, or the error and its traceback."""
    warnings.simplefilter("ignore", UserWarning)
    with tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        here = replace(run, folder=Path(folder) / run.folder.name)
        result, error = attempt(here)
        if result is None:
            trace = here.error_file.read_text(encoding="utf-8") if here.error_file.exists() else ""
            return None, error, trace
        return pack_folder(here.folder), "", ""


def import_ray() -> Any:
    """Return the module; without it, raise an `InputError` that names the extra to install."""
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray; install it with: pip install 'mlcl[ray]'") from None
    return ray
