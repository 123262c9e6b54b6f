"""Make or check the reference: runs with `train.portable` that give the same bits on every x86-64 machine.

    python tools/reference.py            # make tests/reference/portable.json anew: after a change that changes numbers
    python tools/reference.py --check    # compute again and compare; exit code 1 if a bit differs

Each method learns c-digits for one epoch. The tasks are disjoint, so that an image is seen once and all of it takes a
minute. Macro-AUC only depends on the order of scores, so the weights are compared as well, by their digest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

from mlcl.training.portable import set_environment

FILE = Path(__file__).resolve().parents[1] / "tests" / "reference" / "portable.json"
METHODS = ("er", "rldam-wru", "distilled-replay", "krt-r", "joint")
SETTINGS: dict[str, Any] = {
    "benchmark": "c-digits",
    "stream": {"setting": "disjoint"},
    "memory": {"size": 100},
    "train": {"epochs": 1, "portable": True},
}


def versions() -> dict[str, str]:
    """Return the versions of what computes; others may give other bits."""
    return {name: metadata.version(name) for name in ("torch", "numpy", "scikit-learn")}


def obstacle(reference: dict[str, Any]) -> str | None:
    """Return why the reference says nothing about this machine, in one sentence; None if it does."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return (
            f"the reference is for Linux on x86_64, and this is {platform.system()} on {platform.machine()}"
        )
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    if lacking := {"avx2", "fma"} - set(flags):
        return f"the reference needs {' and '.join(sorted(lacking))}, which this processor lacks"
    here, there = versions(), reference["versions"]
    if here != there:
        return f"the reference was made with {there}, and here are {here}"
    return None


def computed(method: str) -> dict[str, Any]:
    """Run a method; return the data it saw, its matrix in exact hexadecimal, and a digest of its weights."""
    import mlcl

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one epoch is too short to learn much
        result = mlcl.run({"method": method, **SETTINGS})
    weights = hashlib.sha256()
    for name, values in sorted(result.learner.network.state_dict().items()):
        weights.update(name.encode() + values.contiguous().numpy().tobytes())
    return {
        "data": result.learner.benchmark.tasks_fingerprint,
        "macro_auc": round(result.macro_auc, 2),
        "matrix": [[float(value).hex() for value in row] for row in result.matrix],
        "weights": weights.hexdigest(),
    }


def differences(reference: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what differs between two results of `computed`, in words.

    >>> same = {"data": "a", "macro_auc": 50.0, "matrix": [["0x1.9p+5"]], "weights": "b"}
    >>> differences(same, same), differences(same, {**same, "matrix": [["0x1.9000000000001p+5"]]})
    ([], ['matrix[0][0] is 0x1.9000000000001p+5, expected 0x1.9p+5'])
    """
    found = [
        f"{key} is {now[key]}, expected {reference[key]}"
        for key in ("data", "weights")
        if now[key] != reference[key]
    ]
    if len(now["matrix"]) != len(reference["matrix"]):
        return [*found, f"the matrix has {len(now['matrix'])} rows, expected {len(reference['matrix'])}"]
    return found + [
        f"matrix[{t}][{i}] is {new}, expected {old}"
        for t, rows in enumerate(zip(now["matrix"], reference["matrix"], strict=True))
        for i, (new, old) in enumerate(zip(*rows, strict=True))
        if new != old
    ]


def main() -> int:
    """Make the reference, or check it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    set_environment()
    if not check:
        runs = {method: computed(method) for method in METHODS}
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_text(json.dumps({"versions": versions(), "runs": runs}, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{FILE}\n")
        return 0
    reference = json.loads(FILE.read_text(encoding="utf-8"))
    if reason := obstacle(reference):
        sys.stdout.write(f"nothing to compare: {reason}\n")
        return 0
    found = {method: differences(was, computed(method)) for method, was in reference["runs"].items()}
    for method, lines in found.items():
        sys.stdout.write(f"{method}: {'; '.join(lines) or 'the same bits'}\n")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
