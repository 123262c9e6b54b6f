"""Trees and archives: the same files through every door, and every trap refused."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import lzma
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

import pytest

from data import coco_files, contents, encoded_image, voc_files, write_tree
from mlcl.datasets import prepare_source, trees
from mlcl.datasets.table import read_table
from mlcl.datasets.trees import Archive, FolderTree, clean_name, open_tree, read_packed
from mlcl.errors import InputError

FILES = {"a.txt": b"top", "d/b.bin": bytes(range(256)) * 40, "d/e/c.jpg": encoded_image(3)}


def write_zip(path, files, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_tar(path, files, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture(
    params=[
        "folder",
        "stored.zip",
        "deflated.zip",
        "x.tar",
        "x.tar.gz",
        "x.tgz",
        "x.tar.bz2",
        "x.tar.xz",
        "inside",
    ]
)
def tree(request, tmp_path):
    path = tmp_path / request.param
    if request.param == "folder":
        return open_tree(write_tree(path, FILES))
    if request.param == "inside":
        path.mkdir()
        write_zip(path / "one.zip", {"a.txt": FILES["a.txt"]})
        write_tar(path / "two.tar", {n: c for n, c in FILES.items() if n != "a.txt"})
        return open_tree(path)
    if path.suffix == ".zip":
        return open_tree(write_zip(path, FILES, 0 if "stored" in path.name else 8))
    mode = {".tar": "w", ".gz": "w:gz", ".tgz": "w:gz", ".bz2": "w:bz2", ".xz": "w:xz"}[path.suffix]
    return open_tree(write_tar(path, {"./" + n: c for n, c in FILES.items()}, mode))


def test_every_tree_reads_the_same(tree):
    for name, content in FILES.items():
        assert tree.size(name) == len(content)
        assert tree.read(name) == content
    assert tree.size("d") is None
    assert tree.size("d/absent") is None
    with pytest.raises(InputError, match=r"absent.*was looked for and does not exist"):
        tree.read("d/absent")
    with pytest.raises(InputError, match="10240 bytes, but at most 100"):
        tree.read("d/b.bin", limit=100)
    with pytest.raises(InputError, match="a relative path"):
        tree.read("../a.txt")


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../x", "a/../../x", "C:\\x", "\\\\host\\x", "a\\..\\x", "", " ", "a\0b", "\ud800"],
)
def test_names_that_lead_out_are_refused(name):
    with pytest.raises(InputError, match="relative path"):
        clean_name(name, where="list.txt")


@pytest.mark.parametrize("name", ["/abs.jpg", "../up.jpg", "a/../../up.jpg"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_archives_with_such_names_are_refused(tmp_path, kind, name):
    path = tmp_path / f"bad.{kind}"
    (write_zip if kind == "zip" else write_tar)(path, {"good": b"1", name: b"2"})
    with pytest.raises(InputError, match=r"bad.*relative path"):
        open_tree(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_tar_are_refused(tmp_path, kind):
    info = tarfile.TarInfo("link")
    info.type, info.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.addfile(info)
    with pytest.raises(InputError, match="link or special file 'link'"):
        open_tree(tmp_path / "x.tar")


def test_links_in_zip_are_refused(tmp_path):
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(InputError, match="link 'link'"):
        open_tree(tmp_path / "x.zip")


def test_doubled_members_are_refused(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name in ("a", "./a"):
            archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(InputError, match="'a' twice"):
        open_tree(tmp_path / "x.tar")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a", "1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a", "2")
    with pytest.raises(InputError, match="'a' twice"):
        open_tree(tmp_path / "x.zip")


def test_a_zip_that_lies_about_sizes_is_refused(tmp_path):
    path = write_zip(tmp_path / "bomb.zip", {"a": bytes(10**6)})
    data = bytearray(path.read_bytes())
    place = data.rfind(b"PK\1\2")
    struct.pack_into("<I", data, place + 24, 100)  # the uncompressed size in the central directory
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a in .*bomb\.zip cannot be read: Bad CRC"):
        open_tree(path).read("a")


def test_a_zip_with_another_method_or_a_wrong_checksum_is_refused(tmp_path):
    with pytest.raises(InputError, match="packed by method 12"):
        open_tree(write_zip(tmp_path / "b.zip", {"a": b"1"}, zipfile.ZIP_BZIP2))
    path = write_zip(tmp_path / "c.zip", {"a": b"hello"}, 0)
    path.write_bytes(path.read_bytes().replace(b"hello", b"jello"))
    with pytest.raises(InputError, match=r"a in .*c\.zip cannot be read: Bad CRC"):
        open_tree(path).read("a")


def test_things_that_are_no_archives(tmp_path):
    with pytest.raises(InputError, match="was looked for and does not exist"):
        open_tree(tmp_path / "absent")
    for name in ("x.zip", "x.tar", "x.tar.gz"):
        (tmp_path / name).write_bytes(b"hello")
        with pytest.raises(InputError, match="x"):
            open_tree(tmp_path / name)
    (tmp_path / "x.txt").write_bytes(b"hello")
    with pytest.raises(InputError, match="is a file, but a folder"):
        open_tree(tmp_path / "x.txt")
    cut = write_tar(tmp_path / "cut.tar", FILES)
    cut.write_bytes(cut.read_bytes()[:5000])
    with pytest.raises(InputError, match="cut"):
        open_tree(cut).read("d/b.bin")


def test_the_unpacked_tar_goes_with_its_tree(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    tree = Archive(write_tar(tmp_path / "x.tar.gz", FILES, "w:gz"))
    assert len(list((tmp_path / "t").iterdir())) == 1
    del tree
    gc.collect()
    assert list((tmp_path / "t").iterdir()) == []


def test_two_archives_with_one_file_are_no_guess(tmp_path):
    write_zip(tmp_path / "a.zip", {"x": b"1"})
    write_zip(tmp_path / "b.zip", {"x": b"2"})
    with pytest.raises(InputError, match=r"in both .*a\.zip and .*b\.zip"):
        FolderTree(tmp_path).read("x")


def test_a_packed_file_is_bounded(tmp_path):
    (tmp_path / "x.gz").write_bytes(zlib.compress(bytes(10**6), wbits=31))
    assert len(read_packed(tmp_path / "x.gz", limit=10**6)) == 10**6
    with pytest.raises(InputError, match="more than the allowed 1000"):
        read_packed(tmp_path / "x.gz", limit=1000)
    (tmp_path / "cut.gz").write_bytes((tmp_path / "x.gz").read_bytes()[:-20])
    with pytest.raises(InputError, match="cannot be read"):
        read_packed(tmp_path / "cut.gz", limit=10**9)


@pytest.mark.parametrize("suffix", [".csv.gz", ".csv.bz2", ".csv.xz", ".tar.bz2"])
def test_what_unpacks_to_far_more_than_texts_do_is_not_unpacked(suffix, tmp_path, monkeypatch):
    path = tmp_path / f"x{suffix}"
    packed = {"gz": gzip, "z2": bz2, "xz": lzma}[suffix[-2:]].compress(b"a,b\n" * 200_000)
    path.write_bytes(packed)
    read = Archive if "tar" in suffix else read_table
    if read is read_table:
        assert len(read(path)) == 199_999
    monkeypatch.setattr(trees, "unpacked_limit", lambda packed: 100_000)
    with pytest.raises(InputError, match="has more than 100000 bytes when it is unpacked"):
        read(path)


def test_folder_archive_and_folder_of_archives_make_one_store(tmp_path):
    files = voc_files()
    made = []
    write_tree(tmp_path / "folder", files)
    write_tar(tmp_path / "voc.tar", files)
    write_tar(tmp_path / "voc.tar.gz", files, "w:gz")
    write_zip(tmp_path / "voc.zip", files)
    (tmp_path / "many").mkdir()
    write_tar(tmp_path / "many" / "one.tar", dict(list(files.items())[::2]))
    write_tar(tmp_path / "many" / "two.tar", dict(list(files.items())[1::2]))
    for name in ("folder", "voc.tar", "voc.tar.gz", "voc.zip", "many"):
        out = tmp_path / f"store-{name}"
        prepare_source("voc", tmp_path / name, out=out, size=8)
        made.append({n: c for n, c in contents(out).items() if n != "manifest.json"})
    assert all(store == made[0] for store in made)


def test_coco_from_its_downloads(tmp_path):
    files = coco_files()
    for part, name in (
        ("annotations", "annotations_trainval2017"),
        ("train2017", "train2017"),
        ("val2017", "val2017"),
    ):
        write_zip(tmp_path / f"{name}.zip", {n: c for n, c in files.items() if n.startswith(part)}, 0)
    info = prepare_source("coco", tmp_path, out=tmp_path / "out", size=8)
    assert (info.rows, info.classes) == (7, ("cat", "dog"))


def test_errors_name_the_archive(tmp_path):
    files = voc_files()
    broken = "VOCdevkit/VOC2012/JPEGImages/2008_000001.jpg"
    write_tar(tmp_path / "voc.tar", files | {broken: b"no image"})
    with pytest.raises(InputError, match=r"2008_000001\.jpg in .*voc\.tar is not an image"):
        prepare_source("voc", tmp_path / "voc.tar", out=tmp_path / "out", size=8)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["voc.tar"]


def test_zip_tree_lists_its_names(tmp_path):
    assert Archive(write_zip(tmp_path / "x.zip", FILES)).names() == sorted(FILES)
    assert FolderTree(write_tree(Path(tmp_path / "f"), FILES)).names() == ["a.txt"]
