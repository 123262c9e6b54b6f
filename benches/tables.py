"""How measurements look: words, numbers with units, tables on the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

RENAMED = (
    ("the data set", "the dataset"),
    ("pictures", "images"),
    ("epochs a task", "epochs per task"),
    ("classes a task", "classes per task"),
    ("the most in use at once, a class and bin", "peak use per class and bin"),
    ("copy of as many rows in a row", "copy of as many consecutive rows"),
    ("the slowest of", "the slowest task of"),
    ("its own bound on the mean says", "its own bound on the mean is"),
    ("all but network, optimiser and evaluation", "all except for network, optimiser and evaluation"),
)
"""Words of recorded measurements, and the words for them on the page: the files keep what was written at the time."""


def words(recorded: str) -> str:
    """Return recorded text in the words of the page.

    >>> words("6,000 pictures to 64 x 64")
    '6,000 images to 64 x 64'
    """
    for old, new in RENAMED:
        recorded = recorded.replace(old, new)
    return recorded


def seconds_text(seconds: float) -> str:
    """Return a time with its unit.

    >>> seconds_text(0.00123)
    '1.23 ms'
    """
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def value_text(value: float, unit: str) -> str:
    """Return a measured value with its unit."""
    if unit == "s":
        return seconds_text(value)
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.2g} {unit}".strip()


def goal_text(goal: float, unit: str) -> str:
    """Return a goal as it was set, without rounding.

    >>> goal_text(1.05, "x"), goal_text(0.2, "s"), goal_text(1000, "x")
    ('1.05 x', '200 ms', '1,000 x')
    """
    return seconds_text(goal) if unit == "s" else f"{goal:,} {unit}".strip()


def cells(row: dict[str, Any]) -> list[str]:
    unit = row["unit"]
    is_time = unit in ("x", "s", "of its speed")
    goal = "" if row["goal"] is None else f"{'>=' if row['above'] else '<='} {goal_text(row['goal'], unit)}"
    return [
        words(row["subject"]),
        words(row["size"]),
        seconds_text(row["ours"]) if is_time else value_text(row["ours"], unit),
        words(row["rival"]),
        "" if row["other"] is None else seconds_text(row["other"]),
        "" if row["other"] is None else value_text(row["value"], unit),
        goal,
        {True: "yes", False: "NO", None: ""}[row["met"]],
    ]


HEAD = ("subject", "size", "ours", "baseline", "theirs", "ratio", "goal", "met")
_WIDTHS = (44, 52, 10, 38, 9, 18, 18, 3)


def text_table(parts: Iterable[dict[str, Any]], *, heading: bool) -> str:
    """Return measured subjects as lines of text."""
    lines = (
        ["  ".join(word.ljust(width) for word, width in zip(HEAD, _WIDTHS, strict=True))] if heading else []
    )
    for part in parts:
        for row in part["rows"]:
            found = zip(cells(row), _WIDTHS, strict=True)
            lines.append("  ".join(cell.ljust(width) for cell, width in found).rstrip())
        if part["error"]:
            lines.append(f"{part['subject']} FAILED: {part['error']}")
    return "\n".join(lines)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of Markdown; a bar inside a cell is escaped.

    >>> print(table(["what", "with"], [["a", "b | c"]]), end="")
    | what | with |
    | --- | --- |
    | a | b \\| c |
    """
    head = list(head)
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def made_on(record: dict[str, Any]) -> str:
    """Return when, where and on what something was measured."""
    machine, versions = record["machine"], record["versions"]
    packages = ", ".join(f"{name} {number}" for name, number in versions.items() if number)
    commit = f"`{record['commit']}`" + (" and changes not yet committed" if record["changed"] else "")
    return (
        f"Measured {record['date']} at commit {commit} on {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_gb']} GB, load before {machine['load_before']}; {packages}. Labels: {record['data']}. "
        f"It took {record['seconds']:.0f} s."
    )


def between(page: Path, command: str, text: str) -> None:
    """Replace what a command has written into a page, between the two comments that name it."""
    begin, end = f"<!-- {command}: begin -->", f"<!-- {command}: end -->"
    before, rest = page.read_text().split(begin)
    after = rest.split(end)[1]
    page.write_text(f"{before}{begin}\n\n{text.rstrip()}\n\n{end}{after}")
