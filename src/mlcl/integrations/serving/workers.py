"""The processes that compute, and the requests that wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mlcl.errors import InputError
from mlcl.integrations.serving.limits import Limits, Refusal, busy
from mlcl.plugins import loaded_plugins

GRACE = 10.0
"""Seconds after the time for an answer when a process that still computes is ended."""
LOADING = 600.0
"""Seconds that a model has to load."""
FOLLOW = 1.0
"""Seconds between two looks at the folder; its files must be the same in both before they are read."""
BACKOFF = (0.5, 30.0)
"""Seconds before a process that could not be started is started again: at first, and at most."""
LARGE = 1 << 18
"""Bytes from which on a request is heavy, whatever is in it."""
AHEAD = 32
"""Light requests that are sent to a process before the first of them is answered: it never waits for the next one."""
LOOK = 0.2
"""Seconds of waiting after which it is asked whether the client is still there."""
PROGRAM = "import sys; from mlcl.integrations.serving.model import work; work(int(sys.argv[1]))"

KINDS = ("load", "image", "item", "batch")
QUESTION = struct.Struct("!BdI")
"""What precedes a request on its way to a process: kind, seconds, bytes that follow."""
ANSWER = struct.Struct("!HIII")
"""What precedes an answer: status, inputs, tags, bytes that follow."""
HEAVY = 0
"""The status of a request that is not light, and was not begun."""


class Answer(NamedTuple):
    """What a client gets: a status, JSON, and how many inputs got how many tags."""

    status: int
    body: bytes
    inputs: int = 0
    tags: int = 0


class Gone(Exception):
    """A process ended instead of answering."""


class Worker:
    """A process with a model; it answers one request after the other, light ones or heavy ones.

    Attributes:
        process: as asyncio has it.
        light: whether it gets light requests.
        begun: what was sent to it and is not answered, the oldest first.
        sent: set when something is sent.
        retired: whether it gets no more.
        ended: whether it was killed.
        folder: of its model.
        about: what its model says of itself.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        light: bool,
    ) -> None:
        self.process, self.light = process, light
        self._reader, self._writer = reader, writer
        self.begun: deque[Pending] = deque()
        self.sent = asyncio.Event()
        self.retired = self.ended = False
        self.folder = Path()
        self.about: dict[str, Any] = {}

    @classmethod
    async def start(cls, settings: dict[str, Any]) -> Worker:
        """Start a process and load its model; one that cannot be loaded is an `InputError`."""
        ours, theirs = socket.socketpair()
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, str(theirs.fileno())),
                env={**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        found = cls(process, *await asyncio.open_connection(sock=ours), light=settings["light"])
        try:
            found.send("load", json.dumps(settings).encode(), seconds=LOADING)
            answer = await found.receive(LOADING)
        except Gone:
            raise InputError(f"{settings['folder']} cannot be loaded: its process ended.") from None
        except BaseException:
            found.kill()
            raise
        if answer.status != 200:
            found.kill()
            raise InputError(answer.body.decode())
        folder, found.about = json.loads(answer.body)
        found.folder = Path(folder)
        return found

    def send(self, kind: str, body: bytes, *, seconds: float) -> None:
        """Send a request; what is on its way is bounded by who calls."""
        self._writer.write(QUESTION.pack(KINDS.index(kind), seconds, len(body)))
        self._writer.write(body)

    async def receive(self, seconds: float) -> Answer:
        """Return the answer to the oldest request; a process that is gone, or takes too long, is `Gone`."""
        try:
            async with asyncio.timeout(seconds):
                status, inputs, tags, size = ANSWER.unpack(await self._reader.readexactly(ANSWER.size))
                return Answer(status, await self._reader.readexactly(size), inputs, tags)
        except (OSError, EOFError):  # a TimeoutError is an OSError, an IncompleteReadError an EOFError
            self.kill()
            raise Gone from None

    def kill(self) -> None:
        """End the process, whatever it does."""
        self.ended = True
        self._writer.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def end(self) -> None:
        """End the process, which has nothing to do, and wait for that."""
        self._writer.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), GRACE)
        self.kill()


@dataclass
class Pending:
    """A request that waits, or is worked on.

    Attributes:
        kind: ``image`` (the body is one), ``item`` (a vector or a text, in JSON) or ``batch``.
        body: as it came.
        since: when it came.
        gone: whether its client has left.
        answer: what it will get.
        sent: when a process got it.
    """

    kind: str
    body: bytes
    since: float
    gone: Callable[[], Awaitable[bool]]
    answer: asyncio.Future[Answer]
    sent: float = 0.0

    def fail(self, error: Refusal) -> None:
        """Give up the request, unless its client has been answered."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass
class Lane:
    """Requests that wait in the order they came, and the mean seconds that the last ones took."""

    jobs: deque[Pending] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    seconds: float = 0.0
    measured: int = 0

    def measure(self, seconds: float) -> None:
        """Take in how long a request took; answers come in bursts, so the mean is over many."""
        self.measured = min(self.measured + 1, 2 * AHEAD)
        self.seconds += (seconds - self.seconds) / self.measured


class Workers:
    """Processes that answer requests, all with the same model; `start` and `stop` frame their use.

    Heavy requests (batches, large bodies, many pixels) have a process of their own, with a lower priority: light ones,
    of one small input, never wait for them. As many of both may wait as can be answered in time, by the seconds that
    the last ones took.

    Args:
        folder: of the tagger; of one with versions the one in use.
        limits: what a client may ask for.
        count: processes for light requests; one more is for heavy ones. Each has its own copy of the model.
        follow: load the model anew when files of the folder change, or another version comes into use.
        report: called with sentences about processes and models.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        limits: Limits | None = None,
        count: int = 1,
        follow: bool = False,
        report: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.folder, self.limits, self.count = Path(folder), limits or Limits(), count
        self.about: dict[str, Any] = {}
        self.reloads = self.failures = self.restarts = 0
        self._follow, self._report = follow, report
        self._place = self.folder
        self._crew: list[Worker] = []
        self._light, self._heavy = Lane(), Lane()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Load the model in all processes."""
        self._use(await self._load_all())
        if self._follow:
            self._run(self._watch())

    async def stop(self) -> None:
        """End all processes."""
        tasks, crew = list(self._tasks), list(self._crew)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(worker.end() for worker in crew), return_exceptions=True)

    @property
    def ready(self) -> bool:
        """Return whether a request would be answered now."""
        return any(worker.light for worker in self._crew) and self.wait() <= self.limits.wait

    @property
    def waiting(self) -> int:
        """Return the number of requests that wait."""
        return len(self._light.jobs) + len(self._heavy.jobs)

    def wait(self) -> float:
        """Return the seconds that a light request waits."""
        return self._wait(self._light)

    def _wait(self, lane: Lane) -> float:
        """Return the seconds until all of a lane are answered, also those that were sent to a process already."""
        light = lane is self._light
        begun = sum(len(worker.begun) for worker in self._crew if worker.light == light)
        return (len(lane.jobs) + begun) * lane.seconds / (self.count if light else 1)

    async def ask(self, kind: str, body: bytes, *, gone: Callable[[], Awaitable[bool]]) -> Answer:
        """Return the answer to a request, once it is its turn.

        Args:
            kind: ``image`` (the body is one), ``item`` (a vector or a text, in JSON) or ``batch``.
            body: as it came.
            gone: whether its client has left; asked before anything is computed, if the request had to wait.
        """
        job = Pending(kind, body, time.monotonic(), gone, asyncio.get_running_loop().create_future())
        self._enter(job, self._lane(kind, len(body)))
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await job.answer
        except TimeoutError:
            raise busy(f"no answer within {self.limits.seconds:g} seconds", self.wait()) from None

    def check(self, kind: str, size: int) -> None:
        """Refuse a request of so many bytes that would wait for too long; nothing of it need be read."""
        self._check(self._lane(kind, size))

    def _lane(self, kind: str, size: int) -> Lane:
        return self._heavy if kind == "batch" or size > LARGE else self._light

    def _check(self, lane: Lane) -> None:
        if (wait := self._wait(lane)) > self.limits.wait:
            raise busy(f"{len(lane.jobs)} requests are waiting already", wait)

    def _enter(self, job: Pending, lane: Lane) -> None:
        self._check(lane)
        lane.jobs.append(job)
        lane.wake.set()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load_all(self) -> list[Worker]:
        """Return new processes with the model that is in use; if one fails, or they disagree, there are none."""
        roles = [True] * self.count + [False]
        starting = (self._load(self.folder, current=True, light=light) for light in roles)
        found = await asyncio.gather(*starting, return_exceptions=True)
        crew = [worker for worker in found if not isinstance(worker, BaseException)]
        errors = [error for error in found if isinstance(error, BaseException)]
        if any(worker.about != crew[0].about for worker in crew):
            errors.append(InputError(f"{self.folder} was changed while it was loaded."))
        if errors:
            for worker in crew:
                worker.kill()
            raise errors[0]
        return crew

    async def _load(self, folder: Path, *, current: bool, light: bool) -> Worker:
        return await Worker.start(
            {
                "folder": str(folder),
                "current": current,
                "light": light,
                "workers": self.count,
                "limits": asdict(self.limits),
                "plugins": [plugin.source for plugin in loaded_plugins()],
            }
        )

    def _use(self, crew: list[Worker]) -> None:
        """Have other processes answer from now on; those before them end what they have begun."""
        for worker in self._crew:
            worker.retired = True
        self._look_up()
        self._crew, self.about, self._place = crew, crew[0].about, crew[0].folder
        for worker in crew:
            self._run(self._serve(worker, crew))

    def _look_up(self) -> None:
        for wake in (self._light.wake, self._heavy.wake, *(worker.sent for worker in self._crew)):
            wake.set()

    async def _serve(self, worker: Worker, crew: list[Worker]) -> None:
        """Let a process answer until another model is used; if it ends before, start it again."""
        self._run(self._look_up_at_end(worker))
        lane = self._light if worker.light else self._heavy
        gone = False
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._send_all(worker, lane))
                both.create_task(self._receive_all(worker, lane))
        except* Gone:
            gone = True
        if not gone:
            await worker.end()
            return
        crew.remove(worker)
        if worker.begun:  # in the order of their answers: the others did nothing
            worker.begun.popleft().fail(Refusal(500, "the request ended the process that computed it"))
        lane.jobs.extendleft(reversed(worker.begun))
        lane.wake.set()
        await self._restart(crew, light=worker.light)

    async def _look_up_at_end(self, worker: Worker) -> None:
        await worker.process.wait()
        self._look_up()

    async def _restart(self, crew: list[Worker], *, light: bool) -> None:
        """Start one more process for a crew, unless another crew has taken over."""
        self.restarts += 1
        self._report("a process that computes has ended; another one is started")
        pause, most = BACKOFF
        while crew is self._crew:
            try:
                worker = await self._load(self._place, current=False, light=light)
            except (InputError, OSError) as error:
                self._report(f"no process can be started: {error}")
                await asyncio.sleep(pause)
                pause = min(2 * pause, most)
                continue
            crew.append(worker)
            worker.retired = crew is not self._crew
            self._run(self._serve(worker, crew))
            return

    async def _send_all(self, worker: Worker, lane: Lane) -> None:
        """Send what waits in a lane until another model is used."""
        most = AHEAD if worker.light else 1
        while not worker.retired:
            if worker.ended or worker.process.returncode is not None:
                raise Gone
            if not lane.jobs or len(worker.begun) >= most:
                lane.wake.clear()
                await lane.wake.wait()
            elif await self._is_wanted(job := lane.jobs.popleft()):
                left = max(0.0, job.since + self.limits.seconds - time.monotonic())
                job.sent = time.monotonic()
                worker.begun.append(job)
                worker.send(job.kind, job.body, seconds=left)
                worker.sent.set()

    async def _receive_all(self, worker: Worker, lane: Lane) -> None:
        """Give clients what a process answers, until all is answered and another model is used."""
        last = 0.0
        while worker.begun or not worker.retired:
            if not worker.begun:
                worker.sent.clear()
                await worker.sent.wait()
                continue
            found = await worker.receive(self.limits.seconds + GRACE)
            job, now = worker.begun.popleft(), time.monotonic()
            lane.wake.set()
            if found.status == HEAVY:
                self._put_off(job)
                continue
            lane.measure(now - max(last, job.sent))
            last = now
            if not job.answer.done():
                job.answer.set_result(found)

    def _put_off(self, job: Pending) -> None:
        """Let a request that turned out to be heavy wait with its like."""
        try:
            self._enter(job, self._heavy)
        except Refusal as error:
            job.fail(error)

    async def _is_wanted(self, job: Pending) -> bool:
        """Return whether somebody still waits for an answer."""
        if not job.answer.done() and time.monotonic() - job.since > LOOK and await job.gone():
            job.fail(Refusal(400, "the client has gone"))
        return not job.answer.done()

    async def _watch(self) -> None:
        """Load the model anew when its files have changed, and then stayed as they are for a moment."""
        seen = last = _stamps(self.folder, self._place)
        while True:
            await asyncio.sleep(FOLLOW)
            now = _stamps(self.folder, self._place)
            if now == last and now != seen:
                before = _stamps(self.folder)
                await self._reload()
                seen = now = before + _stamps(self._place)
            last = now

    async def _reload(self) -> None:
        try:
            crew = await self._load_all()
        except (InputError, OSError) as error:
            self.failures += 1
            self._report(f"{self.folder} has changed, and what was loaded stays in use: {error}")
            return
        self.reloads += 1
        self._use(crew)
        self._report(f"{self._place} is in use now, fingerprint {self.about['fingerprint']}")


def _stamps(*folders: Path) -> list[tuple[str, int, int, int]]:
    """Return what changes with the files of some folders: names, places on the disk, times and sizes."""
    found = []
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.endswith((".json", ".safetensors")):
                    stat = entry.stat()
                    found.append((entry.path, stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return found
