"""``python -m benches.scale [--quick]``: what counting shards costs, as a model that is fitted and then checked.

Seconds of one core, measured as processor time of `mlcl.sklearn.shard_parts.count` on generated files, are fitted by a
sum of terms that are known from the algorithm, each with a cost of at least 0. Sizes that were not fitted check it.
Writes ``benches/scale.json`` and the tables of docs/scale.md; with ``--quick`` nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from scipy.optimize import nnls

from benches.machine import describe
from benches.page import FOLDER, _made_on, _table
from mlcl.datasets.shards import Columns
from mlcl.datasets.shards import describe as footer_of
from mlcl.exact import Learner, solve
from mlcl.sklearn.shard_parts import Job, count

PAGE = FOLDER.parent / "docs" / "scale.md"
BEGIN, END = "<!-- python -m benches.scale: begin -->", "<!-- python -m benches.scale: end -->"
COLUMNS = Columns("vector", "tags")


@dataclass(frozen=True)
class Size:
    """A dataset: rows, numbers per row, labels, and labels per row."""

    n: int
    d: int
    classes: int
    tags: float


FITTED = (
    Size(20_000, 32, 20, 1.0),
    Size(60_000, 32, 20, 3.0),
    Size(20_000, 64, 200, 3.0),
    Size(60_000, 64, 20, 1.0),
    Size(20_000, 128, 20, 3.0),
    Size(60_000, 128, 200, 1.0),
    Size(20_000, 256, 50, 1.0),
    Size(40_000, 256, 200, 3.0),
    Size(30_000, 384, 50, 1.0),
    Size(20_000, 512, 20, 3.0),
    Size(20_000, 512, 100, 1.0),
)
CHECKED = (Size(120_000, 96, 100, 2.0), Size(100_000, 192, 50, 2.0), Size(50_000, 448, 100, 2.0))
SOLVED = ((50, 64), (100, 64), (50, 128), (100, 128), (50, 256), (100, 256))
SOLVED_CHECK = (200, 320)
TERMS = ("bytes read", "products", "tags", "sums", "start")


def terms(size: Size) -> list[float]:
    """Return how much there is of each term: bytes, products, tagged numbers, sums."""
    d = size.d
    return [
        4.0 * size.n * d,
        size.n * (1 + size.tags) * d * (d + 1) / 2,
        size.n * size.tags * d,
        (size.classes + 1) * d * (d + 1) / 2,
        1.0,
    ]


def write_rows(path: Path, size: Size, seed: int) -> None:
    """Write a shard of normal rows; a label moves the mean of one column."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((size.n, size.d), dtype=np.float32)
    counts = rng.poisson(size.tags, size.n)
    labels = rng.integers(0, size.classes, counts.sum())
    owner = np.repeat(np.arange(size.n), counts)
    vectors[owner, labels % size.d] += 1
    offsets = np.concatenate([[0], np.cumsum(counts)])
    names = pyarrow.array([f"label-{k}" for k in range(size.classes)])
    coded = pyarrow.DictionaryArray.from_arrays(pyarrow.array(labels), names).dictionary_decode()
    columns = {
        "vector": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.ravel()), size.d),
        "tags": pyarrow.ListArray.from_arrays(pyarrow.array(offsets, pyarrow.int32()), coded),
    }
    pyarrow.parquet.write_table(
        pyarrow.table(columns), path, compression="none", use_dictionary=["tags"], row_group_size=2**15
    )


def seconds_of(size: Size, repeats: int) -> float:
    """Return the least processor time of counting a shard of this size."""
    with tempfile.TemporaryDirectory(prefix="mlcl-bench-") as place:
        path = Path(place) / "a.parquet"
        write_rows(path, size, seed=0)
        rng = np.random.default_rng(1)
        features = Learner.begin(rng.standard_normal((1000, size.d)), dimensions=None).features
        job = Job((footer_of(str(path), COLUMNS),), COLUMNS, features)
        found = []
        for _ in range(repeats):
            start = time.process_time()
            count(job)
            found.append(time.process_time() - start)
    return min(found)


def solving_seconds(classes: int, d: int) -> float:
    """Return the processor time of solving, with the ridge chosen."""
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((4000, d)), rng.random((4000, classes)) < 0.02
    learner = Learner.begin(rows, dimensions=None).learn(rows, labels, range(classes))
    start = time.process_time()
    solve(learner)
    return time.process_time() - start


def fit(sizes: tuple[Size, ...], seconds: list[float]) -> list[float]:
    """Return the cost of each term, at least 0, for the least relative errors."""
    matrix = np.array([terms(size) for size in sizes]) / np.array(seconds)[:, None]
    scale = matrix.max(axis=0)
    costs, _ = nnls(matrix / scale, np.ones(len(sizes)))
    return (costs / scale).tolist()


def solving_terms(classes: int, d: int) -> list[float]:
    """Return the terms of solving: what all labels share, and what each of them costs."""
    return [float(d**2), float(d**3), float(classes * d**2), float(classes * d**3)]


def predict(costs: list[float], size: Size) -> float:
    """Return the seconds of one core."""
    return float(np.dot(costs, terms(size)))


def measure(*, quick: bool) -> dict[str, Any]:
    """Measure, fit, and check."""
    repeats = 1 if quick else 5
    cut = 10 if quick else 1
    shrunk = [
        tuple(Size(size.n // cut, size.d, size.classes, size.tags) for size in sizes)
        for sizes in (FITTED, CHECKED)
    ]
    found = [[seconds_of(size, repeats) for size in sizes] for sizes in shrunk]
    costs = fit(shrunk[0], found[0])
    solved = [(k, d, solving_seconds(k, d)) for k, d in (*SOLVED, SOLVED_CHECK)]
    matrix = np.array([solving_terms(k, d) for k, d, _ in solved[:-1]])
    times = np.array([seconds for _, _, seconds in solved[:-1]])
    relative = matrix / times[:, None]
    scale = relative.max(axis=0)
    solving = (nnls(relative / scale, np.ones(len(times)))[0] / scale).tolist()
    return {
        "terms": dict(zip(TERMS, costs, strict=True)),
        "solving": solving,
        "fitted": [_row(size, seconds, costs) for size, seconds in zip(shrunk[0], found[0], strict=True)],
        "checked": [_row(size, seconds, costs) for size, seconds in zip(shrunk[1], found[1], strict=True)],
        "solved": [
            {
                "classes": k,
                "d": d,
                "seconds": seconds,
                "predicted": float(np.dot(solving, solving_terms(k, d))),
            }
            for k, d, seconds in solved
        ],
    }


def _row(size: Size, seconds: float, costs: list[float]) -> dict[str, Any]:
    return {**asdict(size), "seconds": seconds, "predicted": predict(costs, size)}


def sums_bytes(d: int, classes: int) -> int:
    """Return the bytes of the sums of all rows and of each label."""
    return 8 * (classes + 1) * (1 + d + d * (d + 1) // 2)


def tables(record: dict[str, Any]) -> str:
    """Return the part of the page that is generated."""
    costs = [record["terms"][name] for name in TERMS]
    lines = [f"    python -m benches.scale\n\n{_made_on(record)}\n"]
    known = {
        "read": f"{costs[0] * 1e9:.3g} ns x bytes of rows",
        "products": f"{costs[1] * 1e12:.3g} ps x n (1 + p) d (d + 1) / 2",
        "tags": f"{costs[2] * 1e9:.3g} ns x n p d",
        "sums": f"{costs[3] * 1e9:.3g} ns x (K + 1) d (d + 1) / 2 per part",
        "start": f"{costs[4] * 1e3:.3g} ms per part",
    }
    words = ("d^2", "d^3", "K d^2", "K d^3")
    solved = " + ".join(
        f"{cost * 1e9:.3g} ns x {word}" for cost, word in zip(record["solving"], words, strict=True)
    )
    lines.append(
        f"Seconds of one core = {' + '.join(known.values())}, for n rows of d numbers, K labels and p labels per row. "
        f"Solving, once at the end: {solved}.\n"
    )
    head_fit = ("rows", "d", "labels", "labels per row", "measured", "model", "error", "")
    rows_fit = [
        (
            f"{one['n']:,}", f"{one['d']}", f"{one['classes']}", f"{one['tags']:g}", f"{one['seconds']:.3g} s",
            f"{one['predicted']:.3g} s", f"{one['predicted'] / one['seconds'] - 1:+.0%}", word,
        )
        for word, part in (("fitted", record["fitted"]), ("predicted", record["checked"]))
        for one in part
    ]  # fmt: skip
    lines.append(_table(head_fit, rows_fit))
    head_solve = ("solving", "d", "measured", "model", "error")
    rows_solve = [
        (
            f"{one['classes']} labels", f"{one['d']}", f"{one['seconds']:.3g} s", f"{one['predicted']:.3g} s",
            f"{one['predicted'] / one['seconds'] - 1:+.0%}",
        )
        for one in record["solved"]
    ]  # fmt: skip
    lines.append("The last row of solving was not fitted.\n")
    lines.append(_table(head_solve, rows_solve))
    lines.append("Per million rows (p = 3), and what the sums weigh:\n")
    head_million = (
        "d",
        "labels",
        "core seconds",
        "read",
        "sums (a part, and what a node sends)",
        "solving, core seconds",
    )
    rows_million = []
    for d, classes in ((128, 50), (256, 100), (512, 1_000), (512, 10_000)):
        size = Size(1_000_000, d, classes, 3.0)
        solving = float(np.dot(record["solving"], solving_terms(classes, d)))
        rows_million.append(
            (
                f"{d}", f"{classes:,}", f"{predict(costs, size):.3g}", f"{4 * d / 1e3:.2g} GB",
                f"{sums_bytes(d, classes) / 1e9:.2g} GB", f"{solving:,.3g}",
            )
        )  # fmt: skip
    lines.append(_table(head_million, rows_million))
    lines.append(_billion(record, costs))
    return "\n".join(lines)


def _billion(record: dict[str, Any], costs: list[float]) -> str:
    """Return what a billion rows would take on 64 nodes."""
    n, d, classes, nodes = 10**9, 512, 10_000, 64
    part = sums_bytes(d, classes)
    read = 4 * n * d
    groups = -(-read // (2 * part))
    counting = predict(costs, Size(n, d, 0, 3.0)) + groups * costs[3] * (classes + 1) * d * (d + 1) / 2
    workers = 4 * nodes
    network, disk = 1.25e9, 1e9
    solving = float(np.dot(record["solving"], solving_terms(classes, d)))
    per_node = f"{read / nodes / 1e9:.3g} GB per node"
    rows = [
        ("reading", f"{read / 1e12:.2g} TB, {per_node}, at 1.25 GB/s", read / nodes / network),
        ("counting", f"{counting / 3600:,.3g} core hours on {workers} workers", counting / workers),
        (
            "sums to the driver",
            f"{groups} parts of {part / 1e9:.3g} GB, at 1.25 GB/s",
            groups * part / network,
        ),
        ("sums to its disk", "each part written and read back once, at 1 GB/s", 2 * groups * part / disk),
        ("adding up", f"{part / 8e9:.2g} billion numbers per part, at 10 GB/s", 3 * groups * part / 1e10),
        ("solving", f"{solving / 3600:,.3g} core hours on 16 cores of one node", solving / 16),
    ]
    text = (
        f"**1 billion rows x {d} x {classes:,} labels on {nodes} nodes**, three labels per row, by this model. A "
        f"worker holds up to 1.5 x the sums, {1.5 * part / 1e9:.0f} GB, so four fit a node of 64 GB. "
        f"`--dimensions {d}` is needed: more than 256 numbers are projected otherwise.\n"
    )
    return f"{text}\n{_table(('step', 'what', 'seconds'), [(a, b, f'{c:,.0f}') for a, b, c in rows])}"


def write_page(record: dict[str, Any]) -> None:
    """Put the tables into the page."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables(record).rstrip()}\n\n{END}{after}")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benches.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is written")
    parser.add_argument("--page", action="store_true", help="the page from the recorded measurements")
    given = parser.parse_args()
    path = FOLDER / "scale.json"
    if given.page:
        write_page(json.loads(path.read_text()))
        return 0
    begin = time.perf_counter()
    record = describe()
    record |= measure(quick=given.quick)
    record["seconds"] = round(time.perf_counter() - begin, 1)
    print(tables(record))
    if not given.quick:
        path.write_text(json.dumps(record, indent=1) + "\n")
        write_page(record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
