"""``mlcl learn``, ``update`` and ``extend``: a tagger from labelled data, and more data for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from mlcl.cli.messages import again, fail, note, say
from mlcl.cli.progress import progress_shown
from mlcl.cli.verbs import Settings
from mlcl.engines.launching import endings
from mlcl.errors import InputError, check_int, check_number
from mlcl.runs.durations import measured
from mlcl.sklearn.shards import Stopped, learn_shards

if TYPE_CHECKING:
    from mlcl.config.schema import Config


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How data are read that are no store.

    Args:
        tags (COLUMN): of tags (default: labels, label, tags or classes).
        separator (TEXT): between the names in a text of tags.
        annotated (COLUMN): of texts and Parquet files: the labels that a row was annotated for (default: annotated, or
            all).
        x (NAME): of arrays in one file: the inputs.
        y (NAME): of arrays in one file: the labels.
        text (COLUMNS): of texts: their columns, with commas between (default: those of usual names).
        id (COLUMN): of texts: names of the rows (default: id, key, name or package).
        group (COLUMN): of texts: rows with the same cell, such as near copies, are never split.
    """

    tags: str | None = None
    separator: str | None = None
    annotated: str | None = None
    x: str | None = None
    y: str | None = None
    text: str | None = None
    id: str | None = None
    group: str | None = None


@dataclass(frozen=True, kw_only=True)
class OfShards:
    """How Parquet files of vectors are counted.

    Args:
        vectors (COLUMN): of Parquet files: lists of numbers (default: features, embedding, vector or x).
        unlabelled (U): weight, 0 to 1, of rows that were not annotated for a label, as its negatives (default: 1).
        dimensions (N): longer vectors are projected to N principal components of the first rows (default: 2048).
        goal: what the strength of learning is chosen for: auc, ap (average precision), or the mean of both (default).
        form: shared: labels share one covariance; full: one per label; auto (default): full up to 64 dimensions.
        spread (S): weight, 0 to 1, of how positives vary beside negatives (default: by the goal).
        engine: of Parquet files: processes of this machine, or a Ray cluster (default: local).
        jobs (N): workers (default: one per core).
        address (ADDRESS): of a Ray cluster, for --engine ray (default: start one on this machine).
    """

    vectors: str | None = None
    unlabelled: float | None = None
    dimensions: int | None = None
    goal: Literal["auc", "ap", "both"] | None = None
    form: Literal["shared", "full", "auto"] | None = None
    spread: float | None = None
    engine: Literal["local", "ray"] | None = None
    jobs: int | None = None
    address: str | None = None


def learn(
    operands: list[str] = [],  # noqa: B006
    *,
    data: list[str] = [],  # noqa: B006
    out: Path,
    held_out: float = 0.1,
    method: str | None = None,
    reading: Reading,
    encoder: str | None = None,
    size: int | None = None,
    counting: OfShards,
    overwrite: bool = False,
    quiet: bool = False,
) -> int:
    """Learn a tagger from labelled data, and say how good it is on rows that were held out.

    DATA is a store, a folder of images with a CSV, a table of texts (.csv, .jsonl, .parquet), arrays (.npz, .mat), an
    ARFF file, or Parquet files of vectors and tags, of any number: these are counted in one pass and bounded memory,
    each exactly once, and more may be added by the same command. Stopped at any moment, the same command goes on. DIR
    is a tagger: mlcl predict, serve, update, thresholds, report, versions, forget and card take it.

    Args:
        operands (DATA): files, folders, globs or addresses such as s3://...
        data (DATA): the same.
        out (DIR): the folder to write.
        held_out (SHARE): of the rows, for probabilities, thresholds and quality; 0: none.
        reading: of data that are no store.
        counting: of Parquet files.
        method (NAME): see mlcl ls methods (default: best, which fits the kind of data: exact on vectors).
        encoder (NAME): of texts: words, minilm, wordllama, a folder, or several, such as words+minilm (default: words).
        size (N): of images: side in pixels (default: 224).
        overwrite: begin anew: replace what was learnt in DIR.
        quiet: print the folder's path only.
    """
    files = [*operands, *data]
    if not files:
        raise InputError("mlcl learn: the following arguments are required: DATA.")
    check_number("--held_out", held_out, high=0.5)
    if counting.jobs is not None:
        check_int("--jobs", counting.jobs, 1)
    if not reading.text and not _is_texts(files) and _are_shards(files):
        of_others = {"size": size, "encoder": encoder} | {
            name: getattr(reading, name) for name in ["x", "y", "text", "id", "group"]
        }
        _refuse(of_others, "Parquet files of vectors have no such option")
        if method not in (None, "exact", "best"):
            raise InputError(
                f"--method is {method!r}; expected exact for Parquet files, which are counted: make a store of them "
                "for other methods (mlcl data prepare parquet)"
            )
        return _learn_shards(files, out, held_out, reading, counting, overwrite=overwrite, quiet=quiet)
    if len(files) > 1:
        raise InputError(
            f"{files[1]}: several files were given; expected Parquet files, or one of other kinds"
        )
    of_shards = {name: getattr(counting, name) for name in ("engine", "address", "vectors")}
    _refuse(of_shards, "only Parquet files of vectors have it")
    from mlcl.cli.run import follow  # torch is loaded here, and not where shards are counted
    from mlcl.taggers import learning

    announce = None if quiet else note
    options = asdict(reading) | {"encoder": encoder}
    kind, store = as_store(files[0], options, size=size, announce=announce)
    exact = {name: getattr(counting, name) for name in ("unlabelled", "dimensions", "goal", "form", "spread")}
    chosen = learning.choose_learner(
        kind,
        store,
        method=method or "best",
        held_out=held_out,
        exact={"unlabelled": 1.0} | {name: value for name, value in exact.items() if value is not None},
    )
    if announce is not None:
        announce(str(chosen))
    return follow(
        lambda callback: learning.learn(chosen, out, overwrite=overwrite, callback=callback),
        out,
        quiet=quiet,
        summary=lambda: learning.quality_line(out),
    )


def _refuse(options: dict[str, object], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"--{name} was given, but {why}")


def _learn_shards(
    files: list[str],
    out: Path,
    held_out: float,
    reading: Reading,
    counting: OfShards,
    *,
    overwrite: bool,
    quiet: bool,
) -> int:
    columns = {"tags": reading.tags, "separator": reading.separator, "annotated": reading.annotated}
    options = asdict(counting) | columns | {"engine": counting.engine or "local"}
    try:
        with _terminable(), progress_shown("counting", quiet=quiet) as progress:
            made = learn_shards(
                files, out, held_out=held_out, overwrite=overwrite, progress=progress, **options
            )
    except (Stopped, KeyboardInterrupt) as error:
        return fail(f"{str(error) or 'interrupted'}; what was counted is kept; to go on: {again()}", 3)
    if not quiet:
        for copy, first in made.duplicates.items():
            note(f"{copy} has the content of {first}: counted once")
        note(
            f"{made.shards} shards ({made.new} new), {made.rows:,} rows, {made.classes} labels; "
            f"done in {measured(made.seconds)}"
        )
        say(made.quality)
    say(out)
    return 0


def as_store(
    data: str,
    options: dict[str, str | None],
    *,
    size: int | None,
    encoder: bytes | None = None,
    gate: bool = False,
    announce: Callable[[str], None] | None = None,
) -> tuple[str, Path]:
    """Return how data are read, and the store that they are or that was made of them."""
    from mlcl.taggers.learning import prepared

    options = {"labels": options["tags"]} | {name: value for name, value in options.items() if name != "tags"}
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


def update(
    folder: Path,
    *,
    data: str,
    gate: str | None = None,
    allow: float | None = None,
    gate_groups: Path | None = None,
    even_unlike: bool = False,
    out: Path | None = None,
    reading: Reading,
    overwrite: bool = False,
    quiet: bool = False,
    settings: Settings,
) -> int:
    """Learn from more data: more rows of labels that a tagger knows, new labels, or both.

    The result is a new version of it, in DIR/versions, and becomes the current one: the one that `mlcl predict DIR`,
    `serve` and the other commands use; if another version came into use meanwhile, it is kept and not taken into use
    (exit code 4). What DIR holds stays as it is; `mlcl versions DIR` lists all versions and `mlcl rollback DIR` goes
    back. Settings of training and checkpoints override those of the run.

    Args:
        folder (DIR): the folder of a tagger; an update begins from its current version.
        data (DATA): what to learn from: a store, or anything that mlcl learn takes.
        gate (DATA): compare before and after on the test rows of this, or on all rows of a table; the new version is
            not taken into use (exit code 4) if a label, or the mean over labels (AUC, average precision, Brier skill,
            F1), lost more than allowed, beyond the noise of the test rows. It is compared with the version in use and
            with the first one, or that of `mlcl versions DIR --pin N`.
        allow (POINTS): points (x 100) of AUC that a label, or a mean over labels, may lose, or twice as many of Brier
            skill (default: 1).
        gate_groups (FILE.csv): with the columns id and group: rows of the gate that depend on one another, such as
            images of one burst, have the same group and count as one.
        even_unlike: learn also where the labels of the new rows do not fit what was learnt before, as if they were
            shuffled; otherwise nothing is learnt then (exit code 4).
        out (DIR2): write a run folder of its own instead of a version of DIR; what is current does not change.
        reading: of data that are no store.
        overwrite: replace DIR2 if it holds a run.
        quiet: print the folder's path only.
        settings: of training.
    """
    from mlcl.cli.releasing import finish
    from mlcl.datasets import load_dataset
    from mlcl.runs.versions import claimed
    from mlcl.taggers.gate import ALLOW, check_gate, unlike

    config = _more_config(folder, data, reading, settings)
    judged = None
    if gate_groups is not None and gate is None:
        raise InputError("--gate-groups was given without --gate; expected both.")
    if gate is not None:
        rows = _store(folder, gate, reading, gate=True)
        judged = check_gate(folder, rows, allow=ALLOW if allow is None else allow, groups=gate_groups)
    if not even_unlike and (found := unlike(folder, load_dataset(config.data))):
        return fail(f"--data {data}: {found}; nothing was learnt; to learn it nevertheless: --even-unlike", 4)
    with claimed(folder, out) as made:
        code = _follow_update(folder, made, quiet=quiet, config=config, gate=judged, overwrite=overwrite)
    return code or finish(made, quiet=quiet)


def extend(
    folder: Path,
    *,
    data: str,
    out: Path | None = None,
    reading: Reading,
    overwrite: bool = False,
    quiet: bool = False,
    settings: Settings,
) -> int:
    """Train a finished run on the classes of data that it does not know yet, as one more task.

    DIR stays as it is; weights, stored samples and constants come from it. Settings of training and checkpoints
    override those of the run. `mlcl update` learns more rows of known labels too, and keeps versions.

    Args:
        folder (DIR): the folder of a finished run.
        data (DATA): what has the new labels: a store, or anything that mlcl learn takes.
        out (DIR2): folder to write (default: DIR-extended).
        reading: of data that are no store.
        overwrite: replace DIR2 if it holds a run.
        quiet: print the folder's path only.
        settings: of training.
    """
    from mlcl.runs.folder import free_folder

    config = _more_config(folder, data, reading, settings)
    made = out or free_folder(folder.with_name(f"{folder.name}-extended"))
    return _follow_update(folder, made, quiet=quiet, config=config, known=False, overwrite=overwrite)


def _follow_update(folder: Path, out: Path, *, quiet: bool, **options: Any) -> int:
    from mlcl.cli.run import follow
    from mlcl.runs import continuing

    return follow(
        lambda callback: continuing.update(folder, out=out, callback=callback, **options), out, quiet=quiet
    )


def _more_config(folder: Path, data: str, reading: Reading, settings: Settings) -> Config:
    """Return the config of a run that goes on with more data, with settings that override its own."""
    from mlcl.cli.settings import config_of
    from mlcl.runs import folder as files
    from mlcl.runs.versions import current_folder
    from mlcl.training.portable import require_portable

    now = current_folder(folder)
    files.require_finished(now)
    files.read_config(now)  # loads the plugins that the run was made with
    config = config_of(str(now / files.CONFIG), {**settings, "data": str(_store(now, data, reading))})
    require_portable(config.train)
    return config


def _store(folder: Path, data: str, reading: Reading, *, gate: bool = False) -> Path:
    """Return the store that data are, or that is made of them, as the tagger takes them."""
    from mlcl.runs import folder as files
    from mlcl.runs.versions import current_folder

    now = current_folder(folder)
    result = files.read_result(now)
    shape = result.input_shape or ()
    size = shape[-1] if len(shape) > 1 else None
    encoder = files.read_encoder(now, result)
    return as_store(data, asdict(reading), size=size, encoder=encoder, gate=gate)[1]


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
