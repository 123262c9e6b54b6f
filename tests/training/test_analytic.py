"""L3A in a run: the numbers of the room exact, a run stopped and resumed, and settings that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import small_benchmark
from mlcl.config.resolve import config_from
from mlcl.errors import InputError
from mlcl.exact.analytic import Analytic
from mlcl.runs.run import resume, run
from mlcl.training.callbacks import Callback, Interrupted

CONFIG = {"method": "l3a", "model": {"width": 40}, "exact": {"ridge": 0.5, "pseudo": 0.6}}


class StopAfterTheFirstTask(Callback):
    def on_task_end(self, learner):
        if learner.task_index == 1:
            raise Interrupted


def test_the_head_has_the_weights_of_the_sums():
    benchmark = small_benchmark(images=False)
    learner = run(config_from(CONFIG), benchmark=benchmark).learner
    train = benchmark.dataset.train
    sums = Analytic.begin(40, len(benchmark.classes))
    with torch.inference_mode():
        features = learner.network.features(
            learner.normaliser(torch.as_tensor(np.array(train.inputs)))
        ).numpy()
    for task in benchmark:
        labels = train.labels[np.ix_(task.train, task.classes)]
        sums = sums.learn(features[task.train], labels, task.classes, threshold=0.6, ridge=0.5)
    weights = learner.network.head.linear.weight.detach().numpy()
    np.testing.assert_allclose(weights, sums.solve(0.5).T, rtol=1e-3, atol=1e-5)
    assert not learner.network.head.linear.bias.any()
    assert learner.steps == 0


def test_a_stopped_run_ends_with_the_same_bits(tmp_path):
    benchmark, config = small_benchmark(images=False), config_from(CONFIG)
    whole = run(config, benchmark=benchmark)
    with pytest.raises(Interrupted):
        run(config, benchmark=benchmark, out=tmp_path / "run", callback=StopAfterTheFirstTask())
    again = resume(tmp_path / "run", benchmark=benchmark)
    assert again.matrix.tobytes() == whole.matrix.tobytes()
    for name, value in whole.learner.head.state().items():
        assert torch.equal(value, again.learner.head.state()[name])


@pytest.mark.parametrize(
    ("exact", "words"),
    [
        ({"ridge": "auto"}, "exact.ridge is 'auto'; expected a number above 0"),
        ({"unlabelled": 1.0}, "exact.unlabelled is 1.0, which exact.solver 'l3a' does not use"),
        ({"pseudo": 1.5}, "exact.pseudo is 1.5; expected a probability"),
        ({"solver": "pairs", "pseudo": 0.5}, "exact.pseudo is 0.5; expected nothing"),
    ],
)
def test_settings_that_do_not_fit(exact, words):
    with pytest.raises(InputError, match=words):
        config_from({"method": "l3a", "exact": exact})


def test_masked_joint_training_is_refused():
    config = config_from({**CONFIG, "protocol": "joint-masked"})
    with pytest.raises(InputError, match="'l3a' learns task by task"):
        run(config, benchmark=small_benchmark(images=False))
