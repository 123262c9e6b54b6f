"""Heads that grow, in whole runs: stopped and resumed, loaded, exported, extended and updated like any other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from helpers import SMALL, SMALL_IMAGES, label_settings, label_store, small_benchmark
from mlcl.config.resolve import config_from, merge
from mlcl.errors import InputError
from mlcl.runs.continuing import update
from mlcl.runs.run import resume, run
from mlcl.runs.trained import load_trained
from mlcl.taggers.export import export
from mlcl.training.callbacks import Callback, Interrupted

KINDS: dict[str, dict[str, Any]] = {
    "lanes": {"method": "lanes", "model": {"kind": "linear"}},
    "lanes on maps": {"method": "lanes", "train": {"freeze": "all", "freeze_statistics": True, "epochs": 1}},
    "lanes with replay": {
        "method": "lanes",
        "model": {"kind": "linear"},
        "memory": {"kind": "random"},
        "labels": {"kind": "negatives"},
    },
    "graph": {"method": "csc", "model": {"head": "graph"}},
    "graph on maps": {"method": "csc", "model": {"head": "graph"}, "train": {"epochs": 1}},
    "rebll": {"method": "rebll", "regulariser": {"decay": 2.0}},
}


def on_maps(kind):
    return kind.endswith("maps")


def settings(kind):
    base = SMALL_IMAGES if on_maps(kind) else merge(SMALL, {"train": {"epochs": 2}})
    model = {"model": {"kind": "resnet8", "width": 4}} if on_maps(kind) else {}
    if KINDS[kind].get("model", {}).get("kind") == "linear":
        base = {name: value for name, value in base.items() if name != "model"}
    return config_from(merge(base, model, KINDS[kind]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Finished runs of every kind."""
    base = tmp_path_factory.mktemp("heads")
    return {
        kind: run(settings(kind), benchmark=small_benchmark(images=on_maps(kind), n=120), out=base / kind)
        for kind in KINDS
    }


class StopAt(Callback):
    """Stops at the n-th step."""

    def __init__(self, step):
        self.left = step

    def on_step(self, learner, loss):
        self.left -= 1
        if self.left == 0:
            raise Interrupted


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_stopped_inside_a_later_task_ends_with_the_same_bits(kind, finished, tmp_path):
    whole = finished[kind]
    benchmark = small_benchmark(images=on_maps(kind), n=120)
    step = whole.learner.steps // 2 + 1
    with pytest.raises(Interrupted):
        run(settings(kind), benchmark=benchmark, out=tmp_path / "part", callback=StopAt(step))
    result = resume(tmp_path / "part", benchmark=benchmark)
    assert result.matrix.tobytes() == whole.matrix.tobytes()
    for name, value in whole.learner.network.state_dict().items():
        assert torch.equal(value, result.learner.network.state_dict()[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_run_scores_as_the_learner_did(kind, finished):
    result = finished[kind]
    inputs = result.learner.data.test.inputs
    assert np.allclose(load_trained(result.folder).logits(inputs), result.learner.predict(inputs), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lanes", "lanes on maps", "graph", "graph on maps"])
def test_an_exported_program_gives_the_same_scores(kind, finished, tmp_path):
    result = finished[kind]
    inputs = np.array(result.learner.data.test.inputs[:7])
    export(result.folder, tmp_path / "model.pt2", format="torch", logits=True)
    found = torch.export.load(tmp_path / "model.pt2").module()(torch.from_numpy(inputs))
    assert np.allclose(found.detach().numpy(), result.learner.predict(inputs), atol=1e-4)


@pytest.mark.parametrize("kind", ["lanes", "graph"])
def test_an_onnx_file_gives_the_same_scores(kind, finished, tmp_path):
    onnx = pytest.importorskip("onnx", reason="ONNX is an extra")
    pytest.importorskip("onnxscript", reason="ONNX is an extra")
    from onnx.reference import ReferenceEvaluator

    result = finished[kind]
    export(result.folder, tmp_path / "model.onnx", format="onnx", logits=True)
    inputs = np.array(result.learner.data.test.inputs[:7])
    session = ReferenceEvaluator(onnx.load(tmp_path / "model.onnx"))
    (found,) = session.run(None, {session.input_names[0]: inputs})
    assert np.allclose(found, result.learner.predict(inputs), atol=1e-4)


def test_what_lanes_have_learnt_stays(finished):
    """The result matrix of lanes on fixed features has constant columns: nothing is forgotten, to the bit."""
    for kind in ("lanes", "lanes on maps"):
        values = finished[kind].matrix
        assert finished[kind].forgetting == 0
        for task in range(len(values)):
            assert len(set(values[task:, task].tolist())) == 1
    assert finished["graph"].learner.network.head.seen.all()
    assert finished["graph"].learner.network.head.edges().ne(0).any()


@pytest.mark.filterwarnings("ignore:.*known already")
@pytest.mark.parametrize("kind", ["lanes", "graph"])
def test_new_labels_are_learnt_and_old_scores_stay_with_lanes(kind, tmp_path):
    old = label_store(tmp_path, "old", [0, 1, 2, 3])
    new = label_store(tmp_path, "new", [4, 1, 5], seed=1)
    model = (
        {"kind": "fixed"} if kind == "lanes" else {"kind": "mlp", "hidden": 16, "depth": 1, "head": "graph"}
    )
    run(label_settings(old, KINDS[kind]["method"], model=model), out=tmp_path / "first")
    result = update(tmp_path / "first", new, out=tmp_path / "second", known=False)
    assert result.matrix.shape == (3, 3)
    assert np.isfinite(result.matrix[2]).all()
    assert result.matrix[2, 2] > 60
    rows = np.array(result.learner.data.test.inputs[np.arange(20)])
    before, after = (load_trained(tmp_path / name).logits(rows) for name in ("first", "second"))
    assert after.shape == (20, 6)
    if kind == "lanes":
        assert np.array_equal(after[:, :4], before)
        with pytest.raises(InputError, match="its head 'lanes' has one session per class"):
            update(tmp_path / "second", new, out=tmp_path / "third")
    else:
        edges = load_trained(tmp_path / "second").network.head.edges()
        assert edges.shape == (6, 6)
        assert edges[4:, :4].ne(0).any()
