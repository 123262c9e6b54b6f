"""Jobs that do not depend on each other: one interface for this process, for workers of this machine and for Ray.

An engine takes a function and jobs, and yields each job with its answer as soon as it is there. A worker that is lost,
for example because memory runs out, loses its own job only.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from mlcl.engines.children import Channel, Child, Exit, Failure

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class EngineFailure(RuntimeError):
    """LocalWorkers or nodes were lost and the work cannot go on now; what was done stays, and the same call goes on."""


@dataclass(frozen=True)
class Lost:
    """In the place of an answer: the workers of a job were lost, as often as it was given out; how the last ended."""

    reason: str


@dataclass(frozen=True)
class Needs:
    """What a job needs: cores of a node, a GPU where there is one, further variables of its process."""

    cores: int = 1
    gpu: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


Outcomes = Generator[tuple[Job, Answer | Lost], None, None]


class Engine(Protocol):
    """Carries out jobs."""

    def each(
        self,
        function: Callable[..., Answer],
        jobs: Sequence[Job],
        *,
        attempts: int = 1,
        needs: Callable[[Job], Needs] | None = None,
        started: Callable[[Job], None] | None = None,
        progress: Callable[[Job, Any], None] | None = None,
    ) -> Outcomes[Job, Answer]:
        """Yield jobs with their answers, in any order; an exception of the function is raised here.

        Args:
            function: importable by name, or a callable object that can be pickled; called with a job, and where
                ``progress`` is given and the engine can report, with a function for reports.
            jobs: the jobs.
            attempts: how often a job is given out whose worker was lost.
            needs: of a job; one core if not given.
            started: called when a job is given to a worker.
            progress: called with a job and what its function has reported.
        """
        ...


class ThisProcess:
    """Does one job after the other in this process."""

    def each(self, function: Callable[..., Answer], jobs: Sequence[Job], **_: Any) -> Outcomes[Job, Answer]:
        """See `Engine.each`."""
        for job in jobs:
            yield job, function(job)


@dataclass(frozen=True)
class LocalWorkers:
    """Worker processes of this machine, so many at a time, with one thread each; they end with this process."""

    count: int

    def each(
        self,
        function: Callable[..., Answer],
        jobs: Sequence[Job],
        *,
        attempts: int = 1,
        needs: Callable[[Job], Needs] | None = None,
        started: Callable[[Job], None] | None = None,
        progress: Callable[[Job, Any], None] | None = None,
    ) -> Outcomes[Job, Answer]:
        """See `Engine.each`; a worker takes one job after the other, in an environment that suits all."""
        environment = one_thread()
        if needs is not None:
            for job in jobs:
                environment |= needs(job).environment
        inbox: queue.SimpleQueue[tuple[Child, Any]] = queue.SimpleQueue()
        given = [0] * len(jobs)
        left = list(reversed(range(len(jobs))))
        busy: dict[Child, int] = {}
        team: set[Child] = set()

        def start() -> Child:
            child = Child(
                _serve,
                function,
                progress is not None,
                notify=lambda child, message: inbox.put((child, message)),
                environment=environment,
            )
            team.add(child)
            return child

        def feed(child: Child) -> None:
            busy.pop(child, None)
            if not left:
                return
            number = busy[child] = left.pop()
            child.send(jobs[number])
            given[number] += 1
            if started is not None and given[number] == 1:
                started(jobs[number])

        try:
            for _ in range(min(self.count, len(jobs))):
                feed(start())
            while busy:
                child, message = inbox.get()
                if child not in busy:  # it ended when its work was done
                    continue
                number = busy[child]
                if isinstance(message, _Report):
                    if progress is not None:
                        progress(jobs[number], message.content)
                    continue
                if isinstance(message, Exit):
                    del busy[child]
                    team.remove(child)
                    child.end()
                    if again := given[number] < attempts:
                        left.append(number)
                    if left:
                        feed(start())
                    if not again:
                        yield jobs[number], Lost(str(message))
                    continue
                if isinstance(message, Failure):
                    raise message.exception("a worker failed")
                feed(child)  # first, so that the worker is not idle while the caller handles the answer
                yield jobs[number], message
        finally:
            for child in team:
                child.end()


@dataclass(frozen=True)
class _Report:
    content: Any


def _serve(channel: Channel, function: Callable[..., Any], reports: bool) -> None:
    """Be a worker: take jobs, and send reports and answers."""
    further = (lambda content: channel.send(_Report(content)),) if reports else ()
    while True:
        channel.send(function(channel.receive(), *further))


def one_thread() -> dict[str, str]:
    """Return the environment of a worker that shares the machine with as many others as there are cores."""
    policy = os.environ.get("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin take the cores of other workers
    return {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": policy}
