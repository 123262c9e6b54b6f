"""The rules of dataset sources; `mlcl.datasets.plan` says what a source returns."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlcl.datasets import SOURCES, DatasetPlan, open_store, prepare, read_ids
from mlcl.errors import InputError
from mlcl.testing.rules import CheckedPart, Rule, case_count, expect, registered, rules_in, run_rules

MAX_BYTES = 32 << 20
"""Raw data larger than this is not copied to see what damage to it does."""


@dataclass(frozen=True)
class SourceCase:
    """Raw data, and a seed for what is damaged in copies of it, ``damages`` times."""

    root: Path
    seed: int
    damages: int

    def __str__(self) -> str:
        return f"the raw data {self.root} and seed {self.seed}"


def check_source(
    part: str | Callable[..., DatasetPlan],
    root: str | Path,
    *,
    cases: int = 40,
    seed: int = 0,
    **options: Any,
) -> None:
    """Check that a dataset source keeps the rules of all sources.

    Args:
        part: a name in ``SOURCES``, or the function itself.
        root: a small example of the raw data, which the source can read; it is only read. Of more than 32 MiB no
            copies are made, so two rules are not checked: `raw_data_stays` and `damage_is_an_input_error`.
        cases: how many damaged copies are tried.
        seed: of the damage.
        options: options of the source.
    """
    found = Path(root).expanduser()
    if not found.exists():
        raise InputError(
            f"root is {found}, which does not exist; expected raw data that the source can read."
        )
    with registered(SOURCES, part, options) as source:
        run_rules(source, SOURCE_RULES, [SourceCase(found, seed, case_count(cases, seed))])


def _files(root: Path) -> dict[str, str]:
    """Return the files of a folder, or the file itself, by relative path, each with a digest of its content."""
    paths = sorted(path for path in root.rglob("*") if path.is_file()) if root.is_dir() else [root]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def plan_is_sound(part: CheckedPart[SourceCase], case: SourceCase) -> None:
    """A source returns a plan whose ids, labels, class names and inputs fit together; `make_plan` checks that."""
    plan = part.build(case.root)
    expect(isinstance(plan, DatasetPlan), f"returns a {type(plan).__name__}, not a DatasetPlan")
    rows, classes = len(plan.ids), len(plan.classes)
    expect(
        plan.labels.shape == (rows, classes) and len(plan.inputs) == rows,
        f"returns {rows} ids, {classes} class names, labels of shape {plan.labels.shape} and {len(plan.inputs)} inputs",
    )
    expect(
        plan.labels.dtype == np.uint8 and (plan.labels <= 1).all(),
        "returns labels that are not 0 and 1 in uint8",
    )
    for noun, names in (("ids", plan.ids), ("class names", plan.classes)):
        expect(len(set(names)) == len(names) and all(names), f"returns {noun} that are empty or not distinct")
    expect(0 < plan.train < rows, f"returns {plan.train} training rows of {rows}; expected both splits")
    expect(bool(plan.name) and bool(plan.source), "returns a plan without a name or without its source")


def same_data_same_plan(part: CheckedPart[SourceCase], case: SourceCase) -> None:
    """Reading the same raw data twice gives the same plan, so that an interrupted preparation can be resumed."""
    first, second = (part.build(case.root).fingerprint(None) for _ in range(2))
    expect(first == second, f"returns a plan of fingerprint {first[:12]}, and {second[:12]} the second time")


def raw_data_stays(part: CheckedPart[SourceCase], case: SourceCase) -> None:
    """A source only reads: it does not change, add or remove a file of the raw data."""
    if not _is_small(case.root):
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = _copied(case.root, Path(folder))
        before = _files(copy.parent)
        part.build(copy)
        after = _files(copy.parent)
    changed = sorted({name for name in before.keys() | after.keys() if before.get(name) != after.get(name)})
    expect(not changed, f"changes {', '.join(changed)}")


def inputs_survive_a_process(part: CheckedPart[SourceCase], case: SourceCase) -> None:
    """Encoded images can be sent to a worker process, which reads the same bytes."""
    inputs = part.build(case.root).inputs
    if isinstance(inputs, np.ndarray):
        return
    sent = pickle.loads(pickle.dumps(inputs))  # noqa: S301  (what was pickled in the same line)
    for row in range(min(len(inputs), 5)):
        expect(sent.read(row) == inputs.read(row), f"reads other bytes of {inputs.name(row)} in a worker")


def store_holds_the_plan(part: CheckedPart[SourceCase], case: SourceCase) -> None:
    """A store prepared from the plan holds its classes, labels and ids, training rows first."""
    plan = part.build(case.root)
    with tempfile.TemporaryDirectory() as folder:
        size = None if isinstance(plan.inputs, np.ndarray) else 8
        info = prepare(plan, Path(folder) / "store", size=size, jobs=1)
        data, ids = open_store(info.path, in_memory=True), tuple(read_ids(info.path))
    labels = np.concatenate([data.train.labels, data.test.labels])
    same = data.classes == plan.classes and ids == plan.ids and len(data.train) == plan.train
    expect(same and np.array_equal(labels, plan.labels), "makes a store of other classes, ids or labels")


def missing_data_is_an_input_error(part: CheckedPart[SourceCase], case: SourceCase) -> None:
    """Raw data that does not exist is an `InputError` that names the path."""
    with tempfile.TemporaryDirectory() as folder:
        missing = Path(folder) / f"nowhere{case.root.suffix}"
        try:
            plan = part.build(missing)
        except InputError as error:
            expect(missing.name in str(error), f"does not name the missing {missing.name}: {error}")
            return
    raise AssertionError(f"returns {type(plan).__name__} for a path that does not exist")


def damage_is_an_input_error(part: CheckedPart[SourceCase], case: SourceCase) -> None:
    """Damaged raw data gives a plan or an `InputError` of one line, never another exception."""
    if not _is_small(case.root):
        return
    rng = np.random.default_rng(case.seed)
    names = list(_files(case.root))
    for number in range(case.damages):
        with tempfile.TemporaryDirectory() as folder:
            copy = _copied(case.root, Path(folder))
            name = names[number % len(names)]
            what = _damage(copy / name if copy.is_dir() else copy, rng)
            try:
                part.build(copy)
            except InputError as error:
                expect("\n" not in str(error), f"fails with more than one line when {what}: {error}")
            except Exception as error:
                raise AssertionError(f"raises {type(error).__name__}: {error}, when {what}") from error


def _is_small(root: Path) -> bool:
    paths = root.rglob("*") if root.is_dir() else [root]
    return sum(path.stat().st_size for path in paths if path.is_file()) <= MAX_BYTES


def _copied(root: Path, folder: Path) -> Path:
    """Copy raw data into a folder of its own; of a file, also those beside it with the same stem."""
    target = folder / "raw" / root.name
    target.parent.mkdir()
    if root.is_dir():
        shutil.copytree(root, target)
        return target
    for path in [root, *root.parent.glob(f"{root.name.partition('.')[0]}.*")]:
        if path.is_file():
            shutil.copy(path, target.parent / path.name)
    return target


def _damage(path: Path, rng: np.random.Generator) -> str:
    """Damage a file in place, and return what was done to it."""
    content = path.read_bytes()
    place = int(rng.integers(0, len(content) + 1))
    if rng.random() < 0.5:
        path.write_bytes(content[:place])
        return f"{path.name} is cut after {place} of {len(content)} bytes"
    piece = rng.integers(0, 256, int(rng.integers(1, 5)), dtype=np.uint8).tobytes()
    path.write_bytes(content[:place] + piece + content[place + len(piece) :])
    return f"{path.name} has the bytes {piece!r} at {place}"


SOURCE_RULES: tuple[Rule[SourceCase], ...] = rules_in(__name__)
