"""Verbs about what there is: ls, explain, cp, validate."""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from mlcl.cli.messages import say
from mlcl.cli.settings import DEFAULTS, SHORT, setting_line, short, shown_default, shown_type
from mlcl.config.parts import GIVEN_BY_THE_RUN, REGISTRIES
from mlcl.config.preparing import preparation
from mlcl.config.resolve import read_config_file, read_text, read_yaml, resolve, settings, shipped
from mlcl.config.schema import PARTS, SECTIONS, Config, flat
from mlcl.config.unused import warn_of_unused
from mlcl.config.values import load_yaml
from mlcl.datasets import find_dataset, is_given_arrays
from mlcl.errors import InputError, nearest
from mlcl.files import write_text
from mlcl.methods.presets import ALIASES, PRESETS, describe_alias
from mlcl.models import HEADS, MODELS
from mlcl.plugins import load_entry_points
from mlcl.registry import Option, Registry, members
from mlcl.runs.folder import CONFIG, is_run
from mlcl.sweeps.experiment import experiments, load_experiment

Line = tuple[str, str, str]
SYMBOLS = {"u": "exact.unlabelled", "M": "memory.size", "lambda": "loss.margin"}
"""Settings by the letters of tables and papers."""


def _methods() -> Iterator[Line]:
    yield from ((name, preset.summary, preset.reference) for name, preset in PRESETS.items())
    yield from (
        (alias, f"What we recommend: {describe_alias(alias)}.", "docs/reference/methods.md")
        for alias in ALIASES
    )


def _names(registry: Registry[Any]) -> Iterator[Line]:
    return ((name, registry.summary(name), registry.reference(name)) for name in registry.names())


def _part(part: str) -> Callable[[], Iterator[Line]]:
    return partial(_names, REGISTRIES[part])


def _models() -> Iterator[Line]:
    yield from _part("model")()
    for prefix in MODELS.families():
        name = f"{prefix}:NAME"
        yield name, f"{MODELS.summary(name)}; mlcl ls models '{prefix}:*'", MODELS.reference(name)


def _members(pattern: str) -> Iterator[Line] | None:
    """Return the models of another package, if the pattern asks for one (``timm:resnet*``)."""
    prefix, colon, _ = pattern.partition(":")
    if not colon or prefix not in MODELS.families():
        return None
    return ((f"{prefix}:{name}", line, "") for name, line in MODELS.families()[prefix]().items())


def _configs() -> Iterator[Line]:
    for name, text in shipped().items():
        yield name, text.splitlines()[0].lstrip("# "), ""


LISTS: dict[str, Callable[[], Iterator[Line]]] = {
    "methods": _methods,
    "losses": _part("loss"),
    "memories": _part("memory"),
    "regularisers": _part("regulariser"),
    "labels": _part("labels"),
    "augmentations": _part("augment"),
    "models": _models,
    "heads": partial(_names, HEADS),
    "benchmarks": _configs,
    "configs": _configs,
}


def listing(what: str | None, pattern: str = "*") -> Iterator[str]:
    """Yield the lines of one section, or of all.

    >>> next(listing("methods", "rldam*"))
    "  rldam-wru  The paper's method: RLDAM loss and Weight Retain Updating memory. [Zhang et al., AAAI 2025]"
    """
    if what is not None and what not in LISTS:
        raise InputError(f"unknown list {what!r}; known are: {', '.join(LISTS)}.{nearest(what, LISTS)}")
    for name in [what] if what else [section for section in LISTS if section != "configs"]:
        found = (what == "models" and _members(pattern)) or LISTS[name]()
        rows = [row for row in found if fnmatch.fnmatch(row[0], pattern)]
        if what is None:
            yield f"{name}:"
        width = max((len(row[0]) for row in rows), default=0)
        for label, summary, reference in rows:
            yield f"  {label:{width}}  {summary}{f' [{reference}]' if reference else ''}"
        if what is None:
            yield ""


def ls(what: str | None = None, pattern: str = "*") -> int:
    """List what can be named in a config or on the command line.

    Args:
        what (LIST): methods, losses, memories, regularisers, labels, augmentations, models, heads, benchmarks or
            configs; all if not given.
        pattern (PATTERN): a glob, such as 'rldam*' (default: all).
    """
    load_entry_points()
    for line in listing(what, pattern):
        say(line)
    return 0


def explain(name: str) -> int:
    """Explain a setting (memory.size), all settings of a section (memory), a part (wru) or a method (er).

    What it means, its type and default, which parts take it, and which shipped configs and methods set it.

    Args:
        name (NAME): such as memory.size, memory, wru or er.
    """
    for line in explained(name):
        say(line)
    return 0


def explained(name: str) -> list[str]:
    """Return what there is to say of a name.

    >>> print(*explained("memory.size")[:4], sep="\\n")
    memory.size: samples that may be stored, over all tasks.
      type            int
      default         200
      command line    --memory.size N
    """
    known = settings()
    found: list[str] = []
    name = SYMBOLS.get(name) or SHORT.get(f"--{name}", name).removeprefix("--")
    if name in SECTIONS:
        found += [
            setting_line(key, option, whole=True)
            for key, option in known.items()
            if key.startswith(f"{name}.")
        ]
    whole = [key for key in known if key == name or key.endswith(f".{name}")]
    for key in whole:  # memory.size, or size
        found += _setting(key, known[key])
    for part, registry in {**REGISTRIES, "model.head": HEADS}.items():
        if name in registry.names():
            found += _about_part(part, registry, name)
    if name in PRESETS or name in ALIASES:
        found += _method(name)
    if not found:
        names = [
            *known,
            *SECTIONS,
            *PRESETS,
            *ALIASES,
            *(k for r in (*REGISTRIES.values(), HEADS) for k in r.names()),
        ]
        raise InputError(
            f"nothing is called {name!r}; expected a setting such as memory.size, a section, a part or a method."
            f"{nearest(name, names)}"
        )
    return found


def _setting(name: str, option: Option) -> Iterator[str]:
    section, _, last = name.rpartition(".")
    takers = REGISTRIES[section].all_options().get(last, []) if section in PARTS else []
    text = option.help
    if takers:  # the parts that take it follow below
        text = "; ".join(dict.fromkeys(o.help.rstrip(".") for _, o in takers if o.help))
    yield f"{name}: {text.rstrip('.')}."
    yield _fact("type", " or ".join(_types(option.type)))
    if takers:
        defaults: dict[str, list[str]] = {}
        for kind, own in takers:
            defaults.setdefault(shown_default(own.default) or "not set", []).append(kind)
        shown = "; ".join(f"{value} ({', '.join(kinds)})" for value, kinds in defaults.items())
    else:
        shown = DEFAULTS.get(name) or shown_default(option.default) or "not set"
    yield _fact("default", shown)
    yield _fact("command line", f"--{short(name)} {shown_type(option.type)}")
    yield _fact("config", f"{section}: {{{last}: ...}}" if section else f"{last}: ...")
    if section in PARTS:
        yield _fact("taken by", ", ".join(k for k, _ in takers) if takers else f"every {section}")
    if configs := _set_in({config: read_yaml(text, config) for config, text in shipped().items()}, name):
        yield _fact("set by configs", configs)
    if methods := _set_in({method: preset.parts for method, preset in PRESETS.items()}, name):
        yield _fact("set by methods", methods)


def _types(kind: Any) -> Iterator[str]:
    for member in members([kind]):
        if get_origin(member) is Literal:
            yield ", ".join(map(str, get_args(member)))
        elif member is not type(None):
            yield member.__name__ if get_origin(member) is None else str(member)


def _set_in(layers: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """Return which layers set a setting, by value."""
    found: dict[str, list[str]] = {}
    for source, layer in layers.items():
        values = flat(layer)
        section, _, last = name.rpartition(".")
        if last == "kind" and isinstance(layer.get(section), str):
            values[name] = layer[section]
        if name in values:
            found.setdefault(shown_default(values[name]), []).append(source)
    return "; ".join(f"{value} ({', '.join(sources)})" for value, sources in found.items())


def _about_part(part: str, registry: Registry[Any], kind: str) -> Iterator[str]:
    reference = registry.reference(kind)
    yield f"{kind}: {registry.noun}. {registry.summary(kind)}{f' [{reference}]' if reference else ''}"
    yield _fact("command line", f"--{part} {kind}")
    options = [o for o in registry.described(kind) if o.name not in GIVEN_BY_THE_RUN.get(part, ())]
    for option in options:
        yield setting_line(f"{part}.{option.name}", option, whole=True)


def _method(name: str) -> Iterator[str]:
    preset = PRESETS[ALIASES.get(name, name)]
    meant = f" (another name of {describe_alias(name)})" if name in ALIASES else ""
    yield f"{name}: method{meant}. {preset.summary} [{preset.reference}]"
    yield _fact("command line", f"--method {name}")
    for key, value in flat(preset.parts).items():
        yield _fact("sets", f"--{short(key)} {shown_default(value)}")


def _fact(head: str, text: str) -> str:
    return f"  {head:16}{text}"


def cp(name: str, file: Path, *, overwrite: bool = False) -> int:
    """Copy a shipped config, to change and run it (mlcl run FILE), or an experiment (mlcl reproduce FILE).

    Args:
        name (NAME): a config from `mlcl ls configs`, or an experiment, such as table1.
        file (FILE): the file to write.
        overwrite: replace the file if it exists.
    """
    known = shipped() | experiments()
    if name not in known:
        raise InputError(
            f"unknown config {name!r}; known are the configs {', '.join(shipped())} and the experiments "
            f"{', '.join(experiments())}.{nearest(name, known)}"
        )
    if file.exists() and not overwrite:
        raise InputError(f"{file} exists; choose another name, or add --overwrite.")
    try:
        write_text(file, known[name])
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}.") from None
    say(file)
    return 0


def validate(file: str) -> int:
    """Check a config (of mlcl run) or an experiment (of mlcl reproduce) without running it.

    Names, types, values and parts that do not go together; what is wrong is one sentence, with exit code 2.

    Args:
        file (NAME | FILE): a shipped config or experiment by name, a YAML file, or the folder of a run.
    """
    for line in validated(file):
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
