"""Probabilities and tags of new inputs: images, folders, arrays and stores in, a table out."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets import decode_image, open_store, read_ids
from mlcl.datasets.base import as_inputs
from mlcl.datasets.images import IMAGE_SUFFIXES
from mlcl.datasets.npy import map_npy, read_npz
from mlcl.datasets.store import is_store
from mlcl.datasets.table import find_columns, is_table, numbered_lines, read_table, vectors
from mlcl.datasets.trees import MAX_FILE_BYTES
from mlcl.errors import InputError
from mlcl.files import read_bounded, write_bytes, write_text
from mlcl.models.provenance import check_encoder
from mlcl.runs.continuing import same_encoder
from mlcl.runs.trained import TEXTS, Trained, load_trained
from mlcl.texts import csv_line, csv_text, inert
from mlcl.training.batches import slices

ARRAYS = ("inputs", "x", "x_test")
"""Names under which an .npz may hold its inputs."""


@dataclass(frozen=True)
class Scores:
    """Scores of some inputs: ``values[n, k]`` for input ``ids[n]`` and class ``classes[k]``.

    Attributes:
        ids: names of the inputs.
        classes: names of the classes.
        values: probabilities, or logits, ``[n, K]``.
        thresholds: the probability of each class above which it is a tag, ``[K]``; None for logits.
        doubts: which classes are unsure, bool ``[n, K]`` (`mlcl.metrics.Thresholds.unsure`); None: not known.
    """

    ids: tuple[str, ...]
    classes: tuple[str, ...]
    values: NDArray[np.float32]
    thresholds: NDArray[np.float64] | None = None
    doubts: NDArray[np.bool_] | None = None

    def tags(self) -> list[list[str]]:
        """Return the names of the classes of each input that are above their threshold, the surest first.

        >>> Scores(("a.jpg",), ("cat", "dog"), np.array([[0.6, 0.9]], np.float32), np.array([0.5, 0.4])).tags()
        [['dog', 'cat']]
        """
        if self.thresholds is None:
            raise InputError("logits have no thresholds; expected probabilities")
        return self._named(self.values > self.thresholds)

    def unsure(self) -> list[list[str]]:
        """Return the names of the classes of each input that are more likely than not and no tags, the surest first."""
        if self.doubts is None:
            raise InputError("only probabilities with thresholds that are certified say what is unsure")
        return self._named(self.doubts)

    def _named(self, above: NDArray[np.bool_]) -> list[list[str]]:
        order = np.argsort(-self.values, axis=1, kind="stable")
        return [[self.classes[k] for k in row if chosen[k]] for row, chosen in zip(order, above, strict=True)]


def predict(
    folder: str | Path, inputs: str | Path, *, logits: bool = False, text: str | None = None
) -> Scores:
    """Score inputs with the network of a finished run.

    Args:
        folder: the folder of the run.
        inputs: an image; a folder of images (all below it, by name); an .npy (with names in ids.npy beside it), or an
            .npz with ``inputs``, ``x`` or ``x_test`` and ``ids``: uint8 [n, C, H, W] or numbers [n, D]; a table of
            vectors (CSV, JSON lines, Parquet); or the folder of a store (all its rows). For a tagger of texts a table
            of them, a .txt with one per line, or ``-``: the lines of standard input.
        logits: the network's outputs as they are, instead of probabilities (docs/howto/probabilities.md).
        text: names of a table's columns of text, with commas between them.
    """
    trained = load_trained(folder)
    ids, batches = read_inputs(Path(inputs), trained, text=text)
    score = trained.logits if logits else trained.probabilities
    found = np.concatenate([score(batch) for batch in batches])
    if logits:
        return Scores(tuple(ids), trained.classes, found)
    chosen = trained.thresholds
    doubts = chosen.unsure(found) if chosen.goal is not None and chosen.goal.certified else None
    return Scores(tuple(ids), trained.classes, found, chosen.values, doubts)


def read_groups(inputs: Path, ids: Sequence[str], group: str) -> list[str]:
    """Return the group of each input: rows that depend on one another, such as images of one burst.

    Args:
        inputs: what is scored.
        ids: their names.
        group: a column of ``inputs``, if that is a table; or a table with the columns ``id`` and ``group``, in which
            an input that is not named is a group of its own.
    """
    beside = Path(group)
    table = read_table(beside) if is_table(beside) else read_table(inputs) if is_table(inputs) else None
    if table is None:
        raise InputError(
            f"--group is {group!r} and {inputs} is no table; expected a .csv with the columns id and group"
        )
    missing = next(
        (n for n in (("id", "group") if is_table(beside) else (group,)) if n not in table.columns), None
    )
    if missing is not None:
        raise InputError(f"--group: {table.path} has no column {missing!r}; expected one of {table.columns}")
    if not is_table(beside):
        return table.names(group)
    named = dict(zip(table.names("id"), table.names("group"), strict=True))
    return [f"group {named[name]}" if name in named else f"input {name}" for name in ids]


def _holds_texts(path: Path, trained: Trained) -> bool:
    lines = str(path) == "-" or (path.is_file() and path.suffix.lower() == ".txt")
    return lines or (trained.encoder is not None and path.is_file() and is_table(path))


def read_texts(path: Path, *, text: str | None = None) -> tuple[list[str], list[str]]:
    """Return names and texts: the rows of a table, or the lines of a file or of standard input, which are numbered."""
    if is_table(path):
        table = read_table(path)
        columns = find_columns(table, text=text)
        texts = table.texts(columns.text)
        return table.names(columns.id), texts
    lines = list(numbered_lines(sys.stdin.buffer if str(path) == "-" else path))
    return [str(number) for number, _ in lines], [line.rstrip("\r\n") for _, line in lines]


def read_inputs(
    path: Path, trained: Trained, *, text: str | None = None
) -> tuple[list[str], Iterator[NDArray[Any]]]:
    """Return the names of all inputs, and in batches what the scorer takes of them, read as they are asked for.

    Args:
        path: of the inputs, see `predict`.
        trained: what will score them.
        text: names of a table's columns of text.
    """
    if _holds_texts(path, trained):
        encoder = trained.text_encoder
        ids, texts = read_texts(path, text=text)
        return ids, (vectors(encoder, texts[piece]) for piece in slices(len(texts), TEXTS))
    if not path.exists():
        raise InputError(f"{path} was looked for and does not exist.")
    size = trained.config.train.eval_batch_size
    if path.is_dir() and not is_store(path):
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file())
        if not files:
            raise InputError(
                f"{path} holds no image and is no store; expected one of {', '.join(IMAGE_SUFFIXES)}."
            )
        names = [file.relative_to(path).as_posix() for file in files]
        return names, _decoded(files, trained.input_shape, size)
    if path.is_dir():
        data = open_store(path)
        _check_shape(data.train.inputs, trained.input_shape, path)
        check_encoder(trained.result.features, data.origin, run=str(trained.folder), data=str(path))
        same_encoder(trained, data, str(path))
        parts = (data.train.inputs, data.test.inputs)
        return read_ids(path), (part[piece] for part in parts for piece in slices(len(part), size))
    if is_table(path):
        ids, array = read_vectors(path)
        _check_shape(array, trained.input_shape, path)
    elif path.suffix.lower() in (".npy", ".npz"):
        ids, array = _array(path, trained.input_shape)
    else:
        return [path.name], _decoded([path], trained.input_shape, size)
    return ids, (array[piece] for piece in slices(len(array), size))


def read_vectors(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    """Return the names and the vectors of a table's rows; its labels, if it has any, are not looked at."""
    table = read_table(path)
    columns = find_columns(table, needs_text=False)
    if columns.vectors is None and (columns.text or table.images is not None):
        raise InputError(f"{path} has no vectors; expected a column of them, or columns of numbers.")
    leave = (columns.tags, columns.annotated, columns.id, "split", "id")
    return table.names(columns.id), table.vectors(columns.vectors, leave=leave)


def _array(path: Path, shape: tuple[int, ...]) -> tuple[list[str], NDArray[Any]]:
    """Return the names and the inputs in a file of arrays; names are in ``ids``, or in ids.npy beside an .npy."""
    beside = path.with_name("ids.npy")
    if path.suffix.lower() == ".npy":
        found = {ARRAYS[0]: map_npy(path)}
        if beside.is_file() and beside != path:
            found["ids"] = map_npy(beside)
    else:
        found = read_npz(path, keys=(*ARRAYS, "ids"), where=str(path))
    array = next((found[name] for name in ARRAYS if name in found), None)
    if array is None:
        raise InputError(f"{path} has none of the arrays {', '.join(ARRAYS)}.")
    _check_shape(array, shape, path)  # before there is a name for each row: rows of no numbers take no bytes
    array = as_inputs(array, name=str(path))
    ids = found.get("ids", np.arange(len(array)))
    if ids.shape != (len(array),):
        raise InputError(
            f"{path} has ids of shape {ids.shape} for {len(array)} inputs; expected one per input."
        )
    return [str(one) for one in ids.tolist()], array


def _check_shape(inputs: NDArray[Any], shape: tuple[int, ...], path: Path) -> None:
    if inputs.shape[1:] != shape:
        raise InputError(
            f"{path} has inputs of shape {inputs.shape[1:]}, but the network was trained on {shape}."
        )


def _decoded(files: list[Path], shape: tuple[int, ...], size: int) -> Iterator[NDArray[np.uint8]]:
    """Decode images as a store does, one batch at a time."""
    if len(shape) != 3 or shape[1] != shape[2]:
        raise InputError(
            f"{files[0]}: the network was trained on inputs of shape {shape}, not on square images; "
            "expected arrays or a store."
        )
    return (np.stack([_decode(file, shape) for file in files[piece]]) for piece in slices(len(files), size))


def _decode(file: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    data = read_bounded(file, limit=MAX_FILE_BYTES, expected="an image")
    return decode_input(data, shape, name=str(file))


def decode_input(data: bytes, shape: tuple[int, ...], *, name: str) -> NDArray[np.uint8]:
    """Decode an image as a store does, for a network that takes square images of this shape ``(C, H, H)``."""
    found = decode_image(data, size=shape[1], name=name)
    if shape[0] == 1:  # ITU-R 601 luma, as Pillow's "L"
        grey = np.tensordot(np.array([299, 587, 114]), found.astype(np.int64), 1) / 1000
        return np.rint(grey).astype(np.uint8)[None]
    return found


def check_out(path: Path, *, suffixes: tuple[str, ...], overwrite: bool) -> None:
    """Refuse a file to write that exists, or whose name says another format."""
    if path.suffix.lower() not in suffixes:
        raise InputError(f"--out {path} ends in {path.suffix!r}; expected {' or '.join(suffixes)}.")
    if path.is_dir() or (path.exists() and not overwrite):
        raise InputError(f"--out {path} exists; choose another name, or add --overwrite.")
    if not path.parent.is_dir():
        raise InputError(f"--out {path}: the folder {path.parent} does not exist.")


def write_tags(scores: Scores, path: Path, *, spreadsheet: bool = False, unsure: bool = False) -> None:
    """Write tags as .csv: ``id`` and ``tags``, which are separated by semicolons like the cells of a line of CSV.

    Args:
        scores: the probabilities.
        path: the file.
        spreadsheet: see `mlcl.texts.csv_text`.
        unsure: write the labels that are unsure as a third column.
    """
    columns = [scores.tags(), *([scores.unsure()] if unsure else [])]
    lines = (
        [csv_line(map(inert, tags) if spreadsheet else tags, delimiter=";") for tags in own]
        for own in columns
    )
    rows = zip(scores.ids, *lines, strict=True)
    heads = ["id", "tags", "unsure"][: 1 + len(columns)]
    write_text(path, csv_text(heads, rows, spreadsheet=spreadsheet))


def write_scores(scores: Scores, path: Path, *, spreadsheet: bool = False) -> None:
    """Write scores as .csv (one row per input, ``id`` and one column per class) or .npz (ids, classes, scores).

    Args:
        scores: the scores.
        path: the file.
        spreadsheet: see `mlcl.texts.csv_text`.
    """
    if path.suffix.lower() == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, ids=np.array(scores.ids), classes=np.array(scores.classes), scores=scores.values)
        write_bytes(path, buffer.getvalue())
        return
    rows = ([name, *row] for name, row in zip(scores.ids, scores.values, strict=True))
    heads = [_id_head(scores.classes), *scores.classes]
    write_text(path, csv_text(heads, rows, spreadsheet=spreadsheet))


def _id_head(classes: Sequence[str]) -> str:
    """Return the head of the column of ids, which is that of no label."""
    head = "id"
    while head in classes:
        head = f"input_{head}"
    if head != "id":
        warnings.warn(f"a label is called 'id', so the column of ids is called {head!r}.", stacklevel=3)
    return head
