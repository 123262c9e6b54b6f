"""``python -m benches.growth [ROOM ...]``: how time and memory grow with n, K, M and T; ``make growth``.

Writes ``benches/growth.json``, pictures in ``docs/images`` and the page; with rooms named, these are measured again and
the others stay as they were; with ``--quick`` nothing is written.
A point that fails, or that would take too long, ends its curve and nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

from benches.curves import MAKERS, Curve, Prepare
from benches.machine import describe
from benches.page import FOLDER, write_page
from benches.problems import is_real, labels_of
from benches.tables import seconds_text
from benches.timing import once
from mlcl.labels import LabelCounts
from mlcl.memories import select_wru, wru_gap

ROOMS = {
    "memories": "Memories",
    "metrics": "Metrics",
    "step": "A training step",
    "exact": "The exact learner",
}
PATIENCE = 40.0
STEPS: dict[str, tuple[int, ...]] = {
    "n": (10_000, 30_000, 100_000, 300_000, 1_000_000),
    "K": (10, 30, 100, 300, 1_000),
}
STEPS |= {"d": (16, 32, 64, 128, 256, 512)}
STEPS |= {"M": (1_000, 3_000, 10_000, 30_000, 100_000), "T": (1, 3, 10, 30, 100)}


def slope(x: Sequence[int], y: Sequence[float | None]) -> float | None:
    """Return the exponent between the last two points."""
    if len(x) < 2 or not y[-1] or not y[-2]:
        return None
    return math.log(y[-1] / y[-2]) / math.log(x[-1] / x[-2])


def measure(curve: Curve, prepare: Prepare, *, sizes: Sequence[int], patience: float = PATIENCE) -> Curve:
    """Fill a curve, point by point."""
    for size in sizes:
        if (
            curve.seconds
            and curve.seconds[-1] * (size / curve.x[-1]) ** (slope(curve.x, curve.seconds) or 1) > patience
        ):
            break
        try:
            job = prepare(size)
            seconds = once(job)[0]
            if seconds < 2:
                seconds = min(seconds, *(once(job)[0] for _ in range(3)))
            megabytes = _peak(job) if seconds < 10 else None
        except Exception as error:  # one point, not all, is lost
            curve.error = f"{type(error).__name__}: {error}"
            break
        curve.x.append(size)
        curve.seconds.append(seconds)
        curve.megabytes.append(megabytes)
    curve.slope, curve.memory_slope = slope(curve.x, curve.seconds), slope(curve.x, curve.megabytes)
    return curve


def _peak(job: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def candidate_table(cut: int) -> list[dict[str, object]]:
    """Say what a candidate set costs in WRU's objective: all classes of COCO as one task, many label patterns."""
    labels = labels_of("coco2017", 117_266 // cut)
    counts = LabelCounts.of(labels)
    words = f"{'COCO' if is_real('coco2017') else 'synthetic'}, {len(labels):,} x {labels.shape[1]}"
    rows = []
    for size in (2000 // cut, 10_000 // cut):
        exact = None
        for candidates in (None, 200, 1000, 4000):
            seconds, chosen = once(partial(select_wru, labels, size, candidates=candidates))
            gap = wru_gap(counts, labels[chosen])
            exact = gap if exact is None else exact
            rows.append(
                {
                    "labels": words,
                    "size": size,
                    "candidates": candidates,
                    "seconds": seconds,
                    "gap": gap,
                    "exact": exact,
                }
            )
    return rows


def draw(curves: list[Curve]) -> None:
    """Draw a room's curves: a panel for each axis, time above, memory below."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "mlcl"
    from matplotlib import pyplot

    for room in dict.fromkeys(curve.room for curve in curves):
        mine = [curve for curve in curves if curve.room == room and curve.x]
        axes = list(dict.fromkeys(curve.axis for curve in mine))
        with_memory = room != "step"
        figure, panels = pyplot.subplots(
            1 + with_memory, len(axes), figsize=(3 * len(axes), 2.6 * (1 + with_memory)), layout="constrained",
            squeeze=False,
        )  # fmt: skip
        names = list(dict.fromkeys(curve.what for curve in mine))
        for curve in mine:
            column, colour = axes.index(curve.axis), f"C{names.index(curve.what)}"
            panels[0][column].loglog(curve.x, curve.seconds, "o-", ms=3, color=colour, label=curve.what)
            if with_memory:
                points = [(x, y) for x, y in zip(curve.x, curve.megabytes, strict=True) if y]
                panels[1][column].loglog(
                    *zip(*points, strict=True) if points else ((), ()), "o-", ms=3, color=colour
                )
            panels[0][column].set_title(f"against {curve.axis} ({curve.fixed})", fontsize=7)
            panels[-1][column].set_xlabel(curve.axis)
        panels[0][0].set_ylabel("seconds")
        if with_memory:
            panels[1][0].set_ylabel("MB")
        panels[0][0].legend(frameon=False, fontsize=6)
        path = FOLDER.parent / "docs" / "images" / f"growth-{room}.svg"
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benches.growth", description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"some of: {', '.join(ROOMS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works")
    given = parser.parse_args()
    if unknown := set(given.rooms) - set(ROOMS):
        parser.error(f"no room {sorted(unknown)[0]!r}; expected some of: {', '.join(ROOMS)}")
    warnings.simplefilter("ignore", UserWarning)  # made-up labels leave some classes without a sign
    record = describe()
    # A point that is too large is to fail by itself, not to take the machine with it.
    most = int(record["machine"]["memory_gb"] * 0.8 * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    begin = time.perf_counter()
    curves = []
    for room in given.rooms or ROOMS:
        for curve, prepare in MAKERS[room](10 if given.quick else 1):
            sizes = STEPS[curve.axis][: 2 if given.quick else None]
            measure(curve, prepare, sizes=sizes)
            last = f"{seconds_text(curve.seconds[-1])} at {curve.x[-1]:,}" if curve.x else ""
            words = f"{room:9s} {curve.what:26s} {curve.axis}  {last:24s} slope {curve.slope}  {curve.error or ''}"
            print(words.rstrip(), flush=True)
            curves.append(curve)
    table = [] if given.rooms else candidate_table(20 if given.quick else 1)
    record |= {"seconds": round(time.perf_counter() - begin, 1)}
    if given.quick:
        return 0
    found = [asdict(curve) for curve in curves]
    path = FOLDER / "growth.json"
    if given.rooms:
        old = json.loads(path.read_text())
        kept = [curve for curve in old["curves"] if curve["room"] not in given.rooms]
        again = old.get("again", {}) | dict.fromkeys(given.rooms, record)
        record = {**old, "rooms": ROOMS, "curves": kept + found, "again": again}
    else:
        record |= {"patience": PATIENCE, "rooms": ROOMS, "curves": found, "candidates": table}
    path.write_text(json.dumps(record, indent=1) + "\n")
    draw(curves)
    print(write_page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
