"""Who counts shards: this process, worker processes of this machine, or the nodes of a Ray cluster.

An engine takes jobs and yields what each part has counted once that part is on the disk. A worker or a node that is
lost loses its own job, which is done again; a part is on the disk or it is not.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

from mlcl.errors import InputError, one_line
from mlcl.exact.parts import Part
from mlcl.sklearn.shard_parts import Counted, Job, count, write_part
from mlcl.training.cluster import EngineFailure, connected, cores_of, next_result, noticing_loss
from mlcl.training.workers import Worker, begin_serving, one_thread

ATTEMPTS = 3
"""How often a job is given out whose worker was lost."""

Counts = Generator[list[Counted], None, None]
Answer = tuple[Part, list[Counted]] | Exception
"""Sums with the record of what was counted, or what is wrong."""
_Task = tuple[int, Job, Path]


def count_here(jobs: Sequence[Job], folder: Path) -> Counts:
    """Count in this process, one job after the other.

    Args:
        jobs: what to count.
        folder: where the parts go.
    """
    for job in jobs:
        part, counted = count(job)
        write_part(folder, part, counted)
        yield counted


def count_local(jobs: Sequence[Job], folder: Path, *, workers: int) -> Counts:
    """Count in worker processes, which write their parts themselves.

    Args:
        jobs: what to count.
        folder: where the parts go.
        workers: how many processes.
    """
    queue = iter(enumerate(jobs))
    lost: dict[int, int] = {}
    team: list[Worker[_Task]] = []

    def feed(worker: Worker[_Task]) -> None:
        worker.job = None
        if (following := next(queue, None)) is not None:
            worker.give((*following, folder))

    try:
        for _ in range(min(workers, len(jobs))):
            team.append(Worker.start(_serve, one_thread()))
            feed(team[-1])
        while busy := {worker.pipe: (worker, worker.job) for worker in team if worker.job is not None}:
            for pipe in wait(list(busy)):
                worker, job = busy[cast(Connection, pipe)]
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    ended = worker.buried()
                    lost[job[0]] = lost.get(job[0], 0) + 1
                    if lost[job[0]] >= ATTEMPTS:
                        raise EngineFailure(
                            f"{_names(job[1])} could not be counted in {ATTEMPTS} attempts: {ended.rstrip('.')}"
                        ) from None
                    successor: Worker[_Task] = Worker.start(_serve, one_thread())
                    team[team.index(worker)] = successor
                    successor.give(job)
                    continue
                feed(worker)
                yield _received(answer)
    finally:
        for worker in team:
            worker.stop()


def _serve(pipe: Connection) -> None:
    """Be a worker: count a job, write its part, and report what was counted, or why not."""
    begin_serving()
    try:
        while True:
            _, job, folder = pipe.recv()
            answer = attempt(job)
            if isinstance(answer, Exception):
                pipe.send(answer)
                continue
            try:
                write_part(folder, *answer)
            except OSError as error:  # the disk is full
                pipe.send(error)
            else:
                pipe.send(answer[1])
    except (EOFError, OSError):
        return


def count_on_ray(
    bundles: Sequence[Sequence[Job]], folder: Path, *, workers: int | None, address: str | None
) -> Counts:
    """Count on the nodes of a cluster, and add there, too: this process receives and writes one sum per bundle.

    The nodes need mlcl and must reach the shards under the same addresses; they need no shared folder.

    Args:
        bundles: what to count; the sums of the jobs of a bundle are added in their order.
        folder: where the parts go.
        workers: how many jobs at a time; one per core of the cluster if not given.
        address: of the cluster; one is started on this machine if not given.
    """
    with connected(address=address, jobs=workers) as ray:
        counting = ray.remote(max_retries=ATTEMPTS)(attempt)
        # Without a core of its own: a sum that waited for one would keep its parts in memory.
        adding = ray.remote(max_retries=ATTEMPTS, num_cpus=0)(added)
        queue = ((bundle, number) for bundle in bundles for number in range(len(bundle)))
        running: set[Any] = set()
        sums: dict[Any, Sequence[Job]] = {}
        total: Any = None
        while True:
            with noticing_loss(ray):
                while (
                    len(running) < (workers or cores_of(ray)) and (following := next(queue, None)) is not None
                ):
                    bundle, number = following
                    part = counting.remote(bundle[number])
                    running.add(part)
                    total = adding.remote(total, part) if number else part
                    if number == len(bundle) - 1:
                        sums[total] = bundle
            if not running and not sums:
                return
            ready = next_result(ray, running | sums.keys())
            running.discard(ready)
            if (done := sums.pop(ready, None)) is None:
                continue
            try:
                answer = ray.get(ready)
            except ray.exceptions.RayError as error:
                jobs = ", ".join(_names(job) for job in done)
                raise EngineFailure(f"{jobs} could not be counted: {one_line(error)}") from None
            if isinstance(answer, tuple):
                write_part(folder, *answer)
                answer = answer[1]
            yield _received(answer)


def attempt(job: Job) -> Answer:
    """Count a job, or return what is wrong: an exception of ours, without a traceback of another process."""
    try:
        return count(job)
    except (InputError, OSError) as error:
        return error


def added(one: Answer, other: Answer) -> Answer:
    """Add two answers, or return what is wrong with one of them."""
    if isinstance(one, Exception) or isinstance(other, Exception):
        return one if isinstance(one, Exception) else other
    return one[0] + other[0], [*one[1], *other[1]]


def _received(answer: list[Counted] | Exception) -> list[Counted]:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _names(job: Job) -> str:
    more = f" and {len(job.shards) - 1} more" if len(job.shards) > 1 else ""
    return f"{job.shards[0].address}{more}"
