"""The tables of docs/evidence/scale.md from ``benches/scale.json`` and ``benches/big.json``."""

from __future__ import annotations

from typing import Any

import numpy as np

from benches.page import FOLDER
from benches.scale import TERMS, Size, predict, solving_terms
from benches.tables import between, made_on, table
from mlcl.sklearn.shard_planning import RATIO
from mlcl.sklearn.shard_tree import FAN

PAGE = FOLDER.parent / "docs" / "evidence" / "scale.md"


def sums_bytes(d: int, classes: int) -> int:
    """Return the bytes of the sums of all rows and of each label."""
    return 8 * (classes + 1) * (1 + d + d * (d + 1) // 2)


def tables(record: dict[str, Any]) -> str:
    """Return the part of the page that is generated."""
    costs = [record["terms"][name] for name in TERMS]
    lines = [f"    python -m benches.scale\n\n{made_on(record)}\n"]
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
    lines.append(table(head_fit, rows_fit))
    head_solve = ("solving", "d", "measured", "model", "error")
    rows_solve = [
        (
            f"{one['classes']} labels", f"{one['d']}", f"{one['seconds']:.3g} s", f"{one['predicted']:.3g} s",
            f"{one['predicted'] / one['seconds'] - 1:+.0%}",
        )
        for one in record["solved"]
    ]  # fmt: skip
    lines.append("The last row of solving was not fitted.\n")
    lines.append(table(head_solve, rows_solve))
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
    lines.append(table(head_million, rows_million))
    lines.append(_billion(record, costs))
    return "\n".join(lines)


def _billion(record: dict[str, Any], costs: list[float]) -> str:
    """Return what a billion rows would take on 64 nodes."""
    n, d, classes, nodes = 10**9, 512, 10_000, 64
    part = sums_bytes(d, classes)
    read = 4 * n * d
    groups = -(-read // (RATIO * part))
    workers = min(4 * nodes, groups)
    counting = predict(costs, Size(n, d, 0, 3.0)) + groups * costs[3] * (classes + 1) * d * (d + 1) / 2
    network, disk, memory = 1.25e9, 1e9, 1e10
    bundled = [-(-groups // FAN)]  # sums at each level of the tree that reach the driver
    while bundled[-1] > 1:
        bundled.append(-(-bundled[-1] // FAN))
    kept = sum(bundled)
    solving = float(np.dot(record["solving"], solving_terms(classes, d)))
    per_node = f"{-(-groups // nodes)} parts on a node"
    rows = [
        (
            "reading",
            f"{read / 1e12:.2g} TB in {groups} parts, {per_node}, at 1.25 GB/s",
            -(-groups // nodes) * RATIO * part / network,
        ),
        (
            "counting",
            f"{counting / 3600:,.3g} core hours on {workers} workers, one per part",
            counting / workers,
        ),
        (
            "adding on the nodes",
            f"{FAN - 1} of {FAN} parts of {part / 1e9:.3g} GB travel at 1.25 GB/s and are added at 10 GB/s",
            (FAN - 1) * part * (1 / network + 3 / memory),
        ),
        ("sums to the driver", f"{bundled[0]} sums, at 1.25 GB/s", bundled[0] * part / network),
        (
            "sums on its disk",
            f"{kept} sums written and read back, and the tagger, at 1 GB/s",
            (2 * kept + 1) * part / disk,
        ),
        ("adding up", f"{bundled[0]} sums, at 10 GB/s", 3 * bundled[0] * part / memory),
        ("solving", f"{solving / 3600:,.3g} core hours on 16 cores of one node", solving / 16),
    ]
    rows.append(("together", "one after the other", sum(seconds for *_, seconds in rows)))
    text = (
        f"**1 billion rows x {d} x {classes:,} labels on {nodes} nodes**, three labels per row, by this model. A "
        f"worker holds up to 1.5 x the sums, {1.5 * part / 1e9:.0f} GB, so four fit a node of 64 GB. "
        f"`--dimensions {d}` is needed: more than 256 numbers are projected otherwise.\n"
    )
    return f"{text}\n{table(('step', 'what', 'seconds'), [(a, b, f'{c:,.0f}') for a, b, c in rows])}"


def write_page(record: dict[str, Any]) -> None:
    """Put the tables into the page."""
    between(PAGE, "python -m benches.scale", tables(record))


def write_big(record: dict[str, Any]) -> None:
    """Put the one large run into the page."""
    rows = [
        ("files", f"{record['shards']}, {record['gigabytes']:.2f} GB together"),
        ("labels per row", f"{record['tags']:g}"),
        ("workers", f"{record['jobs']}"),
        ("time by the clock", f"{record['clock']:.0f} s"),
        ("processor time, command and workers together", f"{record['processor']:.0f} s"),
        ("peak memory of the largest process", f"{record['peak_gb']:.2f} GB"),
    ]
    head = (f"{record['rows']:,} rows", f"{record['d']} x {record['classes']} labels")
    text = (
        f"    OMP_NUM_THREADS=1 python -m benches.big --folder DIR --jobs {record['jobs']}     "
        f"# seeds 0 to {record['shards'] - 1} of the shards, which are removed at the end\n\n"
        f"{made_on(record)}\n\n{table(head, rows)}"
    )
    between(PAGE, "python -m benches.big", text)
