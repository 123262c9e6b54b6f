"""VOC: the raw sample against its published labels, both years, and files that are wrong."""

from __future__ import annotations

import numpy as np
import pytest

from data import annotation, shared_data, voc_files, write_tree
from mlcl.datasets import decode_image, open_store, plan_source, prepare_source, read_ids
from mlcl.errors import InputError

BASE = "VOCdevkit/VOC2012/"
XML = f"{BASE}Annotations/2008_000001.xml"


@pytest.mark.parametrize(("difficult", "key"), [("include", "labels"), ("exclude", "labels_strict")])
def test_the_raw_sample_has_the_known_labels(tmp_path, difficult, key):
    root = shared_data() / "raw" / "voc2012"
    info = prepare_source("voc", root, out=tmp_path / "out", size=16, difficult=difficult)
    meta = np.load(shared_data() / "voc2012" / "meta.npz")
    row = {name.decode(): i for i, name in enumerate(meta["ids"])}
    rows = [row[name] for name in read_ids(tmp_path / "out")]
    data = open_store(tmp_path / "out", check=True)
    assert (info.rows, info.name, info.classes) == (80, "voc2012", tuple(meta["classes"]))
    assert (meta["split"][rows] == [b"train"] * len(data.train) + [b"val"] * len(data.test)).all()
    assert np.array_equal(np.concatenate([data.train.labels, data.test.labels]), meta[key][rows])


def test_the_raw_sample_looks_like_its_thumbnails(tmp_path):
    """Pixels against images that were made by another program, at another size."""
    pack = tmp_path / "pack"
    pack.mkdir()
    for name in ("meta.npz", "thumbs96.zip"):
        (pack / name).symlink_to(shared_data() / "voc2012" / name)
    raw = plan_source("voc", shared_data() / "raw" / "voc2012")
    thumbs = plan_source("thumbs", pack)
    row = {name: i for i, name in enumerate(thumbs.ids)}
    prepare_source("voc", shared_data() / "raw" / "voc2012", out=tmp_path / "raw", size=24)
    data = open_store(tmp_path / "raw")
    for i, name in enumerate(raw.ids[:10]):
        small = decode_image(thumbs.inputs.read(row[name]), size=24)
        assert np.abs(data.train.inputs[i].astype(int) - small).mean() < 8


@pytest.mark.parametrize("root", ["", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_any_of_three_roots_will_do(tmp_path, root):
    write_tree(tmp_path, voc_files())
    plan = plan_source("voc", tmp_path / root)
    assert (plan.name, plan.train, len(plan.ids)) == ("voc2012", 4, 7)


def test_voc_2007_is_trainval_and_test(tmp_path):
    write_tree(tmp_path, voc_files(3, 2, year=2007))
    plan = plan_source("voc", tmp_path / "VOCdevkit" / "VOC2007")
    assert (plan.name, plan.train, len(plan.ids)) == ("voc2007", 3, 5)
    write_tree(tmp_path, voc_files())
    with pytest.raises(InputError, match="holds VOC 2007 and VOC 2012; say which with the option year"):
        plan_source("voc", tmp_path)
    assert plan_source("voc", tmp_path, year=2007).name == "voc2007"
    assert plan_source("voc", tmp_path, year=2012).train == 4


def test_images_with_difficult_objects_only_are_counted(tmp_path):
    files = voc_files() | {XML: annotation("cat", "cat", difficult=(0, 1))}
    write_tree(tmp_path, files)
    assert len(plan_source("voc", tmp_path).ids) == 7
    plan = plan_source("voc", tmp_path, difficult="exclude")
    assert (len(plan.ids), dict(plan.dropped)) == (6, {"only difficult objects": 1})
    assert "2008_000001" not in plan.ids


def test_parts_of_a_person_are_no_classes(tmp_path):
    text = "<annotation><object><name>person</name><part><name>head</name></part></object></annotation>"
    write_tree(tmp_path, voc_files() | {XML: text})
    assert plan_source("voc", tmp_path).labels[1].nonzero()[0].tolist() == [14]


NAMED = "<annotation><object><name>&x;</name></object></annotation>"
BOMB = '<!DOCTYPE a [<!ENTITY y "ha"><!ENTITY x "&y;&y;">]>' + NAMED
OUTSIDE = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + NAMED


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({XML: None}, r"2008_000001\.xml was looked for and does not exist"),
        ({XML: "<annotation><object>"}, r"2008_000001\.xml is not safe, well-formed XML"),
        ({XML: BOMB}, r"2008_000001\.xml is not safe"),
        ({XML: OUTSIDE}, r"2008_000001\.xml is not safe"),
        ({XML: "<annotation></annotation>"}, r"2008_000001\.xml has no <object>"),
        ({XML: annotation("catt")}, r"named 'catt', but one of VOC's 20 classes.*Did you mean 'cat'"),
        ({XML: "<annotation><object/></annotation>"}, r"named ''"),
        ({XML: b"\xff\xfe\x00"}, "is not safe"),
        ({f"{BASE}ImageSets/Main/train.txt": None}, r"is no VOCdevkit.*VOC2012/ImageSets/Main/train\.txt"),
        ({f"{BASE}ImageSets/Main/val.txt": None}, r"val\.txt was looked for"),
        ({f"{BASE}ImageSets/Main/val.txt": "\n"}, r"val\.txt is empty"),
        ({f"{BASE}ImageSets/Main/val.txt": "../../x\n"}, r"image id '\.\./\.\./x'"),
        ({f"{BASE}ImageSets/Main/val.txt": "ä\n"}, "image id 'ä'"),
        ({f"{BASE}ImageSets/Main/val.txt": "2008_000005\n2008_000005\n"}, "id '2008_000005' twice"),
        ({f"{BASE}ImageSets/Main/val.txt": "2008_000001\n"}, "id '2008_000001' twice"),
        ({f"{BASE}JPEGImages/2008_000004.jpg": None}, r"2008_000004\.jpg was looked for"),
    ],
)
def test_bad_files_are_named(tmp_path, changes, words):
    files = {n: c for n, c in (voc_files() | changes).items() if c is not None}
    write_tree(tmp_path / "raw", files)
    with pytest.raises(InputError, match=words):
        prepare_source("voc", tmp_path / "raw", out=tmp_path / "out", size=8)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


def test_bad_options(tmp_path):
    with pytest.raises(InputError, match="year is 2010"):
        plan_source("voc", tmp_path, year=2010)
    with pytest.raises(InputError, match="difficult is 'maybe'"):
        plan_source("voc", tmp_path, difficult="maybe")
    with pytest.raises(InputError, match="nowhere was looked for"):
        plan_source("voc", tmp_path / "nowhere")
