"""Text from outside (labels, file names, error texts), made safe to show, and cells written as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from types import SimpleNamespace

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What text begins with that a spreadsheet calculates."""


def visible(text: object, *, lines: bool = False) -> str:
    r"""Return text with control characters, line breaks and marks of direction spelled out, so that it does nothing.

    Args:
        text: from anywhere.
        lines: leave line breaks and tabs as they are.

    >>> print(visible("a\x1b[2Jb\n\u202ec"))
    a\x1b[2Jb\n\u202ec
    """
    shown, kept = str(text), "\n\t" if lines else ""
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in shown)


def csv_text(heads: Sequence[object], rows: Iterable[Sequence[object]], *, spreadsheet: bool = False) -> str:
    """Return a table as CSV, which ``csv.reader`` reads back; what is no Unicode is spelled out.

    Args:
        heads: of the columns.
        rows: their cells.
        spreadsheet: put an apostrophe before text that a spreadsheet would take for a formula.

    >>> csv_text(["label", "change"], [["=1+1", -2.5]], spreadsheet=True)
    "label,change\\n'=1+1,-2.5\\n"
    """
    found = [csv_line(map(inert, row) if spreadsheet else row) + "\n" for row in (heads, *rows)]
    return "".join(found).encode(errors="backslashreplace").decode()


def csv_number(value: object) -> object:
    """Return a number with six decimals, and an empty string for an undefined value.

    >>> csv_number(1 / 3), csv_number(float("nan")), csv_number(None), csv_number("er")
    (0.333333, '', '', 'er')
    """
    if value is None or value != value:
        return ""
    return round(value, 6) if isinstance(value, float) else value


def csv_line(cells: Iterable[object], *, delimiter: str = ",") -> str:
    r"""Return a line of CSV without its end.

    >>> csv_line(["cat", "salt; pepper"], delimiter=";")
    'cat;"salt; pepper"'
    """
    found: list[str] = []
    # The end \r\n makes the writer quote both: with \n alone a cell with \r would be read as two lines.
    csv.writer(SimpleNamespace(write=found.append), delimiter=delimiter, lineterminator="\r\n").writerow(
        cells
    )
    return found[0].removesuffix("\r\n")


def inert(cell: object) -> object:
    """Return a cell that no spreadsheet calculates: text that looks like a formula gets an apostrophe.

    >>> inert("=cmd|' /C calc'!A0"), inert("-1.5"), inert(-1.5)
    ("'=cmd|' /C calc'!A0", '-1.5', -1.5)
    """
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
