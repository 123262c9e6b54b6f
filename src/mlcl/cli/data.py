"""``mlcl data``: raw data into stores, and what is in them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from jsonargparse import ArgumentParser

from mlcl.cli.helping import COMMON, shown_default
from mlcl.cli.messages import fail, note, page, say
from mlcl.cli.options import parse_settings
from mlcl.cli.progress import make_console, progress_shown
from mlcl.cli.verbs import verb_parser
from mlcl.config.resolve import resolve
from mlcl.datasets import SOURCES, prepare_source
from mlcl.engines.pool import EngineFailure
from mlcl.errors import InputError, nearest
from mlcl.files import disk_is_full
from mlcl.registry import read_options
from mlcl.reports import data as report
from mlcl.runs.durations import measured
from mlcl.runs.features import embed_store


def main(arguments: list[str]) -> int:
    """Do ``mlcl data prepare``, ``mlcl data features`` or ``mlcl data info``."""
    actions = {"prepare": _prepare, "features": features, "info": info}
    if not arguments or arguments[0] in ("-h", "--help"):
        page(
            "usage: mlcl data prepare KIND --root PATH [--out STORE] [--size N]\n"
            "       mlcl data features STORE --model MODEL [--pretrained FILE] [--out STORE2]\n"
            "       mlcl data info NAME | STORE [--classes] [--figure FILE]\n\n"
            "prepare reads raw data once into a store; features embeds a store's images with a frozen model, once;\n"
            "info describes a store or a shipped benchmark.\n"
        )
        return 0
    if arguments[0] not in actions:
        hint = nearest(arguments[0], actions)
        raise InputError(f"unknown command 'data {arguments[0]}'; known are: {', '.join(actions)}.{hint}")
    return actions[arguments[0]](arguments[1:])


def _prepare(arguments: list[str]) -> int:
    """``mlcl data prepare KIND --root PATH [--out STORE] [--size N]`` and the options of the source."""
    kinds = "\n".join(f"  {name:12}{SOURCES.summary(name)}" for name in SOURCES.names())
    if not arguments or arguments[0] in ("-h", "--help"):
        page(
            "usage: mlcl data prepare KIND --root PATH [options]; `mlcl data prepare KIND --help` shows them\n\n"
            f"kinds:\n{kinds}\n"
        )
        return 0
    kind = arguments[0]
    source = SOURCES.get(kind)
    parser = verb_parser(f"data prepare {kind}", SOURCES.summary(kind))
    parser.add_argument("--root", required=True, type=Path, help="the folder, file or archive to read")
    parser.add_argument(
        "--out", type=Path, help="the store to make (default: in the cache, by name and size)"
    )
    parser.add_argument("--size", type=int, help="side of the images in pixels (default: 224)")
    parser.add_argument("--name", help="what to call the dataset")
    parser.add_argument(
        "--skip-bad",
        nargs="?",
        const=True,
        default=False,
        metavar="FILE",
        help="count and leave out images that cannot be read, and list them in FILE, one per line with the reason",
    )
    parser.add_argument("--jobs", type=int, help="processes (default: one per core)")
    parser.add_argument("--overwrite", action="store_true", help="replace a store of other content")
    parser.add_argument("--quiet", action="store_true", help="print the store's path only")
    for option in read_options(source):
        number = next((kind for kind in (int, float) if kind.__name__ in str(option.type)), str)
        flag = f"--{option.name.replace('_', '-')}"
        default = _share(option.default) if number is float else shown_default(option.default)
        text = option.help.rstrip(".") + (f" (default: {default})" if default else "")
        parser.add_argument(flag, type=number, default=None, help=text.replace("%", "%%"))
    given = vars(parser.parse_args(arguments[1:]))
    quiet = given.pop("quiet")

    with progress_shown("preparing", quiet=quiet) as progress:
        made = prepare_source(kind, progress=progress, announce=(lambda _: None) if quiet else note, **given)
    dropped = "".join(f", {count} {reason}" for reason, count in made.dropped.items() if count)
    state = "was there already" if made.already_there else f"done in {measured(made.seconds)}"
    if not quiet:
        note(f"{made.name}: {made.rows} rows, {len(made.classes)} classes{dropped}; {state}")
    say(made.path)
    return 0


def features(arguments: list[str]) -> int:
    """``mlcl data features STORE --model MODEL``: a model's embeddings of a store's images, as a new store."""
    parser = verb_parser(
        "data features",
        "Embed the images of a store with a frozen model, once, so that a comparison takes minutes: "
        "mlcl run --benchmark STORE2 --model mlp.",
    )
    parser.add_argument("store", metavar="STORE", help="a store of images, by folder or name, or digits")
    parser.add_argument(
        "--model",
        required=True,
        help="timm:NAME, torchvision:NAME, one of `mlcl ls models`, or a run's folder",
    )
    parser.add_argument(
        "--pretrained",
        nargs="?",
        const=True,
        metavar="WEIGHTS",
        help="a file of weights, or a package's default weights or their name (default: random weights)",
    )
    parser.add_argument("--resize", type=int, metavar="N", help="resize images to N x N for the model")
    parser.add_argument("--out", type=Path, help="the store to make (default: in the cache, by both names)")
    parser.add_argument("--batch-size", type=int, default=32, help="images at once (default: 32)")
    parser.add_argument("--seed", type=int, default=0, help="seed of random weights (default: 0)")
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="this process, or a Ray cluster with one encoder per worker (default: local)",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="encoders on Ray (default: one per GPU, or per core)"
    )
    parser.add_argument(
        "--address", help="of a Ray cluster, for --engine ray (default: start one on this machine)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a store of other content")
    parser.add_argument("--quiet", action="store_true", help="print the store's path only")
    given = vars(parser.parse_args(arguments))
    quiet = given.pop("quiet")
    again = shlex.join(["mlcl", "data", "features", *(word for word in arguments if word != "--overwrite")])
    try:
        with progress_shown("embedding", quiet=quiet) as progress:
            made = embed_store(**given, progress=progress)
    except (EngineFailure, KeyboardInterrupt) as error:
        return fail(f"{str(error) or 'interrupted'}; what was embedded is kept; to go on: {again}", 3)
    except OSError as error:
        if not disk_is_full(error):
            raise
        where = error.filename or given["out"] or "the store"
        return fail(
            f"{where} could not be written: {error.strerror}; what was embedded is kept; to go on: {again}", 3
        )
    if not quiet:
        state = "was there already" if made.already_there else f"done in {measured(made.seconds)}"
        note(f"{made.name}: {made.rows} rows, {len(made.classes)} classes; {state}")
    say(made.path)
    return 0


def _share(value: float | None) -> str:
    """Return a default share as people write it.

    >>> _share(1 / 3), _share(0.25)
    ('1/3', '0.25')
    """
    return "1/3" if value == 1 / 3 else shown_default(value)


def info(arguments: list[str]) -> int:
    """``mlcl data info NAME | STORE``: tasks, imbalance, repetition, duplicates, warnings."""
    parser = ArgumentParser(
        prog="mlcl data info",
        exit_on_error=False,
        allow_abbrev=False,
        description="Describe a benchmark. Settings of `mlcl run`, such as --stream.order, override its own.",
    )
    parser.add_argument(
        "name",
        metavar="NAME | STORE",
        help="a shipped benchmark (`mlcl ls benchmarks`) or the folder of a store",
    )
    parser.add_argument("--classes", action="store_true", help="one line per class, too")
    parser.add_argument(
        "--figure",
        metavar="FILE",
        help="draw the positives per class (the paper's Figure 1): .svg, .pdf, .png",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the figure if it exists")
    shown = [name for name in COMMON if name.startswith("stream.")]
    parsed = parse_settings(parser, arguments, common=["seed", "validate", *shown, "stream.imbalance"])
    if parsed is None:
        return 0
    own, given = parsed
    figure = Path(own["figure"]) if own.get("figure") else None
    if figure and figure.exists() and not own.get("overwrite"):
        raise InputError(f"{figure} exists; choose another name, or add --overwrite.")
    if figure:
        report.check_figure(figure)
    benchmark, warned = report.load_quietly(resolve(given={"benchmark": own["name"], **given}))
    console = make_console(sys.stdout)
    for line in report.overview_lines(benchmark):
        console.print(line)
    console.print(report.task_table(benchmark))
    if own.get("classes"):
        console.print(report.class_table(benchmark))
    for line in report.repetition_lines(benchmark):
        console.print(line)
    for text in [*benchmark.notes, *warned]:
        console.print(f"WARNING: {text}")
    if figure:
        report.imbalance_figure(benchmark, figure)
        console.print(str(figure))
    return 0
