"""docs/evidence/performance.md from ``results.json`` and ``growth.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benches.tables import HEAD, cells, made_on, seconds_text, table, words

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parent / "docs" / "evidence" / "performance.md"


def _text(name: str) -> str:
    """Return a part of the page that is written by hand."""
    return (FOLDER / "text" / f"{name}.md").read_text()


def _results() -> list[str]:
    path = FOLDER / "results.json"
    if not path.is_file():
        return []
    record = json.loads(path.read_text())
    rows = [row for part in record["subjects"] for row in part["rows"]]
    with_goal = [row for row in rows if row["met"] is not None]
    # RLDAM over sizes has a table of its own, of 36 numbers.
    listed = [row for row in with_goal if not row["subject"].startswith("RLDAM over sizes")]
    parts = ["## Goals\n", "    make bench\n", made_on(record) + "\n"]
    for part in record["subjects"]:
        if "again" in part:
            place = f" on {part['processor']}" if "processor" in part else ""
            parts.append(
                f"`{part['subject']}` was measured again {part['date']} at commit `{part['again']}`{place}.\n"
            )
    parts.append(f"{sum(row['met'] for row in with_goal)} of {len(with_goal)} goals are met.\n")
    parts.append(table(HEAD, [cells(row) for row in listed]))
    elsewhere = [row for part in record["subjects"] if part["subject"] in SECTIONS for row in part["rows"]]
    noted = [
        words(f"- {row['subject']}, {row['size']}: {row['note']}.")
        for row in rows
        if row["note"] and row not in elsewhere
    ]
    parts.append("Notes\n\n" + "\n".join(dict.fromkeys(noted)) + "\n")
    missed = dict.fromkeys(row["subject"] for row in with_goal if not row["met"])
    if missed:
        parts.append(f"Not met: {words('; '.join(missed))}.\n\n" + _text("missed"))
    for part in record["subjects"]:
        if part["error"]:
            parts.append(f"`{part['subject']}` failed with: {part['error']}\n")
    without_goal = [row for row in rows if row["met"] is None and row not in elsewhere]
    if without_goal:
        parts.append("Measured without a goal\n")
        parts.append(
            table(
                ("what", "on what", "seconds"),
                [(words(r["subject"]), words(r["size"]), seconds_text(r["ours"])) for r in without_goal],
            )
        )
    for part in record["subjects"]:
        if part["subject"] in SECTIONS and part["rows"]:
            title, text = SECTIONS[part["subject"]]
            parts += [f"## {title}\n", f"    python -m benches {part['subject']}\n", f"{text}\n"]
            parts.append(
                _over_sizes(part["rows"]) if part["subject"] == "loss_sizes" else _beside(part["rows"])
            )
    return parts


SECTIONS = {
    "limits": (
        "Limits of one machine",
        "How far each part is from what the machine can do: counting rows of the exact learner from the matrix product "
        "alone and from reading the rows once, a training step from the network alone, features from the bare forward "
        "pass.",
    ),
    "loss_sizes": (
        "RLDAM over sizes",
        "Forward and backward pass of the loss as a multiple of BCE with logits, on one thread; the goal is 1.5 x, and "
        "what misses it is bold. Compiled: the same module by `torch.compile(dynamic=True)`, against BCE that is not.",
    ),
}
"""Subjects with a table of their own: title and text."""


def _beside(rows: list[dict[str, Any]]) -> str:
    """Return subjects beside their limits."""
    found = [[*cells(row)[:6], words(row["note"])] for row in rows]
    return table(("what", "on what", "ours", "limit", "of the limit", "ratio", "note"), found)


def _over_sizes(rows: list[dict[str, Any]]) -> str:
    """Return ratios by size: a row per size, a column per form of the loss."""
    forms = list(dict.fromkeys(row["subject"].removeprefix("RLDAM over sizes, ") for row in rows))
    found = []
    for size in dict.fromkeys(row["size"] for row in rows):
        mine = {row["subject"].removeprefix("RLDAM over sizes, "): row for row in rows if row["size"] == size}
        ratios = [f"{mine[form]['value']:.2f} x" if form in mine else "" for form in forms]
        bold = [form in mine and mine[form]["met"] is False for form in forms]
        cells = [f"**{ratio}**" if missed else ratio for ratio, missed in zip(ratios, bold, strict=True)]
        bce = next(iter(mine.values()))["other"]
        found.append([size.removesuffix(", 1 thread"), seconds_text(bce), *cells])
    return table(("size", "BCE", *forms), found)


def _growth() -> list[str]:
    path = FOLDER / "growth.json"
    if not path.is_file():
        return []
    record = json.loads(path.read_text())
    parts = ["## How cost grows\n", "    make growth\n", made_on(record) + "\n"]
    parts.append(
        "A slope is the exponent between the last two sizes: 1 is linear growth, 0 is no growth. Memory is the peak "
        "allocation of numpy beyond the inputs. A curve ends where the next size would take more than "
        f"{record['patience']} s.\n"
    )
    for room, title in record["rooms"].items():
        curves = [curve for curve in record["curves"] if curve["room"] == room]
        parts.append(f"### {title}\n")
        if room in record.get("again", {}):
            parts.append(f"`python -m benches.growth {room}`. {made_on(record['again'][room])}\n")
        parts.append(f"![{title}](../images/growth-{room}.svg)\n")
        rows = []
        for curve in curves:
            last = len(curve["x"]) - 1
            memory = curve["megabytes"]
            rows.append(
                (
                    curve["what"],
                    f"{curve['axis']} to {curve['x'][last]:,}" if last >= 0 else curve["axis"],
                    words(curve["fixed"]),
                    seconds_text(curve["seconds"][last]) if last >= 0 else curve["error"],
                    _number(curve["slope"]),
                    f"{memory[-1]:,.1f} MB" if memory and memory[-1] is not None else "",
                    _number(curve["memory_slope"]),
                )
            )
        parts.append(table(("what", "grows", "at fixed", "seconds", "slope", "memory", "slope"), rows))
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
    return [table(head, lines)]


def write_page() -> Path:
    """Write the page from the recorded measurements."""
    parts = [_text("introduction"), *_results(), _text("how"), *_growth(), *_candidates()]
    PAGE.write_text("\n".join(parts).rstrip() + "\n")
    return PAGE


if __name__ == "__main__":
    print(write_page())
