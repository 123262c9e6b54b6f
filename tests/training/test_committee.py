"""A committee inside a run: the network learns as if alone, and members are solved from sums beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import SMALL, SMALL_IMAGES, small_benchmark
from mlcl.config.resolve import config_from, merge
from mlcl.config.schema import to_dict
from mlcl.errors import InputError
from mlcl.exact import Learner as ExactLearner
from mlcl.exact import Options, solve
from mlcl.metrics import macro_auc
from mlcl.training.callbacks import Callback, Interrupted
from mlcl.training.learner import Learner
from mlcl.training.loop import train

EXACT = {"exact": {"ridge": 0.3, "exponent": 0.0, "unlabelled": 0.3}}
"""No search for the ridge: tests run faster."""


class StopAfter(Callback):
    """Stops a run after so many tasks."""

    def __init__(self, tasks):
        self.tasks = tasks

    def on_task_end(self, learner):
        if learner.task_index == self.tasks:
            raise Interrupted


def config(**changes):
    return config_from(merge(SMALL, EXACT, {"method": "committee", "committee": {"moments": 0.5}}, changes))


@pytest.fixture(scope="module")
def learnt():
    """A network with both members, at the end of three tasks."""
    return train(Learner(config(), small_benchmark()))


def test_the_network_is_the_one_that_learns_alone(learnt):
    alone = train(Learner(config_from(merge(SMALL, {"method": "distilled-replay"})), small_benchmark()))
    found = learnt.network.state_dict()
    assert all(torch.equal(value, found[name]) for name, value in alone.network.state_dict().items())
    assert np.array_equal(learnt.memory.rows, alone.memory.rows)


def test_the_member_on_the_encoder_ranks_as_the_exact_method_does(learnt):
    """Its scores are those of method exact, on another scale per class."""
    exact = train(Learner(config_from(merge(EXACT, {"method": "exact"})), small_benchmark()))
    inputs = learnt.data.test.inputs
    found = learnt._evaluate(
        lambda x: learnt.committee.committee.of_encoder(
            learnt.committee.committee.member("encoder").features(x)
        ),
        inputs,
        np.arange(len(inputs)),
    )
    for mine, theirs in zip(found.T, exact.predict(inputs).T, strict=True):
        assert np.corrcoef(mine, theirs)[0, 1] > 1 - 1e-6


def test_members_have_the_scale_of_the_networks_logits(learnt):
    """Over all rows so far, where a stored row stands for several: computed here from the rows themselves."""
    task, inputs = learnt.tasks[-1], learnt.data.train.inputs
    earlier = Learner(config(), small_benchmark())
    with pytest.raises(Interrupted):
        train(earlier, callback=StopAfter(2))
    stored = earlier.memory.tasks
    rows = [task.train, *(one.rows for one in stored)]
    shares = [np.ones(len(task.train)), *(np.full(len(one), one.counts.total / len(one)) for one in stored)]
    logits = learnt._evaluate(learnt.network, inputs, np.concatenate(rows)).astype(np.float64)
    weights = np.concatenate(shares)
    mean = np.average(logits, axis=0, weights=weights)
    deviation = np.sqrt(np.average((logits - mean) ** 2, axis=0, weights=weights))
    every = np.concatenate([one.train for one in learnt.tasks])
    member = learnt.committee.committee.member("encoder")
    scores = learnt._evaluate(lambda x: member.linear(member.features(x)), inputs, every).astype(np.float64)
    np.testing.assert_allclose(scores.mean(0), mean, atol=1e-4)
    np.testing.assert_allclose(scores.std(0), deviation, rtol=1e-4)


def test_cached_features_give_the_scores_that_the_committee_gives(learnt):
    inputs = learnt.data.test.inputs
    cached = learnt._scores("test", np.arange(len(inputs)))
    np.testing.assert_allclose(cached, learnt.predict(inputs), atol=1e-5)
    first = np.ix_(learnt.tasks[0].test, learnt.tasks[0].classes)
    measured = macro_auc(cached[first], learnt.data.test.labels[first])
    assert learnt.evaluations.matrix[-1][0] == pytest.approx(measured)


def test_moments_of_a_network_that_stands_still_are_those_of_its_features():
    """Nothing drifts without steps, so what was carried over is what all rows together give."""
    benchmark = small_benchmark()
    learner = train(Learner(config(train={"lr": 0.0}, memory={"size": 60}), benchmark))
    rows = [task.train for task in benchmark.tasks]
    features = [
        learner._evaluate(learner.network.features, benchmark.dataset.train.inputs, one) for one in rows
    ]
    direct = ExactLearner.begin(features[0])
    for task, found in zip(benchmark.tasks, features, strict=True):
        labels = benchmark.dataset.train.labels[np.ix_(task.train, task.classes)]
        direct = direct.learn(found, labels, task.classes.tolist())
    options = Options(unlabelled=0.3, ridge=0.3, exponent=0.0)
    wanted = solve(direct, options).scores(np.concatenate(features))
    carried = solve(learner.committee.heads["moments"].learner, options).scores(np.concatenate(features))
    for mine, theirs in zip(carried.T, wanted.T, strict=True):
        assert np.corrcoef(mine, theirs)[0, 1] > 0.999


def test_moments_are_carried_where_the_network_drifts(learnt):
    """The map differs from the identity, and old classes are still told apart on the new features."""
    head = learnt.committee.heads["moments"]
    inputs, task = learnt.data.test.inputs, learnt.tasks[0]
    features = learnt._evaluate(learnt.network.features, inputs, task.test)
    labels = learnt.data.test.labels[np.ix_(task.test, task.classes)]
    options = Options(ridge=0.3, exponent=0.0)
    assert macro_auc(solve(head.learner, options).scores(features)[:, task.classes], labels) > 0.85


def test_without_a_memory_the_tasks_rows_are_all_there_is():
    learner = train(Learner(config(memory={"kind": "none"}), small_benchmark()))
    assert np.isfinite(learner.predict(learner.data.test.inputs)).all()


def test_stored_images_are_looked_at_as_they_are_stored():
    """With downscale, a stored image at full size would be more than the memory holds."""
    members = {"encoder": None, "moments": 1.0}
    settings = merge(SMALL_IMAGES, EXACT, {"method": "distilled-replay", "committee": members})
    settings = merge(settings, {"memory": {"size": 5, "downscale": 2}, "train": {"epochs": 1}})
    learner = Learner(config_from(settings), small_benchmark(images=True))
    first = learner.tasks[0]
    learner.start_task(first)
    learner.finish_task(first)
    found = learner._of_rows_at_hand(learner.tasks[1], lambda x: x.flatten(1))[len(learner.tasks[1].train) :]
    images = learner.data.train.inputs[learner.memory.rows].astype(np.float64)
    small = images.reshape(len(images), 3, 8, 2, 8, 2).mean((3, 5)).round().repeat(2, 2).repeat(2, 3)
    expected = learner.normaliser(torch.from_numpy(small.astype(np.uint8))).flatten(1).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("protocol", ["joint", "joint-masked"])
def test_joint_training_can_have_a_committee(protocol):
    changes = {"protocol": protocol, "memory": {"kind": "none"}, "regulariser": {"kind": "none"}}
    learner = train(Learner(config(**changes), small_benchmark()))
    assert learner.evaluations.matrix[0][0] > 0.8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"committee": {"weight": -1.0}}, "committee.weight is -1.0; expected a number of at least 0"),
        ({"committee": {"encoder": "patchs"}}, "unknown model 'patchs'"),
        ({"committee": {"encoder_options": {"centre": 3}}}, "takes no option 'centre'"),
        (
            {"committee": {"encoder_options": {"centres": "x"}}},
            "committee.encoder_options.centres is 'x'; expected int",
        ),
        ({"model": {"head": "exact"}}, "model.head is 'exact', which is solved alone"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        config_from(merge({"method": "committee"}, settings))


def test_settings_of_members_are_refused_where_there_is_none():
    with pytest.raises(InputError, match=r"committee.weight is 2.0, but there is no member"):
        config_from({"method": "er", "committee": {"weight": 2.0}})
    with pytest.raises(InputError, match=r"committee.encoder_options are set, but no committee.encoder"):
        config_from({"method": "er", "committee": {"encoder_options": {"centres": 3}, "moments": 1.0}})
    assert "committee" not in to_dict(config_from({"method": "er"}))
    assert to_dict(config())["committee"] == {
        "encoder": "fixed",
        "encoder_options": {},
        "weight": 1.0,
        "moments": 0.5,
    }


def test_the_method_has_what_the_validation_part_chose():
    chosen = config_from({"method": "committee"})
    members = chosen.committee
    assert (members.encoder, members.weight, members.moments) == ("fixed", 1.0, 0.5)
    assert chosen.exact.unlabelled == 0.3


def test_an_encoder_with_random_weights_is_warned_of():
    learner = Learner(config(committee={"encoder": "mlp"}), small_benchmark())
    with pytest.warns(UserWarning, match="'mlp' has random weights, which the exact learner does not train"):
        learner.start_task(learner.tasks[0])
