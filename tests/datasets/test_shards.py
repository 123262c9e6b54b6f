"""Parquet shards: which files are meant, what their footers say, and what is refused by name."""

from __future__ import annotations

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from mlcl.datasets import shards
from mlcl.datasets.shards import (
    choose_columns,
    describe_shard,
    expand,
    fetched,
    read_batches,
    shard_sha256,
)
from mlcl.errors import InputError
from shard_files import Rows, made_up, write_shard

ROWS = made_up(1)[0]
TEXT = pyarrow.list_(pyarrow.string())


def rows_of(path, *, columns=None, width=None):
    """All rows of a file: vectors, and the tags of each as a set."""
    columns = columns or choose_columns(str(path))
    vectors, tags = [], []
    for batch in read_batches(path, columns, address=str(path), width=width):
        vectors.append(batch.rows)
        found = [set() for _ in batch.rows]
        for row, label in zip(*batch.tags, strict=True):
            found[row].add(batch.names[label])
        tags += found
    return np.concatenate(vectors), tags


def written(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("joined", [None, "|"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_rows_are_read_as_they_were_written(tmp_path, monkeypatch, fixed, joined, dtype):
    rows = Rows(ROWS.vectors.astype(dtype), ROWS.tags)
    path = write_shard(tmp_path / "a.parquet", rows, fixed=fixed, joined=joined)
    monkeypatch.setattr(shards, "NUMBERS", 7 * 5)  # batches of seven rows, across row groups
    vectors, tags = rows_of(path, width=5)
    assert np.array_equal(vectors, rows.vectors)
    assert tags == [set(row) for row in rows.tags]


def test_other_encodings_of_names(tmp_path):
    names = [["a", "b"], [], ["b"]]
    vectors = pyarrow.array([[1.0], [2.0], [3.0]])
    coded = pyarrow.array(["a, b", "", " b"]).dictionary_encode()
    path = written(tmp_path / "a.parquet", x=vectors, kind=coded)
    columns = choose_columns(str(path), tags="kind", separator=",")
    assert rows_of(path, columns=columns)[1] == [set(row) for row in names]
    large = pyarrow.array(names, pyarrow.large_list(pyarrow.large_string()))
    assert rows_of(written(path, x=vectors, tags=large))[1] == [set(row) for row in names]


def test_globs_folders_and_files_are_one_list(tmp_path, monkeypatch):
    paths = [str(write_shard(tmp_path / "deep" / name, ROWS)) for name in ("b.parquet", "a.parquet")]
    monkeypatch.chdir(tmp_path)
    for given in (
        ["deep"],
        ["deep/*.parquet"],
        ["**/*.parquet"],
        ["deep/b.parquet", "deep/a.parquet", "deep"],
    ):
        assert expand(given) == sorted(paths)
    with pytest.raises(InputError, match=r"absent/\*\.parquet has no files"):
        expand(["deep", "absent/*.parquet"])


def test_addresses_of_fsspec(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    content = write_shard(tmp_path / "a.parquet", ROWS).read_bytes()
    files = fsspec.filesystem("memory")
    for name in ("/shards/a.parquet", "/shards/b.parquet"):
        files.pipe(name, content)
    found = expand(["memory://shards/*.parquet"])
    assert found == ["memory:///shards/a.parquet", "memory:///shards/b.parquet"]
    assert expand(["memory://shards"]) == found
    columns = choose_columns(found[0])
    assert describe_shard(found[0], columns).rows == 40
    with fetched(found[0]) as (path, digest):
        assert path.read_bytes() == content
        assert digest == shard_sha256(str(tmp_path / "a.parquet"))
    with pytest.raises(InputError, match="cannot be opened: Protocol not known"):
        expand(["nonsense://a/b"])


def test_a_fingerprint_is_of_the_content(tmp_path):
    one, two = (write_shard(tmp_path / name, ROWS) for name in ("a.parquet", "b.parquet"))
    columns = choose_columns(str(one))
    assert describe_shard(str(one), columns).footer == describe_shard(str(two), columns).footer
    assert shard_sha256(str(one)) == shard_sha256(str(two))
    write_shard(two, made_up(1, seed=1)[0])
    assert shard_sha256(str(one)) != shard_sha256(str(two))
    assert describe_shard(str(one), columns).version != describe_shard(str(two), columns).version


VECTORS = pyarrow.array([[1.0, 2.0], [3.0, 4.0]])
TAGS = pyarrow.array([["a"], []], TEXT)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"y": VECTORS, "tags": TAGS},
            "no column features, embedding, vector, x; name the column of vectors",
        ),
        ({"x": VECTORS, "names": TAGS}, "no column labels, label, tags, classes; name the column of tags"),
        ({"x": pyarrow.array([1.0, 2.0]), "tags": TAGS}, "has double in column 'x', but lists of numbers"),
        ({"x": VECTORS, "tags": pyarrow.array([[1], []])}, "in column 'tags', but lists of names, or texts"),
        (
            {"x": pyarrow.array([[1.0, 2.0], [3.0]]), "tags": TAGS},
            "a vector of length 1 in row 1 of column 'x'",
        ),
        ({"x": pyarrow.array([[1.0], None]), "tags": TAGS}, "nothing (null) in row 1 of column 'x'"),
        ({"x": pyarrow.array([[1.0], [None]]), "tags": TAGS}, "no number in row 1, place 0 of column 'x'"),
        ({"x": pyarrow.array([[1.0, 2.0], [3.0, np.inf]]), "tags": TAGS}, "infinity in row 1, place 1 of"),
        (
            {"x": pyarrow.array([[1.0, 2.0], [3.0, -1e155]]), "tags": TAGS},
            "-1e+155 in row 1, place 1 of column 'x'; expected finite numbers of at most 1e+40",
        ),
        (
            {"x": VECTORS, "tags": pyarrow.array([["a"], None], TEXT)},
            "nothing (null) in row 1 of column 'tags'",
        ),
        (
            {"x": VECTORS, "tags": pyarrow.array([[], [None]], TEXT)},
            "no name (null) in row 1 of column 'tags'",
        ),
        ({"x": VECTORS, "tags": pyarrow.array([[" "], []], TEXT)}, "a blank name in row 0 of column 'tags'"),
        (
            {"x": VECTORS, "tags": TAGS, "annotated": pyarrow.array([["b"], []], TEXT)},
            "the tag 'a' in row 0, which column 'annotated' does not list there",
        ),
    ],
)
def test_bad_columns_are_named_with_their_row(tmp_path, columns, message):
    path = written(tmp_path / "a.parquet", **columns)

    def read():
        describe_shard(str(path), choose_columns(str(path)))
        rows_of(path)

    with pytest.raises(InputError) as caught:
        read()
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_files_that_are_no_shards(tmp_path):
    path = write_shard(tmp_path / "a.parquet", ROWS)
    columns = choose_columns(str(path))
    with pytest.raises(InputError, match=r"has no column 'vectors' .option vectors.; it has vector, tags"):
        choose_columns(str(path), vectors="vectors")
    with pytest.raises(InputError, match="separator is empty"):
        choose_columns(str(path), separator="")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"a\.parquet is not a readable Parquet file: it has no footer"):
        describe_shard(str(path), columns)
    with pytest.raises(InputError, match=r"b\.parquet cannot be read: No such file"):
        describe_shard(str(tmp_path / "b.parquet"), columns)
