"""Decoding on all cores: workers read, decode and write rows straight into the store's file."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcl.datasets.images import BadImage, pixels
from mlcl.datasets.plan import EncodedImages
from mlcl.engines.pool import EngineFailure, LocalWorkers, Lost, ThisProcess
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


def decode_all(
    decoder: Decoder, chunks: Iterable[Chunk], *, jobs: int, done: Callable[[Chunk, Bad], None]
) -> None:
    """Decode all chunks with ``jobs`` processes; ``done`` is called in this process after each, in any order.

    Processes, not threads: for thumbnails two threads are no faster than one (decoding a small image is
    mostly Python), two processes are.
    """
    todo = list(chunks)
    few = sum(stop - start for start, stop in todo) < _FEW
    engine = ThisProcess() if jobs <= 1 or few else LocalWorkers(jobs)
    with warnings.catch_warnings(), contextlib.closing(engine.each(decoder, todo)) as stream:
        warnings.simplefilter("ignore")  # Pillow warns of odd files
        for chunk, bad in stream:
            if isinstance(bad, Lost):
                raise EngineFailure(f"images could not be decoded: {bad.reason}")
            done(chunk, bad)
