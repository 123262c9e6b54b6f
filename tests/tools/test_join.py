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

from join import join, main  # noqa: E402

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


def with_settings(folder, hashes):
    """Give a copied table the columns of today: the hash of each run's settings by label and seed, and a version."""
    path = folder / "runs.csv"
    lines = list(csv.DictReader(path.open(newline="")))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*lines[0], "version", "settings"], lineterminator="\n")
        writer.writeheader()
        for line in lines:
            settings = hashes.get((line["label"], int(line["seed"])), line["label"])
            writer.writerow(line | {"version": "0.1.0", "settings": settings})


def drop(folder, *places):
    path = folder / "runs.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(places)))


def test_a_label_with_other_settings_is_refused_and_nothing_is_written(tmp_path):
    whole = RESULTS / "beyond-c-voc-small"
    part, same, changed = (shutil.copytree(whole, tmp_path / name) for name in ("part", "same", "changed"))
    for folder in (part, same):
        with_settings(folder, {})
    with_settings(changed, {("er", 2): "0123456789ab"})
    drop(part, "er,2", "committee,")
    before = {path.name: path.read_bytes() for path in part.iterdir()}
    with pytest.raises(
        InputError, match=r"changed/runs.csv: er, seed 2 has settings 0123456789ab; expected er, as the other"
    ):
        join(part, [changed])
    assert {path.name: path.read_bytes() for path in part.iterdir()} == before
    # A row of which the first has no run is compared among the others.
    drop(same, "committee,1")
    with_settings_of_one = shutil.copytree(changed, tmp_path / "one")
    text = (with_settings_of_one / "runs.csv").read_text().splitlines(keepends=True)
    (with_settings_of_one / "runs.csv").write_text(
        "".join(line.replace(",committee\n", ",other\n") for line in text)
    )
    with pytest.raises(InputError, match=r"committee, seed 1 has settings other; expected committee"):
        join(part, [same, with_settings_of_one])
    taken = join(part, [same])
    assert ("er", 2) in taken
    found = {
        (line["label"], line["seed"]): line for line in csv.DictReader((part / "runs.csv").open(newline=""))
    }
    assert (found["er", "2"]["settings"], found["er", "2"]["version"]) == ("er", "0.1.0")


def test_rows_whose_settings_or_code_are_not_known_to_agree_are_named(tmp_path, capsys, monkeypatch):
    whole = RESULTS / "beyond-c-voc-small"
    part, other = (shutil.copytree(whole, tmp_path / name) for name in ("part", "other"))
    drop(part, "er,2")
    with_settings(other, {})
    commit = next(
        line for line in csv.DictReader((whole / "runs.csv").open(newline="")) if line["label"] == "er"
    )
    text = (other / "runs.csv").read_text()
    (other / "runs.csv").write_text(text.replace(commit["commit"], "feedfeedfeed").replace("0.1.0", "0.2.0"))
    monkeypatch.setattr(sys, "argv", ["join", str(part), str(other)])
    assert main() == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["taken: er, seed 2", str(part)]
    runs = [line for line in csv.DictReader((whole / "runs.csv").open(newline="")) if line["label"] == "er"]
    lines = shown.err.splitlines()
    without = f"{len(runs) - 1} of {len(runs)} runs have no hash of their settings"
    assert lines[0] == f"join: warning: er: {without}, which were not compared"
    assert lines[1].startswith("join: warning: er: its runs are of several commits: ")
    assert "feedfeedfeed" in lines[1]
    # A second time nothing is missing, and there is nothing to doubt.
    assert main() == 0
    assert capsys.readouterr() == (f"{part}\n", "")


@pytest.mark.usefixtures("no_workers")
def test_a_sweep_writes_the_hash_that_all_seeds_of_a_row_share(tmp_path):
    """What two sweeps of the command line write is what this tool compares."""
    from mlcl.cli.main import main as mlcl

    experiment = tmp_path / "mine.yaml"
    text = "title: mine\nclaim: none\nreference: a\nrows:\n  - {label: a, method: exact, exact: {unlabelled: U}}\n"
    words = ["--benchmark", str(store(tmp_path)), "--stream.tasks", "2", "--jobs", "1"]
    for name, unlabelled, seeds in (("one", "1", 1), ("two", "1.0", 2), ("three", "0.5", 2)):
        experiment.write_text(text.replace("U", unlabelled))
        out = ["--out", str(tmp_path / name)]
        assert mlcl(["reproduce", str(experiment), "--seeds", str(seeds), *words, *out]) == 0
    experiment.write_text(text.replace("U", "1"))
    found = {
        name: list(csv.DictReader((tmp_path / name / "runs.csv").open(newline="")))
        for name in ("one", "two", "three")
    }
    hashes = {name: {line["settings"] for line in lines} for name, lines in found.items()}
    assert hashes["one"] == hashes["two"]
    assert len(hashes["one"]) == len(hashes["three"]) == 1
    assert hashes["one"] != hashes["three"]
    assert all(len(line["settings"]) == 12 and line["version"] for line in found["two"])
    for name in ("one", "two", "three"):
        shutil.rmtree(tmp_path / name / "runs")
        record = (tmp_path / name / "sweep.yaml").read_text()
        (tmp_path / name / "sweep.yaml").write_text(record.replace("table: mine", f"table: {experiment}"))
    with pytest.raises(InputError, match="a, seed 1 has settings"):
        join(tmp_path / "one", [tmp_path / "three"])
    assert join(tmp_path / "one", [tmp_path / "two"]) == [("a", 1)]


def store(folder):
    import numpy as np

    from mlcl.datasets import prepare_source

    rng = np.random.default_rng(0)
    y = (rng.random((60, 4)) < 0.4).astype(np.uint8)
    np.savez(folder / "raw.npz", x_train=y[:40] + 0.5, y_train=y[:40], x_test=y[40:] - 0.5, y_test=y[40:])
    return prepare_source("arrays", folder / "raw.npz", out=folder / "store").path
