"""How the data of a shipped config are made: the commands in its header, and the options of labels that they have.

The header is what people read and copy, so it is also what messages quote and what stores are compared with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlcl.config.resolve import read_yaml, shipped
from mlcl.config.schema import Config


def preparation(config: Config) -> tuple[str, ...]:
    """Return the commands that make the data of a config, from the header of the shipped config of its benchmark.

    Nothing where the benchmark is not a shipped one, or the config has other data.

    >>> from mlcl.config.resolve import resolve
    >>> preparation(resolve(name="voc2007-b4-c2"))
    ('mlcl data prepare voc --root VOCdevkit --year 2007 --size 224 --difficult exclude',)
    """
    text = shipped().get(config.benchmark)
    if text is None or read_yaml(text, f"{config.benchmark}.yaml").get("data") != config.data:
        return ()
    return _commands(text)


def label_differences(benchmark: str, data: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each option of labels that a store was made with and the header of a config has otherwise.

    Args:
        benchmark: its name; one that is not shipped asks for nothing.
        data: name of the dataset that is there.
        options: with which the store was made; what it does not record is not compared.

    >>> label_differences("voc2007-b4-c2", "voc2007", {"difficult": "include"})
    ('voc2007 was prepared with --difficult include, but voc2007-b4-c2 has its labels with --difficult exclude',)
    >>> label_differences("voc2007-b4-c2", "voc2007", {"difficult": "exclude"})
    ()
    """
    text = " ".join(_commands(shipped().get(benchmark, "")))
    return tuple(
        f"{data} was prepared with --{name} {options[name]}, but {benchmark} has its labels with --{name} {value}"
        for name, value in re.findall(r"--(difficult|crowds) (\w+)", text)
        if options.get(name, value) != value
    )


def _commands(text: str) -> tuple[str, ...]:
    """Return the commands below "Prepare it once" in the header of a config."""
    return tuple(re.findall(r"^#\s+(?:Prepare it once:\s+)?(mlcl data .*\S)", text, re.MULTILINE))
