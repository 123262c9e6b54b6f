"""The process of the service: threads are bounded, and on SIGTERM what was begun is finished."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import h11
import torch
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mlcl.errors import InputError
from mlcl.integrations.serving.app import make_app
from mlcl.integrations.serving.tagger import Limits, Tagger

STOPPING = 30
"""Seconds that requests have to end after SIGTERM."""
HEAD = 10.0
"""Seconds that a client has for the first line and the headers of a request."""


class Patient(H11Protocol):
    """A connection that is closed where the head of a request does not come: uvicorn itself would wait for ever."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._patience = self.loop.call_later(HEAD, transport.close)

    def data_received(self, data: bytes) -> None:
        """Wait on, from the first byte of a head to its last, however slowly bytes come."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._patience is None:
            self._patience = self.loop.call_later(HEAD, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def serve(
    folder: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    limits: Limits | None = None,
    announce: Callable[[str], object] = lambda _: None,
) -> None:
    """Serve a finished run until SIGTERM or Ctrl-C.

    Args:
        folder: of the run; of one with versions the current one.
        host: the address to listen on; 0.0.0.0 for all.
        port: 0: any that is free.
        workers: threads that decode and compute; the cores are shared among them.
        limits: what a client may ask for.
        announce: called with the URL before the first request.
    """
    # Never more than torch would take by itself (OMP_NUM_THREADS): on a busy machine threads wait for each other.
    torch.set_num_threads(max(1, torch.get_num_threads() // workers))
    app = make_app(Tagger(folder, limits=limits), workers=workers)
    listening = listen(host, port)
    config = uvicorn.Config(
        app,
        http=Patient,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=STOPPING,
        h11_max_incomplete_event_size=16 << 10,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn ends what was begun, then raises the signal once more: an end that was asked for is no failure.
        signal.signal(number, lambda *_: None)
    place = f"[{host}]" if ":" in host else host
    announce(f"http://{place}:{listening.getsockname()[1]}")
    uvicorn.Server(config).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; an address that cannot be used is an `InputError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named: asyncio sends small answers at once (TCP_NODELAY) only where it knows that it is TCP, and
    # each would wait 40 ms for the client otherwise.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(128)
    except OSError as error:
        found.close()
        raise InputError(f"--host {host} --port {port} cannot be listened on: {error.strerror}.") from None
    return found
