"""The page of rates: differences in the first table that has both rows, and what a rate costs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import rates
import yaml
from ledger import Sweep

TUNING = """\
row,setting,value,seed,macro_auc,pooled_macro_auc
er,train.lr,0.1,1000,70,60
er,train.lr,0.1,1001,72,62
er,train.lr,0.01,1000,75,65
er,train.lr,1.0,1000,,
er,loss.margin,0.5,1000,99,99
"""


def sweep(**rows):
    runs = [
        {"label": label, "seed": str(seed), "macro_auc": str(value)}
        for label, found in rows.items()
        for seed, value in enumerate(found)
    ]
    return Sweep(Path(), {}, "", runs)


def test_a_curve_is_the_mean_over_seeds_of_the_values_that_did_not_diverge(tmp_path):
    (tmp_path / "tuning.csv").write_text(TUNING)
    line = rates.curves(tmp_path)["er"]
    assert line == {
        0.01: {"macro_auc": 75, "pooled_macro_auc": 65},
        0.1: {"macro_auc": 71, "pooled_macro_auc": 61},
        1.0: {},
    }
    assert [rates.regret(rates.line_of(line, "macro_auc"), rate) for rate in (0.001, 0.01, 0.1, 0.5)] == [
        None,
        0,
        4,
        None,
    ]


def test_a_difference_is_of_the_first_table_that_has_both_rows():
    tables = [
        sweep(er=[1.0, 1.0, 1.0]),
        sweep(er=[1.0, 1.0, 1.0], new=[5.0, 5.1]),  # two seeds are too few
        sweep(er=[1.0, 1.0, 1.0], new=[3.0, 3.1, 3.2]),
        sweep(er=[0.0, 0.0, 0.0], new=[9.0, 9.0, 9.0]),
    ]
    assert rates.first_difference(tables, "macro_auc", "new", "er") == "**+2.10 [+1.85, +2.35]**"
    assert rates.first_difference(tables, "macro_auc", "new", "nobody") == "-"


@pytest.mark.parametrize("name", rates.sweeps("equal"))
def test_rows_of_a_table_are_at_the_rate_with_the_best_mean_on_validation_rows(name):
    found = rates.sweeps("equal")[name]
    curves = rates.curves(found.folder)
    for label, chosen in found.record["tuning"]["chosen"].items():
        if "train.lr" in chosen:
            assert chosen["train.lr"] in curves[label]
            assert rates.regret(rates.line_of(curves[label], "macro_auc"), chosen["train.lr"]) <= 5
            assert {float(run["train.lr"]) for run in found.runs if run["label"] == label} <= {
                chosen["train.lr"]
            }


def test_a_table_is_tuned_or_at_one_rate_and_an_earlier_one_still_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(rates, "ROOT", tmp_path)

    def table(place, rows, *, tuning=None):
        folder = tmp_path / "results" / place
        folder.mkdir(parents=True)
        record = {"table": "ewc", "benchmark": "c-enron", "tuning": tuning}
        (folder / "sweep.yaml").write_text(yaml.safe_dump(record))
        (folder / "table.md").write_text("")
        lines = [
            f'"{label}",{seed},{value + seed / 100}' for label, value in rows.items() for seed in (0, 1, 2)
        ]
        (folder / "runs.csv").write_text("\n".join(["label,seed,macro_auc", *lines]) + "\n")

    table("ewc-c-enron", {"ewc": 70.0, "ewc-rldam": 75.0}, tuning={"chosen": {}})
    table("earlier/ewc-c-enron", {"ewc": 70.0, "ewc-rldam": 60.0})
    table("lambda-c-enron", {"rldam-wru, lambda 0.0": 70.0, "rldam-wru, lambda 0.7": 70.0})
    lines = {line.split(" | ")[0].strip("| "): line for line in rates.verdicts()}
    assert lines["RLDAM improves EWC"].split(" | ")[1:] == ["**-10.00** \u2192 **+5.00**", "above 1 |"]
    assert lines["Lambda 0.7 is above lambda 0"].split(" | ")[1:] == ["+0.00 \u2192 -", "- |"]
    assert lines["RLDAM + WRU is above ER"].split(" | ")[1:] == ["", "- |"]


@pytest.mark.parametrize(
    ("shown", "mean", "side"),
    [
        ("**+1.05 [+0.41, +1.69]**", "**+1.05**", 1),
        ("**-1.05 [-1.41, -0.69]**", "**-1.05**", -1),
        ("-0.05 [-0.41, +0.69]", "-0.05", 0),
    ],
)
def test_an_interval_without_zero_is_above_or_below(shown, mean, side):
    assert (rates.mean_of(shown), rates.side(shown)) == (mean, side)


def test_a_peak_stands_with_what_other_rates_cost():
    assert rates.peak({0.01: 70.0, 0.1: 72.0, 0.9: 70.0}) == "72.0 at 0.1 (1.0, 1.0)"
    assert rates.peak({0.1: 72.0, 0.3: 71.0}) == "72.0 at 0.1 (-, 1.0)"
