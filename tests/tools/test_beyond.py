"""The page on experiments beyond the paper: goals, the share of the gap, and gains by class follow from the runs."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import beyond
from ledger import Sweep

from mlcl.metrics import paired_interval

VOC = ("beyond", "c-voc-small")


def sweep(folder, rows, **metrics):
    runs = []
    for label, found in rows.items():
        for seed, value in enumerate(found):
            blank = dict.fromkeys(beyond.METRICS, "")
            runs.append({"label": label, "seed": str(seed), **blank, "macro_auc": str(value)})
            runs[-1].update({name: str(v[label][seed]) for name, v in metrics.items() if label in v})
    return Sweep(folder, {"rows": [{"label": label} for label in rows]}, "", runs)


START, MASKED, JOINT = "er + augment + cosine", "joint-masked + RLDAM", "joint + RLDAM"


def test_the_share_of_the_gap_is_from_a_fair_start_to_the_highest_bound(tmp_path):
    rows = {"er": [0.0] * 3, START: [70.0, 69.5, 66.0], "committee": [79.0, 78.5], MASKED: [80.0, 80.0, 81.0]}
    found = sweep(tmp_path, rows).values("macro_auc")
    share = beyond.closed(found, "committee")
    assert share.estimate == pytest.approx((9 + 9) / (10 + 10.5))  # on the seeds that all rows have
    assert share.low < share.estimate < share.high
    assert beyond.closed(found, START) is None
    assert beyond.closed(found, "er").estimate == pytest.approx(-205.5 / 35.5)
    found["joint-masked + BCE"] = {0: 75.0, 1: 74.5, 2: 71.0}
    assert beyond.closed(found, "er").estimate == pytest.approx(
        -205.5 / 35.5
    )  # the lower one of two bounds is none
    found["joint-masked + BCE"] = {0: 90.0, 1: 89.5, 2: 86.0}
    assert beyond.closed(found, "er").estimate == pytest.approx(-205.5 / 60)
    assert beyond.closed(found, "committee").estimate == pytest.approx(18 / 40)
    assert beyond.closed({label: {0: v[0]} for label, v in found.items()}, "committee") is None  # one seed
    found[MASKED] = {0: 71.0, 1: 68.5, 2: 66.5}
    del found["joint-masked + BCE"]
    assert beyond.closed(found, "committee") is None  # a gap within noise has no shares


def test_a_row_without_runs_is_left_out_and_what_is_undefined_is_a_dash(tmp_path):
    found = sweep(
        tmp_path,
        {"committee": [79.0, 78.0], MASKED: [80.0, 81.0], JOINT: [79.0, 79.0], "nobody": []},
        pooled_macro_auc={"committee": [70.0, 71.0], JOINT: [75.0, 75.5]},
        steps={"committee": [3120.0, 3120.0]},
    )
    lines = list(beyond.table(found))
    assert lines[2] == (
        "| committee | 2 | 78.50 | -2.00 [-14.71, +10.71] | - | 70.50 | -4.75 [-7.93, -1.57] "
        "| - | - | - | - | 3.1k | - | - |"
    )
    assert lines[3].startswith(f"| {MASKED} | 2 | 80.50 |  | - | - |  | - |")
    assert len(lines) == 5
    plain = list(beyond.table(sweep(tmp_path, {"er, M 0": [70.0]})))
    assert "gap closed" not in plain[0]
    assert plain[2] == "| er, M 0 | 1 | 70.00 | - | - | - | - | - | - | - | - |"


def test_a_goal_is_reached_only_if_its_interval_says_so(tmp_path):
    def state(text, **rows):
        found = {VOC: sweep(tmp_path, rows.pop("rows"), **rows)}
        (line,) = [line for line in beyond.goals(found) if line.startswith(f"| {text}")]
        return line.removesuffix(" |").rsplit(" | ", 3)[1:]

    inside = "M 500: at most 0.5 below masked"
    top = [83.4, 85.4, 99.0]
    assert state(inside, rows={beyond.BEST: [83.0, 85.0], MASKED: top}) == [
        "-0.40 [-0.40, -0.40]",
        "2",
        "yes",
    ]
    assert state(inside, rows={beyond.BEST: [83.4, 84.6], MASKED: top})[2] == "within noise"
    assert state(inside, rows={beyond.BEST: [82.4, 84.4], MASKED: top})[2] == "**no**"
    assert state(inside, rows={beyond.BEST: [83.4], MASKED: top}) == ["+0.00", "1", "one seed"]
    assert state("M 200: at most", rows={beyond.BEST: [1.0], MASKED: top}) == ["-", "0", "not measured"]
    forgetting = {beyond.BEST: [0.5, 0.51]}
    assert state("M 500: forgetting", rows={beyond.BEST: [1.0, 1.0]}, forgetting=forgetting)[2] == "yes"
    forgetting = {beyond.BEST: [1.5, 0.6]}
    assert (
        state("M 500: forgetting", rows={beyond.BEST: [1.0, 1.0]}, forgetting=forgetting)[2] == "within noise"
    )


def test_gains_by_class_show_which_classes_a_row_helps(tmp_path):
    with (tmp_path / "classes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "seed", "class", "task", "positive", "auc"])
        for label, gain in (("er", 0.0), ("rldam-wru", 1.0)):
            for seed in (0, 1):
                # The rarer a class, the more it gains.
                writer.writerows([label, seed, f"c{k}", 0, 100 - k, 50 + gain * k] for k in range(6))
                writer.writerow([label, seed, "undefined", 0, 1, ""])
    tail = {"er": [60.0, 61.0], "rldam-wru": [64.0, 66.0]}
    lines = list(beyond.by_class(sweep(tmp_path, {"er": [1.0, 1.0], "rldam-wru": [2.0, 2.0]}, tail=tail)))
    assert len(lines) == 3
    assert lines[2].endswith("rldam-wru - er | - | - | +4.50 | -1.00 |")


def test_without_classes_there_is_no_table_of_gains(tmp_path):
    assert list(beyond.by_class(sweep(tmp_path, {"er": []}))) == []


@given(st.integers(0, 10**6), st.integers(2, 8), st.sampled_from([0.8, 0.95]))
@settings(deadline=None, max_examples=60)
def test_a_share_is_in_its_interval_if_a_t_test_does_not_reject_it(seed, seeds, level):
    """Fieller's interval by its definition: the shares rho for which gain - rho gap may have mean 0."""
    rng = np.random.default_rng(seed)
    gap = rng.normal(5, 2, seeds)
    gain = 0.7 * gap + rng.normal(0, 1, seeds)
    got = beyond.share_interval(gain, gap, level=level)
    certain = 0 not in paired_interval(gap, np.zeros(seeds), level=level)
    assert (got is not None) == certain
    if got is not None:
        assert got.estimate == pytest.approx(gain.mean() / gap.mean())
        for share in np.linspace(got.low - 1, got.high + 1, 25):
            if min(abs(share - got.low), abs(share - got.high)) > 1e-6:
                accepted = 0 in paired_interval(gain, share * gap, level=level)
                assert accepted == (share in got)
