"""Batches from a store beside decoding pictures each time, and beside copying memory."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from benches.problems import DATA
from benches.timing import Row, best, faster, told
from mlcl.datasets import open_store, prepare
from mlcl.datasets.images import pixels
from mlcl.datasets.plan import ImageFiles, make_plan
from mlcl.datasets.trees import open_tree
from mlcl.training.batches import gather

SIZE, BATCH = 64, 128


def pictures(count: int, folder: Path) -> tuple[Path, list[str], list[bytes], str]:
    """Return a place with JPEG files of 96 x 96, their names and content, and what they are."""
    pack = DATA / "voc2012" / "thumbs96.zip"
    if pack.is_file():
        with zipfile.ZipFile(pack) as archive:
            names = sorted(archive.namelist())[:count]
            return pack, names, [archive.read(name) for name in names], "VOC thumbnails"
    rng = np.random.default_rng(0)
    files = []
    for number in range(count):
        small = Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        buffer = io.BytesIO()
        small.resize((96, 96), Image.Resampling.BICUBIC).save(buffer, "JPEG")
        (folder / f"{number}.jpg").write_bytes(buffer.getvalue())
        files.append(buffer.getvalue())
    return folder, [f"{number}.jpg" for number in range(count)], files, "smooth noise"


def measure(*, quick: bool) -> list[Row]:
    """Prepare a store, then time an epoch of random batches."""
    count = 600 if quick else 6000
    with tempfile.TemporaryDirectory(prefix="mlcl-bench-") as place:
        raw = Path(place) / "raw"
        raw.mkdir()
        root, names, files, kind = pictures(count, raw)
        plan = make_plan(
            source="bench",
            root=str(root),
            name="bench",
            classes=["a", "b"],
            ids=[str(i) for i in range(count)],
            train=np.arange(count) < count - 1,
            labels=np.eye(2, dtype=np.uint8)[np.arange(count) % 2],
            inputs=ImageFiles(open_tree(root), names),
        )
        store = Path(place) / "store"
        prepared = best({"prepare": lambda: prepare(plan, store, size=SIZE, overwrite=True)}, repeats=1)
        inputs = open_store(store).train.inputs
        order = np.random.default_rng(0).permutation(len(inputs))
        batches = [order[i : i + BATCH] for i in range(0, len(order) - BATCH, BATCH)]
        starts = [BATCH * number for number in range(len(batches))]
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with ThreadPoolExecutor(cores) as pool:  # Pillow lets other threads run while it decodes

            def decode() -> None:
                for rows in batches:
                    np.stack(list(pool.map(lambda row: pixels(files[row], SIZE), rows)))

            times = best(
                {
                    "gather": lambda: [gather(inputs, rows) for rows in batches],
                    "copy": lambda: [np.array(inputs[start : start + BATCH]) for start in starts],
                },
                repeats=20,
            )
            times |= best({"decode": decode}, repeats=1)
    each = {name: seconds / len(batches) for name, seconds in times.items()}
    size = f"{SIZE} x {SIZE}, B {BATCH}, {kind}"
    share = each["copy"] / each["gather"]
    note = f"{BATCH * SIZE * SIZE * 3 / each['gather'] / 1e9:.1f} GB/s"
    rival = f"decoding JPEGs, {cores} threads"
    return [
        faster("batch from a store", size, each["gather"], rival, each["decode"], 5),
        Row(
            "batch from a store", size, each["gather"], "copy of as many rows in a row", each["copy"],
            share, 0.9, above=True, unit="of its speed", note=note,
        ),
        told("preparing a store", f"{count:,} pictures to {SIZE} x {SIZE}", prepared["prepare"]),
    ]  # fmt: skip
