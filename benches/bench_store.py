"""Speed of preparing and of reading a store, each against doing without it.

    python benches/bench_store.py [--pictures N] [--size 64]

Two questions. Is preparing bound by decoding: `prepare` against a bare Pillow loop (read, decode, resize, no
checks, no store) on the same files? And what does the store save: an epoch of random batches from the memory
map against a loader that decodes each picture when it is asked for? Clock time is what a user waits;
processor time, children included, is what the work costs, whatever else the machine does. Data: the VOC
thumbnails and the raw VOC sample, repeated; set MLCL_DATA to their folder if it is not ../shared/data.
"""

from __future__ import annotations

import argparse
import functools
import io
import os
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from mlcl.datasets import open_store, prepare
from mlcl.datasets.images import pixels
from mlcl.datasets.plan import Files, Plan, make_plan
from mlcl.datasets.trees import open_tree
from mlcl.datasets.writing import cores

Read = Callable[[int], bytes]
DATA = Path(os.environ.get("MLCL_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


def plan_of(root: Path, paths: list[str]) -> Plan:
    """Plan a store of some pictures with made-up labels."""
    rows = len(paths)
    return make_plan(
        source="bench",
        root=str(root),
        name="bench",
        classes=["a", "b"],
        ids=[str(i) for i in range(rows)],
        train=np.arange(rows) < rows - 1,
        labels=np.eye(2, dtype=np.uint8)[np.arange(rows) % 2],
        inputs=Files(open_tree(root), paths),
    )


def bare(read: Read, rows: int, size: int, *, draft: bool) -> None:
    """Run the plainest loop that ends in arrays."""
    for row in range(rows):
        image = Image.open(io.BytesIO(read(row)))
        if draft:
            image.draft(None, (2 * size, 2 * size))
        np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))


def rates(work: Callable[[], object], rows: int, times: int = 3) -> tuple[float, float]:
    """Return pictures a second of clock and of processor time, the best of some runs."""
    found = []
    for _ in range(times):
        clock, spent = time.perf_counter(), sum(os.times()[:4])
        work()
        found.append((rows / (time.perf_counter() - clock), rows / max(sum(os.times()[:4]) - spent, 1e-2)))
    return max(f[0] for f in found), max(f[1] for f in found)


def show(title: str, found: tuple[float, float], against: tuple[float, float]) -> None:
    clock, spent = (a / b for a, b in zip(found, against, strict=True))
    print(f"  {title:28s} {found[0]:9.0f} {found[1]:9.0f}   {clock:8.2f} {spent:8.2f}")


def bench_prepare(title: str, root: Path, paths: list[str], read: Read, size: int, store: Path) -> None:
    plan, rows = plan_of(root, paths), len(paths)
    plain = rates(lambda: bare(read, rows, size, draft=False), rows)
    print(f"{title}, {rows} pictures to {size} x {size}")
    print(f"  {'pictures a second of':28s} {'clock':>9s} {'processor':>9s}   against the bare loop")
    show("bare Pillow loop", plain, plain)
    show("the same with JPEG draft", rates(lambda: bare(read, rows, size, draft=True), rows), plain)
    for jobs in sorted({1, cores()}):
        work = functools.partial(prepare, plan, store, size=size, jobs=jobs, overwrite=True)
        show(f"prepare, {jobs} process{'es' * (jobs > 1)}", rates(work, rows), plain)


def bench_epoch(store: Path, read: Read, size: int, batch: int = 128) -> None:
    mapped = open_store(store).train.inputs
    memory = np.array(mapped)
    rows = len(mapped)
    order = np.random.default_rng(0).permutation(rows)
    batches = [order[i : i + batch] for i in range(0, rows, batch)]
    slow = rates(lambda: [np.stack([pixels(read(int(row)), size) for row in part]) for part in batches], rows)
    print(f"  an epoch of random batches of {batch}                against decoding")
    show("decoded each time", slow, slow)
    often = 20  # an epoch is over too soon to be timed
    for title, inputs in (("from the store, mapped", mapped), ("from the store, in memory", memory)):
        show(title, rates(lambda x=inputs: [x[part] for part in batches * often], rows * often), slow)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=4000)
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    pack = DATA / "voc2012" / "thumbs96.zip"
    with zipfile.ZipFile(pack) as archive:
        names = sorted(archive.namelist())[: options.pictures]
        thumbs = {name: archive.read(name) for name in names}

    def thumb(row: int) -> bytes:
        return thumbs[names[row]]

    folder = DATA / "raw" / "voc2012" / "VOCdevkit" / "VOC2012" / "JPEGImages"
    files = sorted(path.name for path in folder.iterdir()) * max(1, options.pictures // 320)

    def raw(row: int) -> bytes:
        return (folder / files[row]).read_bytes()

    cases = [("thumbnails of 96 x 96", pack, names, thumb, options.size)]
    cases += [("raw VOC, about 500 x 375", folder, files, raw, size) for size in (options.size, 224)]
    for title, root, paths, read, size in cases:
        with tempfile.TemporaryDirectory() as place:
            store = Path(place) / "store"
            bench_prepare(title, root, paths, read, size, store)
            bench_epoch(store, read, size)


if __name__ == "__main__":
    main()
