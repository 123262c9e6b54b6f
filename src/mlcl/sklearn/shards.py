"""Exact learning over shards: Parquet files, on any number of workers, counted exactly once each."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from mlcl.datasets.shards import expand
from mlcl.engines.cluster import Cluster, choose_engine
from mlcl.engines.pool import Engine, EngineFailure, LocalWorkers, Lost, ThisProcess
from mlcl.errors import InputError
from mlcl.exact import Learner
from mlcl.exact.held_rows import HeldOutRows, row_hashes, row_keys
from mlcl.exact.learner import Form, check_scales
from mlcl.exact.parts import Part
from mlcl.exact.ridge import Wanted
from mlcl.files import FolderLock, disk_is_full, remove_own
from mlcl.metrics.decisions import Goal
from mlcl.sklearn.exact import ExactTagger
from mlcl.sklearn.shard_folder import (
    PARTS,
    TAGGER,
    clear,
    read_tagger,
    refuse_versions,
    require_own,
    write_tagger,
)
from mlcl.sklearn.shard_parts import (
    OWN,
    Counted,
    Job,
    add_parts,
    added,
    count,
    count_into,
    list_parts,
    remove_part,
    write_part,
)
from mlcl.sklearn.shard_planning import begin, check, check_params
from mlcl.sklearn.shard_tree import FAN, Node, bundles, fitting_tree, nodes_of, part_key

T = TypeVar("T")
ATTEMPTS = 3
"""How often a job is given out whose worker was lost."""
CHEAP = 2**32
"""So many bytes of shards are counted again in a minute: their sums may travel together, as one part."""


class Stopped(RuntimeError):
    """Learning ended before all shards were counted, for a reason that may pass; the same call goes on."""


@dataclass(frozen=True)
class Learnt:
    """What came of learning.

    Attributes:
        path: the file of the tagger, for `ExactTagger.load`.
        shards: number of shards in it.
        new: of these, the shards that this call has added.
        rows: number of rows in it.
        classes: number of labels.
        duplicates: files that were given, but have the content of another one, with its address.
        seconds: of this call.
        quality: how good it is on the rows that were held out, in one line.
    """

    path: Path
    shards: int
    new: int
    rows: int
    classes: int
    duplicates: dict[str, str]
    seconds: float
    quality: str


def learn_shards(
    data: str | Sequence[str],
    out: str | Path,
    *,
    engine: Literal["local", "ray"] = "local",
    jobs: int | None = None,
    address: str | None = None,
    vectors: str | None = None,
    tags: str | None = None,
    annotated: str | None = None,
    separator: str | None = None,
    unlabelled: float | None = None,
    dimensions: int | None = None,
    goal: Wanted | None = None,
    form: Form | None = None,
    spread: float | None = None,
    held_out: float = 0.0,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Learnt:
    """Learn an `ExactTagger` from Parquet files of vectors and tags, each counted exactly once.

    Memory does not grow with the rows: files are read in batches, and only sums are kept. Killed at any moment, the
    same call goes on where it was; called with more files, it adds these. The result does not depend on the order of
    the files or the number of workers.

    Args:
        data: files, folders, globs, or addresses of fsspec.
        out: the folder to write: a tagger. Its sums, and the record of the shards, are in ``tagger.safetensors``.
        engine: worker processes of this machine, or a Ray cluster.
        jobs: workers; one per core if not given.
        address: of a Ray cluster; one is started on this machine if not given.
        vectors: the column of lists of numbers; by default one of features, embedding, vector, x.
        tags: the column of lists of names, or of texts; by default one of labels, label, tags, classes.
        annotated: the column of the labels that a row was annotated for; by default ``annotated``, if there is one,
            and otherwise every row was annotated for every label of any shard.
        separator: between the names where they are texts; ``|`` by default.
        unlabelled: see `ExactTagger`; 1 by default.
        dimensions: see `ExactTagger`; 2048 by default.
        goal: see `ExactTagger`.
        form: see `ExactTagger`.
        spread: see `ExactTagger`.
        held_out: the share of the rows that are not learnt from, for probabilities, thresholds and quality; of the
            first shards at most 4,000. It holds for shards that are added later, too.
        overwrite: begin anew; what was learnt in the folder is removed.
        progress: called with shards done and shards in all.
    """
    began = time.monotonic()
    workers = choose_engine(engine, jobs=jobs, address=address)
    given = expand([data] if isinstance(data, str) else data)
    out = Path(out)
    params: dict[str, Any] = {"unlabelled": unlabelled, "dimensions": dimensions}
    params |= {"goal": goal, "form": form, "spread": spread}
    check_params(params)  # before anything is written, or removed by `overwrite`
    wanted = {"vectors": vectors, "tags": tags, "annotated": annotated, "separator": separator}
    try:
        require_own(out, overwrite=overwrite)
        refuse_versions(out)
        lock = FolderLock(out)
        try:
            clear(out, overwrite=overwrite)
            state = _State(out, given, {k: v for k, v in wanted.items() if v is not None}, params, held_out)
            state.count(workers, progress)
            return state.finish(time.monotonic() - began)
        finally:
            lock.release()
    except EngineFailure as error:
        raise Stopped(str(error)) from None
    except OSError as error:
        if not disk_is_full(error):
            raise
        raise Stopped(f"{error.filename or out} could not be written: {error.strerror}") from None


class _State:
    """What is counted and what is not, in a folder that this process holds."""

    def __init__(
        self, out: Path, given: list[str], wanted: dict[str, str], params: dict[str, Any], held_out: float
    ) -> None:
        self.out, self.folder = out, out / PARTS
        self.begun = begin(out, given, wanted, params, held_out)
        held = read_tagger(out)
        self.part: Part | None = None
        self.counted: list[Counted] = []
        self.params = self.begun.params
        if held is not None:
            self.part, self.counted, self.params = held
        inside = {one.address for one in self.counted}
        self.parts = list_parts(self.folder)
        for key, counted in list(self.parts.items()):
            if inside >= {one.address for one in counted}:  # killed after the tagger was written
                remove_part(self.folder, key)
                del self.parts[key]
        self.known = [*self.counted, *(one for counted in self.parts.values() for one in counted)]
        new, self.duplicates = check(given, self.known, self.begun)
        self.shards = {shard.address: shard for shard in new}
        self.sizes = {one.address: one.size for counted in self.parts.values() for one in counted}
        self.sizes |= {shard.address: shard.size for shard in new}
        addresses = {key: [one.address for one in counted] for key, counted in self.parts.items()}
        self.root, self.loose = fitting_tree(self.sizes, addresses, group=self.begun.group)
        self.changed = {k: v for k, v in params.items() if v is not None and v != self.params.get(k)}

    def count(self, engine: Engine, progress: Callable[[int, int], None] | None) -> None:
        """Count what is left, adding up parts as soon as all of a node are there."""
        if self.root is None:
            return
        there = set(self.parts)
        # Sums that are as heavy as their rows are better added where they are.
        most = max(CHEAP, 2 * FAN * self.begun.group)
        left = list(bundles(self.root, there, self.sizes, most=most))
        above = {child.key: node for node in nodes_of(self.root) for child in node.children}
        for key in list(there):
            self._add_up(above.get(key), there, above)
        fingerprints = {one.fingerprint: one.address for one in self.known}
        begun = self.begun
        features, columns, usual = begun.learner.features, begun.columns, begun.usual
        work = [
            [
                Job(
                    tuple(self.shards[name] for name in node.addresses),
                    columns,
                    features,
                    usual,
                    begun.held_out,
                    begun.learner.sums.shared,
                    begun.learner.sums.lead,
                )
                for node in bundle
            ]
            for bundle in left
        ]
        done = 0
        with contextlib.closing(_stream(engine, work, self.folder)) as stream:
            for counted in stream:
                key = part_key([one.address for one in counted])
                for one in counted:
                    if fingerprints.setdefault(one.fingerprint, one.address) != one.address:
                        remove_part(self.folder, key)
                        raise InputError(
                            f"{one.address} has become a copy of {fingerprints[one.fingerprint]} meanwhile; "
                            f"it was not counted"
                        )
                there.add(key)
                self._add_up(above.get(key), there, above)
                done += len(counted)
                if progress is not None:
                    progress(done, len(self.shards))

    def _add_up(self, node: Node | None, there: set[str], above: Mapping[str, Node]) -> None:
        """Replace the parts of a node by their sum if all of them are there, and so on upwards."""
        while node is not None and there.issuperset(keys := [child.key for child in node.children]):
            write_part(self.folder, *add_parts(self.folder, keys))
            there.add(node.key)
            for key in keys:
                remove_part(self.folder, key)
                there.remove(key)
            node = above.get(node.key)

    def finish(self, seconds: float) -> Learnt:
        """Add everything to the tagger and write it."""
        keys = [*([self.root.key] if self.root is not None else []), *self.loose]
        new = 0
        if keys or self.changed:
            if keys:
                part, counted = add_parts(self.folder, keys)
                new = len(counted)
                self.counted = [*self.counted, *sorted(counted, key=lambda one: one.address)]
                before = () if self.part is None else self.part.names
                names = (*before, *sorted(set(part.names) - set(before)))
                self.part = part.over(names) if self.part is None else self.part + part
                self.part = self.part.over(names)
            if self.part is None or not self.part.names:
                raise InputError(
                    f"column {self.begun.columns.tags!r} has no tags in any shard; expected at least one label"
                )
            if self.begun.learner.features.projection is None:
                check_scales(self.part.sums.total, self.begun.learner.features.centre)
            write_tagger(
                self.out, self.begun.learner, self.part, self.counted, {**self.params, **self.changed}
            )
        remove_own(self.folder, OWN)  # empty, or in the tagger
        if self.part is None:
            raise InputError("there is nothing to learn from: no shard has rows")
        quality = self._release(self.part, changed=bool(keys or self.changed), seconds=seconds)
        return Learnt(
            self.out / TAGGER,
            len(self.counted),
            new,
            self.part.rows,
            len(self.part.names),
            self.duplicates,
            seconds,
            quality,
        )

    def _release(self, part: Part, *, changed: bool, seconds: float) -> str:
        """Write what verbs need beside the sums, unless it is there, and return how good the tagger is."""
        from mlcl.runs.folder import has_result
        from mlcl.taggers.learning import quality_line
        from mlcl.taggers.sums import LearntSums, chosen_goal, write_sums

        if changed or not has_result(self.out):
            held, goal = part.held.ordered(), chosen_goal(self.out) or Goal()
            keys = row_keys(row_hashes(held.inputs))
            tagger = ExactTagger(**self.params)
            write_sums(
                self.out,
                LearntSums(
                    learner=Learner(self.begun.learner.features, part.without_rest()),
                    classes=part.names,
                    options=tagger._options(),
                    dimensions=tagger.dimensions,
                    goal=goal,
                    name=self.out.resolve().name,
                    fingerprint=_fingerprint(self.counted),
                    seconds=seconds,
                    share=self.begun.held_out,
                    held_out=HeldOutRows(held.inputs, *held.labels(part.names), keys) if len(held) else None,
                ),
                command=f"mlcl learn --out {self.out}",
            )
        return quality_line(self.out)


def _fingerprint(counted: Sequence[Counted]) -> str:
    """Return one fingerprint of all shards, in whatever order they were counted."""
    return hashlib.sha256("".join(sorted(one.fingerprint for one in counted)).encode()).hexdigest()[:16]


def _stream(engine: Engine, work: list[list[Job]], folder: Path) -> Generator[list[Counted], None, None]:
    """Yield what each part has counted once that part is on the disk.

    A cluster adds up bundles itself: this process receives and writes one sum of each. The nodes must reach the shards
    under the same addresses; they need no shared folder.
    """
    if isinstance(engine, Cluster):
        with contextlib.closing(engine.sums(count, added, work, attempts=ATTEMPTS)) as sums:
            for bundle, total in sums:
                part, counted = _found(bundle, total)
                write_part(folder, part, counted)
                yield counted
        return
    single = [job for bundle in work for job in bundle]
    if isinstance(engine, LocalWorkers) and min(engine.count, len(single)) == 1:
        engine = ThisProcess()
    stream = engine.each(partial(count_into, folder), single, attempts=ATTEMPTS)
    with contextlib.closing(stream):
        for job, answer in stream:
            yield _found([job], answer)


def _found(jobs: Sequence[Job], answer: T | Lost) -> T:
    if isinstance(answer, Lost):
        names = ", ".join(job.name for job in jobs)
        raise EngineFailure(f"{names} could not be counted in {ATTEMPTS} attempts: {answer.reason}")
    return answer
