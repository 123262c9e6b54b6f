"""A finished run that learns labels nobody knew: with its folder and the new store only."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers import label_settings as settings
from helpers import label_store as make_store
from mlcl.cli.main import main
from mlcl.datasets import open_store
from mlcl.datasets.base import ConcatRows
from mlcl.errors import InputError
from mlcl.memories import Memory
from mlcl.runs.continuing import update
from mlcl.runs.run import resume, run
from mlcl.runs.trained import load_trained
from mlcl.taggers.predict import predict
from mlcl.training.callbacks import Callback, Interrupted


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    base = tmp_path_factory.mktemp("stores")
    return {
        "old": make_store(base, "old", [0, 1, 2, 3]),
        "new": make_store(base, "new", [4, 1, 5], seed=10),
        "newer": make_store(base, "newer", [6, 7], seed=20),
        "pictures": make_store(base, "pictures", [0, 1, 2, 3], images=True),
        "new pictures": make_store(base, "new-pictures", [4, 5], images=True, seed=10),
    }


@pytest.fixture(scope="module")
def finished(stores, tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    return run(settings(stores["old"], "rldam-wru"), out=base / "first")


def written(folder):
    return json.loads((folder / "result.json").read_text())


def everything(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_keeps_the_inputs_of_its_memory(finished, stores):
    tensors = load_file(finished.folder / "memory.safetensors")
    memory = Memory.from_state({name: value.numpy() for name, value in tensors.items()})
    expected = open_store(stores["old"]).train.inputs[memory.rows]
    assert len(expected) == 24
    assert np.array_equal(tensors["inputs"].numpy(), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*known already")
@pytest.mark.parametrize("method", ["rldam-wru", "ewc", "lwf", "er-rs", "ft", "krt", "krt-r"])
def test_new_labels_are_learnt_and_old_ones_tested(method, stores, tmp_path):
    images = method.startswith("krt")
    old, new = (stores[name] for name in (("pictures", "new pictures") if images else ("old", "new")))
    first = run(settings(old, method, images=images), out=tmp_path / "first")
    before = everything(tmp_path / "first")
    result = update(tmp_path / "first", new, out=tmp_path / "second", known=False)
    assert everything(tmp_path / "first") == before
    assert result.learner.data.classes == ("ant", "bee", "cat", "dog", "eel", "fox")
    assert result.matrix.shape == (3, 3)
    assert np.allclose(result.matrix[:2, :2], first.matrix, rtol=1e-12)
    assert np.isnan(result.matrix[:2, 2]).all()
    assert result.matrix[2, 2] > (50 if images else 75)
    assert np.isfinite(result.matrix[2]).all()
    if method == "rldam-wru":
        assert result.matrix[2, :2].mean() > 70
    assert len(result.learner.memory) <= 24
    # The constants of the old tasks are those of all their data, not of what is stored.
    assert result.positive[:4].tolist() == first.positive.tolist()
    assert predict(tmp_path / "second", new).classes == result.learner.data.classes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*known already")
def test_images_that_were_stored_small_are_taken_up(stores, tmp_path):
    memory = {"size": 6, "downscale": 2}
    run(settings(stores["pictures"], "rldam-wru", images=True, memory=memory), out=tmp_path / "first")
    stored = load_file(tmp_path / "first" / "memory.safetensors")["inputs"]
    assert stored.shape == (24, 3, 8, 8)
    learner = update(tmp_path / "first", stores["new pictures"], out=tmp_path / "second", known=False).learner
    joined = np.asarray(learner.data.train.inputs[np.arange(24)])
    assert np.array_equal(joined, stored.numpy().repeat(2, 2).repeat(2, 3))
    again = load_file(tmp_path / "second" / "memory.safetensors")["inputs"]
    kept = {image.tobytes() for image in stored.numpy()}
    assert len(again) == 24
    assert (
        sum(image.tobytes() in kept for image in again.numpy()) >= 12
    )  # old tasks keep their share, bit for bit
    for name in ("config.yaml", "result.json"):
        path = tmp_path / "first" / name
        text = path.read_text()
        path.write_text(re.sub(r'(downscale"?): 2', r"\1: 9000000", text))
        assert path.read_text() != text
    with pytest.raises(InputError, match=r"does not fit the run: its inputs have the shape \(24, 3, 8, 8\)"):
        update(tmp_path / "first", stores["new pictures"], out=tmp_path / "third", known=False)


def test_before_anything_is_learnt_the_old_scores_are_the_same_bits(finished, stores):
    """The head grew and nothing else: old columns score as before, with the old normalisation."""
    from mlcl.runs.continuing import begin_from, extended_benchmark, load_base
    from mlcl.training.learner import Learner

    base = load_base(finished.folder)
    learner = Learner(base.trained.config, extended_benchmark(base, settings(stores["new"], "rldam-wru")))
    begin_from(learner, base)
    inputs = open_store(stores["new"]).test.inputs
    assert np.array_equal(learner.predict(inputs)[:, :4], load_trained(finished.folder).logits(inputs))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*known already")
def test_without_the_old_store_all_but_the_old_tests_is_the_same(stores, tmp_path):
    old = shutil.copytree(stores["old"], tmp_path / "old")
    run(settings(old, "rldam-wru"), out=tmp_path / "first")
    there = update(tmp_path / "first", stores["new"], out=tmp_path / "there", known=False)
    shutil.rmtree(old)
    with pytest.warns(UserWarning, match="so its tasks are not evaluated again"):
        gone = update(tmp_path / "first", stores["new"], out=tmp_path / "gone", known=False)
    for name, value in there.learner.network.state_dict().items():
        assert torch.equal(value, gone.learner.network.state_dict()[name])
    assert np.isnan(gone.matrix[2, :2]).all()
    assert gone.matrix[2, 2] == there.matrix[2, 2]
    assert gone.macro_auc == gone.matrix[2, 2]
    assert written(tmp_path / "gone")["matrix"][2][:2] == [None, None]
    with pytest.warns(UserWarning, match="so its tasks are not evaluated again"):
        again = update(tmp_path / "gone", stores["newer"], out=tmp_path / "again", known=False)
    assert again.matrix.shape == (4, 4)


class StopAt(Callback):
    def __init__(self, step, error):
        self.left, self.error = step, error

    def on_step(self, learner, loss):
        self.left -= 1
        if self.left == 0:
            raise self.error


class Kill(Exception):
    """Nothing is written after it."""


@pytest.mark.filterwarnings("ignore:.*known already")
@pytest.mark.parametrize("error", [Interrupted, Kill])
def test_a_stopped_extension_resumes_to_the_same_bits(error, finished, stores, tmp_path):
    whole = update(finished.folder, stores["new"], out=tmp_path / "whole", known=False)
    with pytest.raises(error):
        update(finished.folder, stores["new"], out=tmp_path / "part", callback=StopAt(5, error), known=False)
    result = resume(tmp_path / "part")
    assert written(tmp_path / "part")["matrix"] == written(tmp_path / "whole")["matrix"]
    for name, value in whole.learner.network.state_dict().items():
        assert torch.equal(value, result.learner.network.state_dict()[name])


@pytest.mark.filterwarnings("ignore:.*known already")
def test_a_run_grows_twice_from_the_command_line(finished, stores, tmp_path, capsys):
    second, third = tmp_path / "second", tmp_path / "third"
    arguments = ["--train.epochs", "2", "--quiet", "--out"]
    assert main(["extend", str(finished.folder), "--data", str(stores["new"]), *arguments, str(second)]) == 0
    assert capsys.readouterr().out == f"{second}\n"
    assert main(["extend", str(second), "--data", str(stores["newer"]), *arguments, str(third)]) == 0
    result = written(third)
    assert result["classes"] == ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
    assert np.array(result["matrix"], float).shape == (4, 4)
    assert None not in result["matrix"][-1]
    assert len(result["memory"]) == 4
    assert sum(result["memory"]) <= 24
    assert result["config"]["train"]["epochs"] == 2


@pytest.mark.slow
def test_what_cannot_be_extended_is_one_sentence(finished, stores, tmp_path, capsys):
    first = str(finished.folder)
    for arguments, words in (
        (["extend"], "required: DIR"),
        (["extend", first], "required: --data"),
        (["extend", first, "--data", str(tmp_path / "absent")], "was not found"),
        (["extend", first, "--data", str(stores["old"])], "has no class that"),
        (["extend", first, "--data", str(stores["new pictures"])], "has inputs of shape (3, 16, 16)"),
        (["extend", first, "--data", str(stores["newer"]), "--memory.size", "9"], "may change only"),
        (["extend", first, "--data", str(stores["newer"]), "--out", first, "--overwrite"], "another folder"),
        (["extend", str(tmp_path), "--data", str(stores["newer"])], "config.yaml"),
    ):
        assert main(arguments) == 2, arguments
        err = capsys.readouterr().err
        assert words in err, err
        assert err.count("\n") == 1
    assert not list(finished.folder.parent.glob("*-extended*"))
    run(settings(stores["old"], "joint"), out=tmp_path / "joint")
    with pytest.raises(InputError, match="learnt everything at once"):
        update(tmp_path / "joint", stores["new"], out=tmp_path / "x", known=False)
    broken = shutil.copytree(finished.folder, tmp_path / "broken")
    (broken / "memory.safetensors").write_bytes((tmp_path / "joint/memory.safetensors").read_bytes())
    with pytest.raises(InputError, match=r"memory.safetensors: is damaged: its checksum"):
        update(broken, stores["new"], out=tmp_path / "x", known=False)
    result = written(broken)
    result.pop("sha256")
    (broken / "result.json").write_text(json.dumps(result))
    with pytest.raises(InputError, match=r"memory.safetensors does not fit the run"):
        update(broken, stores["new"], out=tmp_path / "x", known=False)


def test_joined_rows_are_those_of_the_concatenation():
    rng = np.random.default_rng(0)
    first, second = rng.random((5, 3)), rng.random((7, 3))
    both, joined = np.concatenate([first, second]), ConcatRows(first, second)
    for index in (slice(2, 9), slice(None), np.array([11, 0, 4, 5, 5]), np.array([], np.int64)):
        assert np.array_equal(joined[index], both[index])
