"""Checkpoints: a run that was stopped anywhere goes on to the same bits, and damaged files are noticed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import warnings

import numpy as np
import pytest
import torch

from helpers import SMALL, SMALL_IMAGES, small_benchmark
from mlcl.config.resolve import config_from, merge
from mlcl.errors import InputError
from mlcl.files import FolderLock, write_bytes
from mlcl.methods.presets import PRESETS
from mlcl.runs.checkpoints import newest_checkpoint, read_checkpoint
from mlcl.runs.run import resume, run
from mlcl.training.callbacks import Callback, Interrupted
from mlcl.training.learner import Learner

CONVOLUTIONAL = ("krt", "krt-r")


def settings_for(method, **changes):
    base = SMALL_IMAGES if method in CONVOLUTIONAL else SMALL
    short = {"train": {"epochs": 2}} if method in CONVOLUTIONAL else {}
    return config_from(merge(base, short, {"method": method}, changes))


class StopAt(Callback):
    """Stops at the n-th step, with a checkpoint or, as a kill would, without one."""

    def __init__(self, step, *, error=Interrupted):
        self.left, self.error = step, error

    def on_step(self, learner, loss):
        self.left -= 1
        if self.left == 0:
            raise self.error


class Kill(Exception):
    """Stands for a kill: nothing is written after it."""


def matrix(folder):
    return json.loads((folder / "result.json").read_text())["matrix"]


def measured(folder):
    """The lines of metrics.jsonl but for those that tell seconds."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["name"] not in ("train/seconds", "time/task")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [name for name in PRESETS if name not in ("exact", "l3a")]
)  # no steps: test_exact
def test_a_run_stopped_anywhere_ends_with_the_same_bits(method, tmp_path):
    """Stopped inside the first, second and third task, at the end of an epoch, and with checkpoints by the step."""
    images = method in CONVOLUTIONAL
    benchmark = small_benchmark(images=images)
    short = {"train": {"epochs": 2}}
    config = settings_for(method, **short)
    whole = run(config, benchmark=benchmark, out=tmp_path / "whole")
    per_epoch = -(-len(benchmark.tasks[0].train) // 16)
    points = (7, 31) if images else (1, per_epoch, 2 * per_epoch + 2, 4 * per_epoch + 5)
    every = {"checkpoint": {"every": 5}, **short}
    for point in points:
        folder = tmp_path / f"at{point}"
        by_step = settings_for(method, **every) if point == points[-1] else config
        error = Kill if point == points[-1] else Interrupted
        with pytest.raises(error):
            run(by_step, benchmark=benchmark, out=folder, callback=StopAt(point, error=error))
        assert not (folder / "result.json").exists()
        result = resume(folder, benchmark=benchmark)
        assert matrix(folder) == matrix(tmp_path / "whole")
        assert result.matrix.tobytes() == whole.matrix.tobytes()
        assert result.per_class.tobytes() == whole.per_class.tobytes()
        assert result.learner.memory.rows.tolist() == whole.learner.memory.rows.tolist()
        for name, value in whole.learner.network.state_dict().items():
            assert torch.equal(value, result.learner.network.state_dict()[name])
        assert measured(folder) == measured(tmp_path / "whole")


@pytest.mark.parametrize(
    "changes",
    [
        {"regulariser": {"kind": "ewc", "online": True, "decay": 0.5, "fisher": "true"}},
        {"memory": {"kind": "herding"}, "train": {"momentum": 0.0}},
        {
            "regulariser": {"kind": "lwf", "distance": "mse"},
            "memory": {"sampling": "balanced", "weight": "size"},
        },
    ],
)
def test_mixed_parts_resume_too_however_often_they_are_stopped(changes, tmp_path):
    benchmark = small_benchmark()
    config = settings_for("er", checkpoint={"every": 4}, **changes)
    whole = run(config, benchmark=benchmark)
    folder = tmp_path / "run"
    with pytest.raises(Kill):
        run(config, benchmark=benchmark, out=folder, callback=StopAt(11, error=Kill))
    for stops in range(100):
        try:
            result = resume(folder, benchmark=benchmark, callback=StopAt(6 + stops % 5, error=Kill))
            break
        except Kill:
            continue
    assert stops > 3
    assert result.matrix.tobytes() == whole.matrix.tobytes()


@pytest.mark.slow
def test_resnet_in_channels_last_with_augmentation_resumes(tmp_path):
    benchmark = small_benchmark(images=True)
    changes = {"model": {"width": 16}, "augment": "flip-crop", "train": {"epochs": 1}}
    config = config_from(merge(SMALL_IMAGES, {"method": "rldam-wru"}, changes))
    whole = run(config, benchmark=benchmark)
    with pytest.raises(Interrupted):
        run(config, benchmark=benchmark, out=tmp_path / "run", callback=StopAt(9))
    assert resume(tmp_path / "run", benchmark=benchmark).matrix.tobytes() == whole.matrix.tobytes()


def test_undefined_measures_survive(tmp_path):
    """A class without a negative test row has no AUC: nan in the state, null in the manifest, nan again."""
    benchmark = small_benchmark()
    benchmark.dataset.test.labels[:, 2] = 1
    config = settings_for("er")
    whole = run(config, benchmark=benchmark)
    assert np.isnan(whole.per_class[:, 2]).all()
    with pytest.raises(Interrupted):
        run(config, benchmark=benchmark, out=tmp_path / "run", callback=StopAt(30))
    again = resume(tmp_path / "run", benchmark=benchmark)
    assert again.per_class.tobytes() == whole.per_class.tobytes()


def test_a_finished_run_keeps_no_checkpoint_and_a_running_one_two(tmp_path):
    seen = []

    class Look(Callback):
        def on_step(self, learner, loss):
            seen.append(sorted(p.name for p in (tmp_path / "run/checkpoints").glob("*")))

    run(
        settings_for("er", checkpoint={"every": 1}),
        benchmark=small_benchmark(),
        out=tmp_path / "run",
        callback=Look(),
    )
    assert max(map(len, seen)) == 4
    assert seen[-1] == [
        f"{n:06d}.{kind}" for n in (len(seen) + 1, len(seen) + 2) for kind in ("json", "safetensors")
    ]
    assert not (tmp_path / "run/checkpoints").exists()
    assert not (tmp_path / "run/.lock").exists()
    with pytest.raises(InputError, match="is finished"):
        resume(tmp_path / "run", benchmark=small_benchmark())


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped in its second task, with checkpoints 1, 2 (steps) and the matrix of the whole run."""
    base = tmp_path_factory.mktemp("stopped")
    benchmark = small_benchmark()
    config = settings_for("rldam-wru", checkpoint={"every": 6})
    whole = run(config, benchmark=benchmark, out=base / "whole")
    with pytest.raises(Kill):
        run(config, benchmark=benchmark, out=base / "run", callback=StopAt(40, error=Kill))
    return base / "run", benchmark, whole.matrix


@pytest.fixture
def copy(stopped, tmp_path):
    return shutil.copytree(stopped[0], tmp_path / "run")


def flip(path, position=None):
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if position is None else position] ^= 4
    path.write_bytes(content)


DAMAGE = {
    "tensors truncated": lambda json_, tensors: os.truncate(tensors, 1000),
    "tensors empty": lambda json_, tensors: os.truncate(tensors, 0),
    "tensors missing": lambda json_, tensors: tensors.unlink(),
    "a bit of the tensors": lambda json_, tensors: flip(tensors),
    "a bit of the tensors' header": lambda json_, tensors: flip(tensors, 20),
    "manifest truncated": lambda json_, tensors: os.truncate(json_, 700),
    "manifest empty": lambda json_, tensors: os.truncate(json_, 0),
    "a bit of the manifest": lambda json_, tensors: flip(json_),
    "manifest of something else": lambda json_, tensors: json_.write_text('{"format": "other"}'),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(kind, copy, stopped):
    manifests = sorted((copy / "checkpoints").glob("*.json"))
    assert len(manifests) == 2
    DAMAGE[kind](manifests[-1], manifests[-1].with_suffix(".safetensors"))
    with pytest.warns(UserWarning, match=r"The checkpoint before it is used"):
        result = resume(copy, benchmark=stopped[1])
    assert result.matrix.tobytes() == stopped[2].tobytes()


def test_without_a_good_checkpoint_nothing_is_started_anew(copy, stopped):
    for path in (copy / "checkpoints").glob("*.safetensors"):
        flip(path)
    before = (copy / "metrics.jsonl").read_bytes()
    with pytest.raises(InputError, match=r"no checkpoint in .* can be used: .* is damaged"):
        resume(copy, benchmark=stopped[1])
    assert (copy / "metrics.jsonl").read_bytes() == before
    shutil.rmtree(copy / "checkpoints")  # somebody's decision
    assert resume(copy, benchmark=stopped[1]).matrix.tobytes() == stopped[2].tobytes()


def test_a_manifest_that_never_came_is_no_checkpoint(copy, stopped):
    newest = max((copy / "checkpoints").glob("*.json"))
    newest.rename(newest.with_suffix(".json.tmp"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resume(copy, benchmark=stopped[1]).matrix.tobytes() == stopped[2].tobytes()


def test_changed_settings_are_refused_by_name(copy, stopped):
    path = copy / "config.yaml"
    path.write_text(path.read_text().replace("size: 30", "size: 31").replace("epochs: 3", "epochs: 4"))
    with pytest.raises(InputError, match=r"memory.size was 30 and is 31; train.epochs was 3 and is 4"):
        resume(copy, benchmark=stopped[1])


def test_how_often_to_save_may_change(copy, stopped):
    path = copy / "config.yaml"
    path.write_text(path.read_text().replace("every: 6", "every: 1000"))
    assert resume(copy, benchmark=stopped[1]).matrix.tobytes() == stopped[2].tobytes()


@pytest.mark.parametrize("checkpoints", [True, False])
def test_other_data_and_other_tasks_are_refused(copy, checkpoints):
    if not checkpoints:
        shutil.rmtree(copy / "checkpoints")
    with pytest.raises(
        InputError, match=r"the data changed since .* was written: it had \w{16} and now has \w{16}"
    ):
        resume(copy, benchmark=small_benchmark(n=121))
    with pytest.raises(InputError, match="the tasks changed since"):
        resume(copy, benchmark=small_benchmark(order="sorted"))
    with pytest.raises(InputError, match="arrays that were given in Python"):
        resume(copy)


def test_another_format_version_is_refused_and_not_skipped(copy, stopped, monkeypatch):
    monkeypatch.setattr("mlcl.runs.checkpoints.VERSION", 2)
    with pytest.raises(InputError, match="has the format version 1, but this mlcl reads 2"):
        resume(copy, benchmark=stopped[1])


def test_another_version_of_torch_is_told(copy, stopped, monkeypatch):
    monkeypatch.setattr("mlcl.runs.checkpoints.torch.__version__", "9.9.9")
    with pytest.warns(UserWarning, match=r"begun with torch .* and resumes with 9.9.9"):
        resume(copy, benchmark=stopped[1])


def test_a_folder_without_a_run_is_told(tmp_path):
    with pytest.raises(InputError, match="holds no run"):
        resume(tmp_path)
    with pytest.raises(InputError, match="holds no run"):
        resume(tmp_path / "absent")


def test_a_lock_holds_until_released(tmp_path, copy, stopped):
    lock = FolderLock(copy)
    with pytest.raises(InputError, match=rf"in use by another process \(number {os.getpid()}\)"):
        resume(copy, benchmark=stopped[1])
    with pytest.raises(InputError, match="in use by another process"):
        run(settings_for("er"), benchmark=stopped[1], out=copy, overwrite=True)
    assert list((copy / "checkpoints").iterdir())
    lock.release()
    (copy / ".lock").write_text("12345\n")  # what a kill leaves behind holds nothing
    resume(copy, benchmark=stopped[1])


def test_a_lock_file_alone_does_not_make_a_folder_taken(tmp_path):
    (tmp_path / ".lock").write_text("1\n")
    run(settings_for("ft", train={"epochs": 1}), benchmark=small_benchmark(), out=tmp_path)
    assert (tmp_path / "result.json").exists()


@pytest.mark.slow
def test_every_failing_write_leaves_a_checkpoint_to_go_on_from(tmp_path, monkeypatch):
    """The n-th fsync or rename of a run fails, for every n: afterwards the run resumes to the same bits."""
    benchmark = small_benchmark(tasks=2, n=40, classes=4)
    config = settings_for("er", train={"epochs": 1})
    whole = run(config, benchmark=benchmark)
    fsync, replace = os.fsync, os.replace
    failures = 0
    for n in range(200):
        count = 0

        def failing(function, *args):
            nonlocal count
            count += 1
            if count == n + 1:  # noqa: B023
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*args)

        folder = tmp_path / f"run{n}"
        monkeypatch.setattr(os, "fsync", lambda *args: failing(fsync, *args))
        monkeypatch.setattr(os, "replace", lambda *args: failing(replace, *args))
        try:
            run(config, benchmark=benchmark, out=folder)
            break
        except OSError as error:
            assert error.errno == errno.ENOSPC
            failures += 1
        finally:
            monkeypatch.setattr(os, "fsync", fsync)
            monkeypatch.setattr(os, "replace", replace)
        assert not list(folder.rglob("*.tmp"))
        if (folder / "config.yaml").exists() and not (folder / "result.json").exists():
            assert resume(folder, benchmark=benchmark).matrix.tobytes() == whole.matrix.tobytes()
    assert failures > 25


def test_a_failed_write_names_the_file_and_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_bytes(path, b"new")
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_state_of_another_network_is_refused(stopped, copy):
    found = newest_checkpoint(copy / "checkpoints")
    config = config_from(merge(SMALL, {"method": "rldam-wru", "model": {"hidden": 8}}))
    learner = Learner(config, stopped[1])
    with pytest.raises(Exception, match="size mismatch"):
        learner.load_state(found.state)


def test_the_manifest_can_be_read_by_people(copy):
    path = max((copy / "checkpoints").glob("*.json"))
    content = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert content["position"] == {"task": 1, "epoch": 1, "step": 0, "in_task": True} | content["position"]
    assert content["config"]["method"] == "rldam-wru"
    found = read_checkpoint(path)
    assert found.state.values["position"] == list(content["position"].values())
