"""Published class lists and counts: against the real labels of COCO, and what is said where a store differs."""

from __future__ import annotations

import numpy as np
import pytest

from data import coco_files, shared_data, voc_files, write_tree
from mlcl.datasets import prepare_source
from mlcl.datasets.published import PUBLISHED, published_differences


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
