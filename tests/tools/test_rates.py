"""The page of rates: differences in the first table that has both rows, and what a rate costs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import rates
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
    assert [rates.regret(line, rate) for rate in (0.001, 0.01, 0.1, 0.5)] == [None, 0, 4, None]


def test_a_difference_is_of_the_first_table_that_has_both_rows():
    tables = [
        sweep(er=[1.0, 1.0]),
        sweep(er=[1.0, 1.0], new=[3.0, 3.1]),
        sweep(er=[0.0, 0.0], new=[9.0, 9.0]),
    ]
    assert rates.first_difference(tables, "macro_auc", "new", "er") == "**+2.05 [+1.41, +2.69]**"
    assert rates.first_difference(tables, "macro_auc", "new", "nobody") == "-"


@pytest.mark.parametrize("name", rates.sweeps("equal"))
def test_rows_of_a_table_are_at_the_rate_with_the_best_mean_on_validation_rows(name):
    found = rates.sweeps("equal")[name]
    curves = rates.curves(found.folder)
    for label, chosen in found.record["tuning"]["chosen"].items():
        if "train.lr" in chosen:
            assert chosen["train.lr"] in curves[label]
            assert rates.regret(curves[label], chosen["train.lr"]) <= 5
            assert {float(run["train.lr"]) for run in found.runs if run["label"] == label} <= {
                chosen["train.lr"]
            }
