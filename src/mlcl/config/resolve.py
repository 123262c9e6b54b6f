"""From names, files and options to one typed `Config`.

Settings are layers of nested dicts, and later layers override earlier ones: defaults, the benchmark's shipped config,
the method's preset, the user's file, the command line. A method named on the command line also overrides the file, so
that ``mlcl run old/config.yaml --method er`` really is ER.
"""

from __future__ import annotations

import dataclasses
import inspect
import shlex
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from mlcl.config.fitting import RATES, data_kind, fixed_features, with_fitting_defaults
from mlcl.config.parts import check_combination, part_settings, section_options
from mlcl.config.schema import PARTS, SECTIONS, Config, from_dict, settings_of, to_dict, upgraded
from mlcl.config.unused import unused_settings, warn_of_unused
from mlcl.config.values import convert, load_yaml
from mlcl.datasets import absolute_data
from mlcl.datasets.base import Kind
from mlcl.errors import InputError, nearest
from mlcl.files import read_bounded
from mlcl.methods.presets import PRESETS, get_preset, method_name
from mlcl.plugins import load_entry_points
from mlcl.registry import REGISTRATIONS, Option, described, members

Layer = dict[str, Any]
MAX_CONFIG_BYTES = 1 << 20


def settings() -> dict[str, Option]:
    """Return every setting by its dotted name: those of the schema, and the options of all parts that there are."""
    load_entry_points()
    return _settings(REGISTRATIONS.version)


@cache
def _settings(_version: int) -> dict[str, Option]:
    found = {option.name: option for option in _fields(Config)}
    for section, kind in SECTIONS.items():
        found |= {f"{section}.{option.name}": option for option in _fields(kind)}
        if section in PARTS:
            found |= {f"{section}.{name}": option for name, option in section_options(section).items()}
    return found


def _fields(kind: Any) -> Iterator[Option]:
    """Read the settings off a dataclass: types, defaults, and what its docstring says."""
    hints, text, plain = typing.get_type_hints(kind), inspect.getdoc(kind) or "", kind()
    for name in settings_of(kind):
        if kind is not Config or name not in SECTIONS:
            yield Option(name, hints[name], getattr(plain, name), described(name, text))


def flags() -> set[str]:
    """Return the settings that are true or false: on the command line they may stand without a value."""
    return {name for name, option in settings().items() if _is_flag(option.type)}


def _is_flag(kind: Any) -> bool:
    return set(members([kind])) <= {bool, type(None)}


def shipped(package: str = "mlcl.config", folder: str = "shipped") -> dict[str, str]:
    """Return the shipped configs, or what else a package ships in a folder: name to YAML text."""
    files = sorted((resources.files(package) / folder).iterdir(), key=lambda entry: entry.name)
    texts = [entry for entry in files if entry.name.endswith(".yaml")]
    return {entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8") for entry in texts}


def read_yaml(text: str, source: str) -> Layer:
    """Parse a YAML mapping with the safe loader and check its field names.

    >>> read_yaml("memory: {sise: 3}", "my.yaml")
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: my.yaml: unknown field 'memory.sise'. Did you mean 'memory.size'?
    """
    value = load_yaml(text, source)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{source}: expected a mapping of settings, got {type(value).__name__}.")
    return checked(value, source)


def read_config_file(path: Path) -> Layer:
    """Read a user's config file."""
    return read_yaml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Read a small text file, or say why not."""
    content = read_bounded(path, limit=MAX_CONFIG_BYTES, expected="a YAML config file")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text; expected a YAML config file.") from None


def checked(layer: Mapping[Any, Any], source: str) -> Layer:
    """Check names and types of a layer and bring short forms (``loss: ru``) to full ones."""
    out: Layer = {}
    known = settings()
    names = [*known, *SECTIONS]
    for key, value in layer.items():
        if key in PARTS and isinstance(value, str):
            value = {"kind": value}
        if key not in names or "." in str(key):
            raise InputError(f"{source}: unknown field {str(key)!r}.{nearest(str(key), names)}")
        if key not in SECTIONS:
            out[key] = _typed(key, value, known[key], source)
            continue
        if not isinstance(value, Mapping):
            raise InputError(f"{source}: {key} is {value!r}; expected a mapping of settings.")
        out[key] = {}
        for name, inner in (upgraded(value) if key == "exact" else value).items():
            full = f"{key}.{name}"
            if full not in known:
                raise InputError(f"{source}: unknown field {full!r}.{nearest(full, names)}")
            out[key][name] = _typed(full, inner, known[full], source)
    return out


def _typed(name: str, value: Any, option: Option, source: str) -> Any:
    """Return a value as its type has it; null is one only where it is the default."""
    if value is None and option.default is not None:
        raise InputError(f"{source}: {name} is null; expected a value like {option.default!r}.")
    return convert(f"{source}: {name}", value, option.type)


def merge(*layers: Mapping[str, Any]) -> Layer:
    """Merge nested dicts; later layers win.

    >>> merge({"loss": {"kind": "ru", "scale": 1}}, {"loss": {"kind": "bce"}})
    {'loss': {'kind': 'bce', 'scale': 1}}
    """
    out: Layer = {}
    for layer in layers:
        for key, value in layer.items():
            if isinstance(value, Mapping):
                out[key] = merge(out.get(key, {}), value)
            else:
                out[key] = value
    return out


def _prune(layer: Layer, final: Layer) -> Layer:
    """Drop what a lower layer sets for a part whose kind was changed above: lambda means nothing to BCE."""
    out = merge(layer)
    for part in PARTS:
        takes = part_settings(part, final[part]["kind"])
        section = out.get(part, {})
        out[part] = {key: value for key, value in section.items() if key in takes}
    return out


def _used(file: Layer, final: Layer) -> Layer:
    """Drop options of parts whose kind the method chose and which that kind does not take, with a warning.

    A shipped config has options for several methods (``mean_labels`` of KRT); a copy of it is to run as well.
    """
    pruned = _prune(file, final)
    for part in PARTS:
        if "kind" in file.get(part, {}):
            pruned[part] = file[part]
        for name in [key for key in file.get(part, {}) if key not in pruned[part]]:
            warnings.warn(
                f"{part}.{name} of the file is not used: {part} {final[part]['kind']!r}, which the method chose, takes "
                "no such option",
                UserWarning,
                stacklevel=3,
            )
    return pruned


def resolve(
    *,
    name: str | None = None,
    file: Layer | None = None,
    given: Layer | None = None,
    kind: Kind | None = None,
) -> Config:
    """Build the config of a run.

    Args:
        name: a shipped config to start from.
        file: the settings of a user's file.
        given: settings by hand (command line or keyword arguments); they win.
        kind: what the inputs are, for a model that fits; that of the data if not given.
    """
    file, given = file or {}, given or {}
    lower: Layer = {}
    if name is not None:
        lower = shipped_layer(name)
    elif (
        "data" not in file
    ):  # a file that names its data is whole; a short one stands on its benchmark's config
        lower = _benchmark_layer(file.get("benchmark", given.get("benchmark")))
    if "benchmark" in given:
        chosen = _benchmark_layer(given["benchmark"])
        given = merge({"data": chosen["data"]}, given, {"benchmark": chosen["benchmark"]})
    elif "benchmark" in file and "data" not in file:
        file = merge(file, {"benchmark": lower["benchmark"]})
    kind = kind or data_kind(merge({"data": Config().data}, lower, file, given)["data"])
    lower = with_fitting_defaults(lower, kind)
    asked = merge(to_dict(Config()), lower, file, given)
    method = method_name(asked["method"], features=fixed_features(asked["model"], kind))
    preset = _preset(method)
    upper = [file, preset, given] if "method" in given else [preset, file, given]
    final = merge(to_dict(Config()), lower, *upper)
    # Where a higher layer chooses another kind of part, options of the kind it replaces must not linger. A file's own
    # options do, unless the command line's method replaces its parts, or the file leaves the kind to the method: what a
    # user wrote for a kind of his own choice is refused, not ignored.
    preset = _prune(preset, final)
    upper = [_prune(file, final), preset, given] if "method" in given else [preset, _used(file, final), given]
    merged = merge(_prune(merge(to_dict(Config()), lower), final), *upper, {"method": method})
    if method != method_name(asked["method"]):
        _refuse_random_weights(asked["method"], merged["model"])
    merged["data"] = absolute_data(merged["data"])
    if merged["model"].get("head") == "exact":
        merged["train"]["epochs"] = 0  # also where a sweep sets the epochs of all its methods
    config = from_dict(checked(merged, "settings"))
    if "exact" in given and not config.solves:
        name, value = next(iter(given["exact"].items()))
        raise InputError(
            f"exact.{name} is {value!r}, but model.head is not 'exact' and there is no committee; --method exact or "
            "committee sets it."
        )
    if "committee" in given and not config.committee:
        name, value = next(iter(given["committee"].items()))
        raise InputError(
            f"committee.{name} is {value!r}, but there is no member; expected committee.encoder or committee.moments "
            "with it."
        )
    check_combination(config)
    return config


def _refuse_random_weights(method: str, model: Layer) -> None:
    """Refuse a network of one's own for an alias that means the exact learner here: nothing would train it."""
    if model["kind"] != "fixed" and model.get("pretrained") in (None, False):
        raise InputError(
            f"model is {model['kind']!r}, but method {method!r} trains no network here and would solve on its random "
            f"features; leave --model out, or choose a method that trains one, such as 'distilled-replay'."
        )


def _preset(method: str) -> Layer:
    """Return the settings of a method; those of a plugin are checked as a file is."""
    parts = get_preset(method).parts
    return checked(parts, f"method {method!r}") if PRESETS.owner(method_name(method)) else parts


def shipped_layer(name: str) -> Layer:
    """Return the settings of a shipped config."""
    configs = shipped()
    if name not in configs and _exists(Path(name).is_dir):
        raise InputError(
            f"{name} is a folder; expected a config, as a file or by name (a store is given as --benchmark {name})."
        )
    if name not in configs:
        raise InputError(f"unknown config {name!r}; known are: {', '.join(configs)}.{nearest(name, configs)}")
    return read_yaml(configs[name], f"{name}.yaml")


def _exists(look: Callable[[], bool]) -> bool:
    """Whether something is there; a name that no file can have, such as one that is too long, is of nothing."""
    try:
        return look()
    except OSError:
        return False


def _benchmark_layer(benchmark: str | None) -> Layer:
    """Return the settings of a benchmark: those of the shipped config of that name, or the folder of a store."""
    configs = shipped()
    if benchmark is None or benchmark in configs:
        return shipped_layer(benchmark or Config().benchmark)
    if _exists(Path(benchmark).is_file):
        raise InputError(
            f"benchmark {benchmark} is a file; expected a shipped name, or the folder of a store (`mlcl data prepare`)."
        )
    if not _exists(Path(benchmark).is_dir):
        hint = nearest(benchmark, configs)
        raise InputError(
            f"unknown benchmark {benchmark!r}: no folder of a prepared store; shipped are: {', '.join(configs)}.{hint}"
        )
    return {"data": str(benchmark), "benchmark": Path(benchmark).resolve().name}


def config_from(source: Config | Mapping[str, Any] | str | Path, *, kind: Kind | None = None) -> Config:
    """Return the config behind a `Config`, a dict, a shipped name or a YAML file.

    Args:
        source: any of these.
        kind: what the inputs are, where they do not come from the config; a model that nobody chose fits them.

    >>> config_from({"method": "er", "memory": {"size": 50}}).memory.kind
    'random'
    """
    if isinstance(source, Config):
        return dataclasses.replace(source, data=absolute_data(source.data))
    if isinstance(source, Mapping):
        layer = checked(source, "config")
        config = resolve(given=layer, kind=kind)
    elif str(source).endswith((".yaml", ".yml")):
        layer = read_config_file(Path(source))
        config = resolve(file=layer, kind=kind)
    else:
        return resolve(name=str(source), kind=kind)
    warn_of_unused(config, file=layer)
    return config


def warn_of_rate(config: Config, *layers: Layer) -> None:
    """Warn, with the command that helps, where the learning rate was never chosen for such data.

    That is, neither in these layers nor by the benchmark, the method or the default for vectors.
    """
    kind = data_kind(config.data)
    chosen = any("lr" in layer.get("train", {}) for layer in layers) or config.benchmark in shipped()
    known = kind == "features" and config.train.optimiser == "sgd"
    if (
        chosen
        or known
        or kind is None
        or config.train.lr != RATES[kind]
        or "train.lr" in unused_settings(config)
    ):
        return
    command = ["mlcl", "reproduce", "presets", "--benchmark", config.data, "--rows", config.method]
    warnings.warn(
        f"train.lr is {config.train.lr}, which was not chosen for {'vectors' if kind == 'features' else 'images'} "
        f"like these with {config.train.optimiser}; `{shlex.join([*command, '--tune', 'train.lr'])}` chooses it on "
        "validation rows",
        UserWarning,
        stacklevel=3,
    )


def to_yaml(config: Config) -> str:
    """Return the resolved config as YAML."""
    text: str = yaml.safe_dump(to_dict(config), sort_keys=False, default_flow_style=None, width=110)
    return text
