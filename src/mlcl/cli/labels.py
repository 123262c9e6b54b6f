"""``mlcl labels``: the labels of a tagger, and other names for them."""

from __future__ import annotations

import sys
from pathlib import Path

from mlcl.cli.messages import say
from mlcl.cli.progress import make_console
from mlcl.cli.update import finish
from mlcl.cli.verbs import verb_parser
from mlcl.errors import InputError
from mlcl.reports.rendering import PrintedTable, decimals
from mlcl.runs import folder as files
from mlcl.runs.versions import claimed, current_folder
from mlcl.taggers.labels import rename


def main(arguments: list[str]) -> int:
    """List or rename: ``mlcl labels DIR [--rename OLD=NEW ...]``."""
    parser = verb_parser(
        "labels",
        "List the labels of a tagger, or give some other names: a new version, which becomes the current one. To "
        "remove a label: mlcl forget DIR --label NAME.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the tagger")
    parser.add_argument(
        "--rename", nargs="+", action="extend", default=[], metavar="OLD=NEW", help="a new name for a label"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR2", help="write a folder of its own instead of a version"
    )
    given = parser.parse_args(arguments)
    if not given.rename:
        if given.out is not None:
            raise InputError("--out was given without --rename; expected both, or DIR alone for a list.")
        make_console(sys.stdout).print(_label_table(current_folder(given.folder)))
        return 0
    names = dict(_pair(text) for text in given.rename)
    if len(names) < len(given.rename):
        raise InputError("--rename gives a label two names; expected each label once.")
    if given.out is not None:
        files.claim_folder(given.out, overwrite=False)
    with claimed(given.folder, given.out) as out:
        rename(given.folder, names, out=out)
    say(out)
    return finish(out)


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
