"""Raw files with bytes flipped, cut, swapped or repeated: every outcome is a store, or one clear sentence."""

from __future__ import annotations

import bz2
import gzip
import io
import shutil
import tarfile
import zipfile
from functools import cache

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data import coco_files, encoded_image, nus_files, voc_files, write_tree
from mlcl.datasets import open_store, prepare_source
from mlcl.errors import InputError

QUICK = settings(
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


WAYS = ("flip", "set", "cut", "remove", "swap", "repeat", "insert")
PIECES = (b"\0", b"\xff", b"..", b"/", b"-1", b"\n", b"'", b"{", b"9999999999")
PLACE = st.floats(0, 1, exclude_max=True)
DAMAGE = st.lists(
    st.tuples(st.sampled_from(WAYS), PLACE, PLACE, st.integers(0, 7), st.sampled_from(PIECES)),
    min_size=1,
    max_size=3,
)


def damaged(data: bytes, steps: list[tuple[str, float, float, int, bytes]]) -> bytes:
    """Damage a file in one to three ways."""
    for way, a, b, bit, piece in steps:
        if not data:
            break
        here, there = sorted((int(a * len(data)), int(b * len(data))))
        middle = (here + there) // 2
        data = {
            "flip": data[:here] + bytes([data[here] ^ (1 << bit)]) + data[here + 1 :],
            "set": data[:here] + piece + data[here + len(piece) :],
            "cut": data[:there],
            "remove": data[:here] + data[there:],
            "swap": data[:here] + data[middle:there] + data[here:middle] + data[there:],
            "repeat": data[:there] + data[here:there] + data[there:],
            "insert": data[:here] + piece + data[here:],
        }[way]
    return data


@cache
def zipped(kind: str) -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in voc_files(2, 2).items():
                archive.writestr(name, content)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz" if kind == "tar.gz" else "w") as archive:
            for name, content in voc_files(2, 2).items():
                data = content.encode() if isinstance(content, str) else content
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@cache
def arrays() -> bytes:
    buffer = io.BytesIO()
    x, y = np.arange(12.0).reshape(4, 3), np.eye(4, 2, dtype=np.uint8)
    np.savez(buffer, x_train=x, y_train=y, x_test=x, y_test=y, classes=np.asarray(["a", "b"]))
    return buffer.getvalue()


@cache
def mat() -> bytes:
    buffer = io.BytesIO()
    x, y = np.arange(12.0).reshape(4, 3), scipy.sparse.csc_matrix(np.eye(4, 2))
    names = np.array(["a", "b"], dtype=object)
    values = {"x_train": x, "y_train": y, "x_test": x, "y_test": y, "classes": names}
    scipy.io.savemat(buffer, values)
    return buffer.getvalue()


@cache
def sparse() -> dict[str, bytes]:
    files = {}
    for split in ("train", "test"):
        for name, value in (("x", np.arange(12.0).reshape(4, 3)), ("y", np.eye(4, 2))):
            buffer = io.BytesIO()
            scipy.sparse.save_npz(buffer, scipy.sparse.csr_matrix(value), compressed=False)
            files[f"{name}_{split}.npz"] = buffer.getvalue()
    return files


@cache
def pack() -> dict[str, bytes]:
    meta, archive = io.BytesIO(), io.BytesIO()
    ids, split = np.asarray([b"a", b"b", b"c"]), np.asarray([b"train", b"val", b"train"])
    np.savez_compressed(
        meta, ids=ids, labels=np.eye(3, 2, dtype=np.uint8), split=split, classes=np.asarray(["x", "y"])
    )
    with zipfile.ZipFile(archive, "w") as target:
        for i, name in enumerate("abc"):
            target.writestr(f"{name}.jpg", encoded_image(i))
    return {"meta.npz": meta.getvalue(), "thumbs.zip": archive.getvalue()}


@cache
def parquet() -> bytes:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet as pq

    buffer = io.BytesIO()
    columns = {"image": [encoded_image(i) for i in range(4)], "labels": [["a"], ["b"], [], ["a", "b"]]}
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


ARFF = (
    b"@relation 'x: -C 2'\n@attribute y {0,1}\n@attribute 'z z' {0,1}\n@attribute a real\n"
    b"@attribute n {u,'v w',x}\n@data\n1,0,2.5,u\n0,1,?,'v w'\n{0 1, 2 -3}\n1,1,4e2,x\n"
)
CSV = b"file,split,cat,dog\n0.png,train,0,1\n1.png,test,1,1\n2.png,train,1,0\n"
NUS = nus_files(np.asarray([[1, 0], [0, 1], [1, 1], [0, 0]], dtype=np.uint8), 2, ["sky", "map"])
XML = b"<labels><label name='y'/><label name='z z'/></labels>"


def layouts() -> dict[str, tuple[str, str, dict[str, bytes | str]]]:
    """Return for each case the source, its root in the folder, and the files."""
    images = {f"{i}.png": encoded_image(i, kind="PNG") for i in range(3)}
    return {
        "voc": ("voc", "", voc_files(2, 2)),
        "coco": ("coco", "", coco_files(2, 2)),
        "nus-wide": ("nus-wide", "", NUS),
        "folder": ("folder", "", images | {"labels.csv": CSV}),
        "thumbs": ("thumbs", "", dict(pack())),
        "zip": ("voc", "x.zip", {"x.zip": zipped("zip")}),
        "tar": ("voc", "x.tar", {"x.tar": zipped("tar")}),
        "tar.gz": ("voc", "x.tar.gz", {"x.tar.gz": zipped("tar.gz")}),
        "arrays": ("arrays", "x.npz", {"x.npz": arrays()}),
        "mat": ("arrays", "x.mat", {"x.mat": mat()}),
        "sparse": ("arrays", "", dict(sparse())),
        "arff": ("arff", "x.arff", {"x.arff": ARFF}),
        "arff.gz": ("arff", "x.arff.gz", {"x.arff.gz": gzip.compress(ARFF)}),
        "arff.bz2": ("arff", "x.arff.bz2", {"x.arff.bz2": bz2.compress(ARFF)}),
        "mulan": ("arff", "x.arff", {"x.arff": ARFF.replace(b": -C 2", b""), "x.xml": XML}),
        "parquet": ("parquet", "x.parquet", {"x.parquet": parquet()}),
    }


def outcome(folder, kind, root, **options):
    """Prepare, and insist on a store or an `InputError`, with nothing left of the second."""
    out = folder / "out"
    try:
        info = prepare_source(kind, folder / "raw" / root, out=out, jobs=1, **options)
    except InputError as error:
        message = str(error)
    else:
        data = open_store(out, check=True)
        assert len(data.train) + len(data.test) == info.rows
        return True
    assert message
    assert "\n" not in message
    assert [path.name for path in folder.iterdir()] == ["raw"]
    return False


CASES = (
    "voc",
    "coco",
    "nus-wide",
    "folder",
    "thumbs",
    "zip",
    "tar",
    "tar.gz",
    "arrays",
    "mat",
    "sparse",
    "arff",
    "arff.gz",
    "arff.bz2",
    "mulan",
    "parquet",
)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore")
@QUICK
@given(data=st.data())
def test_mutated_files(tmp_path, case, data):
    kind, root, files = layouts()[case]
    name = data.draw(st.sampled_from(sorted(files)))
    content = files[name]
    broken = damaged(content.encode() if isinstance(content, str) else content, data.draw(DAMAGE))
    shutil.rmtree(tmp_path)
    write_tree(tmp_path / "raw", files | {name: broken})
    size = {} if kind in ("arrays", "arff") else {"size": 4}
    outcome(tmp_path, kind, root, skip_bad=data.draw(st.booleans()), **size)


@pytest.mark.parametrize("case", CASES)
def test_the_files_are_sound_before_they_are_damaged(tmp_path, case):
    kind, root, files = layouts()[case]
    write_tree(tmp_path / "raw", files)
    assert outcome(tmp_path, kind, root, **({} if kind in ("arrays", "arff") else {"size": 4}))


@QUICK
@given(data=st.data())
@pytest.mark.filterwarnings("ignore")
def test_files_in_each_others_places(tmp_path, data):
    """Two files of a layout, or of two layouts, are exchanged."""
    every = layouts()
    kind, root, files = every[data.draw(st.sampled_from(CASES))]
    other = every[data.draw(st.sampled_from(CASES))][2]
    here, there = data.draw(st.sampled_from(sorted(files))), data.draw(st.sampled_from(sorted(other)))
    shutil.rmtree(tmp_path)
    write_tree(tmp_path / "raw", files | {here: other[there]})
    outcome(tmp_path, kind, root, **({} if kind in ("arrays", "arff") else {"size": 4}))
