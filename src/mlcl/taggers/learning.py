"""A tagger from labelled data of any kind: what `mlcl learn` does where rows are not counted shard by shard.

The data become a store, unless they are one, and a run learns from all of its training rows at once: the recommended
method for that kind of data, with rows held out for probabilities and thresholds. These are the defaults of somebody
who wants a tagger; `mlcl run` has those of somebody who compares methods.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config.fitting import data_kind
from mlcl.config.resolve import resolve
from mlcl.config.schema import Config
from mlcl.datasets import SOURCES, absolute_data, cache_dir, find_dataset, plan_source, prepare
from mlcl.datasets.images import IMAGE_SUFFIXES
from mlcl.datasets.plan import DatasetPlan
from mlcl.datasets.store import ENCODER, is_store
from mlcl.datasets.table import has_texts, is_table, names_files
from mlcl.errors import InputError
from mlcl.files import is_there, slug
from mlcl.metrics.calibration import not_calibrated
from mlcl.runs import folder as files
from mlcl.runs.result import Result
from mlcl.runs.run import resume, run
from mlcl.training.callbacks import Callback

HELD_OUT, TEST = 0.1, 0.1
"""Shares of the rows that probabilities and thresholds are fitted on, and that quality is measured on."""
ENDINGS = {
    ".npz": "arrays",
    ".mat": "arrays",
    ".arff": "arff",
    **dict.fromkeys((".csv", ".tsv", ".jsonl", ".ndjson"), "table"),
    ".parquet": "parquet",
}
PACKED = (".gz", ".bz2", ".xz")


@dataclass(frozen=True)
class Chosen:
    """What was chosen to learn from some data.

    Attributes:
        kind: how the data are read: ``store``, or a name in `SOURCES`.
        store: the folder of the store.
        config: of the run.
    """

    kind: str
    store: Path
    config: Config

    def __str__(self) -> str:
        model = "" if self.config.model.head == "exact" else f", {self.config.model.kind}"
        vectors = data_kind(str(self.store)) == "features"
        inputs = "texts" if is_there(self.store / ENCODER) else "vectors" if vectors else "images"
        return f"{inputs} (read as {self.kind}): method {self.config.method}{model}"


def source_kind(path: Path) -> str:
    """Return how data are read, from names alone: ``store``, or a name in `SOURCES`.

    >>> source_kind(Path("rows.npz")), source_kind(Path("Enron.arff.bz2"))
    ('arrays', 'arff')
    """
    if path.is_dir():
        return _folder_kind(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    kind = ENDINGS.get(suffixes[-1]) if suffixes else None
    if kind is None:
        known = ", ".join(ENDINGS)
        raise InputError(
            f"{path} is of no kind that is known by its ending; expected a store, a folder of images with a CSV, or a "
            f"file that ends in one of {known}"
        )
    if kind == "table" and names_files(path):
        raise InputError(f"{path} names the files of images; expected the folder that it is in")
    return kind


def _folder_kind(path: Path) -> str:
    if is_store(path):
        return "store"
    names = {entry.name for entry in path.iterdir()}
    if names & {"dataset_dict.json", "dataset_info.json", "state.json"}:
        return "huggingface"
    endings = {Path(name).suffix.lower() for name in names}
    if ".parquet" in endings:
        return "parquet"
    if ".npy" in endings:
        return "arrays"
    if ".csv" in endings or ".tsv" in endings or endings & set(IMAGE_SUFFIXES):
        return "folder"
    raise InputError(f"{path} is no store, and holds no table, image or array; expected one of these")


def prepared(
    data: str,
    options: Mapping[str, Any],
    *,
    size: int | None = None,
    encoder: bytes | None = None,
    gate: bool = False,
    announce: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[str, Path]:
    """Return how data were read, and the folder of the store that they are, or that was made of them in the cache.

    Args:
        data: a store by folder or name, or raw data.
        options: how raw data are read.
        size: of images.
        encoder: the file of what makes vectors of texts; without one it is fitted to the texts.
        gate: all rows are test rows.
        announce: called with what was read.
        progress: called with rows done and rows in all.
    """
    path = Path(data).expanduser()
    given = {name: value for name, value in options.items() if value is not None}
    if data == "digits" or not path.exists() or is_store(path):
        _refuse(data, "store", given, ())
        return "store", Path("digits") if data == "digits" else find_dataset(data)
    kind = "table" if "text" in given or holds_texts(path) else source_kind(path)
    known = list(inspect.signature(SOURCES.get(kind)).parameters)[1:]
    _refuse(data, kind, given, known)
    if "test_fraction" in known:
        given = {"test_fraction": 1.0 if gate else TEST} | given
    if kind == "table" and encoder is not None:
        given["encoder"] = encoder
    plan = plan_source(kind, path, **given)
    found = path.stat()  # another content of the same name is another store
    stamp = (str(path.resolve()), given, *((found.st_size, found.st_mtime_ns) if path.is_file() else ()))
    place = hashlib.sha256(repr(stamp).encode()).hexdigest()[:8]
    store = cache_dir() / "stores" / f"{slug(plan.name) or 'data'}-{place}"
    if announce is not None:
        announce(
            f"{len(plan.ids)} rows, {len(plan.classes)} labels{_read_as(plan)}; the store {store} is made of them"
        )
    prepare(plan, store, size=size, overwrite=True, progress=progress)
    return kind, store


def _refuse(data: str, kind: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse options that a kind of data does not have."""
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InputError(
            f"{data} is read as {kind}, which has no option --{unknown[0].replace('_', '-')}; it has "
            f"{', '.join('--' + name.replace('_', '-') for name in known) or 'none'}"
        )


def holds_texts(path: Path) -> bool:
    """Return whether a file is a table of texts, by its ending and the names of its columns."""
    return path.is_file() and is_table(path) and has_texts(path)


def _read_as(plan: DatasetPlan) -> str:
    """Return what was taken for what, of texts, and what was left out."""
    left = "".join(f"; {count} {reason} left out" for reason, count in plan.dropped.items())
    text, mark = plan.options.get("text"), plan.options.get("separator")
    parted = f", tags separated by {mark!r}" if mark and text else ""
    weights = ", ".join(f"{one:g}" for one in plan.options.get("weights", ()))
    joined = f", weights of the encoders: {weights}" if weights else ""
    return f" (text: {', '.join(text)}{parted}{joined}{left})" if text else ""


def choose_learner(
    kind: str, store: Path, *, method: str = "best", held_out: float = HELD_OUT, exact: Mapping[str, Any]
) -> Chosen:
    """Return the run that learns from all training rows of a store at once."""
    given: dict[str, Any] = {
        "benchmark": absolute_data(str(store)),
        "method": method,
        "stream": {"tasks": 1, "negatives": "all"},
        "held_out": held_out or None,
    }
    config = resolve(given=given)
    if config.model.head == "exact" or config.committee:
        config = resolve(given={**given, "exact": dict(exact)})
    return Chosen(kind, store, config)


def learn(chosen: Chosen, out: Path, *, overwrite: bool = False, callback: Callback | None = None) -> Result:
    """Learn, or go on where the same call was stopped."""
    if not overwrite and files.is_run(out) and not files.is_finished(out):
        if files.read_config(out) != chosen.config:
            raise InputError(
                f"--out {out} holds a run of other data or settings that was stopped; go on with: mlcl resume {out}, "
                "or add --overwrite to begin anew"
            )
        return resume(out, callback=callback)
    return run(chosen.config, out=out, overwrite=overwrite, callback=callback)


def quality_line(folder: str | Path) -> str:
    """Return Macro-AUC, mAP and Brier score of a finished run on the rows that it did not learn from."""
    path = Path(folder)
    return describe_quality(files.read_result(path), rows=_rows(path))


def describe_quality(result: Result, *, rows: int) -> str:
    """Return the line; without rows that were held out nothing is known, and it says so."""
    auc, precision = result.values["pooled_macro_auc"], result.values["pooled_map"]
    if not rows or not math.isfinite(auc):
        return f"{len(result.classes)} labels; no rows were held out, so how good it is was not measured"
    found = f"{len(result.classes)} labels: Macro-AUC {auc:.1f}, mAP {precision:.1f}"
    measured = result.calibration or {}
    brier, prior = measured.get("brier"), measured.get("brier_prior")
    if isinstance(brier, float) and isinstance(prior, float):
        found += f", Brier score {brier:.4f} (the share of each label alone: {prior:.4f})"
        found += "; " * (brier > prior) + not_calibrated(measured)
    return f"{found}, on {rows:,} rows that were not learnt from"


def _rows(path: Path) -> int:
    """Return the number of test rows."""
    shape = files.read_data_record(path).get("test")
    return shape[0] if isinstance(shape, list) and shape and type(shape[0]) is int else 0
