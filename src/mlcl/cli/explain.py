"""``mlcl explain``: what a setting, a part or a method means, its default, and where it is set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from mlcl.cli.helping import DEFAULTS, SHORT, setting_line, short, shown_default, shown_type
from mlcl.cli.messages import say
from mlcl.cli.verbs import verb_parser
from mlcl.config.parts import GIVEN_BY_THE_RUN, REGISTRIES
from mlcl.config.resolve import read_yaml, settings, shipped
from mlcl.config.schema import PARTS, SECTIONS, flat
from mlcl.errors import InputError, nearest
from mlcl.methods.presets import ALIASES, PRESETS, describe_alias
from mlcl.models import HEADS
from mlcl.registry import Option, Registry, members

SYMBOLS = {"u": "exact.unlabelled", "M": "memory.size", "lambda": "loss.margin"}
"""Settings by the letters of tables and papers."""


def main(arguments: list[str]) -> int:
    """Explain: ``mlcl explain NAME``."""
    parser = verb_parser(
        "explain",
        "Explain a setting (memory.size), all settings of a section (memory), a part (wru) or a method (er): what it "
        "means, its type and default, which parts take it, and which shipped configs and methods set it.",
    )
    parser.add_argument("name", metavar="NAME", help="such as memory.size, memory, wru or er")
    words = [word if word in ("-h", "--help") else word.removeprefix("--") for word in arguments]
    for line in explained(parser.parse_args(words).name):
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
            found += _part(part, registry, name)
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


def _part(part: str, registry: Registry[Any], kind: str) -> Iterator[str]:
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
