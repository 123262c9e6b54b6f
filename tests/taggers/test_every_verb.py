"""Every verb that uses a tagger, on a tagger of every origin: it works, or says in one sentence why it cannot.

The table of docs/reference/taggers.md is what this finds.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import mlcl
from helpers import LABELS, label_settings, label_store, small_arrays
from mlcl.cli.main import main
from mlcl.runs.run import run
from mlcl.sklearn import ExactTagger

ORIGINS = {
    "exact": "`mlcl run`, exact",
    "network": "`mlcl run`, network",
    "committee": "`mlcl run`, committee",
    "store": "`mlcl learn` STORE",
    "shards": "`mlcl learn` Parquet",
    "images": "`mlcl learn` images",
    "saved": "`ExactTagger.save`",
    "converted": "version 0.1, converted",
}
WHY = {
    ("forget rows", "network"): "is a trained network",
    ("forget rows", "committee"): "is a trained network",
    ("forget rows", "images"): "is a trained network",
    ("forget label", "network"): "is a trained network",
    ("forget label", "committee"): "is a trained network",
    ("forget label", "images"): "is a trained network",
    ("forget rows", "shards"): "have no ids",
    ("forget rows", "saved"): "have no ids",
    ("forget rows", "converted"): "have no ids",
    ("merge", "network"): "expected one of the exact learner on vectors",
    ("merge", "committee"): "expected one of the exact learner on vectors",
    ("merge", "images"): "expected one of the exact learner on vectors",
    ("thresholds", "exact"): "held out no rows",
    ("thresholds", "saved"): "held out no rows",
    ("thresholds", "converted"): "held out no rows",
}
"""What does not work, and what the sentence says."""
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "taggers.md"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    base = tmp_path_factory.mktemp("taggers")
    label_store(base, "store", [0, 1, 2, 3])
    label_store(base, "more", [1, 4], seed=7)
    label_store(base, "pictures", [0, 1, 2, 3], images=True, sizes=(60, 30))
    label_store(base, "more-pictures", [1, 4], images=True, seed=7, sizes=(40, 30))
    x, y = small_arrays(n=200, classes=8)
    for part in range(2):
        rows = slice(100 * part, 100 * part + 100)
        tags = [[LABELS[k] for k in np.flatnonzero(row[:4])] for row in y[rows]]
        pyarrow.parquet.write_table(
            pyarrow.table({"vector": list(x[rows]), "tags": tags}), base / f"{part}.parquet"
        )
    (base / "ids.txt").write_text("train-3\n")
    taggers = base / "taggers"
    taggers.mkdir()
    run(label_settings(base / "store", "exact", model={"kind": "fixed"}), out=taggers / "exact")
    run(label_settings(base / "store", "rldam-wru", held_out=0.2), out=taggers / "network")
    tiny = {"model": {"kind": "resnet8", "width": 4}, "train": {"epochs": 1, "batch_size": 16, "lr": 0.05}}
    run(label_settings(base / "pictures", "committee", held_out=0.2, **tiny), out=taggers / "committee")
    learn(base / "store", taggers / "store")
    learn(base / "0.parquet", base / "1.parquet", taggers / "shards")
    learn(base / "pictures", taggers / "images")
    tagger = ExactTagger().fit(x, y[:, :4], classes=LABELS[:4].tolist())
    tagger.save(taggers / "saved")
    tagger.save(base / "old.safetensors")
    assert main(["convert", str(base / "old.safetensors"), str(taggers / "converted")]) == 0
    return base


def learn(*words):
    *data, out = map(str, words)
    assert main(["learn", *data, "--out", out, "--quiet"]) == 0


def calls(base, folder, origin):
    """The verbs, each as words of the command line."""
    images = origin in ("committee", "images")
    store, more = (base / name for name in (("pictures", "more-pictures") if images else ("store", "more")))
    out, there = folder.parent, str(folder)
    return {
        "predict": ["predict", there, str(store), "--out", str(out / "p.csv")],
        "thresholds": ["thresholds", there],
        "report": ["report", there, "--out", str(out / "r.html")],
        "serve": ["serve", there],
        "update": ["update", there, "--data", str(more), "--gate", str(more), "--allow", "100", "--quiet"],
        "versions": ["versions", there],
        "rollback": ["rollback", there],
        "drift": ["drift", there, str(more), "--reference", str(store)],
        "forget rows": ["forget", there, "--rows", str(base / "ids.txt")],
        "forget label": ["forget", there, "--label", "ant"],
        "rename": ["labels", there, "--rename", "bee=wasp"],
        "merge": ["merge", there, there, "--out", str(out / "merged")],
        "card": ["card", there],
        "export": ["export", there, "--out", str(out / "m.pt2")],
        "load": ["load", there],
    }


VERBS = tuple(calls(Path(), Path("x/y"), "exact"))


def ends(words, folder):
    """The exit code of a verb."""
    if words[0] == "serve":
        from mlcl.integrations.serving.model import Model

        Model(folder).warm_up()
        return 0
    if words[0] == "load":
        loaded = mlcl.load(folder)
        zeros = np.zeros((2, *loaded.input_shape), np.uint8 if len(loaded.input_shape) == 3 else np.float32)
        assert loaded.predict_proba(zeros).shape == loaded.predict(zeros).shape == (2, len(loaded.classes))
        loaded.save(folder.parent / "copy")
        assert mlcl.load(folder.parent / "copy").classes == loaded.classes
        return 0
    return main(words)


@pytest.mark.parametrize("origin", ORIGINS)
def test_every_verb(place, tmp_path, capsys, origin):
    for verb in VERBS:
        folder = tmp_path / verb / "tagger"
        shutil.copytree(place / "taggers" / origin, folder)
        words = calls(place, folder, origin)
        if verb == "rollback":
            assert main(words["update"]) == 0
        capsys.readouterr()
        code = ends(words[verb], folder)
        shown = capsys.readouterr()
        why = WHY.get((verb, origin))
        if why is None:
            assert code == 0, (verb, shown.err)
        else:
            assert code == 2
            assert why in shown.err, (verb, shown.err)
            assert shown.err.count("\n") == 1
        if code == 0 and verb in ("update", "forget rows", "forget label", "rename"):
            assert json.loads((folder / "current.json").read_text())["version"] == 2
            assert main(["check", str(folder)]) == 0
            assert main(words["predict"]) == 0


def test_the_page_says_so():
    table = PAGE.read_text()
    lines = [f"| | {' | '.join(ORIGINS.values())} |", "|---|" + "---|" * len(ORIGINS)]
    for verb in VERBS:
        marks = ("no" if (verb, origin) in WHY else "yes" for origin in ORIGINS)
        lines.append(f"| {verb} | {' | '.join(marks)} |")
    assert "\n".join(lines) in table
