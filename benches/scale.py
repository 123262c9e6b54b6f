"""``python -m benches.scale [--quick]``: what counting shards costs, as a model that is fitted and then checked.

Seconds of one core, measured as processor time of `mlcl.sklearn.shard_parts.count` on generated files, are fitted by a
sum of terms that are known from the algorithm, each with a cost of at least 0. Sizes that were not fitted check it.
Writes ``benches/scale.json`` and the tables of docs/evidence/scale.md; with ``--quick`` nothing.
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
from benches.page import FOLDER
from mlcl.datasets.shards import ShardColumns
from mlcl.datasets.shards import describe_shard as footer_of
from mlcl.exact import ExactLearner, solve
from mlcl.sklearn.shard_parts import Job, count

COLUMNS = ShardColumns("vector", "tags")


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
        features = ExactLearner.begin(rng.standard_normal((1000, size.d)), dimensions=None).features
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
    learner = ExactLearner.begin(rows, dimensions=None).learn(rows, labels, range(classes))
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


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benches.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is written")
    parser.add_argument("--page", action="store_true", help="the page from the recorded measurements")
    given = parser.parse_args()
    from benches.scale_page import tables, write_page  # which needs this module

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
