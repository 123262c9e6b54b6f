"""Parquet shards of made-up vectors and tags, and the tagger that one process learns from all their rows."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from children import FOREVER
from mlcl.exact.parts import Part
from mlcl.sklearn import ExactTagger, shards
from mlcl.sklearn.shard_parts import Counted, Job, count, count_into, write_part
from mlcl.sklearn.shards import learn_shards

NAMES = ("ant", "bee", "cat", "dog")


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one shard: vectors, and the tags of each."""

    vectors: np.ndarray
    tags: list[list[str]]
    annotated: list[list[str] | None] | None = None


def made_up(
    count: int, *, rows: int = 40, d: int = 5, seed: int = 0, names: Sequence[str] = NAMES
) -> list[Rows]:
    """Shards in which a label moves the mean of one column; the last label is in the last shard only."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        here = names if number == count - 1 else names[:-1]
        labels = rng.random((rows, len(here))) < 0.3
        labels[: len(here)] |= np.eye(len(here), dtype=bool)
        vectors = rng.normal(3.0, 1.0, (rows, d)).astype(np.float32)
        vectors[:, : len(here)] += labels
        found.append(Rows(vectors, [[here[k] for k in np.flatnonzero(row)] for row in labels]))
    return found


def write_shard(
    path: Path, rows: Rows, *, joined: str | None = None, fixed: bool = True, group: int = 16
) -> Path:
    """Write a shard in row groups of a few rows."""
    width = rows.vectors.shape[1]
    kind = pyarrow.from_numpy_dtype(rows.vectors.dtype)
    listed = pyarrow.list_(kind, width) if fixed else pyarrow.list_(kind)
    columns = {"vector": pyarrow.array(list(rows.vectors), listed)}
    text = pyarrow.list_(pyarrow.string())
    tags = [joined.join(row) for row in rows.tags] if joined else pyarrow.array(rows.tags, text)
    columns["tags"] = tags
    if rows.annotated is not None:
        columns["annotated"] = pyarrow.array(rows.annotated, text)
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=group)
    return path


def write_shards(folder: Path, shards: Sequence[Rows]) -> list[Path]:
    """Write shards in a folder, named in order."""
    return [write_shard(folder / f"{number:03d}.parquet", rows) for number, rows in enumerate(shards)]


def one_process(shards: Sequence[Rows], **params: object) -> ExactTagger:
    """The tagger that learns all rows in one call, each annotated for every label."""
    vectors = np.concatenate([rows.vectors for rows in shards])
    tags = [row for rows in shards for row in rows.tags]
    return ExactTagger(**params).fit(vectors, tags)


def distance(one: ExactTagger, other: ExactTagger) -> float:
    """The largest difference of weights and intercepts, classes by name."""
    assert sorted(one.classes_) == sorted(other.classes_)
    order = [other.classes_.tolist().index(name) for name in one.classes_]
    weights = np.abs(one.coef_ - other.coef_[order]).max()
    return float(max(weights, np.abs(one.intercept_ - other.intercept_[order]).max()))


def die(folder: Path, job: Job) -> None:
    """Be killed by every job."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(folder: Path, job: Job) -> list[Counted]:
    """Count; one worker is killed before its part is written, and one after, before it could report."""
    marks = Path(os.environ["SHARD_MARKS"])
    part, counted = count(job)
    _die_once(marks / "died-before")
    write_part(folder, part, counted)
    _die_once(marks / "died-after")
    return counted


def _die_once(mark: Path) -> None:
    with contextlib.suppress(FileExistsError):
        mark.touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGKILL)


_done: list[Job] = []


def stall(folder: Path, job: Job) -> list[Counted]:
    """Count; a worker stalls in its third job."""
    _done.append(job)
    if len(_done) > 2:
        time.sleep(FOREVER)
    return count_into(folder, job)


def _kill_at(number: int, *, before: bool) -> None:
    """Have this process killed when the file of this number gets its name."""
    replace = os.replace
    calls = []

    def counted(*names: object) -> None:
        calls.append(names)
        if before and len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*names)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = counted


def _learn_in_a_fork(data: str, out: Path, number: int, *, before: bool) -> bool:
    """Learn in a process that is killed; whether it was."""
    pid = os.fork()
    if not pid:
        _kill_at(number, before=before)
        learn_shards(data, out, jobs=1)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def _learn_on_ray(data: str, out: Path, address: str) -> None:
    """Learn on a cluster in this process, which is killed when it has written its first part."""

    def write(folder: Path, part: Part, counted: list[Counted]) -> None:
        write_part(folder, part, counted)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(shards, "write_part", write)  # noqa: B010  (not a public name)
    learn_shards(data, out, engine="ray", address=address)


def main(what: str, data: str, out: Path, *address: str) -> None:
    """Learn in a process of its own that comes to a bad end."""
    if what == "ray":
        _learn_on_ray(data, out, *address)
    if what == "stall":
        import shard_files

        setattr(shards, "count_into", shard_files.stall)  # noqa: B010  (by a name that workers can import)
        learn_shards(data, out, jobs=2)
    import mlcl.taggers.sums  # noqa: F401  (once, and not in every fork: with torch it takes longer than learning)

    for number in itertools.count(1):
        for before in (True, False):
            folder = out / f"{number}-{before}"
            if not _learn_in_a_fork(data, folder, number, before=before):
                return
            pid = os.fork()  # goes on in a process of its own: pyarrow's threads do not survive a fork
            if not pid:
                learn_shards(data, folder, jobs=1)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            print("killed", folder, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
