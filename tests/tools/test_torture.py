"""A sample of ``make torture``, and that it finds what it is made to find."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mlcl import files
from mlcl.taggers import gate

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from torture import faults, pairs, special
from torture.scenes import paired, scenes
from torture.shim import KINDS, Shim, places


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("torture")


@pytest.fixture(scope="module")
def known(base):
    return scenes(base)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "tagger"


def wrong(outcomes):
    found = list(outcomes)
    assert found
    return [(one.scene, one.kind, one.where, one.wrong) for one in found if one.wrong]


def test_the_shim_sees_every_call_in_the_folder_and_no_other(tmp_path):
    (tmp_path / "in").mkdir()
    with Shim(tmp_path / "in").installed() as shim:
        for name in ("in", "out"):
            (tmp_path / name).mkdir(exist_ok=True)
            files.write_bytes(tmp_path / name / "a", b"x")
    calls = [call.partition(" ")[0] for call in shim.calls]
    assert calls == ["mkdir+", "open+", "write+", "fsync+", "replace+", "open", "fsync+"]
    assert [len(places(shim.calls, kind)) for kind in KINDS[:4]] == [7, 6, 1, 7]


@pytest.mark.slow
def test_a_sample_of_faults_survives(known, root):
    assert not wrong(faults.attack(known["rollback"], root, every=9))
    assert not wrong(faults.attack(known["update"], root, every=53))


@pytest.mark.slow
def test_a_sample_of_strange_files_survives(known, root):
    assert not wrong(special.attack(known["thresholds"], root, every=17))


@pytest.mark.slow
def test_a_sample_of_second_writers_survives(known, root, base):
    for name, other in (("rename", "thresholds"), ("keep", "rollback")):
        assert not wrong(pairs.attack(paired(name, other, base), paired(other, name, base), root, every=40))


@pytest.mark.slow
def test_a_change_that_a_second_writer_loses_is_found(known, root, base, monkeypatch):
    monkeypatch.setattr(gate, "_decided_anew", lambda extends: False)
    both = paired("rename", "thresholds", base), paired("thresholds", "rename", base)
    found = wrong(pairs.attack(*both, root, every=60, share=0.5))
    assert any("both succeeded, and it is" in what for _, _, _, what in found)


@pytest.mark.slow
def test_what_is_not_safe_is_found(known, root, monkeypatch):
    def plainly(path, content):
        """Write a file where it is."""
        with files.opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as number:
            files.write_all(number, content)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_bytes", plainly)
        found = wrong(faults.attack(known["rollback"], root, kinds=("die",)))
        assert any("does not load" in what for _, _, _, what in found)
        patch.setattr(files, "_CAREFULLY", 0)
        assert (
            special.place(known["thresholds"], root, "thresholds.json", "link")
            == "somebody's files were changed"
        )
        patch.setattr(special, "SECONDS", 1)
        patch.setattr(files, "_kind", lambda path: "")
        assert "waits for more than" in special.place(known["rollback"], root, "current.json", "pipe")
