"""The same bits as on the machine where the reference was made."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import reference  # noqa: E402

KEPT = json.loads(reference.FILE.read_text())


@pytest.mark.slow
def test_portable_runs_give_the_bits_of_the_reference():
    if reason := reference.obstacle(KEPT):
        pytest.skip(reason)
    command = [sys.executable, str(ROOT / "tools" / "reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}meant to change? make reference"
    assert done.stdout == "".join(f"{method}: the same bits\n" for method in reference.METHODS)


def test_every_method_is_in_the_reference():
    assert tuple(KEPT["runs"]) == reference.METHODS


def test_a_single_bit_is_a_difference():
    was = KEPT["runs"]["er"]
    assert reference.differences(was, was) == []
    value = float.fromhex(was["matrix"][1][0])
    other = json.loads(json.dumps(was))
    other["matrix"][1][0] = (value * (1 + 2**-52)).hex()
    assert reference.differences(was, other) == [
        f"matrix[1][0] is {other['matrix'][1][0]}, expected {was['matrix'][1][0]}"
    ]
    assert reference.differences(was, {**was, "weights": "0"}) == [f"weights is 0, expected {was['weights']}"]
    assert reference.differences(was, {**was, "matrix": was["matrix"][:1]})[0].startswith(
        "the matrix has 1 rows"
    )


def test_elsewhere_the_reason_is_a_sentence(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert reference.obstacle(KEPT) == "the reference is for Linux on x86_64, and this is Linux on aarch64"
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    other = {"versions": {**KEPT["versions"], "torch": "1.0"}}
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and {"avx2", "fma"} <= set(cpuinfo.read_text().split()):
        assert "was made with {'torch': '1.0'" in reference.obstacle(other)
