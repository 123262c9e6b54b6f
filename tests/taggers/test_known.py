"""Labels that are not known mean the same in every kind of file, in `mlcl data prepare` and in `mlcl learn`."""

from __future__ import annotations

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import mlcl
from mlcl.cli.main import main
from mlcl.datasets import plan_source
from mlcl.sklearn import ExactTagger
from shard_files import distance

NAMES = ["ant", "bee", "cat"]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4)).astype(np.float32)
Y = (X[:, :3] + RNG.normal(size=(80, 3)) > 0).astype(np.uint8)
# Whether somebody looked depends on what is there: taken for negatives, these cells would mislead.
KNOWN = RNG.random(Y.shape) < np.where(Y > 0, 0.9, 0.4)
KNOWN[:6] = True
KNOWN[~KNOWN.any(axis=1), 0] = True
TAGS = [
    [name for name, y, k in zip(NAMES, *row, strict=True) if y and k] for row in zip(Y, KNOWN, strict=True)
]
SEEN = [None if row.all() else [n for n, k in zip(NAMES, row, strict=True) if k] for row in KNOWN]


def written(folder, kind, *, seen=True):
    """The rows as one file, and the options with which it is read."""
    file = folder / f"{'some' if seen else 'all'}.{kind.rpartition('-')[2]}"
    annotated = SEEN if seen else [None] * len(X)
    if kind == "npz":
        np.savez(file, data=X, target=Y * KNOWN, classes=NAMES, **({"known": KNOWN} if seen else {}))
        return file, {"x": "data", "y": "target"}
    if kind == "csv":
        cells = [
            "|".join(tags) + "," + "|".join(one or []) for tags, one in zip(TAGS, annotated, strict=True)
        ]
        lines = [",".join(map(repr, row.tolist())) + f",{both}" for row, both in zip(X, cells, strict=True)]
        file.write_text("\n".join(["f1,f2,f3,f4,tags,annotated", *lines]))
    elif kind == "jsonl":
        rows = zip(X.tolist(), TAGS, annotated, strict=True)
        file.write_text("\n".join(json.dumps({"x": x, "tags": t, "annotated": a}) for x, t, a in rows))
    else:
        texts = pyarrow.list_(pyarrow.string())
        columns = {"x": X.tolist(), "tags": TAGS, "annotated": pyarrow.array(annotated, texts)}
        if kind == "joined-parquet":
            columns["annotated"] = ["|".join(one or []) for one in annotated]
            columns["tags"] = ["|".join(tags) for tags in TAGS]
        pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file, {}


KINDS = {"csv": "table", "jsonl": "table", "npz": "arrays", "parquet": "parquet", "joined-parquet": "parquet"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_says_it_per_cell(tmp_path, kind):
    file, options = written(tmp_path, kind)
    plan = plan_source(KINDS[kind], file, test_fraction=0.25, **options)
    order = [int(name.removeprefix("row-")) - (kind != "npz") for name in plan.ids]
    assert plan.classes == tuple(NAMES)
    assert np.array_equal(plan.labels, (Y * KNOWN)[order])
    assert np.array_equal(plan.known, KNOWN[order])
    assert not plan.dropped


@pytest.mark.parametrize("kind", ["parquet", "joined-parquet"])
def test_shards_learn_from_the_cells_that_are_known(tmp_path, kind):
    oracle = ExactTagger().fit(X, Y * KNOWN, NAMES, annotated=KNOWN)
    file, _ = written(tmp_path, kind)
    learn = ["learn", "--held_out", "0", "--jobs", "1", "--quiet", "--data", str(file), "--out"]
    assert main([*learn, str(tmp_path / "out")]) == 0
    assert distance(ExactTagger.load(tmp_path / "out"), oracle) < 1e-9
    blind = ExactTagger().fit(X, Y * KNOWN, NAMES)
    assert distance(blind, oracle) > 0.1


def logits(folder):
    """What a tagger says of all rows, without its calibration: of each label the direction counts."""
    found = mlcl.load(folder).logits(X)
    return (found - found.mean(axis=0)) / found.std(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "jsonl", "npz"])
def test_tables_and_stores_learn_from_the_cells_that_are_known(tmp_path, kind, monkeypatch):
    monkeypatch.setenv("MLCL_HOME", str(tmp_path / "home"))
    file, options = written(tmp_path, kind)
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    # Read by `data prepare` and then learnt, with the same share of test rows, or read by `learn`: one tagger.
    prepare = ["data", "prepare", KINDS[kind], "--root", str(file), "--test-fraction", "0.1", *words]
    assert main([*prepare, "--out", str(tmp_path / "store")]) == 0
    learn = ["learn", "--quiet", "--held_out", "0", "--method", "exact", "--data"]
    assert main([*learn, str(file), *words, "--out", str(tmp_path / "file")]) == 0
    assert main([*learn, str(tmp_path / "store"), "--out", str(tmp_path / "of-store")]) == 0
    assert np.array_equal(logits(tmp_path / "file"), logits(tmp_path / "of-store"))
    # With no weight as negatives, what is not known has no part in the sums.
    run = ["run", "--benchmark", str(tmp_path / "store"), "--method", "exact", "--exact.unlabelled", "0"]
    run += ["--exact.ridge", "1", "--exact.exponent", "1", "--stream.tasks", "1"]
    run += ["--stream.negatives", "all", "--quiet", "--out", str(tmp_path / "run")]
    assert main(run) == 0
    plan = plan_source(KINDS[kind], file, test_fraction=0.1, **options)
    rows = [int(name.removeprefix("row-")) - (kind != "npz") for name in plan.ids][: plan.train]
    oracle = ExactTagger(unlabelled=0.0, ridge=1.0, exponent=1.0).fit(
        X[rows], (Y * KNOWN)[rows], NAMES, annotated=KNOWN[rows]
    )
    blind = ExactTagger(unlabelled=0.0, ridge=1.0, exponent=1.0).fit(X[rows], (Y * KNOWN)[rows], NAMES)
    expected, other = (
        (one - one.mean(axis=0)) / one.std(axis=0)
        for one in (tagger.decision_function(X) for tagger in (oracle, blind))
    )
    assert np.abs(logits(tmp_path / "run") - expected).max() < 1e-4
    assert np.abs(other - expected).max() > 0.1
