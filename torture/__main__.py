# ruff: noqa: T201
"""Every command under every fault: ``python -m torture [--every N] [--only NAME ...] [--jobs N]``.

    faults         each call of the system of a command fails (EIO), finds a full disk from there on (ENOSPC), writes
                   a part (short), or is the last one of its process (die), or a function of mlcl finds no memory;
                   what is left must load as the old or the new state, or say in a sentence what to do, and the
                   repeated command must end as the undisturbed one
    strange files  a link, a pipe, a device or a socket is in place of a file or folder; the command must end, in a
                   sentence if it fails, and nothing behind a link may change
    two writers    a second command runs at a place of the first, each two of the commands that change a tagger; both
                   must end, what is left must load, and if both succeed it is as if one had followed the other

The exit code is 1 if anything did not survive.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # processes are forked

from mlcl.engines.cores import cores
from torture import faults, pairs, special
from torture.faults import Outcome
from torture.scenes import PAIRED, Scene, paired, scenes
from torture.shim import KINDS

BASE = Path()
KNOWN: dict[str, Scene] = {}
SPREAD = 48
"""Each command meets each other one at one in so many of its places, and each of them at other places."""


def attacks(names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield commands and what is done to them, in parts of about the same size."""
    for name in names:
        if name in KNOWN:
            yield from ((name, kind) for kind in (*KINDS, *special.KINDS))
        if name in PAIRED:
            yield from ((name, other) for other in PAIRED if other >= name)


def attack(scene: str, kind: str, *, every: int) -> list[Outcome]:
    """Return the outcomes of one part of the attacks, in a process that was forked and knows the commands."""
    root = BASE / f"work-{os.getpid()}" / "tagger"
    root.parent.mkdir(exist_ok=True)
    if kind in KINDS:
        return list(faults.attack(KNOWN[scene], root, kinds=(kind,), every=every))
    if kind in special.KINDS:
        return list(special.attack(KNOWN[scene], root, kinds=(kind,), every=every))
    both = paired(scene, kind, BASE), paired(kind, scene, BASE)
    share = (list(PAIRED).index(scene) + list(PAIRED).index(kind)) % len(PAIRED) / len(PAIRED)
    return list(pairs.attack(*both, root, every=SPREAD * every, share=share))


def main() -> int:
    """Attack, print what did not survive, and a table of counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th place only")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these commands only")
    parser.add_argument(
        "--jobs", type=int, default=cores(), metavar="N", help="processes (default: one per core)"
    )
    given = parser.parse_args()
    began, counts, survived = time.monotonic(), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory(prefix="mlcl-torture-") as folder:
        global BASE, KNOWN
        BASE = Path(folder)
        KNOWN = scenes(BASE)
        with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("fork")) as pool:
            todo = [
                pool.submit(attack, *part, every=given.every)
                for part in attacks(given.only or [*KNOWN, *PAIRED.keys() - KNOWN])
            ]
            for found in itertools.chain.from_iterable(part.result() for part in as_completed(todo)):
                key = found.scene, found.kind
                counts[key] += 1
                survived[key] += not found.wrong
                if found.wrong:
                    print(f"{found.scene}, {found.kind}, {found.where}: {found.wrong}", flush=True)
    for scene, keys in itertools.groupby(sorted(counts), key=lambda key: key[0]):
        print(f"{scene}: {', '.join(f'{key[1]} {survived[key]}/{counts[key]}' for key in keys)}")
    print(f"{counts.total()} faults, {survived.total()} survivors, {time.monotonic() - began:.0f} s")
    return int(survived != counts)


if __name__ == "__main__":
    raise SystemExit(main())
