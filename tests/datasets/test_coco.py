"""COCO: the raw sample against its published labels, both years, and files that are wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

from data import coco_files, coco_split, shared_data, write_tree
from mlcl.datasets import open_store, plan_source, prepare_source, read_ids
from mlcl.errors import InputError

TRAIN = "annotations/instances_train2017.json"
VAL = "annotations/instances_val2017.json"


def test_the_raw_sample_has_the_known_labels(tmp_path):
    info = prepare_source("coco", shared_data() / "raw" / "coco2017", out=tmp_path / "out", size=16)
    known = np.load(shared_data() / "coco2017" / "labels_all.npz")
    labels = np.unpackbits(known["labels_packed"], axis=1)[:, :80]
    rows = np.searchsorted(known["ids"], [int(name) for name in read_ids(tmp_path / "out")])
    data = open_store(tmp_path / "out", check=True)
    assert (info.name, info.classes) == ("coco2017", tuple(known["classes"]))
    assert (len(data.train), len(data.test)) == (40, 40)
    assert (known["split2017"][rows] == [b"train"] * 40 + [b"val"] * 40).all()
    assert np.array_equal(np.concatenate([data.train.labels, data.test.labels]), labels[rows])


def test_categories_are_in_the_order_of_their_ids(tmp_path):
    write_tree(tmp_path, coco_files())
    plan = plan_source("coco", tmp_path)
    assert plan.classes == ("cat", "dog")
    assert plan.labels.tolist() == [[1, int(i % 2 == 0)] for i in range(1, 8)]
    assert plan.train == 4
    assert plan.inputs.paths[0] == "train2017/000000000001.jpg"


def test_coco_2014_and_a_folder_of_images(tmp_path):
    write_tree(tmp_path, coco_files(3, 2, year=2014))
    (tmp_path / "images").mkdir()
    for name in ("train2014", "val2014"):
        (tmp_path / name).rename(tmp_path / "images" / name)
    info = prepare_source("coco", tmp_path, out=tmp_path / "out", size=8)
    assert (info.name, info.rows) == ("coco2014", 5)
    write_tree(tmp_path, coco_files())
    with pytest.raises(InputError, match="say which with the option year"):
        plan_source("coco", tmp_path)
    assert plan_source("coco", tmp_path, year=2017).train == 4


def test_images_without_annotations_are_dropped_and_counted(tmp_path):
    content = coco_split(1, 4)
    content["images"] += [{"id": 90 + i, "file_name": f"{90 + i}.jpg"} for i in range(3)]
    write_tree(tmp_path, coco_files() | {TRAIN: json.dumps(content)})
    info = prepare_source("coco", tmp_path, out=tmp_path / "out", size=8)
    assert (info.rows, dict(info.dropped)) == (7, {"without annotations": 3})


def test_crowds_can_be_left_out(tmp_path):
    """Image 1 has a cat and a crowd of dogs, image 2 a crowd of cats alone."""
    content = coco_split(1, 4)
    images, (cat, dog) = content["images"], (each["id"] for each in content["categories"])
    crowd = [
        (images[0]["id"], cat, 0),
        (images[0]["id"], dog, 1),
        (images[1]["id"], cat, 1),
        (images[2]["id"], dog, 0),
    ]
    names = ("image_id", "category_id", "iscrowd")
    content["annotations"] = [dict(zip(names, row, strict=True)) for row in crowd]
    write_tree(tmp_path, coco_files() | {TRAIN: json.dumps(content)})
    both, strict = (plan_source("coco", tmp_path, crowds=how) for how in ("include", "exclude"))
    by_id = {each["id"]: each["name"] for each in content["categories"]}
    labels = [
        [{plan.classes[k] for k in np.flatnonzero(row)} for row in plan.labels[: plan.train]]
        for plan in (both, strict)
    ]
    assert labels[0] == [{by_id[cat], by_id[dog]}, {by_id[cat]}, {by_id[dog]}]
    assert labels[1] == [{by_id[cat]}, {by_id[dog]}]
    assert strict.dropped["without annotations"] == both.dropped["without annotations"] + 1
    with pytest.raises(InputError, match="crowds is 'some'"):
        plan_source("coco", tmp_path, crowds="some")


def changed(**parts) -> str:
    return json.dumps(coco_split(1, 4) | parts)


IMAGES = coco_split(1, 4)["images"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({TRAIN: None}, r"is no COCO folder.*instances_train2017\.json"),
        ({VAL: None}, r"instances_val2017\.json was looked for"),
        ({TRAIN: changed()[:-30]}, r"instances_train2017\.json is not readable JSON, or is cut off"),
        ({TRAIN: b"\xff\xff"}, "not readable JSON"),
        ({TRAIN: "[" * 100_000}, "not readable JSON"),
        ({TRAIN: "[]"}, "has no list 'images'"),
        ({TRAIN: changed(annotations={})}, "has no list 'annotations'"),
        (
            {TRAIN: changed(annotations=[{"image_id": 1, "category_id": 4}])},
            "annotation of category 4, but there is no",
        ),
        (
            {TRAIN: changed(annotations=[{"image_id": 77, "category_id": 3}])},
            "annotation of image 77, but there is no",
        ),
        ({TRAIN: changed(annotations=[{"image_id": 1}])}, "category_id = 'None'"),
        ({TRAIN: changed(annotations=[{"image_id": True, "category_id": 3}])}, "image_id = 'True'"),
        ({TRAIN: changed(annotations=[{"image_id": 2**70, "category_id": 3}])}, "image_id = "),
        ({TRAIN: changed(annotations=[3])}, "entry of 'annotations' that is not an object"),
        ({TRAIN: changed(images=[*IMAGES, IMAGES[0]])}, "an image id twice"),
        ({TRAIN: changed(images=[])}, "annotation of image 1"),
        ({TRAIN: changed(images=[{"id": 1, "file_name": 5}])}, "file_name = '5'"),
        (
            {TRAIN: changed(images=[i | {"file_name": "../../../etc/passwd"} for i in IMAGES])},
            "relative path",
        ),
        (
            {TRAIN: changed(categories=[{"id": 3, "name": "cat"}, {"id": 3, "name": "dog"}])},
            "category id twice",
        ),
        (
            {TRAIN: changed(categories=[{"id": 3, "name": "cat"}, {"id": 7, "name": "cat"}])},
            "other categories",
        ),
        ({VAL: json.dumps(coco_split(4, 3))}, "id '4' twice"),
        ({"val2017/000000000006.jpg": None}, r"000000000006\.jpg was looked for"),
    ],
)
def test_bad_files_are_named(tmp_path, changes, words):
    files = {n: c for n, c in (coco_files() | changes).items() if c is not None}
    write_tree(tmp_path / "raw", files)
    with pytest.raises(InputError, match=words):
        prepare_source("coco", tmp_path / "raw", out=tmp_path / "out", size=8)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


def test_bad_year(tmp_path):
    with pytest.raises(InputError, match="year is 2015"):
        plan_source("coco", tmp_path, year=2015)
