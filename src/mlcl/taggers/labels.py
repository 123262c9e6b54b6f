"""Other names for the labels of a tagger: a new version that knows what the one before knew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlcl.errors import InputError, nearest
from mlcl.files import json_text
from mlcl.runs import folder as files
from mlcl.runs.versions import current_folder, now_text


def renamed_classes(classes: Sequence[str], names: Mapping[str, str], *, where: str) -> tuple[str, ...]:
    """Return names of classes, some of which are replaced; a name that is unknown or not unique is an `InputError`.

    >>> renamed_classes(("cat", "dog"), {"dog": "hound"}, where="a tagger")
    ('cat', 'hound')
    """
    for name in names:
        if name not in classes:
            raise InputError(f"{name!r} is no label of {where}.{nearest(name, classes)}")
    found = [names.get(name, name) for name in classes]
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two labels of {where} would be called {twice!r}; expected distinct names")
    if not all(name.strip() for name in found):
        raise InputError("a label's new name is blank; expected a name")
    return tuple(found)


def rename(folder: str | Path, names: Mapping[str, str], *, out: str | Path) -> dict[str, Any]:
    """Write a version of a tagger in which labels have other names, and return its receipt.

    Args:
        folder: the tagger; of one with versions the current one. It stays as it is.
        names: the new name of each label that changes its name; they may change places.
        out: folder to write.
    """
    path, place = current_folder(Path(folder)), Path(out)
    files.require_finished(path)
    result = files.read_result(path)
    classes = renamed_classes(result.classes, names, where=str(path))
    before = files.fingerprint(path)
    receipt = {"what": "names", "names": dict(names), "time": now_text(), "before": before, "after": before}
    contents = {
        name: files.read_listed(path / name, result.sha256) for name in (files.WEIGHTS, files.MEMORY)
    } | {files.RECEIPT: json_text(receipt).encode()}
    contents |= files.encoder_file(files.read_encoder(path, result))
    thresholds = files.read_thresholds(path, result)
    decided = files.thresholds_print(thresholds, result.classes)
    files.write_extends(place, files.Extends(path, before, thresholds=decided))
    files.write_environment(place, files.read_environment(path))
    files.write_config(place, files.read_config(path), command=f"mlcl labels {path}; not:")
    files.write_finished(
        place,
        contents,
        replace(result, classes=classes),
        files.read_calibration(path, result),
        thresholds,
        files.read_held_out(path, result),
    )
    return receipt
