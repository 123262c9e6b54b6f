"""Published class lists and counts: against the real labels of COCO, and what is said where a store differs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from data import annotation, coco_files, shared_data, voc_files, write_tree
from mlcl.datasets import open_store, prepare_source
from mlcl.datasets.published import PUBLISHED, Published, published_differences


@pytest.mark.parametrize("year", [2014, 2017])
def test_coco_has_the_published_classes_and_counts(year):
    real = np.load(shared_data() / "coco2017" / "labels_all.npz")
    split, whole = real[f"split{year}"], PUBLISHED[f"coco{year}"]
    assert whole.classes == tuple(real["classes"])
    assert (whole.train, whole.test) == ((split == b"train").sum(), (split == b"val").sum())
    images = {2014: (82_783, 40_504), 2017: (118_287, 5_000)}[year]
    assert (whole.train + whole.unlabelled[0], whole.test + whole.unlabelled[1]) == images


def test_voc_has_the_published_classes_and_counts():
    real = np.load(shared_data() / "voc2012" / "meta.npz")
    whole = PUBLISHED["voc2012"]
    assert whole.classes == tuple(real["classes"]) == PUBLISHED["voc2007"].classes
    assert (whole.train, whole.test) == ((real["split"] == b"train").sum(), (real["split"] == b"val").sum())


def test_each_difference_has_its_sentence():
    whole = PUBLISHED["coco2014"]
    same = {"classes": whole.classes[::-1], "train": whole.train, "test": whole.test}
    assert published_differences("coco2014-b0-c10", data="coco2014-96", **same) == ()
    assert published_differences("mine", data="mine", classes=["a"], train=1, test=1) == ()
    other = published_differences("coco2014-b0-c10", data="coco2017", **same)
    assert other == ("the data of coco2014-b0-c10 are 'coco2017'; coco2014 was expected",)
    few = published_differences("coco2014", data="coco2014", classes=whole.classes[5:], train=7, test=40_137)
    assert "(person, bicycle, car and others are missing)" in few[0]
    assert few[1:] == (
        "coco2014 has 7 training rows; as published it has 82,081 with labels, and 702 without, "
        "fewer under --crowds exclude",
    )


@pytest.mark.parametrize(
    ("name", "reason"), [("voc2007", "only difficult objects"), ("coco2014", "without annotations")]
)
def test_images_that_have_no_label_left_are_not_missing(name, reason):
    whole = PUBLISHED[name]
    few = {"data": name, "classes": whole.classes, "train": whole.train - 3, "test": whole.test - 2}
    without = 5 + sum(whole.unlabelled)
    assert published_differences(name, **few, dropped={reason: without}) == ()
    # One image more is absent, or was left out for another reason: the data are incomplete.
    for dropped in ({}, {reason: without - 1}, {reason: without + 1}, {"unreadable": without}):
        assert len(published_differences(name, **few, dropped=dropped)) == 2
    # What is too many in one split does not make up for what is absent in the other.
    more = few | {"train": whole.train + 5, "test": whole.test - 5}
    assert len(published_differences(name, **more, dropped={reason: sum(whole.unlabelled)})) == 2


@pytest.mark.parametrize("kind", ["voc", "coco"])
def test_a_store_without_difficult_objects_or_crowds_is_whole(tmp_path, monkeypatch, kind):
    """The counts that a store records, of raw files to its notes: whole with and without the exclusion."""
    name = {"voc": "voc2007", "coco": "coco2014"}[kind]
    option = {"voc": "difficult", "coco": "crowds"}[kind]
    files = voc_files(4, 2, year=2007) if kind == "voc" else coco_files(4, 2, year=2014)
    if kind == "voc":
        files["VOCdevkit/VOC2007/Annotations/2008_000001.xml"] = annotation("cat", difficult=(0,))
    else:
        path = "annotations/instances_train2014.json"
        content = json.loads(files[path])
        for entry in content["annotations"]:
            entry["iscrowd"] = int(entry["image_id"] == content["annotations"][0]["image_id"])
        files[path] = json.dumps(content)
    write_tree(tmp_path, files)
    kept = prepare_source(kind, tmp_path, out=tmp_path / "include", size=8, **{option: "include"})
    first = open_store(kept.path)
    unlabelled = sum(first.dropped.values())
    small = Published(
        first.classes, len(first.train), len(first.test), (unlabelled, 0), reason=PUBLISHED[name].reason
    )
    monkeypatch.setitem(PUBLISHED, name, small)
    for chosen, rows in (("include", len(first.train)), ("exclude", len(first.train) - 1)):
        said: list[str] = []
        out = tmp_path / f"{chosen}-again"
        prepare_source(kind, tmp_path, out=out, size=8, announce=said.append, **{option: chosen})
        data = open_store(out)
        counts = {"train": len(data.train), "test": len(data.test)}
        assert len(data.train) == rows
        assert len(said) == 1
        assert (
            published_differences(name, data=name, classes=data.classes, dropped=data.dropped, **counts) == ()
        )
        assert chosen == "include" or published_differences(name, data=name, classes=data.classes, **counts)


def test_preparing_says_where_a_store_is_not_the_whole_dataset(tmp_path):
    write_tree(tmp_path, voc_files(3, 2, year=2007) | coco_files(3, 2, year=2014))
    said: list[str] = []
    prepare_source("voc", tmp_path, out=tmp_path / "voc", size=8, announce=said.append)
    assert said[1:] == [
        "note: voc2007 has 3 training rows; as published it has 5,011, fewer under --difficult exclude",
        "note: voc2007 has 2 test rows; as published it has 4,952, fewer under --difficult exclude",
    ]
    said.clear()
    prepare_source("coco", tmp_path, out=tmp_path / "coco", size=8, announce=said.append)
    assert said[1].startswith(
        "note: coco2014 has other classes than the 80 of coco2014 (person, bicycle, car and"
    )
    assert len(said) == 4
