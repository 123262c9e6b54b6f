"""``mlcl learn``: an exact tagger from Parquet files of vectors and tags, on any number of workers."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from mlcl.cli.messages import fail, note, say
from mlcl.cli.progress import progress_shown
from mlcl.cli.verbs import verb_parser
from mlcl.runs.durations import measured
from mlcl.sklearn.shards import Stopped, learn_shards
from mlcl.training.launching import endings


def main(arguments: list[str]) -> int:
    """Learn: ``mlcl learn --data 'DIR/*.parquet' --out DIR2 [--engine local | ray] [--jobs N]``."""
    parser = verb_parser(
        "learn",
        "Learn an exact tagger (mlcl.sklearn.ExactTagger) from Parquet files of vectors and tags, in one pass and "
        "bounded memory. Stopped at any moment, the same command goes on; with more files it adds these. Every file "
        "is counted exactly once.",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="ADDRESS",
        help="Parquet files, folders of them, globs, or addresses such as s3://bucket/*.parquet",
    )
    parser.add_argument(
        "--method",
        choices=("exact",),
        default="exact",
        help="the method: one whose state is a sum over rows (default: exact)",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="processes of this machine, or a Ray cluster (default: local)",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="workers (default: one per core)")
    parser.add_argument(
        "--address", help="of a Ray cluster, for --engine ray (default: start one on this machine)"
    )
    parser.add_argument(
        "--vectors",
        metavar="COLUMN",
        help="lists of numbers (default: features, embedding, vector or x)",
    )
    parser.add_argument(
        "--tags",
        metavar="COLUMN",
        help="lists of names, or texts a|b (default: labels, label, tags or classes)",
    )
    parser.add_argument(
        "--annotated",
        metavar="COLUMN",
        help="the labels that a row was annotated for (default: annotated if it is there, else all labels)",
    )
    parser.add_argument("--separator", metavar="TEXT", help="between the names in a text (default: |)")
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
        help="longer vectors are projected to N principal components of the first shard (default: 256)",
    )
    parser.add_argument("--overwrite", action="store_true", help="begin anew: remove what was learnt in DIR")
    parser.add_argument("--quiet", action="store_true", help="print the tagger's path only")
    given = vars(parser.parse_args(arguments))
    quiet = given.pop("quiet")
    del given["method"]  # there is one
    again = shlex.join(["mlcl", "learn", *(word for word in arguments if word != "--overwrite")])
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
    say(made.path)
    return 0


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
