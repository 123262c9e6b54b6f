# ruff: noqa: T201
"""Every command under every fault: ``python -m torture [--every N] [--only NAME ...]``.

    faults         each call of the system of a command fails (EIO), finds a full disk from there on (ENOSPC), writes
                   a part (short), or is the last one of its process (die); what is left must load as the old or the
                   new state, or say in a sentence what to do, and the repeated command must end as the undisturbed one
    strange files  a link, a pipe, a device or a socket is in place of a file or folder; the command must end, in a
                   sentence if it fails, and nothing behind a link may change
    two writers    a second command runs at a place of the first; both must end, and what is left must load

The exit code is 1 if anything did not survive.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # processes are forked

from torture import faults, pairs, special
from torture.faults import Outcome
from torture.scenes import Scene, scenes

VERSIONED = ("update", "forget", "rollback", "thresholds")


def attacks(known: dict[str, Scene], only: list[str], root: Path, *, every: int = 1) -> Iterator[Outcome]:
    """Yield the outcome of every attack on the commands of some names."""
    for name in only:
        yield from faults.attack(known[name], root, every=every)
        yield from special.attack(known[name], root, every=every)
        if name in VERSIONED:
            yield from pairs.attack(known[name], [known[other] for other in VERSIONED], root, every=4 * every)


def main() -> int:
    """Attack, print what did not survive, and a table of counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th place only")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these commands only")
    given = parser.parse_args()
    began, counts, survived = time.monotonic(), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory(prefix="mlcl-torture-") as folder:
        known = scenes(Path(folder))
        root = Path(folder) / "work" / "tagger"
        root.parent.mkdir()
        for found in attacks(known, given.only or list(known), root, every=given.every):
            key = found.scene, found.kind
            counts[key] += 1
            survived[key] += not found.wrong
            if found.wrong:
                print(f"{found.scene}, {found.kind}, {found.where}: {found.wrong}", flush=True)
    for scene, keys in itertools.groupby(counts, key=lambda key: key[0]):
        print(f"{scene}: {', '.join(f'{key[1]} {survived[key]}/{counts[key]}' for key in keys)}")
    print(f"{counts.total()} faults, {survived.total()} survivors, {time.monotonic() - began:.0f} s")
    return int(survived != counts)


if __name__ == "__main__":
    raise SystemExit(main())
