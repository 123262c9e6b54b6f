"""The folder in which a tagger grows out of shards: its feature map, the parts counted so far, and the tagger.

| file | what |
|---|---|
| ``begun.safetensors`` | fixed once a shard is counted: feature map, columns, parameters of the tagger |
| ``parts/KEY.safetensors`` | sums of some shards that are not in the tagger yet |
| ``tagger.safetensors`` | the tagger, with the record of every shard in it: replaced whole when all are counted |

A shard is in the tagger, or in one part, or it is not counted: there is no other state, so no moment at which a
process may not be killed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.arrays import ENDING
from mlcl.datasets.shards import ShardColumns
from mlcl.errors import InputError
from mlcl.exact import Learner
from mlcl.exact.digits import Seen
from mlcl.exact.held_rows import HeldRows
from mlcl.exact.moments import Moments
from mlcl.exact.parts import Part
from mlcl.files import LOCK, TEMPORARY, foreign_names, own_folder, remove_own
from mlcl.sklearn.exact_saving import Beside, read_exact_beside, read_exact_header, write_exact
from mlcl.sklearn.shard_parts import OWN, Counted, read_counted

BEGUN, TAGGER, PARTS = "begun.safetensors", "tagger.safetensors", "parts"


@dataclass(frozen=True, eq=False)
class Begun:
    """What is fixed before the first shard is counted.

    Attributes:
        learner: the feature map, with no rows.
        params: of the tagger.
        columns: which columns are read.
        kind: the type of the numbers.
        width: how many a vector has.
        group: shards of so many bytes are counted in one go.
        first: the shard whose first rows determined the feature map.
        held_out: the share of the rows that are held out.
        usual: the size of columns over these rows; None in folders of version 0.1.
    """

    learner: Learner
    params: dict[str, Any]
    columns: ShardColumns
    kind: str
    width: int
    group: int
    first: str
    usual: Seen | None = None
    held_out: float = 0.0


def require_own(out: Path, *, overwrite: bool) -> None:
    """Make the folder, or refuse one that holds something else; with ``overwrite`` what would lose it."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file, but a folder to write was expected")
    names = [entry.name for entry in out.iterdir()] if out.is_dir() else []
    held = {name for name in names if name != LOCK and not TEMPORARY.fullmatch(name)}
    other = foreign_names(out / PARTS, OWN)
    if not held & {BEGUN, TAGGER, PARTS} or (overwrite and not _is_ours(out)):
        other += sorted(held - {PARTS})
    if other:
        raise InputError(f"{out} holds other files, such as {other[0]}; choose another folder")
    out.mkdir(parents=True, exist_ok=True)


def clear(out: Path, *, overwrite: bool) -> None:
    """Make the folder of parts, in a folder of this process; with ``overwrite`` remove what was learnt there."""
    if overwrite:
        remove_own(out / PARTS, OWN)
        for name in (TAGGER, BEGUN):
            (out / name).unlink(missing_ok=True)
    own_folder(out / PARTS)


def _is_ours(out: Path) -> bool:
    """Return whether a file of a folder is what its name says, so that the others are what theirs say."""
    for path in (out / BEGUN, out / TAGGER):
        with contextlib.suppress(InputError):
            read_exact_header(path)
            return True
    return False


def refuse_versions(out: Path) -> None:
    """Refuse a tagger that has later versions: these began from it, so it must not change."""
    if (out / "versions").exists():
        raise InputError(
            f"{out} has later versions, which began from it as it is; learn more with: mlcl update {out} --data STORE"
        )


def holds_counts(out: Path) -> bool:
    """Return whether any shard was counted."""
    return (out / TAGGER).exists() or any((out / PARTS).glob(f"*{ENDING}"))


def write_begun(out: Path, begun: Begun) -> None:
    """Write what is fixed."""
    header = {
        "columns": asdict(begun.columns),
        **{name: getattr(begun, name) for name in ("kind", "width", "group", "first", "held_out")},
    }
    write_exact(
        out / BEGUN,
        begun.learner,
        params=begun.params,
        classes=[],
        feature_names=None,
        overwrite=True,
        beside=Beside(header, {} if begun.usual is None else _seen_arrays(begun.usual)),
    )


def _seen_arrays(seen: Seen) -> dict[str, NDArray[np.float64]]:
    return {"squares": seen.squares, "count": np.array([seen.count])}


def _read_seen(arrays: Mapping[str, NDArray[Any]], dimension: int) -> Seen | None:
    if "squares" not in arrays:
        return None
    squares, count = arrays["squares"], arrays["count"]
    fits = all(one.dtype == np.float64 and (one >= 0).all() for one in (squares, count))
    if not fits or squares.shape != (dimension,) or count.shape != (1,):
        raise ValueError("the sizes of its columns do not fit")
    return Seen(squares, float(count[0]))


def read_begun(out: Path) -> Begun | None:
    """Return what was fixed; None if nothing was yet."""
    path = out / BEGUN
    if not path.exists():
        return None
    learner, params, _, _, beside = read_exact_beside(path)
    try:
        if beside is None:
            raise KeyError("beside")
        header = beside.header
        return Begun(
            learner,
            params,
            ShardColumns(**header["columns"]),
            str(header["kind"]),
            int(header["width"]),
            int(header["group"]),
            str(header["first"]),
            _read_seen(beside.arrays, learner.features.dimension),
            float(header.get("held_out", 0.0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not of `mlcl learn`, or corrupt: {error}") from None


def write_tagger(
    out: Path, learner: Learner, part: Part, counted: Sequence[Counted], params: Mapping[str, Any]
) -> Path:
    """Replace the tagger and its record of shards in one step.

    Args:
        out: the folder.
        learner: with the feature map.
        part: the sums of all shards.
        counted: all shards.
        params: of the tagger.
    """
    rest = part.rest
    header = {"shards": [asdict(one) for one in counted], "rest": "some"}
    arrays: dict[str, Any] = {}
    if rest is part.sums.total:  # the usual case: every row was annotated for every label
        header["rest"] = "all"
    elif not rest.count:
        header["rest"] = "none"
    else:
        arrays = Part((), _alone(rest)).arrays()
    arrays |= part.held.arrays()
    path = out / TAGGER
    write_exact(
        path,
        Learner(learner.features, part.without_rest()),
        params=params,
        classes=list(part.names),
        feature_names=None,
        overwrite=True,
        beside=Beside(header, arrays),
    )
    return path


def read_tagger(out: Path) -> tuple[Part, list[Counted], dict[str, Any]] | None:
    """Return the sums, the shards and the parameters of the tagger; None if there is none yet."""
    path = out / TAGGER
    if not path.exists():
        return None
    learner, params, names, _, beside = read_exact_beside(path)
    if beside is None:
        raise InputError(
            f"{path} has no record of the shards in it: it was written by something else than `mlcl learn`; "
            f"choose another folder"
        )
    try:
        kind = beside.header["rest"]
        if kind == "some":
            rest = Part.from_arrays((), beside.arrays).rest
        else:
            rest = learner.sums.total if kind == "all" else Moments.zeros(learner.sums.dimension)
        counted = read_counted(beside.header["shards"])
        held = HeldRows.from_arrays(beside.arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is corrupt: {error}") from None
    return Part.of([str(name) for name in names], learner.sums, rest, held), counted, params


def _alone(moments: Moments) -> Any:
    from mlcl.exact import Sums

    return Sums(moments, (0,), (moments,), (Moments.zeros(moments.dimension),))
