"""``mlcl data``: raw data into stores, and what is in them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from mlcl.cli.messages import again, fail, note, page, say
from mlcl.cli.progress import make_console, progress_shown
from mlcl.cli.settings import shown_default
from mlcl.cli.verbs import Settings, call, verb_parser
from mlcl.config.resolve import resolve
from mlcl.datasets import SOURCES, prepare_source
from mlcl.datasets.store import StoreInfo
from mlcl.engines.pool import EngineFailure
from mlcl.errors import InputError, nearest
from mlcl.files import disk_is_full
from mlcl.registry import read_options
from mlcl.reports import data as report
from mlcl.runs.durations import measured
from mlcl.runs.features import embed_store

USAGE = """\
usage: mlcl data prepare KIND --root PATH [--out STORE] [--size N]
       mlcl data features STORE --model MODEL [--pretrained FILE] [--out STORE2]
       mlcl data info NAME | STORE [--classes] [--figure FILE]

prepare reads raw data once into a store; features embeds a store's images with a frozen model, once;
info describes a store or a shipped benchmark.
"""


def data(words: list[str]) -> int:
    """Do ``mlcl data prepare``, ``mlcl data features`` or ``mlcl data info``."""
    if not words or words[0] in ("-h", "--help"):
        page(USAGE)
        return 0
    name, *rest = words
    if name == "prepare":
        return _prepare(rest)
    verbs: dict[str, Callable[..., int]] = {"features": features, "info": info}
    if name not in verbs:
        known = ("prepare", *verbs)
        raise InputError(
            f"unknown command 'data {name}'; known are: {', '.join(known)}.{nearest(name, known)}"
        )
    return call(f"data {name}", verbs[name], rest)


def _prepare(words: list[str]) -> int:
    """Do ``mlcl data prepare KIND`` with the options that every source has, and those of this one."""
    if not words or words[0] in ("-h", "--help"):
        kinds = "\n".join(f"  {name:12}{SOURCES.summary(name)}" for name in SOURCES.names())
        usage = "mlcl data prepare KIND --root PATH [options]; `mlcl data prepare KIND --help` shows them"
        page(f"usage: {usage}\n\nkinds:\n{kinds}\n")
        return 0
    given = vars(prepare_parser(words[0]).parse_args(words[1:]))
    quiet = given.pop("quiet")
    with progress_shown("preparing", quiet=quiet) as progress:
        made = prepare_source(
            words[0], progress=progress, announce=(lambda _: None) if quiet else note, **given
        )
    dropped = "".join(f", {count} {reason}" for reason, count in made.dropped.items() if count)
    return _say_made(made, dropped, quiet=quiet)


def prepare_parser(kind: str) -> Any:
    """Return the parser of ``mlcl data prepare KIND``."""
    source = SOURCES.get(kind)
    parser = verb_parser(f"data prepare {kind}", _of_every_source)
    parser.description = SOURCES.summary(kind)
    for option in read_options(source):
        number = next((kind for kind in (int, float) if kind.__name__ in str(option.type)), str)
        default = _share(option.default) if number is float else shown_default(option.default)
        text = option.help.rstrip(".") + (f" (default: {default})" if default else "")
        flag = f"--{option.name.replace('_', '-')}"
        parser.add_argument(flag, type=number, default=None, help=text.replace("%", "%%"))
    return parser


def _of_every_source(
    *,
    root: Path,
    out: Path | None = None,
    size: int | None = None,
    name: str | None = None,
    skip_bad: bool | str = False,
    jobs: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> None:
    """Read raw data once into a store.

    Args:
        root (PATH): the folder, file or archive to read.
        out (STORE): the store to make (default: in the cache, by name and size).
        size (N): side of the images in pixels (default: 224).
        name (NAME): what to call the dataset.
        skip_bad (FILE): count and leave out images that cannot be read, and list them in FILE, one per line with the
            reason.
        jobs (N): processes (default: one per core).
        overwrite: replace a store of other content.
        quiet: print the store's path only.
    """


def _say_made(made: StoreInfo, dropped: str, *, quiet: bool) -> int:
    """Say what a store holds, and where it is."""
    state = "was there already" if made.already_there else f"done in {measured(made.seconds)}"
    if not quiet:
        note(f"{made.name}: {made.rows} rows, {len(made.classes)} classes{dropped}; {state}")
    say(made.path)
    return 0


def features(
    store: str,
    *,
    model: str,
    pretrained: bool | str | None = None,
    resize: int | None = None,
    out: Path | None = None,
    batch_size: int = 32,
    seed: int = 0,
    engine: Literal["local", "ray"] = "local",
    jobs: int | None = None,
    address: str | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> int:
    """Embed the images of a store with a frozen model, once, so that a comparison takes minutes.

    Then: mlcl run --benchmark STORE2 --model mlp.

    Args:
        store (STORE): a store of images, by folder or name, or digits.
        model (MODEL): timm:NAME, torchvision:NAME, one of `mlcl ls models`, or a run's folder.
        pretrained (WEIGHTS): a file of weights, or a package's default weights or their name (default: random weights).
        resize (N): resize images to N x N for the model.
        out (STORE2): the store to make (default: in the cache, by both names).
        batch_size (N): images at once.
        seed (N): seed of random weights (default: 0).
        engine: this process, or a Ray cluster with one encoder per worker.
        jobs (N): encoders on Ray (default: one per GPU, or per core).
        address (ADDRESS): of a Ray cluster, for --engine ray (default: start one on this machine).
        overwrite: replace a store of other content.
        quiet: print the store's path only.
    """
    where = out or "the store"
    kept = f"what was embedded is kept; to go on: {again()}"
    try:
        with progress_shown("embedding", quiet=quiet) as progress:
            made = embed_store(
                store,
                model=model,
                pretrained=pretrained,
                resize=resize,
                out=out,
                batch_size=batch_size,
                seed=seed,
                engine=engine,
                jobs=jobs,
                address=address,
                overwrite=overwrite,
                progress=progress,
            )
    except (EngineFailure, KeyboardInterrupt) as error:
        return fail(f"{str(error) or 'interrupted'}; {kept}", 3)
    except OSError as error:
        if not disk_is_full(error):
            raise
        return fail(f"{error.filename or where} could not be written: {error.strerror}; {kept}", 3)
    return _say_made(made, "", quiet=quiet)


def _share(value: float | None) -> str:
    """Return a default share as people write it.

    >>> _share(1 / 3), _share(0.25)
    ('1/3', '0.25')
    """
    return "1/3" if value == 1 / 3 else shown_default(value)


def info(
    name: str,
    *,
    classes: bool = False,
    figure: Path | None = None,
    overwrite: bool = False,
    settings: Settings,
) -> int:
    """Describe a benchmark: tasks, imbalance, repetition, duplicates, warnings.

    Args:
        name (NAME | STORE): a shipped benchmark (`mlcl ls benchmarks`) or the folder of a store.
        classes: one line per class, too.
        figure (FILE): draw the positives per class (the paper's Figure 1): .svg, .pdf, .png.
        overwrite: replace the figure if it exists.
        settings: such as --stream.order, override those of the benchmark.
    """
    if figure and figure.exists() and not overwrite:
        raise InputError(f"{figure} exists; choose another name, or add --overwrite.")
    if figure:
        report.check_figure(figure)
    benchmark, warned = report.load_quietly(resolve(given={"benchmark": name, **settings}))
    console = make_console(sys.stdout)
    for line in report.overview_lines(benchmark):
        console.print(line)
    console.print(report.task_table(benchmark))
    if classes:
        console.print(report.class_table(benchmark))
    for line in report.repetition_lines(benchmark):
        console.print(line)
    for text in [*benchmark.notes, *warned]:
        console.print(f"WARNING: {text}")
    if figure:
        report.imbalance_figure(benchmark, figure)
        console.print(str(figure))
    return 0
