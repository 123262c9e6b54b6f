"""What is frozen does not move, what is not frozen learns, and a run with frozen parts resumes to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import small_arrays
from mlcl.cli.main import main
from mlcl.config.resolve import config_from
from mlcl.datasets import prepare_source
from mlcl.errors import InputError
from mlcl.models import build_model
from mlcl.runs.run import resume, run
from mlcl.streams import Benchmark
from mlcl.training.callbacks import Callback
from mlcl.training.learner import Learner
from mlcl.training.loop import train
from mlcl.training.setup import freeze, frozen_layers, training_mode

SETTINGS = {
    "method": "rldam-wru",
    "stream": {"tasks": 2},
    "model": {"kind": "resnet8", "width": 16},
    "memory": {"size": 10},
}
TRAIN = {"epochs": 1, "batch_size": 16, "lr": 0.05, "threads": 1}


def benchmark():
    train_rows, test_rows = (small_arrays(images=True, n=n, seed=i) for i, n in enumerate((48, 40)))
    return Benchmark.from_arrays(*train_rows, *test_rows, tasks=2)


def config(**changes):
    return config_from({**SETTINGS, "train": {**TRAIN, **changes}})


def moved(**changes):
    """Return the names of the tensors of a network that training changes."""
    learner = Learner(config(**changes), benchmark())
    before = {name: value.clone() for name, value in learner.network.state_dict().items()}
    train(learner)
    after = learner.network.state_dict()
    return {name for name, value in before.items() if not torch.equal(value, after[name])}


def names(*prefixes, of="weights"):
    """Return the names of a ResNet-8's tensors below some prefixes: weights that learn, or statistics."""
    state = build_model("resnet8", (3, 16, 16), 6, width=16).state_dict()
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    return {
        name
        for name in state
        if name.startswith(prefixes) and name.endswith(statistics) == (of == "statistics")
    }


def test_by_default_everything_moves():
    everything = names("backbone.", "head.") | names("backbone.", of="statistics")
    assert moved() == everything
    assert moved(backbone_lr=0.1) == everything


def test_layers_up_to_a_point_stay_with_their_statistics():
    last = ("backbone.layer2", "backbone.layer3")
    assert moved(freeze="layer1") == names(*last, "head.") | names(*last, of="statistics")
    assert moved(freeze="layer3.0.bn1") >= names("backbone.layer3.0.conv2", "head.")
    assert not moved(freeze="layer3.0.bn1") & names(
        "backbone.layer3.0.conv1", "backbone.layer2", "backbone.conv1"
    )
    assert moved(freeze="all") == names("head.")


def test_statistics_stay_and_weights_learn():
    assert moved(freeze_statistics=True) == names("backbone.", "head.")
    assert moved(freeze_statistics=True, freeze="layer2") == names("backbone.layer3", "head.")


def test_a_share_of_zero_leaves_the_weights():
    assert moved(backbone_lr=0.0) == names("head.") | names("backbone.", of="statistics")


def test_defaults_change_nothing():
    """Spelled out, the defaults give the same bits."""
    results = [
        run(settings, benchmark=benchmark())
        for settings in (config(), config(backbone_lr=1.0, freeze_statistics=False))
    ]
    first, second = (result.learner.network.state_dict() for result in results)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_frozen_features_are_those_of_a_head_alone():
    """The oracle: a head on the features of the frozen backbone learns the same."""
    settings = config(freeze="all")
    learner = Learner(settings, benchmark())
    data = benchmark().dataset
    with torch.no_grad():
        embed = [
            learner.network.eval()
            .features(learner.normaliser(torch.from_numpy(np.array(part.inputs))))
            .numpy()
            for part in (data.train, data.test)
        ]
    stream = benchmark()
    features = Benchmark.from_arrays(embed[0], data.train.labels, embed[1], data.test.labels, tasks=2)
    assert [task.classes.tolist() for task in features.tasks] == [
        task.classes.tolist() for task in stream.tasks
    ]
    alone = Learner(
        config_from({**SETTINGS, "model": {"kind": "linear"}, "train": {**TRAIN, "normalise": False}}),
        features,
    )
    alone.network.head.load_state_dict(learner.network.head.state_dict())
    train(learner)
    train(alone)
    torch.testing.assert_close(
        learner.network.head.linear.weight, alone.network.head.linear.weight, rtol=1e-3, atol=1e-5
    )


def test_modules_around_layers_that_learn_stay_in_training():
    network = build_model("mobilenetv2", (3, 32, 32), 2)
    frozen = frozen_layers(network, "blocks.1")
    freeze(frozen)
    training_mode(network, frozen, statistics=False)
    model = network.backbone.model
    assert network.backbone.training
    assert model.training
    assert model.blocks.training
    assert not any(module.training for part in (model.bn1, *model.blocks[:2]) for module in part.modules())
    assert all(module.training for part in (*model.blocks[2:], model.bn2) for module in part.modules())
    learnt = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert learnt == {
        name
        for name, _ in network.named_parameters()
        if not name.startswith(
            (
                "backbone.model.conv_stem",
                "backbone.model.bn1",
                "backbone.model.blocks.0",
                "backbone.model.blocks.1",
            )
        )
    }


@pytest.fixture
def store(tmp_path):
    parts = [small_arrays(images=True, n=n, seed=i) for i, n in enumerate((64, 40))]
    arrays = dict(zip(("x_train", "y_train", "x_test", "y_test"), (*parts[0], *parts[1]), strict=True))
    np.savez(tmp_path / "small.npz", **arrays)
    prepare_source("arrays", tmp_path / "small.npz", out=tmp_path / "small", jobs=1)
    return tmp_path / "small"


class Kill(Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, learner, loss):
        if learner.task_index == 1 and learner.step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "changes",
    [
        {"backbone_lr": 0.1},
        {"freeze": "layer1", "backbone_lr": 0.5, "optimiser": "adam", "lr": 0.01, "average": 0.9},
        {"freeze": "all", "freeze_statistics": True},
        {"freeze_statistics": True},
    ],
)
def test_a_killed_run_resumes_to_the_same_bits(store, tmp_path, changes):
    settings = {
        "benchmark": str(store),
        **SETTINGS,
        "train": {**TRAIN, **changes},
        "checkpoint": {"every": 2},
    }
    whole = run(config_from(settings))
    with pytest.raises(KeyboardInterrupt):
        run(config_from(settings), out=tmp_path / "a", callback=Kill(3))
    resumed = resume(tmp_path / "a")
    assert np.array_equal(resumed.matrix, whole.matrix)
    first, second = (result.learner.network.state_dict() for result in (whole, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("model", "layer", "sentence"),
    [
        (
            "resnet8",
            "layer4",
            r"train\.freeze is 'layer4'; expected 'all' or a layer of model 'resnet8'.* Did you mean 'layer",
        ),
        (
            "mobilenetv2",
            "block.3",
            r"train\.freeze is 'block\.3'; expected 'all' or a layer of model 'mobilenetv2'",
        ),
        ("resnet8", "", r"train\.freeze is ''; expected"),
    ],
)
def test_unknown_layers_are_one_sentence(model, layer, sentence):
    with pytest.raises(InputError, match=sentence):
        frozen_layers(build_model(model, (3, 32, 32), 2), layer, model=model)


def test_the_command_line(store, capsys):
    words = ["run", "--benchmark", str(store), "--model", "resnet8", "--stream.tasks", "2", "--quiet"]
    assert main([*words, "--train.freeze", "layer9", "--out", str(store.parent / "run")]) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
    assert "train.freeze is 'layer9'" in error
    assert not (store.parent / "run").exists()
