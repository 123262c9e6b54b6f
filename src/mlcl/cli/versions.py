"""Verbs that change a tagger, each into a new version: forget, labels, merge, convert, versions, rollback."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

from mlcl.cli.messages import note, say
from mlcl.cli.progress import make_console
from mlcl.errors import InputError
from mlcl.files import plain
from mlcl.reports.rendering import PrintedTable, decimals
from mlcl.runs import folder as files
from mlcl.runs import versions as chain


def forget(
    folder: Path,
    *,
    rows: Path | None = None,
    data: str | None = None,
    label: str | None = None,
    out: Path | None = None,
) -> int:
    """Remove rows or a label from a run of the exact learner, with a receipt.

    The result is a new version as if it had never seen them, which becomes the current one unless another came into use
    meanwhile (exit code 4). The receipt is printed, and kept in the version's folder (receipt.json). Earlier versions
    still know what was removed: delete their folders to be rid of it.

    Args:
        folder (DIR): the folder of the run.
        rows (FILE): ids of rows, one per line, as in their store.
        data (STORE): the store that the ids are of, if several have them.
        label (NAME): a label; its rows stay, as rows of the other labels.
        out (DIR2): write a run folder of its own instead of a version.
    """
    from mlcl.cli.releasing import finish
    from mlcl.taggers import forget as forgetting

    with chain.claimed(folder, out) as made:
        receipt = forgetting.forget(folder, out=made, rows=rows, data=data, label=label)
    say(json.dumps(plain({name: value for name, value in receipt.items() if name != "rows"})))
    say(made)
    return finish(made)


def labels(folder: Path, *, rename: list[str] | None = None, out: Path | None = None) -> int:
    """List the labels of a tagger, or give some other names: a new version, which becomes the current one.

    To remove a label: mlcl forget DIR --label NAME.

    Args:
        folder (DIR): the folder of the tagger.
        rename (OLD=NEW): a new name for a label.
        out (DIR2): write a folder of its own instead of a version.
    """
    if not rename:
        if out is not None:
            raise InputError("--out was given without --rename; expected both, or DIR alone for a list.")
        make_console(sys.stdout).print(_label_table(chain.current_folder(folder)))
        return 0
    from mlcl.cli.releasing import finish
    from mlcl.taggers import labels as naming

    names = dict(_pair(text) for text in rename)
    if len(names) < len(rename):
        raise InputError("--rename gives a label two names; expected each label once.")
    if out is not None:
        files.claim_folder(out, overwrite=False)
    with chain.claimed(folder, out) as made:
        naming.rename(folder, names, out=made)
    say(made)
    return finish(made)


def _pair(text: str) -> tuple[str, str]:
    old, mark, new = text.partition("=")
    if not (mark and old and new):
        raise InputError(f"--rename is {text!r}; expected OLD=NEW.")
    return old, new


def _label_table(folder: Path) -> PrintedTable:
    """Return one line per label: positives, AUC, threshold."""
    files.require_finished(folder)
    result = files.read_result(folder)
    thresholds = files.read_thresholds(folder, result)
    columns = (result.classes, result.positive, result.per_class[-1], thresholds.values)
    rows = [
        [name, str(int(positive)), decimals(auc, 1), "never" if cut >= 1 else f"{cut:.3f}"]
        for name, positive, auc, cut in zip(*columns, strict=True)
    ]
    heads = ("label", "positives", "AUC", "threshold")
    return PrintedTable(f"{folder}: {len(result.classes)} labels", heads, rows, left=("label",))


def merge(folders: list[Path], *, out: Path, overwrite: bool = False) -> int:
    """Add taggers of the exact learner: the result is what one would be that had learnt the rows of all.

    They must share their features: vectors of at most 256 numbers, or taggers that began from one (ExactTagger.spawn).
    Rows that they hold out are merged, too.

    Args:
        folders (DIR): taggers.
        out (DIR3): the folder to write.
        overwrite: replace a tagger that is there.
    """
    from mlcl.taggers.sums import load_sums, merge_sums, write_sums

    if len(folders) < 2:
        raise InputError(f"{folders[0]} is one tagger; expected at least two to merge.")
    merged = functools.reduce(merge_sums, map(load_sums, folders))
    files.claim_folder(out, overwrite=overwrite)
    write_sums(out, merged, command="mlcl merge")
    say(out)
    return 0


def convert(file: Path, folder: Path, *, overwrite: bool = False) -> int:
    """Write a tagger that is one file as a folder that every command takes. The file stays.

    Args:
        file (FILE): of ExactTagger.save, or of `mlcl learn` of version 0.1, or the folder of mlcl learn that holds it.
        folder (DIR): the folder to write.
        overwrite: replace a tagger that is there.
    """
    from mlcl.sklearn import ExactTagger

    file = file / "tagger.safetensors" if file.is_dir() else file
    ExactTagger.load(file).save(folder, overwrite=overwrite)
    say(folder)
    return 0


def versions(folder: Path, *, keep: int | None = None, pin: int | None = None) -> int:
    """List the versions of a tagger: which one is in use, and which passed a gate.

    Args:
        folder (DIR): the folder of the tagger.
        keep (N): delete all but the newest N; the first and the one in use stay. What was learnt in a deleted version
            is not lost, but its rows cannot be forgotten by their ids any more.
        pin (N): let the gate of every update compare with version N, too; it is the first one otherwise.
    """
    if pin is not None:
        chain.pin(folder, pin)
    if keep is not None:
        gone = chain.prune(folder, keep)
        note(f"deleted: {', '.join(map(str, gone)) or 'no version'}")
    found = chain.versions(folder)
    heads = ("version", "in use", "from", "by", "labels", "Macro-AUC", "gate", "fingerprint")
    left = ("in use", "by", "gate", "fingerprint")
    table = PrintedTable(f"versions of {found[0].folder}", heads, list(map(_cells, found)), left=left)
    make_console(sys.stdout).print(table)
    return 0


def _cells(version: chain.Version) -> list[str]:
    result = version.result
    parent = "-" if version.parent is None else str(version.parent)
    return [
        str(version.number),
        "*" if version.current else "",
        parent + (" (changed since)" if version.intact is False else ""),
        version.kind,
        "-" if result is None else str(len(result.classes)),
        "unfinished" if result is None else f"{result.values['macro_auc']:.2f}",
        {None: "-", True: "passed", False: "refused"}[version.gate],
        version.fingerprint,
    ]


def rollback(folder: Path, *, to: int | None = None) -> int:
    """Use an earlier version of a run again: the one that the current version began from.

    Nothing is deleted; a service that runs must be started anew.

    Args:
        folder (DIR): the folder of the run.
        to (N): the version to use instead; also a later one, or one that a gate refused.
    """
    found = chain.rollback(folder, to)
    say(f"version {found.number} is in use: {found.folder}")
    return 0
