"""Decoding on all cores: workers read, decode and write rows straight into the store's file."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcl.datasets.images import BadImage, pixels
from mlcl.datasets.plan import EncodedImages
from mlcl.errors import InputError
from mlcl.files import write_at

Chunk = tuple[int, int]
Bad = list[tuple[int, str]]
"""Rows that could not be decoded, each with the reason."""

_FEW = 256  # below this many images a pool costs more than it saves


@dataclass(frozen=True)
class Decoder:
    """Decodes rows of ``images`` into a file: row ``i`` lies at ``offset + i * 3 * size * size``."""

    images: EncodedImages
    size: int
    path: Path
    offset: int

    def __call__(self, chunk: Chunk) -> Bad:
        """Decode the rows ``start`` to ``stop``; bad ones stay zero and are reported."""
        start, stop = chunk
        block = np.zeros((stop - start, 3, self.size, self.size), dtype=np.uint8)
        bad: Bad = []
        for row in range(start, stop):
            try:
                block[row - start] = pixels(self.images.read(row), self.size)
            except BadImage as error:
                bad.append((row, str(error)))
            except InputError as error:
                bad.append((row, str(error).removeprefix(self.images.name(row)).strip()))
        # Written, not mapped: a full disk is then an error with a name, and not a bus error.
        write_at(self.path, self.offset + start * block[0].nbytes, block.tobytes())
        return bad


_decoder: Decoder | None = None


def _start_worker(decoder: Decoder) -> None:
    global _decoder  # set once, in a process of its own
    _decoder = decoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """End this worker when its parent is gone; otherwise a killed parent would leave it waiting for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _work(chunk: Chunk) -> Bad:
    if _decoder is None:
        raise RuntimeError("the worker was not started by its pool")
    return _decoder(chunk)


def decode_all(
    decoder: Decoder, chunks: Iterable[Chunk], *, jobs: int, done: Callable[[Chunk, Bad], None]
) -> None:
    """Decode all chunks with ``jobs`` processes; ``done`` is called in this process after each, in any order.

    Processes, not threads: for thumbnails two threads are no faster than one (decoding a small image is
    mostly Python), two processes are.
    """
    todo = list(chunks)
    with warnings.catch_warnings():
        # Pillow warns of odd files, and Python of forking while the thread of a progress bar runs.
        warnings.simplefilter("ignore")
        if jobs <= 1 or sum(stop - start for start, stop in todo) < _FEW:
            for chunk in todo:
                done(chunk, decoder(chunk))
            return
        # Forking needs no guarded main module in the user's script; elsewhere than on Linux it is not safe.
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        pool = ProcessPoolExecutor(
            min(jobs, len(todo)), mp_context=context, initializer=_start_worker, initargs=(decoder,)
        )
        try:
            futures = {pool.submit(_work, chunk): chunk for chunk in todo}
            for future in as_completed(futures):
                done(futures[future], future.result())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
