"""A committee inside a run: the network learns as if alone, and members are solved from sums beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import SMALL, SMALL_IMAGES, small_benchmark
from mlcl.config.resolve import config_from, merge
from mlcl.config.schema import to_dict
from mlcl.errors import InputError
from mlcl.exact import ExactLearner, Options, solve
from mlcl.metrics import macro_auc
from mlcl.training.callbacks import Callback, Interrupted
from mlcl.training.heads import CommitteeHead
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


def committee_head(learner) -> CommitteeHead:
    assert isinstance(learner.head, CommitteeHead)
    return learner.head


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
    found = learnt.setup.scorer(
        lambda x: committee_head(learnt).committee.of_encoder(
            committee_head(learnt).committee.member("encoder").features(x)
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
    logits = learnt.setup.scorer(learnt.network, inputs, np.concatenate(rows)).astype(np.float64)
    weights = np.concatenate(shares)
    mean = np.average(logits, axis=0, weights=weights)
    deviation = np.sqrt(np.average((logits - mean) ** 2, axis=0, weights=weights))
    every = np.concatenate([one.train for one in learnt.tasks])
    member = committee_head(learnt).committee.member("encoder")
    scores = learnt.setup.scorer(lambda x: member.linear(member.features(x)), inputs, every).astype(
        np.float64
    )
    np.testing.assert_allclose(scores.mean(0), mean, atol=1e-4)
    np.testing.assert_allclose(scores.std(0), deviation, rtol=1e-4)


def test_cached_features_give_the_scores_that_the_committee_gives(learnt):
    inputs = learnt.data.test.inputs
    cached = learnt.head.scores("test", np.arange(len(inputs)))
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
        learner.setup.scorer(learner.network.features, benchmark.dataset.train.inputs, one) for one in rows
    ]
    direct = ExactLearner.begin(features[0])
    for task, found in zip(benchmark.tasks, features, strict=True):
        labels = benchmark.dataset.train.labels[np.ix_(task.train, task.classes)]
        direct = direct.learn(found, labels, task.classes.tolist())
    options = Options(unlabelled=0.3, ridge=0.3, exponent=0.0)
    wanted = solve(direct, options).scores(np.concatenate(features))
    carried = solve(learner.head.sums["moments"].learner, options).scores(np.concatenate(features))
    for mine, theirs in zip(carried.T, wanted.T, strict=True):
        assert np.corrcoef(mine, theirs)[0, 1] > 0.999


def test_moments_are_carried_where_the_network_drifts(learnt):
    """The map differs from the identity, and old classes are still told apart on the new features."""
    head = learnt.head.sums["moments"]
    inputs, task = learnt.data.test.inputs, learnt.tasks[0]
    features = learnt.setup.scorer(learnt.network.features, inputs, task.test)
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
    found = learner._of_available(learner.tasks[1], lambda x: x.flatten(1))[len(learner.tasks[1].train) :]
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
        ({"committee": {"teach": -1.0}}, "committee.teach is -1.0; expected a number of at least 0"),
        (
            {"committee": {"encoder": None, "teach": 2.0}},
            "committee.teach is 2, but there is no committee.enc",
        ),
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
        "teach": 0.0,
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


TAUGHT = {"method": "taught-committee"}


def begun_at(task, **changes):
    """A learner that is about to learn a task, and has learnt those before."""
    learner = Learner(config(**merge(TAUGHT, changes)), small_benchmark())
    if task:
        with pytest.raises(Interrupted):
            train(learner, callback=StopAfter(task))
    learner.start_task(learner.tasks[task])
    return learner


def test_a_lesson_is_what_the_exact_method_says_after_the_task():
    """Before the network has seen a row of the task: log-odds, less the prior of each class."""
    learner = begun_at(1)
    exact = Learner(config_from(merge(EXACT, {"method": "exact"})), small_benchmark())
    with pytest.raises(Interrupted):
        train(exact, callback=StopAfter(2))
    rows = np.concatenate([learner.tasks[1].train, learner.memory.rows])
    inputs, seen = learner.data.train.inputs, np.concatenate([task.classes for task in learner.tasks[:2]])
    wanted = exact.predict(inputs[rows])[:, seen]
    counts = [task.counts for task in learner.tasks[:2]]
    positive = np.concatenate([one.positive for one in counts]) + 0.5
    negative = np.concatenate([one.negative for one in counts]) + 0.5
    found = committee_head(learner).targets.scores.numpy()[:, seen]
    np.testing.assert_allclose(found, wanted - np.log(positive / negative), atol=1e-3)
    assert committee_head(learner).targets.defined.numpy()[seen].all()
    assert not committee_head(learner).targets.defined.numpy()[learner.tasks[2].classes].any()


def first_step(learner):
    """The first step, and which cells of it have no label."""
    step = learner._forward(*learner.plan.step(0))
    return step, learner.context.seen & ~step.own


def balanced_loss(scores, labels, own):
    """The mean over classes with positives and negatives of the mean logistic loss of both, one after the other."""
    each = []
    for k in range(scores.shape[1]):
        of = {sign: scores[own[:, k] & (labels[:, k] == sign), k] for sign in (0, 1)}
        if len(of[0]) and len(of[1]):
            each.append(np.log1p(np.exp(-of[1])).mean() + np.log1p(np.exp(of[0])).mean())
    return np.mean(each)


@pytest.mark.parametrize("size", [0.1, 6.0])
def test_the_penalty_is_the_loop_over_cells_without_a_label(size):
    """A network that ranks the labels of the batch better than its teacher listens less."""
    learner = begun_at(1)
    step, missing = first_step(learner)
    rows, slots, labels, own = step.rows, step.slots, step.known, step.own
    n, train_rows = len(learner.tasks[1].train), list(learner.tasks[1].train)
    at = [n + slot if slot >= 0 else train_rows.index(row) for row, slot in zip(rows, slots, strict=True)]
    taught = committee_head(learner).targets.scores[at].numpy().astype(np.float64)
    torch.manual_seed(0)
    logits = (size * (2 * labels - 1) + 0.1 * torch.randn(labels.shape)).requires_grad_()
    step.logits = logits
    found = committee_head(learner).targets.penalty(step)
    values, marks = logits.detach().numpy().astype(np.float64), (labels.numpy(), own.numpy())
    gaps = np.abs(values - taught)[missing.numpy()]
    ratio = balanced_loss(values, *marks) / balanced_loss(taught, *marks)
    assert (ratio < 1) == (size > 1)
    wanted = min(1.0, ratio) * np.where(gaps < 1, gaps**2, 2 * gaps - 1).mean()
    assert (slots >= 0).any()
    assert (slots < 0).any()
    assert found.item() == pytest.approx(wanted, rel=1e-4)
    found.backward()
    assert torch.equal(logits.grad != 0, missing)


def test_nothing_is_taught_in_the_first_task_where_no_label_is_missing():
    learner = begun_at(0)
    assert committee_head(learner).targets.penalty(first_step(learner)[0]) is None


def test_a_loss_that_is_not_balanced_is_taught_log_odds_with_the_prior():
    balanced, plain = begun_at(1), begun_at(1, loss={"kind": "bce"})
    counts = plain.tasks[1].counts
    prior = np.log((counts.positive + 0.5) / (counts.negative + 0.5))
    # Networks differ, and so may their memories: the rows of the task are the same.
    n, classes = len(plain.tasks[1].train), plain.tasks[1].classes
    mine, theirs = (committee_head(one).targets.scores for one in (plain, balanced))
    found = (mine - theirs[: len(mine)]).numpy()[:n, classes]
    np.testing.assert_allclose(found, np.broadcast_to(prior, found.shape), atol=1e-3)


def test_the_network_learns_what_it_is_taught(learnt):
    taught = train(Learner(config(**TAUGHT), small_benchmark()))
    inputs, rows = learnt.data.test.inputs, np.arange(len(learnt.data.test))
    member = committee_head(taught).committee.member("encoder")

    def agreement(learner):
        logits = learner.setup.scorer(learner.network, inputs, rows)
        scores = taught.setup.scorer(lambda x: member.linear(member.features(x)), inputs, rows)
        return np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(logits.T, scores.T, strict=True)])

    assert agreement(taught) > agreement(learnt) + 0.02


def test_a_taught_run_that_was_interrupted_inside_a_task_has_the_same_bits():
    class StopInside(Callback):
        def on_step(self, learner, loss):
            if learner.task_index == 1 and learner.step == 3:
                raise Interrupted

    whole = train(Learner(config(**TAUGHT), small_benchmark()))
    first = Learner(config(**TAUGHT), small_benchmark())
    with pytest.raises(Interrupted):
        train(first, callback=StopInside())
    second = Learner(config(**TAUGHT), small_benchmark())
    second.load_state(first.state())
    resumed = train(second)
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name]), name
    assert np.array_equal(whole.predict(whole.data.test.inputs), resumed.predict(whole.data.test.inputs))


@pytest.mark.parametrize("memory", [{"kind": "none"}, {"size": 5, "downscale": 2}])
def test_stored_images_teach_as_they_are_stored(memory):
    settings = merge(
        SMALL_IMAGES, EXACT, {"method": "taught-committee"}, {"train": {"epochs": 1}, "memory": memory}
    )
    learner = Learner(config_from(settings), small_benchmark(images=True))
    first, then = learner.tasks[:2]
    learner.start_task(first)
    learner.finish_task(first)
    learner.start_task(then)
    assert len(committee_head(learner).targets.scores) == len(then.train) + len(learner.memory)
    if len(learner.memory):
        images = learner.data.train.inputs[learner.memory.rows].astype(np.float64)
        small = images.reshape(len(images), 3, 8, 2, 8, 2).mean((3, 5)).round().repeat(2, 2).repeat(2, 3)
        scores = []
        for rows in (images, small):
            member = committee_head(learner).committee.member("encoder")
            features = learner.setup.scorer(member.features, rows.astype(np.uint8), np.arange(len(rows)))
            solved = learner.head.sums["encoder"].solution(committee_head(learner).ahead)
            scores.append(solved.scores(features) - np.log(solved.prior / (1 - solved.prior)))
        found = committee_head(learner).targets.scores.numpy()[len(then.train) :]
        np.testing.assert_allclose(found, scores[1], atol=1e-3)
        assert np.abs(found - scores[0]).max() > 0.01
