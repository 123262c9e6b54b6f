"""NUS-WIDE: a layout that the test writes, with real labels."""

from __future__ import annotations

import numpy as np
import pytest

from data import nus_files, shared_data, write_tree
from mlcl.datasets import open_store, plan_source, prepare_source, read_ids
from mlcl.errors import InputError

LABELS = np.asarray([[1, 0, 0], [0, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=np.uint8)
CLASSES = ["sky", "person", "map"]
FILES = nus_files(LABELS, 3, CLASSES)
SKY = "Groundtruth/TrainTestLabels/Labels_sky_Train.txt"


def test_real_labels_go_through(tmp_path):
    known = np.load(shared_data() / "nuswide" / "labels_all.npz")
    labels = np.unpackbits(known["labels_packed"], axis=1)[:, :81]
    rng = np.random.default_rng(0)
    rows = [rng.choice(np.flatnonzero(known["is_test"] == part), 60, replace=False) for part in (False, True)]
    chosen = np.concatenate(rows)
    classes = [str(name) for name in known["classes"]]
    write_tree(tmp_path / "raw", nus_files(labels[chosen], 60, classes))
    info = prepare_source("nus-wide", tmp_path / "raw", out=tmp_path / "out", size=8)
    data = open_store(tmp_path / "out", check=True)
    kept = labels[chosen].any(axis=1)
    assert kept.sum() < 120  # the sample has images without concepts, so the rule is tested
    assert dict(info.dropped) == {"with none of the concepts": int((~kept).sum())}
    assert (info.name, info.classes) == ("nus-wide", tuple(classes))
    assert len(data.train) == kept[:60].sum()
    assert np.array_equal(np.concatenate([data.train.labels, data.test.labels]), labels[chosen][kept])
    first = int(np.flatnonzero(kept)[0])
    assert read_ids(tmp_path / "out")[0] == f"folder{first % 3}/{first:04d}_{7 * first}"


def test_the_small_layout(tmp_path):
    plan = plan_source("nus-wide", write_tree(tmp_path, FILES))
    assert plan.classes == tuple(CLASSES)
    assert plan.train == 2
    assert np.array_equal(plan.labels, LABELS[[0, 2, 3, 4]])
    assert plan.inputs.paths[0] == "Flickr/folder0/0000_0.jpg"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ConceptsList/Concepts81.txt": None}, r"Concepts81\.txt was looked for"),
        ({"ConceptsList/Concepts81.txt": ""}, r"Concepts81\.txt is empty"),
        ({"ConceptsList/Concepts81.txt": "sky\nsky\n"}, "a concept twice"),
        ({"ConceptsList/Concepts81.txt": "sky\na/../../x\n"}, "relative path"),
        ({"ConceptsList/Concepts81.txt": b"sky\n\xff\n"}, "not UTF-8"),
        ({"ImageList/TestImagelist.txt": None}, r"TestImagelist\.txt was looked for"),
        (
            {"ImageList/TestImagelist.txt": "a\\b.jpg\n"},
            r"Labels_sky_Test\.txt has 3 labels, but .* has 1 images",
        ),
        ({"ImageList/TrainImagelist.txt": "..\\b.jpg\na\\c.jpg\nd\\e.jpg\n"}, "relative path"),
        ({"ImageList/TrainImagelist.txt": "a\\b.jpg\na\\c.jpg\na\\b.jpg\n"}, "id 'a/b' twice"),
        ({SKY: None}, r"Labels_sky_Train\.txt was looked for"),
        ({SKY: "1\n0\n"}, r"Labels_sky_Train\.txt has 2 labels"),
        ({SKY: "1\n0\n0\n1\n"}, r"Labels_sky_Train\.txt has 4 labels"),
        ({SKY: "1\n0\n2\n"}, r"has b'2' in line 3"),
        ({SKY: "1\n0\n10\n"}, r"has b'10' in line 3"),
        ({"Flickr/folder0/0000_0.jpg": None}, r"0000_0\.jpg was looked for"),
    ],
)
def test_bad_files_are_named(tmp_path, changes, words):
    files = {n: c for n, c in (FILES | changes).items() if c is not None}
    write_tree(tmp_path / "raw", files)
    with pytest.raises(InputError, match=words):
        prepare_source("nus-wide", tmp_path / "raw", out=tmp_path / "out", size=8)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


def test_images_gone_from_flickr_can_be_left_out(tmp_path):
    write_tree(tmp_path / "raw", FILES)
    (tmp_path / "raw" / "Flickr/folder2/0002_14.jpg").unlink()
    info = prepare_source("nus-wide", tmp_path / "raw", out=tmp_path / "out", size=8, skip_bad=True)
    assert (info.rows, dict(info.dropped)) == (3, {"with none of the concepts": 2, "unreadable": 1})
