"""Parts of plugins in sweeps: workers load the code that was given on the command line."""

from __future__ import annotations

import json
import os

import pytest

from mlcl import plugins
from mlcl.cli.main import main
from mlcl.plugins import load_plugin
from mlcl.registry import REGISTRATIONS
from mlcl.reports import read_run
from mlcl.sweeps.record import read_record

PLUGIN = """
import os
from pathlib import Path

from mlcl.memories import MEMORIES, quotas

Path(__file__).with_name(f"{os.getpid()}.loaded").touch()


@MEMORIES.register("first-rows", summary="The first rows of every task.")
def update_first_rows(stored, new, size, rng):
    tasks = (*stored, new)
    return tuple(
        task.take(range(room)) for task, room in zip(tasks, quotas(size, [len(task) for task in tasks]))
    )
"""
TABLE = """
title: Memories
reference: wru
rows: [{label: wru, method: rldam-wru}, {label: mine, method: rldam-wru, memory: {kind: first-rows}}]
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A plugin with a memory; it is not registered any more after the test."""
    count = len(REGISTRATIONS)
    monkeypatch.setattr(plugins, "_loaded", {})
    path = tmp_path / "parts" / "my_memory.py"
    path.parent.mkdir()
    path.write_text(PLUGIN)
    yield path
    REGISTRATIONS.undo_to(count)


def reproduce(file, tmp_path, store):
    (tmp_path / "memories.yaml").write_text(TABLE)
    settings = ["--model.kind", "mlp", "--memory.size", "24", "--train.epochs", "1", "--stream.tasks", "2"]
    options = ["--benchmark", str(store), "--seeds", "1", "--jobs", "2", "--out", str(tmp_path / "out")]
    table = str(tmp_path / "memories.yaml")
    return main(["reproduce", table, *options, *settings, "--plugin", str(file)])


@pytest.mark.slow
def test_workers_run_the_memory_of_a_plugin_and_notice_when_it_changes(
    file, tmp_path, store, capsys, monkeypatch
):
    plugin = load_plugin(file)
    assert reproduce(file, tmp_path, store) == 0, capsys.readouterr().err
    run = read_run(tmp_path / "out" / "runs" / "mine-seed0")
    assert run.memory.kind == "first-rows"
    assert len(run.memory) == 24
    assert run.environment["plugins"] == [plugin.record()]
    processes = {int(path.stem) for path in file.parent.glob("*.loaded")}
    assert processes - {os.getpid()}, "the plugin was loaded in no other process"
    # Only the run that uses the plugin depends on it.
    assert "plugins" not in read_run(tmp_path / "out" / "runs" / "wru-seed0").environment
    assert read_record(tmp_path / "out").command.endswith(f"--plugin {file}")
    # A run of a plugin that has changed is not taken as done.
    result = tmp_path / "out" / "runs" / "mine-seed0" / "result.json"
    before = json.loads(result.read_text())
    capsys.readouterr()
    assert reproduce(file, tmp_path, store) == 0
    assert "2 of 2 runs were done before" in capsys.readouterr().err
    REGISTRATIONS.undo_to(len(REGISTRATIONS) - 1)  # as in a new process
    monkeypatch.setattr(plugins, "_loaded", {})
    file.write_text(PLUGIN + "# changed\n")
    assert reproduce(file, tmp_path, store) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert f"the plugin {file} has changed since" in message
    assert "add --overwrite" in message
    assert json.loads(result.read_text()) == before
