"""``mlcl check``: what is wrong with a folder is said, and what follows from other files is mended."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers import EXACT, label_settings, label_store
from mlcl.cli.main import main
from mlcl.files import FolderLock
from mlcl.runs.continuing import update
from mlcl.runs.run import run
from mlcl.runs.versions import current_number, rollback
from mlcl.sklearn import ExactTagger
from mlcl.sklearn.shards import learn_shards
from mlcl.taggers.gate import check_gate, release
from mlcl.taggers.predict import predict
from mlcl.training.callbacks import Callback, Interrupted
from shard_files import made_up, write_shard


class Stop(Callback):
    def on_task_start(self, learner, task, steps):
        raise Interrupted


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run with a version that is in use, one that a gate refused, and one that was stopped."""
    base = tmp_path_factory.mktemp("check")
    label_store(base, "old", [0, 1, 2, 3])
    label_store(base, "more", [3, 0], seed=20)
    root = run(label_settings(base / "old", "exact", **EXACT), out=base / "tagger").folder
    update(root, base / "more", out=root / "versions" / "2", gate=check_gate(root, base / "old", allow=100))
    release(root / "versions" / "2")
    return base


@pytest.fixture
def root(place, tmp_path):
    return shutil.copytree(place / "tagger", tmp_path / "tagger")


def check(path, capsys, *options):
    code = main(["check", str(path), *options])
    return code, capsys.readouterr().out


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_what_is_sound_is_sound_and_stays_as_it_is(root, place, capsys):
    before = contents(root)
    for options in ((), ("--repair",)):
        assert check(root, capsys, *options) == (0, f"{root} is sound\n")
        assert contents(root) == before
    assert check(place / "old", capsys) == (0, f"{place / 'old'} is sound\n")


@pytest.mark.parametrize("spoil", ["extra", "cut", "absent", "empty"])
def test_the_record_of_the_version_in_use_is_written_anew(spoil, root, place, capsys):
    file, expected = root / "current.json", predict(root, place / "old").values
    update(
        root, place / "old", out=root / "versions" / "3"
    )  # finished, and refused: what is newest is not in use
    other = root / "versions" / "3"
    rollback(root)
    rollback(root, 2)
    release(other)
    rollback(root, 2)
    text = file.read_text()
    broken = {"extra": text + "}}", "cut": text[:-9], "absent": json.dumps({"version": 9}), "empty": ""}[
        spoil
    ]
    file.write_text(broken)
    if spoil != "extra":  # which of two good ones was in use is not known: the newest that nothing refused
        (other / "result.json").unlink()
    code, out = check(root, capsys)
    assert code == 2
    assert f"mlcl check {root} --repair" in out
    assert file.read_text() == broken
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root.parent)
        code, out = check(root, capsys, "--repair")
    assert "wrote it anew: version 2 is in use" in out
    assert code == (0 if spoil == "extra" else 2)  # version 3 lacks its result
    assert np.array_equal(predict(root, place / "old").values, expected)
    assert (root / "current.json.damaged").read_text() == broken
    past = json.loads(file.read_text())["history"]
    assert past[-1]["why"] == "repair"
    assert len(past) == (len(json.loads(text)["history"]) if spoil == "extra" else 0) + 1
    rollback(root)  # all goes on
    assert current_number(root) == 1


def test_an_unreadable_record_names_the_way_out(root, place, capsys):
    (root / "current.json").write_text("{}{}")
    for arguments in (["versions"], ["rollback"], ["predict", str(place / "old"), "--out", "x.csv"]):
        assert main([arguments[0], str(root), *arguments[1:]]) == 2
        assert f"mend it with: mlcl check {root} --repair" in capsys.readouterr().err


def test_what_nothing_refused_and_is_not_in_use_is_said(root, capsys):
    (root / "current.json").unlink()
    code, out = check(root, capsys, "--repair")
    assert code == 2
    assert f"version 2 is finished and nothing refused it; to use it: mlcl rollback {root} --to 2" in out
    assert not (root / "current.json").exists()  # somebody may have wanted that
    # Not what has yet to pass its gate.
    (root / "versions" / "2" / "gate.json").unlink()
    assert check(root, capsys)[0] == 0


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("weights.safetensors", "its checksum is not"),
        ("versions/2/memory.safetensors", "its checksum is not"),
        ("calibration.json", "its checksum is not"),
        ("versions/2/thresholds.json", "choose thresholds anew with: mlcl thresholds"),
        ("versions/2/gate.json", "its checksum is not"),
        ("result.json", "is not valid JSON"),
        ("config.yaml", "not valid YAML"),
        ("environment.json", "is not valid JSON"),
    ],
)
def test_damage_is_found_where_it_is(file, words, root, capsys):
    content = (root / file).read_bytes()
    (root / file).write_bytes(b"]" + content[1:-1] + bytes([content[-1] ^ 1]))
    if file.endswith((".json", ".safetensors")) and "checksum" in words:
        flipped = bytearray(content)
        flipped[max(i for i, byte in enumerate(content) if byte in b"12345678")] += 1
        (root / file).write_bytes(flipped)
    before = contents(root)
    code, out = check(root, capsys, "--repair")
    assert code == 2
    assert any(line.startswith(f"{root / file}: ") and words in line for line in out.splitlines()), out
    assert contents(root) == before


def test_what_a_killed_command_left_goes_and_what_is_not_ours_stays(root, place, capsys):
    with pytest.raises(Interrupted):
        update(root, place / "more", out=root / "versions" / "3", callback=Stop())
    (root / "versions" / "4").mkdir()
    (root / "versions" / "20261118").mkdir()
    (root / "versions" / "notes").write_text("of the user")
    for name in ("result.json.tmp", "notes.tmp", ".mlcl-0123456789abcdef0123456789abcdef.tmp"):
        (root / name).write_text("half")
    (root / "versions" / "3" / "checkpoints" / "000009.safetensors.tmp").write_text("half")
    (root / ".lock").write_text("1\n")
    os.symlink(place / "old", root / "versions" / "2" / "checkpoints")
    code, out = check(root, capsys)
    lines = dict(line.partition(": ")[::2] for line in out.splitlines()[:-1])
    found = {str(Path(name).relative_to(root)): what for name, what in lines.items()}
    assert code == 2
    assert found.pop("versions/3").endswith(f"go on with: mlcl resume {root / 'versions' / '3'}")
    assert found.pop("versions/2/checkpoints").startswith("is a link")
    for name in ("versions/20261118", "versions/notes"):
        assert found.pop(name).startswith("is no version")
    ours = {
        "versions/4",
        ".lock",
        "result.json.tmp",
        ".mlcl-0123456789abcdef0123456789abcdef.tmp",
        "versions/3/checkpoints/000009.safetensors.tmp",
    }
    assert set(found) == ours
    code, out = check(root, capsys, "--repair")
    assert code == 2
    assert out.count("; removed it\n") == len(ours)
    assert not any(os.path.lexists(root / name) for name in ours)
    assert (root / "notes.tmp").read_text() == "half"
    assert (root / "versions" / "notes").exists()
    assert (root / "versions" / "20261118").exists()
    assert (place / "old" / "manifest.json").exists()


def test_what_another_process_works_on_is_left_alone(root, capsys):
    (root / "result.json.tmp").write_text("half")
    lock = FolderLock(root)
    try:
        code, out = check(root, capsys, "--repair")
    finally:
        lock.release()
    assert (code, "is in use by another process" in out) == (0, True)
    assert (root / "result.json.tmp").exists()


def test_taggers_sweeps_stores_and_strangers(root, place, tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    ExactTagger().fit(x, (x > 0).astype(int)).save(tmp_path / "tagger.safetensors")
    assert check(tmp_path / "tagger.safetensors", capsys)[0] == 0
    content = (tmp_path / "tagger.safetensors").read_bytes()
    (tmp_path / "tagger.safetensors").write_bytes(content[:-1] + b"x")
    code, out = check(tmp_path / "tagger.safetensors", capsys)
    assert (code, "its checksum does not match" in out) == (2, True)
    store = shutil.copytree(place / "old", tmp_path / "store")
    labels = (store / "labels.npy").read_bytes()
    (store / "labels.npy").write_bytes(labels[:-1] + bytes([1 - labels[-1]]))
    code, out = check(store, capsys)
    assert (code, "labels.npy is damaged: its SHA-256" in out) == (2, True)
    shutil.copytree(root, tmp_path / "sweep" / "runs" / "a-seed0")
    code, out = check(tmp_path / "sweep", capsys)
    assert code == 2
    assert f"{tmp_path / 'sweep' / 'sweep.yaml'}: cannot be read" in out
    (tmp_path / "photos").mkdir()
    assert main(["check", str(tmp_path / "photos")]) == 2
    assert "holds no run, sweep, tagger or store of mlcl" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "absent")]) == 2


def test_a_folder_of_learn(tmp_path, capsys):
    for number, rows in enumerate(made_up(2)):
        write_shard(tmp_path / f"{number}.parquet", rows)
    learn_shards(data=[str(tmp_path / "*.parquet")], out=tmp_path / "out", jobs=1)
    assert check(tmp_path / "out", capsys)[0] == 0
    (tmp_path / "out" / "parts").mkdir(exist_ok=True)
    (tmp_path / "out" / "parts" / "0a.safetensors.tmp").write_text("half")
    (tmp_path / "out" / "begun.safetensors").write_bytes(b"x")
    code, out = check(tmp_path / "out", capsys, "--repair")
    assert code == 2
    assert "begun.safetensors: is not an ExactTagger, or corrupt" in out
    assert "0a.safetensors.tmp: was left by a write that was killed; removed it" in out
