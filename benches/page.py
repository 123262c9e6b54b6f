"""The table on the terminal, and docs/performance.md from ``results.json`` and ``growth.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parent / "docs" / "performance.md"
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


def _words(recorded: str) -> str:
    """Return recorded text in the words of the page.

    >>> _words("6,000 pictures to 64 x 64")
    '6,000 images to 64 x 64'
    """
    for old, new in RENAMED:
        recorded = recorded.replace(old, new)
    return recorded


def _text(name: str) -> str:
    """Return a part of the page that is written by hand."""
    return (FOLDER / "text" / f"{name}.md").read_text()


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


def _cells(row: dict[str, Any]) -> list[str]:
    unit = row["unit"]
    is_time = unit in ("x", "s", "of its speed")
    goal = "" if row["goal"] is None else f"{'>=' if row['above'] else '<='} {goal_text(row['goal'], unit)}"
    return [
        _words(row["subject"]),
        _words(row["size"]),
        seconds_text(row["ours"]) if is_time else value_text(row["ours"], unit),
        _words(row["rival"]),
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
            cells = zip(_cells(row), _WIDTHS, strict=True)
            lines.append("  ".join(cell.ljust(width) for cell, width in cells).rstrip())
        if part["error"]:
            lines.append(f"{part['subject']} FAILED: {part['error']}")
    return "\n".join(lines)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _made_on(record: dict[str, Any]) -> str:
    machine, versions = record["machine"], record["versions"]
    packages = ", ".join(f"{name} {number}" for name, number in versions.items() if number)
    commit = f"`{record['commit']}`" + (" and changes not yet committed" if record["changed"] else "")
    return (
        f"Measured {record['date']} at commit {commit} on {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_gb']} GB, load before {machine['load_before']}; {packages}. Labels: {record['data']}. "
        f"It took {record['seconds']:.0f} s."
    )


def _results() -> list[str]:
    path = FOLDER / "results.json"
    if not path.is_file():
        return []
    record = json.loads(path.read_text())
    rows = [row for part in record["subjects"] for row in part["rows"]]
    with_goal = [row for row in rows if row["met"] is not None]
    parts = ["## Goals\n", "    make bench\n", _made_on(record) + "\n"]
    for part in record["subjects"]:
        if "again" in part:
            parts.append(
                f"`{part['subject']}` was measured again {part['date']} at commit `{part['again']}`.\n"
            )
    parts.append(f"{sum(row['met'] for row in with_goal)} of {len(with_goal)} goals are met.\n")
    parts.append(_table(HEAD, [_cells(row) for row in with_goal]))
    noted = [_words(f"- {row['subject']}, {row['size']}: {row['note']}.") for row in rows if row["note"]]
    parts.append("Notes\n\n" + "\n".join(dict.fromkeys(noted)) + "\n")
    missed = dict.fromkeys(row["subject"] for row in with_goal if not row["met"])
    if missed:
        parts.append(f"Not met: {_words('; '.join(missed))}.\n\n" + _text("missed"))
    for part in record["subjects"]:
        if part["error"]:
            parts.append(f"`{part['subject']}` failed with: {part['error']}\n")
    without_goal = [row for row in rows if row["met"] is None]
    if without_goal:
        parts.append("Measured without a goal\n")
        parts.append(
            _table(
                ("what", "on what", "seconds"),
                [(_words(r["subject"]), _words(r["size"]), seconds_text(r["ours"])) for r in without_goal],
            )
        )
    return parts


def _growth() -> list[str]:
    path = FOLDER / "growth.json"
    if not path.is_file():
        return []
    record = json.loads(path.read_text())
    parts = ["## How cost grows\n", "    make growth\n", _made_on(record) + "\n"]
    parts.append(
        "A slope is the exponent between the last two sizes: 1 is linear growth, 0 is no growth. Memory is the peak "
        "allocation of numpy beyond the inputs. A curve ends where the next size would take more than "
        f"{record['patience']} s.\n"
    )
    for room, words in record["rooms"].items():
        curves = [curve for curve in record["curves"] if curve["room"] == room]
        parts.append(f"### {words}\n")
        if room in record.get("again", {}):
            parts.append(f"`python -m benches.growth {room}`. {_made_on(record['again'][room])}\n")
        parts.append(f"![{words}](images/growth-{room}.svg)\n")
        rows = []
        for curve in curves:
            last = len(curve["x"]) - 1
            memory = curve["megabytes"]
            rows.append(
                (
                    curve["what"],
                    f"{curve['axis']} to {curve['x'][last]:,}" if last >= 0 else curve["axis"],
                    _words(curve["fixed"]),
                    seconds_text(curve["seconds"][last]) if last >= 0 else curve["error"],
                    _number(curve["slope"]),
                    f"{memory[-1]:,.1f} MB" if memory and memory[-1] is not None else "",
                    _number(curve["memory_slope"]),
                )
            )
        parts.append(_table(("what", "grows", "at fixed", "seconds", "slope", "memory", "slope"), rows))
    parts.append(_text("growth"))
    return parts


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _candidates() -> list[str]:
    path = FOLDER / "growth.json"
    rows = json.loads(path.read_text()).get("candidates", []) if path.is_file() else []
    if not rows:
        return []
    head = ("labels", "M", "candidates per step", "seconds", "gap J", "over exact")
    lines = [
        (
            row["labels"], f"{row['size']:,}", f"{row['candidates'] or 'all (exact)'}", seconds_text(row["seconds"]),
            f"{row['gap']:.3g}", f"{row['gap'] / row['exact'] - 1:+.0%}",
        )
        for row in rows
    ]  # fmt: skip
    return [_table(head, lines)]


def write_page() -> Path:
    """Write the page from the recorded measurements."""
    parts = [_text("introduction"), *_results(), _text("how"), *_growth(), *_candidates()]
    PAGE.write_text("\n".join(parts).rstrip() + "\n")
    return PAGE


if __name__ == "__main__":
    print(write_page())
