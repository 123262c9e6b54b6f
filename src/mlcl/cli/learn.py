"""``mlcl learn``: a tagger from labelled data of any kind: the front door for somebody who has data and tags."""

from __future__ import annotations

import argparse
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from mlcl.cli.messages import fail, note, say
from mlcl.cli.progress import progress_shown
from mlcl.cli.verbs import verb_parser
from mlcl.engines.launching import endings
from mlcl.errors import InputError, check_int, check_number
from mlcl.runs.durations import measured
from mlcl.sklearn.shards import Stopped, learn_shards

HELD_OUT = 0.1
OF_SHARDS = ("engine", "jobs", "address", "vectors", "annotated", "dimensions", "unlabelled")
"""Options that only shards have."""
OF_TEXTS = ("text", "id", "group", "encoder")


def main(arguments: list[str]) -> int:
    """Learn: ``mlcl learn DATA... --out DIR``."""
    parser = verb_parser(
        "learn",
        "Learn a tagger from labelled data, and say how good it is on rows that were held out. DATA is a store, a "
        "folder of images with a CSV, a table of texts (.csv, .jsonl, .parquet), arrays (.npz, .mat), an ARFF file, or "
        "Parquet files of vectors and tags, of any number: these are counted in one pass and bounded memory, each "
        "exactly once, and more may be added by the same command. Stopped at any moment, the same command goes on. DIR "
        "is a tagger: mlcl predict, serve, update, thresholds, report, versions, forget and card take it.",
    )
    _add_options(parser)
    given = vars(parser.parse_args(arguments))
    given["data"] = [*given.pop("more"), *(given["data"] or [])]
    if not given["data"]:
        raise InputError("mlcl learn: the following arguments are required: DATA.")
    check_number("--held_out", given["held_out"], high=0.5)
    if given["jobs"] is not None:
        check_int("--jobs", given["jobs"], 1)
    again = shlex.join(["mlcl", "learn", *(word for word in arguments if word != "--overwrite")])
    texts = given["text"] or _is_texts(given["data"])
    if not texts and _are_shards(given["data"]):
        return _learn_shards(given, again=again)
    return _learn_store(given)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "more", nargs="*", metavar="DATA", help="files, folders, globs or addresses such as s3://..."
    )
    parser.add_argument("--data", nargs="+", metavar="DATA", help="the same")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--held_out",
        type=float,
        default=HELD_OUT,
        metavar="SHARE",
        help="of the rows, for probabilities, thresholds and quality; 0: none (default: %(default)s)",
    )
    parser.add_argument(
        "--method",
        metavar="NAME",
        help="see mlcl ls methods (default: best, which fits the kind of data: exact on vectors)",
    )
    add_data_options(parser)
    parser.add_argument(
        "--encoder",
        metavar="NAME",
        help="of texts: words, minilm, wordllama, a folder, or several, such as words+minilm (default: words)",
    )
    parser.add_argument("--size", type=int, metavar="N", help="of images: side in pixels (default: 224)")
    parser.add_argument(
        "--vectors",
        metavar="COLUMN",
        help="of Parquet files: lists of numbers (default: features, embedding, vector or x)",
    )
    parser.add_argument(
        "--unlabelled",
        type=float,
        metavar="U",
        help="weight, 0 to 1, of rows that were not annotated for a label, as its negatives (default: 1)",
    )
    parser.add_argument(
        "--dimensions",
        type=int,
        metavar="N",
        help="longer vectors are projected to N principal components of the first rows (default: 256)",
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        help="of Parquet files: processes of this machine, or a Ray cluster (default: local)",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="workers (default: one per core)")
    parser.add_argument(
        "--address", help="of a Ray cluster, for --engine ray (default: start one on this machine)"
    )
    parser.add_argument("--overwrite", action="store_true", help="begin anew: replace what was learnt in DIR")
    parser.add_argument("--quiet", action="store_true", help="print the folder's path only")


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how data that are no store are read."""
    parser.add_argument("--tags", metavar="COLUMN", help="of tags (default: labels, label, tags or classes)")
    parser.add_argument("--separator", metavar="TEXT", help="between the names in a text of tags")
    parser.add_argument("--x", metavar="NAME", help="of arrays in one file: the inputs")
    parser.add_argument("--y", metavar="NAME", help="of arrays in one file: the labels")
    parser.add_argument(
        "--text",
        metavar="COLUMNS",
        help="of texts: their columns, with commas between (default: those of usual names)",
    )
    parser.add_argument(
        "--id", metavar="COLUMN", help="of texts: names of the rows (default: id, key, name or package)"
    )
    parser.add_argument(
        "--annotated",
        metavar="COLUMN",
        help="of texts and Parquet files: the labels that a row was annotated for (default: annotated, or all)",
    )
    parser.add_argument(
        "--group",
        metavar="COLUMN",
        help="of texts: rows with the same cell, such as near copies, are never split",
    )


def as_store(
    data: str,
    given: Mapping[str, Any],
    *,
    size: int | None,
    encoder: bytes | None = None,
    gate: bool = False,
    announce: Callable[[str], None] | None = None,
) -> tuple[str, Path]:
    """Return how data are read, and the store that they are or that was made of them; ``given`` has the options."""
    from mlcl.taggers.learning import prepared

    options = {"labels": given["tags"]} | {
        name: given.get(name) for name in ("separator", "x", "y", "annotated", *OF_TEXTS)
    }
    with progress_shown("reading", quiet=announce is None) as progress:
        return prepared(
            data, options, size=size, encoder=encoder, gate=gate, announce=announce, progress=progress
        )


def _is_texts(data: list[str]) -> bool:
    from mlcl.datasets.table import has_texts, is_table

    path = Path(data[0]).expanduser()
    return len(data) == 1 and path.is_file() and is_table(path) and has_texts(path)


def _are_shards(data: list[str]) -> bool:
    """Return whether data are counted shard by shard: several files, an address, a glob, or Parquet without images."""
    if len(data) > 1 or "://" in data[0] or any(mark in data[0] for mark in "*?["):
        return True
    path = Path(data[0]).expanduser()
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or files[0].suffix.lower() != ".parquet":
        return False
    from mlcl.datasets.shards import has_images

    return not has_images(str(files[0]))


def _learn_shards(given: dict[str, Any], *, again: str) -> int:
    quiet, method = given.pop("quiet"), given.pop("method")
    if method not in (None, "exact", "best"):
        raise InputError(
            f"--method is {method!r}; expected exact for Parquet files, which are counted: make a store of them for "
            "other methods (mlcl data prepare parquet)"
        )
    for name in ("size", "x", "y", *OF_TEXTS):
        if given.pop(name) is not None:
            raise InputError(f"--{name} was given, but Parquet files of vectors have no such option")
    given["engine"] = given["engine"] or "local"
    try:
        with _terminable(), progress_shown("counting", quiet=quiet) as progress:
            made = learn_shards(**given, progress=progress)
    except Stopped as error:
        return fail(f"{error}; what was counted is kept; to go on: {again}", 3)
    except KeyboardInterrupt:
        return fail(f"interrupted; what was counted is kept; to go on: {again}", 3)
    if not quiet:
        for copy, first in made.duplicates.items():
            note(f"{copy} has the content of {first}: counted once")
        note(
            f"{made.shards} shards ({made.new} new), {made.rows:,} rows, {made.classes} labels; "
            f"done in {measured(made.seconds)}"
        )
        say(made.quality)
    say(given["out"])
    return 0


def _learn_store(given: dict[str, Any]) -> int:
    """Learn by a run; torch is loaded here, and not where shards are counted."""
    from mlcl.cli.run import follow
    from mlcl.taggers.learning import choose, learn, quality_line

    if len(given["data"]) > 1:
        raise InputError(
            f"{given['data'][1]}: several files were given; expected Parquet files, or one of other kinds"
        )
    for name in OF_SHARDS:
        if name not in ("unlabelled", "dimensions", "jobs", "annotated") and given[name] is not None:
            raise InputError(f"--{name} was given, but only Parquet files of vectors have it")
    quiet, out = given["quiet"], given["out"]
    announce = None if quiet else note
    kind, store = as_store(given["data"][0], given, size=given["size"], announce=announce)
    exact = {name: given[name] for name in ("unlabelled", "dimensions") if given[name] is not None}
    chosen = choose(
        kind,
        store,
        method=given["method"] or "best",
        held_out=given["held_out"],
        exact={"unlabelled": 1.0} | exact,
    )
    if announce is not None:
        announce(str(chosen))
    code = follow(
        lambda callback: learn(chosen, out, overwrite=given["overwrite"], callback=callback),
        out,
        quiet=quiet,
        summary=lambda: quality_line(out),
    )
    return code


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block like Ctrl-C, so that workers are stopped and the way on is shown."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        note("stopping")
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in endings()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
