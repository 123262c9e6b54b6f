"""``python -m benches [SUBJECT ...] [--quick]``: every comparison with its goal, in one table.

Each subject runs in a process of its own: if one fails, that is told and the rest goes on. Writes
``benches/results.json`` and ``docs/evidence/performance.md``; with subjects named, these are measured again and
the others stay as they were; with ``--quick`` nothing is written.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from typing import Any

from benches.machine import describe
from benches.page import FOLDER, write_page
from benches.tables import text_table

SUBJECTS = (
    "auc",
    "streaming",
    "bootstrap",
    "wru",
    "memories",
    "loss",
    "loss_sizes",
    "step",
    "whole",
    "store",
    "start",
    "exact",
    "many",
    "serving",
    "limits",
    "busy",
)
PATIENCE = 600  # seconds a subject


def run_subject(name: str, *, quick: bool) -> dict[str, Any]:
    """Measure one subject in a process of its own: its rows, or how it failed."""
    command = [sys.executable, "-m", "benches", "--inside", name, *(["--quick"] if quick else [])]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command, cwd=FOLDER.parent, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        error = None if done.returncode == 0 else f"exit code {done.returncode}: {_last(done.stderr)}"
    except subprocess.TimeoutExpired:
        done, error = None, f"took more than {PATIENCE} s"
    rows = json.loads(done.stdout.splitlines()[-1]) if done is not None and error is None else []
    return {"subject": name, "rows": rows, "error": error, "seconds": round(time.perf_counter() - start, 1)}


def _with_again(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return an old record with the subjects of a new one in their places; new subjects come last."""
    found = {
        part["subject"]: part
        | {"again": new["commit"], "date": new["date"], "processor": new["machine"]["processor"]}
        for part in new["subjects"]
    }
    kept = [found.pop(part["subject"], part) for part in old["subjects"]]
    return {**old, "subjects": [*kept, *found.values()]}


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benches", description=__doc__.splitlines()[0])
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"some of: {', '.join(SUBJECTS)}")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: whether it works, not how fast it is"
    )
    parser.add_argument("--inside", metavar="SUBJECT", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.subjects) - set(SUBJECTS):
        parser.error(f"no subject {sorted(unknown)[0]!r}; expected some of: {', '.join(SUBJECTS)}")
    if given.inside:
        rows = importlib.import_module(f"benches.{given.inside}").measure(quick=given.quick)
        print(json.dumps([row.as_json() for row in rows]))
        return 0
    record = describe()
    found = []
    for name in given.subjects or SUBJECTS:
        found.append(run_subject(name, quick=given.quick))
        print(text_table([found[-1]], heading=len(found) == 1), flush=True)
    record |= {"seconds": round(sum(part["seconds"] for part in found), 1), "subjects": found}
    rows = [row for part in found for row in part["rows"] if row["met"] is not None]
    failed = [part["subject"] for part in found if part["error"]]
    print(
        f"\n{sum(row['met'] for row in rows)} of {len(rows)} goals met in {record['seconds']} s"
        + (f"; failed: {', '.join(failed)}" if failed else "")
    )
    path = FOLDER / "results.json"
    if not given.quick:
        if given.subjects:
            record = _with_again(json.loads(path.read_text()), record)
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(write_page())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
