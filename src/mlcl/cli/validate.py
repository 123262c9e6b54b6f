"""``mlcl validate``: check a config or an experiment, and say what it would do, without running it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from mlcl.cli.messages import say
from mlcl.cli.verbs import verb_parser
from mlcl.config.preparing import preparation
from mlcl.config.resolve import read_config_file, read_text, resolve, shipped
from mlcl.config.schema import Config
from mlcl.config.unused import warn_of_unused
from mlcl.datasets import find_dataset, is_given_arrays
from mlcl.errors import InputError
from mlcl.runs.folder import CONFIG, is_run
from mlcl.sweeps.experiment import experiments, load_experiment, load_yaml


def main(arguments: list[str]) -> int:
    """Validate: ``mlcl validate FILE``."""
    parser = verb_parser(
        "validate",
        "Check a config (of mlcl run) or an experiment (of mlcl reproduce) without running it: names, types, values "
        "and parts that do not go together. What is wrong is one sentence, with exit code 2.",
    )
    parser.add_argument(
        "file",
        metavar="NAME | FILE",
        help="a shipped config or experiment by name, a YAML file, or the folder of a run",
    )
    for line in validated(parser.parse_args(arguments).file):
        say(line)
    return 0


def validated(name: str) -> Iterator[str]:
    """Yield what a shipped name or a file is and how to run it; whatever is wrong with it is an `InputError`."""
    if name in shipped():
        yield from _config(name, resolve(name=name))
        return
    if name in experiments():
        yield from _experiment(name)
        return
    file = Path(name) / CONFIG if is_run(Path(name)) else Path(name)
    content = load_yaml(read_text(file), str(file))
    if isinstance(content, dict) and "rows" in content:
        if file.suffix not in (".yaml", ".yml"):
            raise InputError(f"{file} is an experiment; expected a name that ends in .yaml.")
        yield from _experiment(str(file))
        return
    layer = read_config_file(file)
    config = resolve(file=layer)
    warn_of_unused(config, file=layer)
    yield from _config(str(file), config)


def _config(name: str, config: Config) -> Iterator[str]:
    yield f"{name}: a good config: {_described(config)}"
    if is_given_arrays(config.data):
        yield "its data are arrays that were given in Python: mlcl.run(FILE, benchmark=mlcl.Benchmark.from_arrays(...))"
        return
    if config.data != "digits":
        try:
            find_dataset(config.data, commands=preparation(config))
        except InputError as error:
            yield f"its data are not here yet: {error}"
    yield f"run it with: mlcl run {shlex.quote(name)}"


def _experiment(name: str) -> Iterator[str]:
    experiment = load_experiment(name)
    benchmark = experiment.benchmark
    rows = experiment.rows_on(resolve(given={"benchmark": benchmark}).benchmark)
    for row in rows:
        try:
            resolve(given={"benchmark": benchmark, **row.settings})
        except InputError as error:
            raise InputError(f"{name}: row {row.label!r}: {error}") from None
    axis = "" if experiment.axis is None else f", along {experiment.axis.setting}"
    yield (
        f"{name}: a good experiment: {experiment.title!r}, {len(rows)} rows on {benchmark}{axis}, against "
        f"{experiment.reference!r}"
    )
    yield f"run it with: mlcl reproduce {shlex.quote(name)} --benchmark {shlex.quote(benchmark)} --seeds 3"


def _described(config: Config) -> str:
    memory = (
        "no memory"
        if config.memory.kind == "none"
        else f"memory {config.memory.kind} of {config.memory.size}"
    )
    return (
        f"{config.method} on {config.benchmark} (data {config.data}), model {config.model.kind}, loss "
        f"{config.loss.kind}, {memory}, {config.train.epochs} epochs per task, seed {config.seed}"
    )
