"""Durations as people read them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from mlcl.runs.durations import measured

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


@given(st.floats(0.005, 1e6))
def test_a_measured_duration_reads_as_what_was_measured(seconds):
    """Read back it is the same to half of its last digit, and never zero."""
    text = measured(seconds)
    parts = re.findall(r"(\d+(?:\.(\d+))?) (s|min|h)\b", text)
    assert " ".join(f"{number} {unit}" for number, _, unit in parts) == text
    read = sum(float(number) * UNITS[unit] for number, _, unit in parts)
    _, digits, unit = parts[-1]
    step = 0.1 ** len(digits) * UNITS[unit]
    assert read > 0
    assert abs(read - seconds) <= (step / 2 if unit == "s" else step) + 1e-9 * seconds + 0.5 * (unit != "s")


@given(st.floats(0, 0.005, exclude_max=True))
def test_what_is_too_short_to_be_measured_says_so(seconds):
    assert measured(seconds) == "under 0.01 s"
