"""The page on experiments beyond the paper: goals, the share of the gap, and gains by class follow from the runs."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import beyond
from ledger import Sweep

VOC = ("beyond", "c-voc-small")


def sweep(folder, rows, **metrics):
    runs = []
    for label, found in rows.items():
        for seed, value in enumerate(found):
            blank = dict.fromkeys(beyond.METRICS, "")
            runs.append({"label": label, "seed": str(seed), **blank, "macro_auc": str(value)})
            runs[-1].update({name: str(v[label][seed]) for name, v in metrics.items() if label in v})
    return Sweep(folder, {"rows": [{"label": label} for label in rows]}, "", runs)


def test_the_share_of_the_gap_is_taken_on_the_seeds_of_the_row(tmp_path):
    found = sweep(tmp_path, {"er": [70.0, 60.0], "best": [79.0], "joint": [80.0, 80.0]}).values("macro_auc")
    assert beyond.closed(found, "best") == pytest.approx(0.9)
    assert beyond.closed(found, "joint") == pytest.approx(1.0)
    assert beyond.closed(found, "er") == 0.0
    assert beyond.closed({"er": {0: 1.0}}, "er") is None
    found["joint + augment"] = {0: 88.0, 1: 88.0}  # the upper bound, as soon as there is one
    assert beyond.closed(found, "best") == pytest.approx(0.5)


def test_a_row_without_runs_is_left_out_and_what_is_undefined_is_a_dash(tmp_path):
    lines = list(beyond.table(sweep(tmp_path, {"er": [70.0], "joint": [80.0], "nobody": []})))
    assert lines[2] == "| er | 1 | 70.00 | 0% | - | - | - | - | - | - |"
    assert len(lines) == 4
    assert "gap closed" not in next(beyond.table(sweep(tmp_path, {"er, M 0": [70.0]})))


def test_goals_follow_from_paired_differences(tmp_path):
    rows = {"best": [83.0, 85.0], "joint + augment": [83.4, 85.4, 99.0]}
    found = {VOC: sweep(tmp_path, rows, forgetting={"best": [1.5, 0.7]})}
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in beyond.goals(found)}
    assert lines["M 500: at most 0.5 below joint training"].endswith("| -0.40 [-0.40, -0.40] | 2 | yes |")
    assert lines["M 500: forgetting under 1"].endswith("| 1.10 | 2 | **no** |")
    assert lines["M 200: at most 1 below joint training"].endswith("| - | 0 | not measured |")
    found[VOC] = sweep(tmp_path, {**rows, "best": [82.0, 85.0]})
    assert any("| **no** |" in line for line in beyond.goals(found) if line.startswith("| M 500: at most"))


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


def test_the_readme_leads_with_what_was_measured(tmp_path):
    rows = {"er": [70.0, 60.0], "best": [79.0, 79.0], "joint": [80.0, 80.0]}
    found = sweep(tmp_path, rows, pooled_macro_auc={"best": [71.0, 73.0]})
    lines = list(beyond.lead({("beyond", "c-digits"): found}))
    assert lines[0] == "|  | c-digits, 2 seeds | pooled |"
    assert lines[2] == "| **`--method best`** | **79.00** | **72.00** |"
    assert lines[3] == "| joint training, same augmentation | 80.00 | - |"
    assert lines[4] == "| RLDAM + WRU (the paper) | - | - |"
    assert lines[5:] == ["| ER (BCE, random memory) | 65.00 | - |"]
    page = "a\n<!-- beyond -->\nold\n<!-- /beyond -->\nb\n"
    assert beyond.between(page, ["new"]) == "a\n<!-- beyond -->\n\nnew\n\n<!-- /beyond -->\nb\n"
    assert beyond.between(beyond.between(page, ["x"]), ["new"]) == beyond.between(page, ["new"])
