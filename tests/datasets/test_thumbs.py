"""Thumbnail packs: parts of the real ones, and packs that are wrong."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from data import encoded_image, shared_data, write_tree
from mlcl.datasets import decode_image, open_store, plan_source, prepare_source, read_ids
from mlcl.errors import InputError

GOOD = {
    "ids": np.asarray([b"a", b"b", b"c", b"d"]),
    "labels": np.asarray([[1, 0], [0, 1], [1, 1], [0, 1]], dtype=np.uint8),
    "split": np.asarray([b"val", b"train", b"train", b"val"]),
    "classes": np.asarray(["cat", "dog"]),
}


def pack(root, arrays, images=("a", "b", "c", "d")):
    buffer = io.BytesIO()
    np.savez(buffer, **{k: v for k, v in arrays.items() if v is not None})
    write_tree(root, {"meta.npz": buffer.getvalue()})
    with zipfile.ZipFile(root / "thumbs.zip", "w") as archive:
        for i, name in enumerate(images):
            archive.writestr(f"{name}.jpg", encoded_image(i))
    return root


@pytest.mark.parametrize(("name", "test"), [("voc2012", b"val"), ("coco2017", b"test")])
def test_part_of_a_real_pack(tmp_path, name, test):
    whole = np.load(shared_data() / name / "meta.npz")
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(len(whole["ids"]), 150, replace=False))
    folder = tmp_path / name
    write_tree(folder, {})
    folder.mkdir()
    np.savez(
        folder / "meta.npz",
        **{k: whole[k][rows] for k in ("ids", "labels", "split")},
        classes=whole["classes"],
    )
    stem = (lambda i: f"{i:012d}") if whole["ids"].dtype.kind == "i" else (lambda i: i.decode())
    with zipfile.ZipFile(shared_data() / name / "thumbs96.zip") as source:
        images = {f"{stem(i)}.jpg": source.read(f"{stem(i)}.jpg") for i in whole["ids"][rows]}
    with zipfile.ZipFile(folder / "thumbs96.zip", "w") as target:
        for file, content in images.items():
            target.writestr(file, content)
    info = prepare_source("thumbs", folder, out=tmp_path / "out", size=32)
    data = open_store(tmp_path / "out", check=True)
    order = np.concatenate([rows[whole["split"][rows] == b"train"], rows[whole["split"][rows] == test]])
    assert (info.name, info.rows, info.classes) == (name, 150, tuple(whole["classes"]))
    assert np.array_equal(np.concatenate([data.train.labels, data.test.labels]), whole["labels"][order])
    inputs = np.concatenate([data.train.inputs, data.test.inputs])
    for row in (0, 77, 149):
        expected = decode_image(images[f"{stem(whole['ids'][order[row]])}.jpg"], size=32)
        assert np.array_equal(inputs[row], expected)
    assert read_ids(tmp_path / "out")[0] == (
        str(whole["ids"][order[0]]) if name == "coco2017" else stem(whole["ids"][order[0]])
    )


@pytest.mark.parametrize(
    ("labels", "counts"), [("labels_strict", (327, 268, 590, 1994)), ("labels", (328, 281, 621, 2142))]
)
def test_class_counts_of_the_whole_of_voc(labels, counts):
    """README: 327, 268, 590, 1994 images, which do not count difficult objects; 1.550 labels, which do."""
    plan = plan_source("thumbs", shared_data() / "voc2012", labels=labels)
    train = plan.labels[: plan.train]
    columns = [plan.classes.index(name) for name in ("aeroplane", "bicycle", "car", "person")]
    assert (plan.train, len(plan.ids)) == (5717, 11540)
    assert tuple(train[:, columns].sum(axis=0)) == counts
    if labels == "labels":
        assert round(float(train.sum(axis=1).mean()), 3) == 1.55


def test_class_counts_of_the_whole_of_coco():
    plan = plan_source("thumbs", shared_data() / "coco2017")
    known = np.load(shared_data() / "coco2017" / "labels_all.npz")
    labels = np.unpackbits(known["labels_packed"], axis=1)[:, :80]
    train = known["split2017"] == b"train"
    columns = [plan.classes.index(name) for name in ("person", "car", "toaster", "hair drier")]
    assert labels[train][:, columns].sum(axis=0).tolist() == [64115, 12251, 217, 189]
    assert (plan.name, plan.train, len(plan.ids)) == ("coco2017", 12000, 16000)
    assert np.array_equal(plan.labels, labels[np.searchsorted(known["ids"], [int(i) for i in plan.ids])])


def test_without_test_rows_validation_is_the_test(tmp_path):
    plan = plan_source("thumbs", pack(tmp_path / "My Pack", GOOD))
    assert (plan.name, plan.ids, plan.train) == ("my-pack", ("b", "c", "a", "d"), 2)
    split = np.asarray([b"val", b"train", b"train", b"test"])
    plan = plan_source("thumbs", pack(tmp_path / "My Pack", GOOD | {"split": split}))
    assert (plan.ids, dict(plan.dropped)) == (("b", "c", "d"), {"validation rows": 1})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ids": None}, "no array 'ids'"),
        ({"labels": None}, "no array 'labels'"),
        ({"labels": np.eye(3)}, "4 ids, 4 splits, 4 inputs and 3 rows of labels"),
        ({"labels": GOOD["labels"] + 1}, "only 0 and 1"),
        ({"labels": GOOD["labels"][:, :1]}, "2 class names, but 1 columns"),
        ({"labels": GOOD["labels"][:, 0]}, "matrix"),
        ({"split": np.asarray(["train", "train", "tset", "val"])}, "split 'tset'"),
        ({"split": np.asarray([b"train"] * 4)}, "no test items"),
        ({"split": np.arange(4)}, "texts were expected"),
        ({"split": np.asarray([b"\xff"] * 4)}, "not UTF-8"),
        ({"ids": np.asarray(["a", "b", "a", "d"])}, "id 'a' twice"),
        ({"ids": np.asarray(["a", "b", "x", "d"])}, r"x\.jpg was looked for"),
        ({"ids": np.asarray(["a", "b", "../x", "d"])}, "relative path"),
        ({"ids": np.asarray([1.5, 2, 3, 4])}, "texts were expected"),
        ({"classes": np.asarray(["cat", "cat"])}, "class name 'cat' twice"),
    ],
)
def test_bad_packs_are_named(tmp_path, changes, words):
    pack(tmp_path / "raw", GOOD | changes)
    with pytest.raises(InputError, match=words):
        prepare_source("thumbs", tmp_path / "raw", out=tmp_path / "out", size=8)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


def test_pickles_and_broken_files_are_refused(tmp_path):
    pack(tmp_path, GOOD)
    np.savez(tmp_path / "meta.npz", **(GOOD | {"ids": np.asarray([{}, {}, {}, {}], dtype=object)}))
    with pytest.raises(InputError, match="dtype object"):
        plan_source("thumbs", tmp_path)
    (tmp_path / "meta.npz").write_bytes(b"hello")
    with pytest.raises(InputError, match=r"not a readable \.npz"):
        plan_source("thumbs", tmp_path)
    (tmp_path / "meta.npz").unlink()
    with pytest.raises(InputError, match=r"meta\.npz was looked for"):
        plan_source("thumbs", tmp_path)
    with pytest.raises(InputError, match="no array 'strict'"):
        plan_source("thumbs", pack(tmp_path, GOOD), labels="strict")
