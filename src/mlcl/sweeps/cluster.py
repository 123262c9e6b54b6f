"""The Ray engine: executes runs on the cores of a cluster."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlcl.errors import one_line
from mlcl.files import write_text
from mlcl.runs.folder import pack_folder, read_result_json, unpack_folder
from mlcl.sweeps.plan import PlannedRun
from mlcl.sweeps.work import Finished, SweepCallback, attempt
from mlcl.training.cluster import connected, cores_of
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
    with connected(address=address, jobs=jobs) as ray:
        yield from _run_on(ray, runs, jobs, callback)


def _run_on(
    ray: Any, runs: Sequence[PlannedRun], jobs: int | None, callback: SweepCallback
) -> Generator[Finished, None, None]:
    resources = ray.cluster_resources()
    limit = jobs or cores_of(ray)
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
        write_text(run.error_file, trace)
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
