"""Stores: made, resumed, refused, opened, checked; duplicates in them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from children import LIMIT, child
from data import contents, encoded_image, voc_files, write_tree
from mlcl.datasets import (
    Dataset,
    decode_image,
    load_dataset,
    open_store,
    plan_bytes,
    plan_source,
    prepare,
    prepare_source,
    read_ids,
    store_path,
)
from mlcl.datasets.base import shared_rows
from mlcl.datasets.writing import PROGRESS, Decoder
from mlcl.errors import InputError


@pytest.fixture
def raw(tmp_path):
    return write_tree(tmp_path / "raw", voc_files(5, 4))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A folder with more images than one process is given."""
    root = tmp_path_factory.mktemp("many")
    names = [f"{i:04d}.jpg" for i in range(600)]
    rows = "".join(
        f"{name},{'train' if i % 3 else 'test'},{'a|b' if i % 2 else 'b'}\n" for i, name in enumerate(names)
    )
    write_tree(root, {"labels.csv": "file,split,labels\n" + rows})
    images = [encoded_image(i, size=(16, 12)) for i in range(20)]
    write_tree(root, {name: images[i % 20] for i, name in enumerate(names)})
    return root


def test_a_store_holds_what_the_plan_said(raw, tmp_path):
    info = prepare_source("voc", raw, out=tmp_path / "out", size=8)
    data = open_store(tmp_path / "out", check=True)
    ids = read_ids(tmp_path / "out")
    assert isinstance(data, Dataset)
    assert (info.rows, info.already_there, info.name, dict(info.dropped)) == (9, False, "voc2012", {})
    assert info.bytes == sum(p.stat().st_size for p in (tmp_path / "out").iterdir())
    assert (len(data.train), len(data.test), data.kind, data.classes) == (5, 4, "images", info.classes)
    assert isinstance(data.train.inputs, np.memmap)
    for row, name in enumerate(ids):
        expected = decode_image((raw / f"VOCdevkit/VOC2012/JPEGImages/{name}.jpg").read_bytes(), size=8)
        assert np.array_equal((data.train.inputs if row < 5 else data.test.inputs)[row % 5], expected)
    assert data.train.labels[:, 11].tolist() == [1, 0, 1, 0, 1]
    assert data.test.labels[:, 7].tolist() == [1] * 4
    with pytest.raises(ValueError, match="read-only"):
        data.train.inputs[0] = 0


def test_in_memory_is_a_copy_of_the_same(raw, tmp_path):
    prepare_source("voc", raw, out=tmp_path / "out", size=8)
    mapped, copied = open_store(tmp_path / "out"), open_store(tmp_path / "out", in_memory=True)
    assert not isinstance(copied.train.inputs, np.memmap)
    assert np.array_equal(mapped.test.inputs, copied.test.inputs)
    assert mapped.fingerprint == copied.fingerprint


def test_the_need_for_disk_is_announced(raw, tmp_path):
    plan, said = plan_source("voc", raw), []
    info = prepare_source("voc", raw, out=tmp_path / "out", size=64, announce=said.append)
    assert info.bytes <= plan_bytes(plan, size=64) <= info.bytes + 2**17
    assert said[0] == f"9 items, 20 classes: 176 kB of disk for {tmp_path / 'out'}"


def test_a_size_that_nobody_chose_is_announced_for_images(many, tmp_path):
    said = []
    prepare_source("folder", many, out=tmp_path / "images", announce=said.append)
    assert "224 x 224 pixels suit a GPU or a pre-trained encoder, --size 32 training on a CPU" in said[0]


def test_processes_and_one_process_write_the_same(many, tmp_path):
    calls = []
    prepare_source("folder", many, out=tmp_path / "a", size=8, jobs=2, progress=lambda *p: calls.append(p))
    prepare_source("folder", many, out=tmp_path / "b", size=8, jobs=1)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert calls[0] == (0, 600)
    assert calls[-1] == (600, 600)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupted_store_is_continued(many, tmp_path, jobs):
    def interrupt(done, total):
        if done > 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_source("folder", many, out=tmp_path / "a", size=8, jobs=jobs, progress=interrupt)
    assert (tmp_path / "a.partial").is_dir()
    assert not (tmp_path / "a").exists()
    with pytest.raises(InputError, match="is no finished store"):
        open_store(tmp_path / "a.partial")
    calls = []
    prepare_source("folder", many, out=tmp_path / "a", size=8, jobs=jobs, progress=lambda *p: calls.append(p))
    assert calls[0][0] > 200
    prepare_source("folder", many, out=tmp_path / "b", size=8)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert not (tmp_path / "a.partial").exists()


KILLED = """
import sys
import mlcl.datasets.writing as writing
from mlcl.datasets import prepare_source
writing._SAVE_SECONDS = 0
def progress(done, total):
    print(done, flush=True)
    if done >= 200:
        sys.stdin.readline()  # until it is killed
prepare_source("folder", sys.argv[1], out=sys.argv[2], size=8, jobs=2, progress=progress)
"""


@pytest.mark.slow
def test_a_killed_store_is_continued(many, tmp_path):
    command = [sys.executable, "-c", KILLED, str(many), str(tmp_path / "a")]
    with child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        while int(process.stdout.readline()) < 200:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + LIMIT
    calls = []
    while True:  # the workers notice the death of their parent and let go of the folder
        try:
            prepare_source("folder", many, out=tmp_path / "a", size=8, progress=lambda *p: calls.append(p))
            break
        except InputError as error:
            assert "another process" in str(error)
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert calls[0][0] >= 128
    prepare_source("folder", many, out=tmp_path / "b", size=8)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_work_on_another_plan_is_not_continued(many, tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_source("folder", many, out=tmp_path / "a", size=9, progress=interrupt)
    calls = []
    prepare_source("folder", many, out=tmp_path / "a", size=8, progress=lambda *p: calls.append(p))
    assert calls[0] == (0, 600)
    assert open_store(tmp_path / "a", check=True).train.inputs.shape[1:] == (3, 8, 8)


def test_a_ledger_that_is_cut_off_is_begun_again(many, tmp_path):
    def interrupt(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_source("folder", many, out=tmp_path / "a", size=8, progress=interrupt)
    ledger = tmp_path / "a.partial" / PROGRESS
    ledger.write_bytes(ledger.read_bytes()[:30])
    calls = []
    prepare_source("folder", many, out=tmp_path / "a", size=8, progress=lambda *p: calls.append(p))
    assert calls[0] == (0, 600)


def test_a_finished_store_is_never_redone(raw, tmp_path):
    prepare_source("voc", raw, out=tmp_path / "out", size=8)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()}
    calls = []
    info = prepare_source("voc", raw, out=tmp_path / "out", size=8, progress=lambda *p: calls.append(p))
    assert info.already_there
    assert calls == []
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()}


def test_other_content_is_not_overwritten_unasked(raw, tmp_path):
    prepare_source("voc", raw, out=tmp_path / "out", size=8)
    before = contents(tmp_path / "out")
    with pytest.raises(InputError, match="store of other content"):
        prepare_source("voc", raw, out=tmp_path / "out", size=9)
    assert contents(tmp_path / "out") == before
    prepare_source("voc", raw, out=tmp_path / "out", size=9, overwrite=True)
    assert open_store(tmp_path / "out").train.inputs.shape == (5, 3, 9, 9)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "raw"]


def test_folders_that_are_no_stores_are_left_alone(raw, tmp_path):
    write_tree(tmp_path / "mine", {"thesis.txt": "all my work"})
    with pytest.raises(InputError, match="is not a store, so it is left alone"):
        prepare_source("voc", raw, out=tmp_path / "mine", size=8, overwrite=True)
    write_tree(tmp_path / "out.partial", {"thesis.txt": "all my work"})
    with pytest.raises(InputError, match="was not made by this program"):
        prepare_source("voc", raw, out=tmp_path / "out", size=8)
    assert (tmp_path / "mine" / "thesis.txt").exists()
    assert (tmp_path / "out.partial" / "thesis.txt").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is not a store"):
        prepare_source("voc", raw, out=tmp_path / "file", size=8)
    with pytest.raises(InputError, match="file"):
        prepare_source("voc", raw, out=tmp_path / "file" / "below", size=8)
    (tmp_path / "empty").mkdir()
    assert prepare_source("voc", raw, out=tmp_path / "empty", size=8).rows == 9


def test_two_processes_do_not_write_one_store(raw, tmp_path):
    (tmp_path / "out.partial").mkdir()
    handle = os.open(tmp_path / "out.partial", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(InputError, match="by another process"):
            prepare_source("voc", raw, out=tmp_path / "out", size=8)
    finally:
        os.close(handle)
    assert prepare_source("voc", raw, out=tmp_path / "out", size=8).rows == 9


def test_too_little_disk_is_known_before(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**6, 10**6, 1000))
    with pytest.raises(InputError, match=r"needs \d+ bytes of disk, but only 1000 are free"):
        prepare_source("voc", raw, out=tmp_path / "out", size=8)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


@pytest.mark.parametrize("kind", ["voc", "arrays"])
def test_a_disk_that_fills_up_leaves_nothing(raw, tmp_path, monkeypatch, kind):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    y = np.eye(2)
    np.savez(tmp_path / "raw" / "x.npz", x_train=y, y_train=y, x_test=y, y_test=y)
    monkeypatch.setattr(Decoder, "__call__", full)
    monkeypatch.setattr("mlcl.files.write_at", full)
    with pytest.raises(InputError, match=r"could not be written: No space left"):
        prepare_source(kind, raw if kind == "voc" else raw / "x.npz", out=tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


BAD = {"2008_000001": b"not an image", "2008_000003": encoded_image(9)[:-150], "2008_000006": b""}


def test_a_bad_image_is_named_and_nothing_stays(raw, tmp_path):
    write_tree(raw / "VOCdevkit/VOC2012/JPEGImages", {"2008_000003.jpg": BAD["2008_000003"]})
    with pytest.raises(InputError, match=r"2008_000003\.jpg cannot be decoded: .*truncated.*--skip-bad"):
        prepare_source("voc", raw, out=tmp_path / "out", size=8)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


def test_skip_bad_counts_and_leaves_out(raw, tmp_path):
    whole = prepare_source("voc", raw, out=tmp_path / "whole", size=8).path
    write_tree(raw / "VOCdevkit/VOC2012/JPEGImages", {f"{name}.jpg": data for name, data in BAD.items()})
    (raw / "VOCdevkit/VOC2012/JPEGImages/2008_000007.jpg").unlink()
    info = prepare_source("voc", raw, out=tmp_path / "out", size=8, skip_bad=True)
    assert (info.rows, dict(info.dropped)) == (5, {"unreadable": 4})
    good = [0, 2, 4, 5, 8]
    all_ids = read_ids(whole)
    assert read_ids(tmp_path / "out") == [all_ids[i] for i in good]
    data, full = open_store(tmp_path / "out", check=True), open_store(whole)
    assert (len(data.train), len(data.test)) == (3, 2)
    pixels = np.concatenate([full.train.inputs, full.test.inputs])[good]
    labels = np.concatenate([full.train.labels, full.test.labels])[good]
    assert np.array_equal(np.concatenate([data.train.inputs, data.test.inputs]), pixels)
    assert np.array_equal(np.concatenate([data.train.labels, data.test.labels]), labels)
    skipped = json.loads((tmp_path / "out" / "manifest.json").read_text())["skipped"]
    assert sorted(name for name, _ in skipped) == [*BAD, "2008_000007"]
    assert str(tmp_path) not in json.dumps(skipped)


def test_absent_images_are_counted_before_the_work(raw, tmp_path):
    for name in ("2008_000002", "2008_000004"):
        (raw / f"VOCdevkit/VOC2012/JPEGImages/{name}.jpg").unlink()
    with pytest.raises(InputError, match=r"2008_000002\.jpg was looked for.*\(2 of 9 images are absent"):
        prepare_source("voc", raw, out=tmp_path / "out", size=8)


@pytest.mark.parametrize("content", [None, b"broken"])
def test_a_split_without_readable_images_is_refused(raw, tmp_path, content):
    for i in range(5):
        path = raw / f"VOCdevkit/VOC2012/JPEGImages/2008_{i:06d}.jpg"
        path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(InputError, match="no readable training images"):
        prepare_source("voc", raw, out=tmp_path / "out", size=8, skip_bad=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


@pytest.mark.parametrize(
    ("options", "words"),
    [({"size": 0}, "size is 0"), ({"size": 5000}, "size is 5000"), ({"jobs": 0}, "jobs is 0")],
)
def test_options_out_of_bounds(raw, tmp_path, options, words):
    with pytest.raises(InputError, match=words):
        prepare_source("voc", raw, out=tmp_path / "out", **options)


def test_unknown_sources_and_options(raw):
    with pytest.raises(InputError, match=r"unknown data source 'vok'.*'voc'"):
        prepare_source("vok", raw)
    with pytest.raises(InputError, match="takes no option 'yeer'"):
        prepare_source("voc", raw, yeer=2012)


@pytest.fixture
def store(raw, tmp_path):
    return prepare_source("voc", raw, out=tmp_path / "out", size=8).path


@pytest.mark.parametrize("name", ["inputs.npy", "labels.npy", "ids.json", "manifest.json"])
def test_a_damaged_store_is_refused(store, name):
    data = (store / name).read_bytes()
    for changed in (data[:-2], b"", None):
        (store / name).write_bytes(changed) if changed is not None else (store / name).unlink()
        with pytest.raises(InputError, match="out"):
            open_store(store)
    flipped = bytearray(data)
    flipped[-3] ^= 1
    (store / name).write_bytes(flipped)
    with pytest.raises(InputError, match=r"damaged|manifest|JSON|only 0 and 1"):
        open_store(store, check=True)


def test_pickles_are_refused(store):
    np.save(store / "labels.npy", np.asarray([{}], dtype=object), allow_pickle=True)
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["files"]["labels.npy"]["bytes"] = (store / "labels.npy").stat().st_size
    (store / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="not a readable"):
        open_store(store)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "sounds"}, "kind, dtype and shape"),
        ({"dtype": "float32"}, "kind, dtype and shape"),
        ({"shape": [9, 3, 8]}, "kind, dtype and shape"),
        ({"shape": [9, 3, 8, 0]}, "kind, dtype and shape"),
        ({"shape": []}, "kind, dtype and shape; train and test"),
        ({"train": 6}, "train and test"),
        ({"train": 9, "test": 0}, "train and test"),
        ({"classes": []}, "classes"),
        ({"classes": ["a", "a"]}, "classes"),
        ({"classes": ["a", []]}, "classes"),
        ({"dropped": {"x": "many"}}, "dropped"),
        ({"skipped": [["a"]]}, "skipped"),
        ({"skipped": ["ab"]}, "skipped"),
        ({"files": {}}, "files"),
        ({"files": {"inputs.npy": {}, "labels.npy": {}, "ids.json": {}}}, "files"),
    ],
)
def test_a_manifest_that_contradicts_itself_says_where(store, changes, words):
    manifest = json.loads((store / "manifest.json").read_text()) | changes
    (store / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        InputError, match=f"manifest.json contradicts itself in {words}: the store is damaged"
    ):
        open_store(store)


@pytest.mark.parametrize("content", ["[1]", "[" * 10**5, "{}", "no", '["a"]'])
def test_ids_that_are_no_list_of_ids_are_refused(store, content):
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["files"]["ids.json"]["bytes"] = len(content)
    (store / "manifest.json").write_text(json.dumps(manifest))
    (store / "ids.json").write_text(content)
    with pytest.raises(InputError, match=r"ids\.json is not a list of 9 ids; the store is damaged"):
        read_ids(store)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 20) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("m")
    write_tree(folder / "raw", voc_files(2, 2))
    path = prepare_source("voc", folder / "raw", out=folder / "out", size=4).path
    return path, (path / "manifest.json").read_text()


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_manifest_is_opened_or_refused(data, small):
    path, manifest = small[0], json.loads(small[1])
    key = data.draw(st.sampled_from(sorted(manifest)))
    manifest[key] = data.draw(JSON)
    (path / "manifest.json").write_text(json.dumps(manifest))
    with contextlib.suppress(InputError):
        assert len(open_store(path).train) == 2


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=12),
    st.lists(st.integers(0, 12), min_size=1, max_size=12),
    st.sampled_from([np.uint8, np.float32]),
)
def test_shared_rows_against_a_loop(left, right, dtype):
    a, b = (np.asarray([[v // 4, v % 4, 1] for v in part], dtype=dtype) for part in (left, right))
    expected = [(left.index(v), j) for j, v in enumerate(right) if v in left]
    assert [tuple(pair) for pair in shared_rows(a, b).tolist()] == expected


def test_duplicates_in_a_store_are_found(raw, tmp_path):
    same = (raw / "VOCdevkit/VOC2012/JPEGImages/2008_000001.jpg").read_bytes()
    write_tree(raw / "VOCdevkit/VOC2012/JPEGImages", {"2008_000006.jpg": same, "2008_000008.jpg": same})
    path = prepare_source("voc", raw, out=tmp_path / "out", size=8).path
    data, ids = open_store(path), read_ids(path)
    pairs = shared_rows(data.train.inputs, data.test.inputs)
    assert [(ids[i], ids[len(data.train) + j]) for i, j in pairs] == [
        ("2008_000001", "2008_000006"),
        ("2008_000001", "2008_000008"),
    ]


def test_datasets_are_found_by_name(raw, tmp_path, monkeypatch):
    monkeypatch.setenv("MLCL_HOME", str(tmp_path / "home"))
    with pytest.raises(InputError) as caught:
        load_dataset("voc2012-16")
    place = tmp_path / "home" / "stores" / "voc2012-16"
    command = f"mlcl data prepare voc --root VOCdevkit --year 2012 --size 16 --out {place}"
    assert str(caught.value).endswith(command)
    info = prepare_source("voc", raw, size=16)
    assert info.path == place == store_path(plan_source("voc", raw), 16)
    assert load_dataset("voc2012-16").fingerprint == load_dataset(str(place), in_memory=True).fingerprint
    with pytest.raises(
        InputError, match=rf"'rows.csv' was not found: {Path.cwd()}/rows.csv and .* were looked"
    ):
        load_dataset("rows.csv")
    with pytest.raises(InputError, match=r"'voc2012-61' is not prepared yet"):
        load_dataset("voc2012-61")
    with pytest.raises(InputError, match=r"'voc2012_16' was not found.*Did you mean 'voc2012-16'"):
        load_dataset("voc2012_16")
    with pytest.raises(InputError, match=r"'x+' was not found"):
        load_dataset(300 * "x")  # longer than a name in a file system can be
    with pytest.raises(InputError, match="was not found"):
        load_dataset("../raw-16")
    assert load_dataset("digits").name == "digits"


def test_a_plan_can_be_prepared_by_hand(raw, tmp_path):
    plan = plan_source("voc", raw, name="My pets")
    assert plan.name == "my-pets"
    assert prepare(plan, tmp_path / "out", size=8).name == "my-pets"
    assert Path(tmp_path / "out").is_dir()


def test_a_store_is_replaced_alone_and_nothing_through_a_link(raw, tmp_path):
    docs = write_tree(tmp_path / "docs", {"inputs.npy": "years of work", "progress.json": "{}"})
    before = contents(docs)
    (tmp_path / "out.partial").symlink_to(docs)
    with pytest.raises(InputError, match=r"out\.partial is a link, and mlcl writes and deletes nothing"):
        prepare_source("voc", raw, out=tmp_path / "out", size=8)
    (tmp_path / "out.partial").unlink()
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "progress.json").write_text("{}")
    (tmp_path / "out.partial" / "inputs.npy").symlink_to(docs / "inputs.npy")
    (tmp_path / "out.partial" / "thesis.txt").write_text("all my work")
    with pytest.raises(
        InputError, match=r"not made by this program alone: it holds out\.partial/thesis\.txt"
    ):
        prepare_source("voc", raw, out=tmp_path / "out", size=8)
    (tmp_path / "out.partial" / "thesis.txt").unlink()
    prepare_source("voc", raw, out=tmp_path / "out", size=8)
    assert contents(docs) == before
    # What somebody has put aside, or beside.
    (tmp_path / "out").rename(tmp_path / "out.old")
    kept = contents(tmp_path / "out.old")
    prepare_source("voc", raw, out=tmp_path / "out", size=8)
    (tmp_path / "out" / "thesis.txt").write_text("all my work")
    with pytest.raises(InputError, match=r"out holds more than a store, such as out/thesis\.txt"):
        prepare_source("voc", raw, out=tmp_path / "out", size=9, overwrite=True)
    (tmp_path / "out" / "thesis.txt").unlink()
    prepare_source("voc", raw, out=tmp_path / "out", size=9, overwrite=True)
    assert contents(tmp_path / "out.old") == kept
    assert sorted(p.name for p in tmp_path.iterdir()) == ["docs", "out", "out.old", "raw"]


def test_a_store_may_lie_behind_a_link(raw, tmp_path):
    (tmp_path / "fast").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "fast" / "store")
    for size in (8, 9):
        prepare_source("voc", raw, out=tmp_path / "out", size=size, overwrite=True)
        assert open_store(tmp_path / "out").train.inputs.shape == (5, 3, size, size)
    assert (tmp_path / "out").is_symlink()
    assert [p.name for p in (tmp_path / "fast").iterdir()] == ["store"]


@pytest.mark.parametrize("name", ["manifest.json", "inputs.npy", "labels.npy", "ids.json"])
def test_special_files_in_a_store_are_refused(name, raw, tmp_path):
    prepare_source("voc", raw, out=tmp_path / "out", size=8)
    (tmp_path / "out" / name).unlink()
    os.mkfifo(tmp_path / "out" / name)
    with pytest.raises(InputError, match=rf"{name}"):
        open_store(tmp_path / "out")
    with pytest.raises(InputError):
        prepare_source("voc", raw, out=tmp_path / "out", size=8)
