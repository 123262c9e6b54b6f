"""The process of the service: who may connect, for how long, and what is finished on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mlcl.engines.launching import endings
from mlcl.errors import InputError
from mlcl.integrations.serving.app import Door, make_app
from mlcl.integrations.serving.limits import Limits, is_known_host
from mlcl.integrations.serving.workers import Workers

STOPPING = 30
"""Seconds that requests have to end after SIGTERM."""
HEAD = 10.0
"""Seconds that a client has for the first line and the headers of a request, and to take an answer."""
BODY = 30.0
"""Seconds that a client has for the rest; what is longer than allowed is refused before."""
CONNECTIONS = 1000
"""Connections at most; fewer where fewer files may be open."""
BACKLOG = 1024
"""Connections that the system keeps until they are accepted."""
LOGGED = (5, 10.0)
"""Messages about requests within so many seconds; further ones are counted."""


class Patient(H11Protocol):
    """A connection that is closed where its client is too slow: uvicorn itself would wait for ever.

    Where there are too many, the one that has waited longest for its client makes room: no client keeps others out by
    doing nothing.
    """

    most: ClassVar[int] = CONNECTIONS
    waiting: ClassVar[dict[Patient, None]] = {}
    """Connections that wait for their clients, the longest first."""
    _state: object = None
    _patience: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # what is not taken at once is waited for
        if len(self.connections) > self.most:
            oldest = next(iter(self.waiting), self)
            oldest._stop_waiting()
            oldest.transport.abort()
        self._look()

    def data_received(self, data: bytes) -> None:
        """Wait on, from the first byte of a head to its last, and for a body, however slowly bytes come."""
        try:
            super().data_received(data)
        except h11.ProtocolError:  # beyond what uvicorn answers
            self.transport.abort()
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of one that was refused."""
        super().on_response_complete()
        self._state = None
        self._look()

    def pause_writing(self) -> None:
        """Begin to wait for a client that does not take its answer."""
        super().pause_writing()
        self._writing = self.loop.call_later(BODY, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Note whether this connection waits for its client."""
        state = self.conn.their_state
        if state is self._state or self.transport.is_closing():
            return
        self._stop_waiting()
        self._state = state
        if state in (h11.IDLE, h11.SEND_BODY):
            refused = self.cycle is not None and self.cycle.response_complete
            seconds = BODY if state is h11.SEND_BODY and not refused else HEAD
            self._patience = self.loop.call_later(seconds, self.transport.close)
            self.waiting[self] = None

    def _stop_waiting(self) -> None:
        self.waiting.pop(self, None)
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class Entrance(threading.Thread):
    """Accepts connections, and hands them over once they say something; answers /live and /health by itself.

    So these are answered at once, however many requests are under way; and connections that say nothing cost a file
    each, of which there are few: the oldest make room.

    Args:
        listening: the socket.
        door: who is let in.
        enter: called with each connection that says something else.
        most: connections that say nothing yet.
    """

    def __init__(
        self, listening: socket.socket, door: Door, enter: Callable[[socket.socket], object], *, most: int
    ) -> None:
        super().__init__(daemon=True, name="mlcl-entrance")
        self._listening, self._door, self._enter, self._most = listening, door, enter, most
        self._silent: dict[socket.socket, float] = {}
        self._selector = selectors.DefaultSelector()
        self._bell, self._ring = socket.socketpair()

    def run(self) -> None:
        """Accept until `stop`."""
        self._listening.setblocking(False)
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select(1.0):
                if key.fileobj is self._bell:
                    self._close()
                    return
                if key.fileobj is self._listening:
                    self._accept()
                else:
                    self._listen(key.fileobj)  # type: ignore[arg-type]
            now = time.monotonic()
            while self._silent and now - next(iter(self._silent.values())) > HEAD:
                self._drop()

    def stop(self) -> None:
        """Accept no more."""
        self._ring.close()
        self.join()

    def _accept(self) -> None:
        try:
            client, _ = self._listening.accept()
        except OSError:  # it has gone, or no file may be opened
            if self._silent:
                self._drop()
            else:
                time.sleep(0.01)
            return
        client.setblocking(False)
        self._selector.register(client, selectors.EVENT_READ)
        self._silent[client] = time.monotonic()
        if len(self._silent) > self._most:
            self._drop()

    def _listen(self, client: socket.socket) -> None:
        """Look at the first bytes of a connection."""
        if client not in self._silent:
            return
        self._selector.unregister(client)
        del self._silent[client]
        try:
            head = client.recv(2048, socket.MSG_PEEK)
            answer = self._answer(head)
            if answer is None:
                self._enter(client)
                return
            client.recv(len(head))
            client.send(answer)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        client.close()

    def _answer(self, head: bytes) -> bytes | None:
        """Return the answer to a whole, plain request that asks whether the service is up."""
        first, *lines = head.split(b"\r\n")
        words, (host, *others) = first.split(b" "), _hosts(lines) or [b""]
        if not head.endswith(b"\r\n\r\n") or len(words) != 3 or words[0] not in (b"GET", b"HEAD") or others:
            return None
        route = self._door.route(words[1].decode("latin-1"))
        if route not in ("/live", "/health") or not is_known_host(host.decode("latin-1"), self._door.names):
            return None
        self._door.counters.seen(route, 200)
        return ALIVE + (b'{"status":"ok"}' if words[0] == b"GET" else b"")

    def _drop(self) -> None:
        client = next(iter(self._silent))
        del self._silent[client]
        self._selector.unregister(client)
        client.close()

    def _close(self) -> None:
        while self._silent:
            self._drop()
        self._listening.close()
        self._bell.close()
        self._selector.close()


ALIVE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\nCache-Control: no-store\r\n"
    b"X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
)


def _hosts(lines: list[bytes]) -> list[bytes]:
    """Return what the headers ``Host`` say."""
    fields = (line.partition(b":") for line in lines)
    return [value.strip() for name, _, value in fields if name.lower() == b"host"]


class Server(uvicorn.Server):
    """A server that lets its connections be accepted by an `Entrance`."""

    def __init__(
        self, config: uvicorn.Config, listening: socket.socket, door: Door, announce: Callable[[], object]
    ) -> None:
        super().__init__(config)
        self._listening, self._door, self._announce = listening, door, announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        entering: set[asyncio.Task[object]] = set()

        def enter(client: socket.socket) -> None:
            task = loop.create_task(loop.connect_accepted_socket(self._protocol, client))
            entering.add(task)
            task.add_done_callback(entering.discard)

        self._listening.listen(BACKLOG)
        self._entrance = Entrance(
            self._listening,
            self._door,
            lambda client: loop.call_soon_threadsafe(enter, client),
            most=Patient.most // 3,
        )
        self._entrance.start()
        self._announce()

    def _protocol(self) -> asyncio.Protocol:
        return Patient(self.config, self.server_state, self.lifespan.state)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, then finish what was begun."""
        self._entrance.stop()
        await super().shutdown(sockets)


class Seldom(logging.Filter):
    """Lets few messages through, and says how many were left out: what clients do wrong must not fill a disk."""

    def __init__(self) -> None:
        super().__init__()
        self._begun, self._count = -LOGGED[1], 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to show a message."""
        now = time.monotonic()
        if now - self._begun > LOGGED[1]:
            if self._count > LOGGED[0]:
                record.msg, record.args = (
                    f"{self._count - LOGGED[0]} messages were left out; {record.getMessage()}",
                    (),
                )
            self._begun, self._count = now, 0
        self._count += 1
        return self._count <= LOGGED[0]


def serve(
    folder: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    limits: Limits | None = None,
    door: Door | None = None,
    follow: bool = False,
    announce: Callable[[str], object] = lambda _: None,
    report: Callable[[str], object] = lambda _: None,
) -> None:
    """Serve a tagger until SIGTERM or Ctrl-C.

    Args:
        folder: of the tagger; of one with versions the one in use.
        host: the address to listen on; 0.0.0.0 for all.
        port: 0: any that is free.
        workers: processes that compute; the cores are shared among them.
        limits: what a client may ask for.
        door: who is let in.
        follow: load the model anew when it changes.
        announce: called with the URL before the first request.
        report: called with sentences about what happens later.
    """
    with bound(host, port) as listening:
        place = f"[{host}]" if ":" in host else host
        url = f"http://{place}:{listening.getsockname()[1]}"
        _share_files()
        crew = Workers(folder, limits=limits, count=workers, follow=follow, report=report)
        asyncio.run(_serve(crew, listening, door or Door(), lambda: announce(url)))


async def _serve(
    workers: Workers, listening: socket.socket, door: Door, announce: Callable[[], object]
) -> None:
    try:
        await workers.start()
        config = uvicorn.Config(
            make_app(workers, door=door),
            http=Patient,
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=STOPPING,
            h11_max_incomplete_event_size=16 << 10,
        )
        for name in ("uvicorn.error", "asyncio", "mlcl.serve"):
            logging.getLogger(name).addFilter(Seldom())
        server = Server(config, listening, door, announce)
        for number in (signal.SIGINT, *endings()):
            # uvicorn ends what was begun, then raises the signal once more: an end that was asked for is no failure.
            signal.signal(number, server.handle_exit)
        await server.serve(sockets=[])
    finally:
        await workers.stop()


def bound(host: str, port: int) -> socket.socket:
    """Return a socket with an address, which does not listen yet; one that cannot be had is an `InputError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named: asyncio sends small answers at once (TCP_NODELAY) only where it knows that it is TCP, and
    # each would wait 40 ms for the client otherwise.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise InputError(f"--host {host} --port {port} cannot be listened on: {error.strerror}.") from None
    return found


def _share_files() -> None:
    """Let as many connections be open as there may be files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS
    if resource.RLIM_INFINITY not in (soft, hard) and soft < wanted:
        soft = min(hard, wanted)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft != resource.RLIM_INFINITY:
        # A third as many say nothing yet, and some files are for other things.
        Patient.most = max(8, min(CONNECTIONS, (soft - 128) * 3 // 4))
