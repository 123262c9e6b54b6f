"""Datasets: raw layouts of many kinds become one kind of store, and a store becomes a `Dataset`.

A source (one file each, found by itself) reads raw metadata into a `DatasetPlan`; the rules that it must keep are in
`mlcl.datasets.plan`. `prepare` decodes every image once into a store; `open_store` returns the store as a `Dataset` of
memory-mapped arrays; `load_dataset` finds one by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mlcl.datasets.base import Dataset, Split
from mlcl.datasets.digits import load_digits_dataset
from mlcl.datasets.images import DEFAULT_SIZE, decode_image
from mlcl.datasets.plan import SOURCES, DatasetPlan
from mlcl.datasets.published import published_differences
from mlcl.datasets.store import StoreInfo, open_store, read_ids, store_kind
from mlcl.datasets.writing import plan_bytes, prepare
from mlcl.errors import InputError, nearest
from mlcl.files import cache_dir, require_folder, slug, write_text
from mlcl.registry import discover

__all__ = [
    "DEFAULT_SIZE",
    "SOURCES",
    "Dataset",
    "DatasetPlan",
    "Split",
    "StoreInfo",
    "absolute_data",
    "cache_dir",
    "counted_data",
    "decode_image",
    "find_dataset",
    "given_arrays",
    "is_given_arrays",
    "load_dataset",
    "load_digits_dataset",
    "open_store",
    "plan_bytes",
    "plan_source",
    "prepare",
    "prepare_source",
    "published_differences",
    "read_ids",
    "shown_data",
    "store_kind",
    "store_path",
]

discover(__name__, __path__)

KNOWN = {
    "voc2007": "voc --root VOCdevkit --year 2007",
    "voc2012": "voc --root VOCdevkit --year 2012",
    "coco2014": "coco --root COCO --year 2014",
    "coco2017": "coco --root COCO --year 2017",
    "nus-wide": "nus-wide --root NUS-WIDE",
    "scene": "arff --root Scene.arff",
    "enron": "arff --root Enron.arff",
    "music": "arff --root Music.arff",
    "flags": "arff --root flags.arff",
    "corel5k": "arrays --root corel5k.mat --x data --y target --min-positives 10",
    "bibtex": "arrays --root bibtex.mat --x data --y target --min-positives 10",
    "delicious": "arrays --root delicious.mat --x data --y target --min-positives 10",
}
"""Datasets whose stores have known names, and the arguments of ``mlcl data prepare`` that make them."""


_ARRAYS, _COUNTED = "arrays:", "counted:"


def plan_source(kind: str, root: str | Path, *, name: str | None = None, **options: Any) -> DatasetPlan:
    """Read the raw metadata of a source, and no image.

    Args:
        kind: a name in `SOURCES`, e.g. ``voc``.
        root: the folder, file or archive.
        name: the name of the dataset, if not the one that the source gives it.
        options: the options of the source; None leaves an option at its default.
    """
    plan: DatasetPlan = SOURCES.build(kind, Path(root).expanduser(), **options)
    return plan if name is None else replace(plan, name=slug(name) or "data")


def store_path(plan: DatasetPlan, size: int | None = None) -> Path:
    """Return the default place of a plan's store: ``NAME-SIZE``, or ``NAME`` for ready arrays, in the cache."""
    ready = isinstance(plan.inputs, np.ndarray)
    return cache_dir() / "stores" / (plan.name if ready else f"{plan.name}-{size or DEFAULT_SIZE}")


def prepare_source(
    kind: str,
    root: str | Path,
    *,
    out: str | Path | None = None,
    size: int | None = None,
    overwrite: bool = False,
    skip_bad: bool | str | Path = False,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    announce: Callable[[str], None] | None = None,
    **options: Any,
) -> StoreInfo:
    """Make a store of raw data: `plan_source`, then `prepare`.

    Args:
        kind: a name in `SOURCES`.
        root: the folder, file or archive.
        out: the folder to make; `store_path` if not given.
        size: side of the images in pixels, 224 if not given.
        overwrite: replace a store of other content.
        skip_bad: leave out, and count, images that are absent or cannot be decoded; a path names a file to write that
            lists them, one line per image with the reason.
        jobs: number of processes; one per core if not given.
        progress: called with rows done and rows in all.
        announce: called before anything is written, with a sentence that says what will be made, where, and how much
            disk space it needs; and with a note for each way in which VOC or COCO differ from what was published.
        options: ``name``, and the options of the source.
    """
    listing = None if isinstance(skip_bad, bool) else Path(skip_bad).expanduser()
    if listing is not None:  # refused before the work, and not after it
        if listing.is_dir() or (listing.exists() and not overwrite):
            raise InputError(f"--skip-bad {listing} exists; choose another name, or add --overwrite")
        require_folder(listing)
    plan = plan_source(kind, root, **options)
    target = store_path(plan, size) if out is None else Path(out).expanduser()
    if announce is not None:
        need, mark = plan_bytes(plan, size=size), plan.options.get("separator")
        split = "" if mark is None else f" (labels are separated by {mark!r}; --separator overrides)"
        text = f"{len(plan.ids)} items, {len(plan.classes)} classes{split}: {_readable(need)} of disk for {target}"
        if size is None and not isinstance(plan.inputs, np.ndarray):
            text += (
                f"; images of {DEFAULT_SIZE} x {DEFAULT_SIZE} pixels suit a GPU or a pre-trained encoder, "
                "--size 32 training on a CPU"
            )
        announce(text)
        rows: dict[str, Any] = {
            "train": plan.train,
            "test": len(plan.ids) - plan.train,
            "dropped": plan.dropped,
        }
        for note in published_differences(plan.name, data=plan.name, classes=plan.classes, **rows):
            announce(f"note: {note}")
    made = prepare(
        plan, target, size=size, overwrite=overwrite, skip_bad=bool(skip_bad), jobs=jobs, progress=progress
    )
    if listing is not None:
        lines = (f"{name}\t{why}".replace("\n", " ") + "\n" for name, why in made.skipped)
        write_text(listing, "".join(lines))
    return made


def find_dataset(name_or_path: str, *, commands: Sequence[str] = ()) -> Path:
    """Return the folder of a store, given the folder or a name in the cache; the `InputError` names the place.

    Args:
        name_or_path: the folder or the name.
        commands: what makes it, where that is known better than from the name alone.
    """
    if (path := _folder(name_or_path)) is not None:
        return path
    stores = cache_dir() / "stores"
    named = stores / name_or_path
    if Path(name_or_path).name == name_or_path and _folder(named) is not None:
        return named
    known = _known_command(name_or_path)
    command = " && ".join(commands) or (known and f"{known} --out {named}")
    if not command:
        have = sorted(p.name for p in stores.iterdir() if p.is_dir()) if stores.is_dir() else []
        hint = nearest(name_or_path, [*have, *KNOWN, "digits"])
        place = Path(name_or_path).absolute()
        raise InputError(
            f"dataset {name_or_path!r} was not found: {place} and {named} were looked for.{hint}"
        )
    raise InputError(
        f"dataset {name_or_path!r} is not prepared yet: {named} was looked for; make it with: {command}"
    )


def _folder(name_or_path: str | Path) -> Path | None:
    try:
        path = Path(name_or_path).expanduser()
        return path if path.is_dir() else None
    except (RuntimeError, OSError):  # the home of a user that there is not; a name that is too long
        return None


def absolute_data(name_or_path: str) -> str:
    """Return what a run records as its ``data``: of a store's folder the absolute path, a name as it is.

    So that the store is found from whatever folder the run is looked at, while names hold on other machines too.
    """
    if name_or_path == "digits" or is_given_arrays(name_or_path):
        return name_or_path
    folder = _folder(name_or_path)
    return name_or_path if folder is None else str(folder.resolve())


def shown_data(data: str) -> str:
    """Return the name of a store, or its folder as seen from here: records hold the absolute path.

    >>> shown_data("voc2012-96"), shown_data(str(Path.cwd() / "stores" / "mine"))
    ('voc2012-96', 'stores/mine')
    """
    path = Path(data)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else data


def _known_command(name: str) -> str | None:
    """Return the command that makes a store of a known name, or None."""
    if name in KNOWN:
        return f"mlcl data prepare {KNOWN[name]}"
    base, _, size = name.rpartition("-")
    return f"mlcl data prepare {KNOWN[base]} --size {size}" if base in KNOWN and size.isdecimal() else None


def given_arrays(dataset: Dataset) -> str:
    """Return what a run's settings record as ``data`` where arrays were given in Python: their fingerprint."""
    return f"{_ARRAYS}{dataset.fingerprint}"


def counted_data(fingerprint: str) -> str:
    """Return what a tagger's settings record as ``data`` where rows were counted that no store holds."""
    return f"{_COUNTED}{fingerprint or 'rows'}"


def is_given_arrays(data: str) -> bool:
    """Return whether ``data`` of a run's settings stands for rows that no store holds: given in Python, or counted."""
    return data.startswith((_ARRAYS, _COUNTED))


def load_dataset(name_or_path: str, *, in_memory: bool = False, commands: Sequence[str] = ()) -> Dataset:
    """Return a dataset by name.

    Args:
        name_or_path: ``digits``, which is built in; the folder of a store; or a store's name in the cache.
        in_memory: copy the inputs of a store into memory.
        commands: see `find_dataset`.

    >>> load_dataset("digits").name
    'digits'
    """
    if name_or_path == "digits":
        return load_digits_dataset()
    if name_or_path.startswith(_COUNTED):
        raise InputError(
            "the rows that the tagger learnt from are in no store (it keeps their sums); name a store of such rows."
        )
    if is_given_arrays(name_or_path):
        raise InputError(
            f"data is {name_or_path!r}: arrays that were given in Python, which no file of the run holds; give them "
            "again with mlcl.run(CONFIG, benchmark=mlcl.Benchmark.from_arrays(...)) (or mlcl.resume), or make a store "
            "of them with `mlcl data prepare arrays` and add --benchmark STORE."
        )
    return open_store(find_dataset(name_or_path, commands=commands), in_memory=in_memory)


def _readable(count: int) -> str:
    """Return a number of bytes in the largest unit that fits."""
    units = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (0, "bytes"))
    size, name = next((size, name) for size, name in units if count >= size)
    return f"{count / (size or 1):.3g} {name}"
