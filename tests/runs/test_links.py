"""Links, special files and other people's files in a run folder: nothing is lost, nothing is waited for."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from helpers import EXACT, label_settings, label_store
from mlcl.cli.main import main
from mlcl.errors import InputError
from mlcl.runs import folder as files
from mlcl.runs.continuing import update
from mlcl.runs.run import run
from mlcl.runs.versions import locked, use_version
from mlcl.training.callbacks import Callback, Interrupted


class Stop(Callback):
    def __init__(self, task):
        self.task = task

    def on_task_start(self, learner, task, steps):
        if learner.task_index == self.task:
            raise Interrupted


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run with a version in use, and one that was stopped."""
    base = tmp_path_factory.mktemp("links")
    label_store(base, "old", [0, 1, 2, 3])
    label_store(base, "more", [3, 0], seed=20)
    root = run(label_settings(base / "old", "exact", **EXACT), out=base / "tagger").folder
    update(root, base / "more", out=root / "versions" / "2")
    with locked(root):
        use_version(root, 2, why="update")
    with pytest.raises(Interrupted):
        run(label_settings(base / "old", "er"), out=base / "stopped", callback=Stop(1))
    return base


@pytest.fixture
def docs(tmp_path):
    """Somebody's own files, with names that mlcl uses too."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("thesis.tex", "000001.json", "000007.safetensors", "a.tmp"):
        (folder / name).write_text("years of work")
    return folder


@pytest.fixture
def stopped(place, tmp_path):
    return shutil.copytree(place / "stopped", tmp_path / "stopped")


@pytest.fixture
def root(place, tmp_path):
    return shutil.copytree(place / "tagger", tmp_path / "tagger")


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refused(arguments, capsys):
    """What a command says that must end in one sentence, with exit code 2."""
    assert main([str(word) for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    return captured.err


def test_a_link_in_place_of_the_checkpoints_loses_nobodys_files(stopped, docs, capsys):
    before = contents(docs)
    shutil.rmtree(stopped / "checkpoints")
    (stopped / "checkpoints").symlink_to(docs)
    for arguments in (["resume", stopped], ["run", stopped / "config.yaml", "--out", stopped, "--overwrite"]):
        sentence = refused([*arguments, "--quiet"], capsys)
        assert f"{stopped / 'checkpoints'} is a link" in sentence
        assert contents(docs) == before
    (stopped / "checkpoints").unlink()
    (stopped / "checkpoints").symlink_to("../docs-of-nobody")
    assert "is a link" in refused(["resume", stopped, "--quiet"], capsys)


@pytest.mark.parametrize("name", ["metrics.jsonl", ".lock"])
def test_what_is_written_where_it_is_is_not_written_through_a_link(name, stopped, docs, capsys):
    (stopped / name).unlink(missing_ok=True)
    (stopped / name).symlink_to(docs / "thesis.tex")
    assert f"{stopped / name} is a link" in refused(["resume", stopped, "--quiet"], capsys)
    assert (docs / "thesis.tex").read_text() == "years of work"


def test_a_run_goes_on_and_ends_beside_links_of_its_names(stopped, docs, capsys):
    before = contents(docs)
    for name in ("result.json.tmp", "memory.safetensors", "weights.safetensors.tmp", "thresholds.json"):
        (stopped / name).symlink_to(docs / "thesis.tex")
    assert main(["resume", str(stopped), "--quiet"]) == 0
    assert contents(docs) == before
    assert not (stopped / "memory.safetensors").is_symlink()
    (stopped / "model-card.md.tmp").symlink_to(docs / "thesis.tex")
    (stopped / "model-card.md").symlink_to(docs / "thesis.tex")
    assert main(["card", str(stopped), "--overwrite"]) == 0
    assert main(["run", str(stopped / "config.yaml"), "--out", str(stopped), "--overwrite", "--quiet"]) == 0
    assert contents(docs) == before
    assert not any((stopped / name).is_symlink() for name in ("result.json.tmp", "model-card.md"))
    capsys.readouterr()


def test_links_among_versions_are_refused_where_they_would_be_written_through(root, place, tmp_path, capsys):
    (root / "versions").rename(tmp_path / "elsewhere")
    (root / "versions").symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path / "elsewhere")
    for arguments in (
        ["update", root, "--data", place / "more"],
        ["forget", root, "--label", "ant"],
        ["thresholds", root],
        ["card", root],
    ):
        assert f"{root / 'versions'} is a link" in refused(arguments, capsys)
    (root / "versions").unlink()
    (root / "versions").mkdir()
    (root / "versions" / "2").symlink_to(tmp_path / "elsewhere" / "2")
    assert f"{root / 'versions' / '2'} is a link" in refused(["thresholds", root], capsys)
    assert contents(tmp_path / "elsewhere") == before
    current = (root / "current.json").rename(tmp_path / "current.json").read_bytes()
    (root / "current.json").symlink_to(tmp_path / "current.json")
    (root / "versions" / "2").unlink()
    (tmp_path / "elsewhere" / "2").rename(root / "versions" / "2")
    assert main(["rollback", str(root)]) == 0
    assert (tmp_path / "current.json").read_bytes() == current
    assert json.loads((root / "current.json").read_text())["version"] == 1


def test_the_folder_itself_may_be_a_link(root, place, tmp_path, capsys):
    (tmp_path / "link").symlink_to(root)
    assert main(["update", str(tmp_path / "link"), "--data", str(place / "more"), "--quiet"]) == 0
    assert (root / "versions" / "3" / "result.json").is_file()
    (tmp_path / "fast").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "fast")
    for options in ((), ("--overwrite",)):
        arguments = ["run", str(root / "config.yaml"), "--out", str(tmp_path / "run"), "--quiet", *options]
        assert main(arguments) == 0
    assert (tmp_path / "fast" / "result.json").is_file()
    capsys.readouterr()


READ = (
    *(
        files.CONFIG,
        files.ENVIRONMENT,
        files.RESULT,
        files.WEIGHTS,
        files.MEMORY,
        files.EXTENDS,
        files.CURRENT,
    ),
    *(files.GATE, files.RECEIPT, files.CALIBRATION, files.THRESHOLDS, files.HELD_OUT),
)
FOLDER_COMMANDS = (
    "versions",
    "check",
    "forget",
    "update",
    "thresholds",
    "predict",
    "card",
    "report",
    "resume",
)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", READ)
def test_special_files_are_refused_and_not_waited_for(name, kind, root, place, tmp_path, capsys):
    """Each command ends: with one sentence if it reads the file, as ever if it does not."""
    folder = root if name == files.CURRENT else root / "versions" / "2"
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name) if kind == "pipe" else os.symlink("/dev/zero", folder / name)
    more = {
        "forget": ["--label", "ant"],
        "update": ["--data", str(place / "more"), "--quiet"],
        "predict": [str(place / "old"), "--out", str(tmp_path / "scores.csv")],
        "report": ["--out", str(tmp_path / "page.html")],
    }
    codes = {}
    for command in FOLDER_COMMANDS:
        codes[command] = main([command, str(root), *more.get(command, [])])
        err = capsys.readouterr().err
        assert codes[command] in (0, 2), err
        assert "Traceback" not in err
    assert codes["check"] == 2
    if name in (files.RESULT, files.WEIGHTS, files.CURRENT, files.CALIBRATION, files.THRESHOLDS):
        assert codes["predict"] == 2


def test_a_pipe_among_checkpoints_is_one_that_is_damaged(stopped, capsys):
    newest = max((stopped / "checkpoints").glob("*.safetensors"))
    newest.unlink()
    os.mkfifo(newest)
    assert f"{newest}: is a pipe" in refused(["resume", stopped, "--quiet"], capsys)


def test_a_version_that_names_itself_ends_in_a_sentence(root, tmp_path, capsys):
    extends = root / "versions" / "2" / "extends.json"
    extends.write_text(json.dumps(json.loads(extends.read_text()) | {"run": "."}))
    (tmp_path / "rows.txt").write_text("0\n")
    assert "circle" in refused(["forget", root, "--rows", tmp_path / "rows.txt"], capsys)


def test_a_version_whose_name_is_a_date_is_no_number(root, place, capsys):
    (root / "versions" / "20261118").mkdir()
    assert main(["update", str(root), "--data", str(place / "more"), "--quiet"]) == 0
    assert (root / "versions" / "3" / "result.json").is_file()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("held", "named"),
    [
        ({"config.yaml": "defaults: [db]", "checkpoints/epoch3.ckpt": "weeks"}, "checkpoints/epoch3.ckpt"),
        ({"config.yaml": "defaults: [db]", "weights.safetensors": "weeks"}, "config.yaml"),
        ({"config.yaml": "a: 1", "environment.json": '{"versions": {"node": 20}}'}, "config.yaml"),
        ({"thesis.tex": "years"}, "thesis.tex"),
        ({"checkpoints": "a list of places"}, "checkpoints"),
    ],
)
def test_overwrite_replaces_no_folder_of_somebody_else(held, named, tmp_path, place, capsys):
    for name, text in held.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(text)
    before = contents(tmp_path)
    arguments = ["run", place / "stopped" / "config.yaml", "--out", tmp_path / "mine", "--overwrite"]
    assert f"holds {named}, which is of no run of mlcl; nothing was overwritten" in refused(arguments, capsys)
    assert contents(tmp_path) == before


def test_overwrite_replaces_a_run_alone_and_whatever_state_it_is_in(stopped, place, capsys):
    config = str(place / "stopped" / "config.yaml")
    again = ["run", config, "--out", str(stopped), "--overwrite", "--quiet"]
    (stopped / "notes.txt").write_text("what I saw")
    (stopped / "checkpoints" / "notes.txt").write_text("what I saw")
    assert "checkpoints/notes.txt" in refused(again, capsys)
    (stopped / "checkpoints" / "notes.txt").unlink()
    (stopped / "result.json").mkdir()
    assert "result.json" in refused(again, capsys)
    (stopped / "result.json").rmdir()
    (stopped / "checkpoints" / "000009.json.tmp").write_text("half, by an older mlcl")
    assert main(again) == 0
    assert (stopped / "notes.txt").read_text() == "what I saw"
    assert not (stopped / "checkpoints").exists()
    # Killed while the old run was being removed, or before the first file was there.
    for name in set(files.FILES) - {files.ENVIRONMENT}:
        (stopped / name).unlink(missing_ok=True)
    assert main(again) == 0
    (stopped.parent / "begun").mkdir()
    (stopped.parent / "begun" / ".lock").write_text("1\n")
    assert main(["run", config, "--out", str(stopped.parent / "begun"), "--quiet"]) == 0


def test_the_record_of_what_made_a_run_goes_last(stopped, monkeypatch):
    """A process that is killed while it removes a run leaves a folder that is still known as one."""
    gone = []
    unlink = type(stopped).unlink

    def noted(path, missing_ok=False):
        gone.append(path.name)
        return unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(type(stopped), "unlink", noted)
    files.clear_folder(stopped)
    assert gone[-1] == files.ENVIRONMENT


def test_copies_hold_no_links_and_write_through_none(root, docs, tmp_path):
    shutil.rmtree(root / "versions")
    (root / "tensorboard").mkdir()
    (root / "tensorboard" / "events").write_text("curves")
    (root / "notes").symlink_to(docs / "thesis.tex")
    packed = files.pack_folder(root)
    assert "tensorboard/events" in packed
    assert "notes" not in packed
    files.unpack_folder(packed, tmp_path / "copy")
    assert (tmp_path / "copy" / "tensorboard" / "events").read_text() == "curves"
    shutil.rmtree(tmp_path / "copy" / "tensorboard")
    (tmp_path / "copy" / "tensorboard").symlink_to(docs)
    with pytest.raises(InputError, match="tensorboard is a link"):
        files.unpack_folder(packed, tmp_path / "copy")
    assert "events" not in contents(docs)
