"""Parquet and Hugging Face datasets."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from data import encoded_image
from mlcl.datasets import arrow, decode_image, open_store, plan_source, prepare_source, read_ids
from mlcl.datasets.shards import choose_columns, read_batches
from mlcl.datasets.table import read_table
from mlcl.errors import InputError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

IMAGES = [encoded_image(i) for i in range(6)]
SPLIT = ["train", "test", "train", "train", "test", "train"]
NAMES = [["cat"], ["dog", "cat"], [], ["dog"], ["cat"], ["dog"]]
MATRIX = [[1, 0], [1, 1], [0, 0], [0, 1], [1, 0], [0, 1]]
ROWS = [0, 2, 3, 5, 1, 4]


def check(path, pixels=True):
    data = open_store(path, check=True)
    assert data.classes == ("cat", "dog")
    assert (len(data.train), len(data.test)) == (4, 2)
    assert np.concatenate([data.train.labels, data.test.labels]).tolist() == [MATRIX[i] for i in ROWS]
    inputs = np.concatenate([data.train.inputs, data.test.inputs])
    if pixels:
        assert np.array_equal(inputs, [decode_image(IMAGES[i], size=8) for i in ROWS])
    return inputs


LABELS = {
    "names": {"labels": NAMES},
    "text": {"tags": ["|".join(names) for names in NAMES]},
    "commas": {"tags": [", ".join(names) for names in NAMES]},
    "printed": {"tags": [str(names) for names in NAMES]},
    "columns": {"label_cat": [row[0] for row in MATRIX], "label_dog": [float(row[1]) for row in MATRIX]},
}


@pytest.mark.parametrize("labels", list(LABELS))
@pytest.mark.parametrize("struct", [False, True])
def test_images(tmp_path, labels, struct):
    column = [{"bytes": data, "path": None} for data in IMAGES] if struct else IMAGES
    table = pa.table({"image": column, "split": SPLIT, "id": [f"p{i}" for i in range(6)]} | LABELS[labels])
    pq.write_table(table, tmp_path / "Pets.parquet", row_group_size=2)
    info = prepare_source("parquet", tmp_path / "Pets.parquet", out=tmp_path / "out", size=8)
    check(tmp_path / "out")
    assert info.name == "pets"
    assert read_ids(tmp_path / "out") == [f"p{i}" for i in ROWS]


def test_one_file_a_split(tmp_path):
    for split, rows in (("train", ROWS[:4]), ("test", ROWS[4:])):
        table = pa.table({"image": [IMAGES[i] for i in rows], "labels": [NAMES[i] for i in rows]})
        pq.write_table(table, tmp_path / f"{split}-00000-of-00001.parquet")
    prepare_source("parquet", tmp_path, out=tmp_path / "out", size=8)
    check(tmp_path / "out")


def test_class_numbers_and_the_names_that_hugging_face_keeps(tmp_path):
    numbers = [[("cat", "dog").index(n) for n in names] for names in NAMES]
    table = pa.table({"image": IMAGES, "split": SPLIT, "labels": numbers})
    pq.write_table(table, tmp_path / "a.parquet")
    assert plan_source("parquet", tmp_path / "a.parquet").classes == ("0", "1")
    feature = {"feature": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "_type": "Sequence"}
    content = json.dumps({"info": {"features": {"labels": feature}}})
    pq.write_table(table.replace_schema_metadata({"huggingface": content}), tmp_path / "b.parquet")
    prepare_source("parquet", tmp_path / "b.parquet", out=tmp_path / "out", size=8)
    check(tmp_path / "out")


X = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)


@pytest.mark.parametrize("lists", [False, True])
def test_features(tmp_path, lists):
    columns = {"features": X.tolist()} if lists else {f"f{k}": X[:, k] for k in range(3)}
    pq.write_table(
        pa.table({"id": list(range(6)), "split": SPLIT, "labels": NAMES} | columns), tmp_path / "a.parquet"
    )
    prepare_source("parquet", tmp_path / "a.parquet", out=tmp_path / "out")
    assert np.array_equal(check(tmp_path / "out", pixels=False), X[ROWS])


def test_without_a_split_a_part_is_held_out(tmp_path):
    pq.write_table(pa.table({"features": X.tolist(), "labels": NAMES}), tmp_path / "a.parquet")
    plan = plan_source("parquet", tmp_path / "a.parquet", test_fraction=0.5, split_seed=3)
    assert (plan.train, len(plan.ids)) == (3, 6)
    assert plan.options == {"test_fraction": 0.5, "split_seed": 3}


def test_named_columns(tmp_path):
    pq.write_table(pa.table({"photo": IMAGES, "what": NAMES, "split": SPLIT}), tmp_path / "a.parquet")
    prepare_source(
        "parquet", tmp_path / "a.parquet", out=tmp_path / "out", size=8, image="photo", labels="what"
    )
    check(tmp_path / "out")


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"image": IMAGES}, {}, "no column of labels"),
        (
            {"labels": NAMES},
            {},
            "no column of texts, vectors or images with a usual name, and none of numbers",
        ),
        ({"labels": NAMES, "image": IMAGES}, {"labels": "tags"}, r"no column 'tags' \(option labels\)"),
        ({"labels": NAMES, "image": IMAGES}, {"image": "img"}, r"no column 'img' \(option image\)"),
        ({"labels": NAMES, "image": ["x"] * 6}, {"image": "image"}, "but bytes were expected"),
        ({"labels": [1.5] * 6, "image": IMAGES}, {}, "'1.5' in row 1 of column 'labels'"),
        ({"labels": [[-1]] * 6, "image": IMAGES}, {}, "class numbers in 'labels' that are not in 0"),
        ({"labels": [[10**9]] * 6, "image": IMAGES}, {}, "class numbers in 'labels' that are not in 0"),
        ({"label_a": [2] * 6, "image": IMAGES}, {}, "has 2 in row 1 of column 'label_a', but 0 or 1"),
        ({"label_a": ["x"] * 6, "image": IMAGES}, {}, "not a number in column 'label_a'"),
        ({"labels": NAMES, "features": [[1.0]] * 5 + [[1.0, 2.0]]}, {}, "a vector of length 2 in row 6"),
        ({"labels": NAMES, "features": [[None]] * 6}, {}, "no number in row 1"),
        ({"labels": NAMES, "f": [np.nan] * 6}, {}, "finite"),
        ({"labels": NAMES, "image": IMAGES, "id": [1] * 6}, {"id": "id"}, "id '1' twice"),
        ({"labels": NAMES, "image": IMAGES, "split": ["x"] * 6}, {}, "split 'x'"),
        ({"labels": NAMES, "image": [*IMAGES[:5], None]}, {}, "row 5, holds no bytes"),
        ({"labels": NAMES, "image": [*IMAGES[:5], b"x"]}, {}, "row 5, is not an image"),
    ],
)
def test_bad_tables_are_named(tmp_path, columns, options, words):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=words):
        prepare_source("parquet", tmp_path / "a.parquet", out=tmp_path / "out", **options)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet"]


def test_files_that_are_no_tables(tmp_path):
    with pytest.raises(InputError, match="was looked for"):
        plan_source("parquet", tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"no \.parquet files"):
        plan_source("parquet", tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"hello")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        plan_source("parquet", tmp_path)
    pq.write_table(pa.table({"labels": NAMES, "f": [1.0] * 6}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"labels": NAMES, "g": [1.0] * 6}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match="one table"):
        plan_source("parquet", tmp_path)


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "dataset_info.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'mlcl\[huggingface\]'"):
        plan_source("huggingface", tmp_path)


def test_hugging_face_datasets_from_disk(tmp_path):
    hf = pytest.importorskip("datasets", reason="datasets is an extra: pip install 'mlcl[huggingface]'")
    if not hasattr(hf, "Features"):  # tests/datasets itself answers to the name
        pytest.skip("datasets is an extra: pip install 'mlcl[huggingface]'")
    features = hf.Features({"image": hf.Image(), "labels": hf.Sequence(hf.ClassLabel(names=["cat", "dog"]))})

    def part(rows):
        numbers = [[("cat", "dog").index(n) for n in NAMES[i]] for i in rows]
        images = [{"bytes": IMAGES[i], "path": None} for i in rows]
        return hf.Dataset.from_dict({"image": images, "labels": numbers}, features=features)

    hf.DatasetDict({"train": part(ROWS[:4]), "test": part(ROWS[4:])}).save_to_disk(tmp_path / "pets")
    info = prepare_source("huggingface", tmp_path / "pets", out=tmp_path / "out", size=8)
    check(tmp_path / "out")
    assert info.name == "pets"
    part(range(6)).save_to_disk(tmp_path / "one")
    assert plan_source("huggingface", tmp_path / "one").train == 4
    with pytest.raises(InputError, match="not a dataset that save_to_disk wrote"):
        plan_source("huggingface", tmp_path)


@pytest.mark.parametrize(
    ("widths", "words"),
    [([17_000_000], "at most 4096 per byte"), ([1_100_000], "at most 1048576 per row"), ([0, 0, 9], None)],
)
def test_what_takes_far_more_memory_than_bytes_is_refused_before_it_is_read(widths, words, tmp_path):
    numbers = pa.ListArray.from_arrays(
        pa.array([0, *np.cumsum(widths).tolist()], pa.int32()), np.zeros(sum(widths), np.float32)
    )
    table = pa.table({"vector": numbers, "labels": [["a"]] * len(widths)})
    pq.write_table(table, tmp_path / "x.parquet", compression="zstd")
    assert (tmp_path / "x.parquet").stat().st_size < 2000
    if words is None:
        arrow.open_parquet(tmp_path / "x.parquet", where="x.parquet")
        return
    with pytest.raises(InputError, match=f"x.parquet has .* values in .* column 'vector'; {words}"):
        arrow.open_parquet(tmp_path / "x.parquet", where="x.parquet")


def test_a_text_that_is_packed_far_more_than_texts_are_is_refused(tmp_path):
    table = pa.table({"text": ["a b " * 5_000_000], "labels": [["a"]]})
    pq.write_table(table, tmp_path / "x.parquet", compression="zstd")
    with pytest.raises(InputError, match="of column 'text'; at most 1024 times as many were expected"):
        arrow.open_parquet(tmp_path / "x.parquet", where="x.parquet")


@pytest.mark.parametrize("kind", ["text", "front", "list", "image"])
def test_many_equal_texts_are_refused_before_a_table_holds_each(kind, tmp_path, monkeypatch):
    """A file stores them once; the honest half, of which each is its own, is read."""
    monkeypatch.setattr(arrow, "REPEATED", 2**20)
    rng, n = np.random.default_rng(0), 200

    def write(texts, at):
        cells = pa.array(texts, pa.binary() if kind == "image" else pa.string())
        if kind == "list":
            cells = pa.ListArray.from_arrays(pa.array(range(n + 1), pa.int32()), cells)
        if kind == "image":
            cells = pa.StructArray.from_arrays([cells], ["bytes"])
        front = {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}
        pq.write_table(pa.table({"x": cells}), at, compression="zstd", **(front if kind == "front" else {}))
        return arrow.open_parquet(at, where="x.parquet", read=["x"])

    own = ["".join(row) for row in rng.choice(list("abcdefgh"), (n, 10_000))]
    assert write(own, tmp_path / "own.parquet").read().num_rows == n
    with pytest.raises(
        InputError, match=r"in column 'x', most of them equal, and .* bytes in all; at most 128"
    ):
        write(own[:1] * n, tmp_path / "equal.parquet")


def test_tables_shards_and_images_count_equal_texts(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow, "REPEATED", 2**16)
    text = ["ab" * 20_000] * 300
    table = pa.table({"text": text, "tags": text, "vector": [[0.0]] * 300, "image": [b"x" * 40_000] * 300})
    for name, others in (("texts", ["text"]), ("shard", ["vector", "tags"]), ("images", ["image"])):
        pq.write_table(table.select(others), tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match="'text', most of them equal"):
        read_table(tmp_path / "texts.parquet")
    path = str(tmp_path / "shard.parquet")
    with pytest.raises(InputError, match="'tags', most of them equal"):
        next(read_batches(path, choose_columns(path), address=path))
    images = arrow.ParquetImages.of([tmp_path / "images.parquet"], "image")
    with pytest.raises(InputError, match="'image', most of them equal"):
        images.read(0)
