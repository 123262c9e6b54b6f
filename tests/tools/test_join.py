"""Tables whose run folders are gone are completed from their CSV files."""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path

import pytest

from mlcl.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
sys.path.insert(0, str(ROOT / "tools"))

from join import join  # noqa: E402

TEXTS = ("runs.csv", "classes.csv", "table.md")


def test_runs_that_were_taken_out_come_back_and_nothing_else_changes(tmp_path):
    whole = RESULTS / "beyond-c-voc-small"
    part = shutil.copytree(whole, tmp_path / "part")
    out = ("er,", "committee,1")
    for name in ("runs.csv", "classes.csv"):
        lines = (whole / name).read_text().splitlines(keepends=True)
        (part / name).write_text("".join(line for line in lines if not line.startswith(out)))
    runs = [(line["label"], int(line["seed"])) for line in csv.DictReader((whole / "runs.csv").open())]
    missing = {(label, seed) for label, seed in runs if f"{label},{seed}".startswith(out)}
    assert len(missing) >= 4
    assert set(join(part, [RESULTS / "exact-c-voc-small", whole])) == missing
    for name in TEXTS:
        assert (part / name).read_text() == (whole / name).read_text(), name
    means = [
        [float(line["macro_auc_mean"]) for line in csv.DictReader((place / "table.csv").open())]
        for place in (part, whole)
    ]
    assert means[0] == pytest.approx(means[1], abs=2e-6)  # from values of six decimals


def test_other_benchmarks_and_other_settings_are_refused(tmp_path):
    whole = RESULTS / "beyond-c-voc-small"
    part = shutil.copytree(whole, tmp_path / "part")
    with pytest.raises(InputError, match="has benchmark 'c-digits'; expected 'c-voc-small'"):
        join(part, [RESULTS / "beyond-c-digits"])
    record = (part / "sweep.yaml").read_text()
    (part / "sweep.yaml").write_text(record.replace("settings:\n", "settings:\n  seed: 3\n"))
    with pytest.raises(InputError, match="has settings"):
        join(part, [whole])


def test_other_data_are_taken_only_where_somebody_answers_for_them(tmp_path):
    whole = RESULTS / "beyond-c-voc-small"
    part, other = (shutil.copytree(whole, tmp_path / name) for name in ("part", "other"))
    lines = (whole / "runs.csv").read_text().splitlines(keepends=True)
    (part / "runs.csv").write_text("".join(line for line in lines if not line.startswith("er,2")))
    fingerprint = lines[1].split(",")[-2]
    (other / "runs.csv").write_text("".join(lines).replace(fingerprint, "another"))
    with pytest.raises(InputError, match="er, seed 2 is of other data"):
        join(part, [other])
    assert join(part, [other], made_again=True) == [("er", 2)]
    assert "another" in (part / "runs.csv").read_text()
