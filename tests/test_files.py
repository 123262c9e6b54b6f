"""Files: nothing is written, cut or deleted through a link, and nothing but a regular file is read."""

from __future__ import annotations

import os
import re
import socket

import pytest

from mlcl.errors import InputError
from mlcl.files import (
    TEMPORARY,
    FolderLock,
    append_bytes,
    cut_file,
    foreign_names,
    lock_state,
    new_file,
    open_regular,
    own_folder,
    read_bounded,
    remove_own,
    remove_temporary,
    sync_file,
    write_at,
    write_bytes,
)

IN_PLACE = {
    "append": lambda path: append_bytes(path, b"more"),
    "cut": lambda path: cut_file(path, 0),
    "sync": sync_file,
    "new": lambda path: new_file(path, b"head", size=9),
    "write": lambda path: write_at(path, 0, b"over"),
}
OURS = re.compile(r"\d+\.json")


@pytest.fixture
def thesis(tmp_path):
    (tmp_path / "docs").mkdir()
    path = tmp_path / "docs" / "thesis.tex"
    path.write_text("years of work")
    return path


@pytest.mark.parametrize("write", IN_PLACE.values(), ids=IN_PLACE)
def test_nothing_is_written_through_a_link(write, thesis, tmp_path):
    link = tmp_path / "metrics.jsonl"
    link.symlink_to(thesis)
    with pytest.raises((InputError, FileExistsError), match=r"metrics\.jsonl( is a link|')"):
        write(link)
    assert thesis.read_text() == "years of work"
    link.unlink()
    link.symlink_to(tmp_path / "not-there-yet")
    with pytest.raises((InputError, FileExistsError)):
        write(link)
    assert not (tmp_path / "not-there-yet").exists()


def test_a_file_that_is_replaced_takes_the_place_of_a_link_and_its_temporary_name_cannot_be_planted(
    thesis, tmp_path
):
    for name in ("card.md", "card.md.tmp"):
        (tmp_path / name).symlink_to(thesis)
    write_bytes(tmp_path / "card.md", b"new")
    assert thesis.read_text() == "years of work"
    assert not (tmp_path / "card.md").is_symlink()
    assert (tmp_path / "card.md").read_bytes() == b"new"
    assert (tmp_path / "card.md.tmp").is_symlink()


def test_writes_that_take_a_few_bytes_at_a_time_end_whole(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda number, content: write(number, content[:3]))
    write_bytes(tmp_path / "a", b"twelve bytes")
    append_bytes(tmp_path / "a", b" and ten ..")
    assert (tmp_path / "a").read_bytes() == b"twelve bytes and ten .."


def test_a_write_that_fails_or_is_interrupted_leaves_the_old_file_alone(tmp_path, monkeypatch):
    write_bytes(tmp_path / "a", b"old")
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):

        def failing(number, content, error=error):
            raise error

        monkeypatch.setattr(os, "write", failing)
        with pytest.raises(type(error)) as found:
            write_bytes(tmp_path / "a", b"new")
        assert getattr(found.value, "filename", str(tmp_path / "a")) == str(tmp_path / "a")
        assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


@pytest.fixture
def strange(tmp_path, monkeypatch):
    """What is no file: by name."""
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    os.mkfifo("pipe")
    os.symlink("/dev/zero", "device")
    with socket.socket(socket.AF_UNIX) as place:
        place.bind("socket")
        yield {"pipe": "a pipe", "device": "a device", "socket": "a socket"}


def test_what_is_no_file_is_refused_without_waiting(strange, tmp_path):
    for name, kind in strange.items():
        with pytest.raises(InputError, match=rf"{name}: is {kind}; expected a file"):
            read_bounded(tmp_path / name, limit=10, expected="a record")
        for write in (
            append_bytes,
            lambda path, _: cut_file(path, 0),
            lambda path, _: FolderLock(path.parent),
        ):
            (tmp_path / ".lock").unlink(missing_ok=True)
            os.link(tmp_path / name, tmp_path / ".lock", follow_symlinks=False)
            with pytest.raises(InputError, match=r"is a (pipe|socket|link)"):
                write(tmp_path / name, b"x")
    with pytest.raises(InputError, match="Is a directory"):
        read_bounded(tmp_path, limit=10, expected="a record")
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "absent")


def test_a_link_to_a_file_is_read_within_its_bound(thesis, tmp_path):
    (tmp_path / "a").symlink_to(thesis)
    assert read_bounded(tmp_path / "a", limit=13, expected="text") == b"years of work"
    with pytest.raises(InputError, match="larger than 12 bytes; expected text"):
        read_bounded(tmp_path / "a", limit=12, expected="text")


def test_of_a_folder_inside_one_of_ours_only_our_files_go(thesis, tmp_path):
    folder = own_folder(tmp_path / "checkpoints")
    (folder / "1.json").symlink_to(thesis)
    for name in ("2.json", "notes.txt", f".mlcl-{'0' * 32}.tmp", ".mlcl-mine.tmp"):
        (folder / name).write_text("x")
    (folder / "3.json").mkdir()
    names = [".mlcl-mine.tmp", "3.json", "notes.txt"]
    assert foreign_names(folder, OURS) == [f"checkpoints/{name}" for name in names]
    remove_own(folder, OURS)
    assert sorted(path.name for path in folder.iterdir()) == names
    assert thesis.read_text() == "years of work"
    for name in names[::2]:
        (folder / name).unlink()
    (folder / "3.json").rmdir()
    remove_own(folder, OURS, keep=True)
    assert folder.is_dir()
    remove_own(folder, OURS)
    assert not folder.exists()
    remove_own(folder, OURS)  # there is none


def test_a_linked_folder_inside_one_of_ours_is_refused(thesis, tmp_path):
    link = tmp_path / "checkpoints"
    link.symlink_to(thesis.parent)
    for use in (own_folder, lambda path: remove_own(path, OURS), lambda path: foreign_names(path, OURS)):
        with pytest.raises(
            InputError, match=r"checkpoints is a link, and mlcl writes .* make the whole folder a link"
        ):
            use(link)
    link.unlink()
    link.write_text("a file")
    with pytest.raises(InputError, match="is no folder"):
        own_folder(link)
    assert foreign_names(link, OURS) == ["checkpoints"]


def test_what_killed_writes_left_goes_and_nothing_that_only_looks_like_it(tmp_path):
    (tmp_path / f".mlcl-{'a' * 32}.tmp").write_text("half")
    (tmp_path / ".mlcl-thesis.tmp").write_text("mine")
    remove_temporary(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".mlcl-thesis.tmp"]
    assert not TEMPORARY.fullmatch(".mlcl-thesis.tmp")


def test_a_lock_that_is_somebodys_file_or_a_link_is_refused_and_stays(thesis, tmp_path):
    (tmp_path / ".lock").write_text("my notes on locks")
    with pytest.raises(InputError, match=r"\.lock is no lock of mlcl"):
        FolderLock(tmp_path)
    assert (tmp_path / ".lock").read_text() == "my notes on locks"
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").symlink_to(thesis)
    with pytest.raises(InputError, match=r"\.lock is a link"):
        FolderLock(tmp_path)
    assert lock_state(tmp_path) == ""
    assert thesis.read_text() == "years of work"


def test_a_lock_is_held_until_it_is_released_and_one_of_a_process_that_is_gone_is_taken_over(tmp_path):
    (tmp_path / ".lock").write_text("12345678901\n")
    lock = FolderLock(tmp_path)
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    assert lock_state(tmp_path) == "held"
    with pytest.raises(InputError, match=rf"in use by another process \(number {os.getpid()}\)"):
        FolderLock(tmp_path)
    lock.release()
    assert list(tmp_path.iterdir()) == []
