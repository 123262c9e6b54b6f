"""How ContinualTagger learns: the loss, the memory and the label counts over several calls."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.config.schema import TrainConfig
from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.losses import margin_loss
from mlcl.seeds import derive_seed, numpy_generator
from mlcl.sklearn import ContinualTagger
from mlcl.sklearn.learning import Settings, begin, learn, new_network
from mlcl.training.batches import plan_epoch
from mlcl.training.optimisation import TrainingError
from taggers import SMALL, fitted, problem


def test_one_call_against_an_explicit_loop():
    """The weights after two calls are those of a loop written out: every loss by itself, group by group."""
    x, y = problem()
    train = TrainConfig(epochs=2, batch_size=16, lr=0.1, weight_decay=0.0)
    how = Settings({"kind": "mlp", "hidden": 8, "depth": 1}, 30, 0.7, train)
    first = learn(begin(x, how, seed=3), x, y[:, :2], np.array([0, 1]), classes=2, settings=how)
    second = learn(first, x, y[:, [0, 2]], np.array([0, 2]), classes=3, settings=how)
    third = learn(second, x, y[:, [3]], np.array([3]), classes=4, settings=how)

    network = copy.deepcopy(third.network)
    wide = {**second.network.state_dict()}
    # The weights that the third call began with: old rows, and the row of a fresh network for the new class.
    fresh = new_network(how.model, 4, 4, derive_seed(3, "model", 2)).state_dict()
    for name in ("head.linear.weight", "head.linear.bias"):
        wide[name] = torch.cat([wide[name], fresh[name][3:]])
    network.load_state_dict(wide)
    stored = second.inputs
    labels = {0: np.zeros((len(stored), 4)), 1: np.zeros((len(stored), 4))}
    for part in second.memory.tasks:
        labels[part.task][np.ix_(part.rows, part.classes)] = part.labels
    positive = torch.tensor(
        [int(y[:, 0].sum()) * 2, int(y[:, 1].sum()), int(y[:, 2].sum()), int(y[:, 3].sum())]
    )
    total = torch.tensor([2 * len(x), len(x), len(x), len(x)])
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    mean, std = x.astype(np.float64).mean(0), x.astype(np.float64).std(0)
    for epoch in range(2):
        for group in optimiser.param_groups:
            group["lr"] = (
                0.1 * 0.4**epoch
            )  # of two epochs, 3/8 are over after the first, 5/8 after the second
        plan = plan_epoch(
            len(stored) + np.arange(len(x)), second.memory, numpy_generator(3, "batches", 2, epoch),
            task=2, batch_size=16, memory_batch=16, sampling="uniform",
        )  # fmt: skip
        for step in range(len(plan)):
            rows, tasks, _ = plan.step(step)
            loss = torch.zeros(())
            for task, weight, columns in ((2, 1.0, [3]), (0, 0.5, [0, 1]), (1, 0.5, [0, 2])):
                mine = rows[tasks == task]
                raw = x[mine - len(stored)] if task == 2 else stored[mine]
                truth = y[mine - len(stored)] if task == 2 else labels[task][mine]
                logits = network(torch.from_numpy((raw - mean) / std).float())[:, columns]
                one = margin_loss(
                    logits, torch.from_numpy(truth[:, columns].astype(np.float32)),
                    positive[columns], (total - positive)[columns], margin=0.7, reweight="batch",
                )  # fmt: skip
                loss = loss + weight * one
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    for name, value in network.state_dict().items():
        torch.testing.assert_close(third.network.state_dict()[name], value, rtol=2e-3, atol=2e-4)


@pytest.mark.slow
def test_replay_prevents_forgetting():
    """The second call has inputs of opposite meaning: without a memory the old classes are forgotten."""
    x, y = problem(400)
    flipped = -x  # the second call's inputs undo what the shared layer has learnt
    test, truth = problem(400, seed=1)
    kept = {}
    for size in (0, 100):
        how = {"epochs": 15, "batch_size": 32, "lr": 0.05, "weight_decay": 1e-5, "held_out": 0.0}
        tagger = ContinualTagger(model="mlp", hidden=8, depth=1, memory_size=size, random_state=0, **how)
        tagger.partial_fit(x, y[:, :2], classes=["a", "b"]).partial_fit(flipped, y[:, 2:], classes=["c", "d"])
        kept[size] = tagger.score(test, truth[:, :2], classes=["a", "b"])
        assert tagger.score(-test, truth[:, 2:], classes=["c", "d"]) > 0.9
    assert kept[100] > 0.9 > kept[0] + 0.02


@pytest.mark.slow
def test_what_is_not_annotated_is_unknown_and_not_negative():
    x, y = problem(400)
    test, truth = problem(400, seed=1)
    honest, false = (
        ContinualTagger(**SMALL | {"memory_size": 0, "epochs": 20}).partial_fit(
            x, y[:, :2], classes=["a", "b"]
        )
        for _ in range(2)
    )
    before = honest.predict_proba(test)[truth[:, 0] == 1, 0].mean()
    honest.partial_fit(x, y[:, 2:3], classes=["c"])
    false.partial_fit(x, np.c_[np.zeros(len(x)), y[:, 2]], classes=["a", "c"])
    assert honest.predict_proba(test)[truth[:, 0] == 1, 0].mean() > 0.7 * before
    assert false.predict_proba(test)[truth[:, 0] == 1, 0].mean() < 0.7 * before


def test_a_repeated_label_set_continues_its_task():
    """Its counts add up, and its stored rows come from both calls in proportion, whatever the order of columns."""
    x, y = problem(600)
    x[:, 0] = np.arange(600)  # identifies the row
    tagger = ContinualTagger(**SMALL | {"epochs": 1, "memory_size": 60, "held_out": 0.0})
    tagger.partial_fit(x[:200], y[:200, :2], classes=["a", "b"])
    tagger.partial_fit(x[:200], y[:200, 2:3], classes=["c"])
    tagger.partial_fit(x[200:], y[200:, [1, 0]], classes=["b", "a"])
    again = next(part for part in tagger.memory_.tasks if part.task == 0)
    assert again.counts == LabelCounts.of(y[:, :2])
    who = tagger.memory_inputs_[again.rows, 0].astype(int)
    assert np.array_equal(again.labels, y[who][:, :2])
    assert len(set(who)) == len(who) == 30
    assert 3 <= (who < 200).sum() <= 17  # a third of 30, within chance
    np.testing.assert_allclose(again.labels.mean(0), y[:, :2].mean(0), atol=0.05)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=5),
    st.integers(0, 25),
    st.integers(0, 2**31),
)
def test_memory_and_counts_after_any_calls(label_sets, size, seed):
    """Never more rows than allowed, each with its own labels, and counts over exactly what was annotated."""
    rng = np.random.default_rng(seed)
    tagger = ContinualTagger(memory_size=size, held_out=0.0, random_state=0)
    seen, counted = [], {}
    for ids in label_sets:
        columns = rng.permutation(sorted(ids))
        x = rng.random((12, 3)).astype(np.float32)
        x[:, 0] = np.arange(12) + 12 * len(seen)
        y = rng.integers(0, 2, (12, 5))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tagger.partial_fit(x, y[:, columns], classes=[int(k) for k in columns])
        seen.append(y)
        for k in columns:
            counted[int(k)] = counted.get(int(k), 0) + y[:, k].sum()
    truth, names = np.concatenate(seen), tagger.classes_
    memory, rows = tagger.memory_, tagger.memory_inputs_
    assert len(memory) == len(rows) <= size
    assert len(memory) == min(size, 12 * len(seen))
    assert np.array_equal(memory.rows, np.arange(len(rows)))
    for part in memory.tasks:
        who = rows[part.rows, 0].astype(int)
        assert np.array_equal(part.labels, truth[who][:, names[part.classes].astype(int)])
        assert {int(names[k]) for k in part.classes} == label_sets[who[0] // 12] if len(who) else True
    assert {int(n): int(p) for n, p in zip(names, tagger._learnt.counts.positive, strict=True)} == counted
    assert len(memory.tasks) == len({frozenset(ids) for ids in label_sets})


@pytest.mark.parametrize(
    "params", [{"held_out": 0.0, "weight_decay": 1e-3, "margin": 0.0}, {"held_out": 0.3}]
)
def test_probabilities_account_for_class_frequency(params):
    """Two Gaussians: the true probability is known. The logit alone would overestimate the rare class.

    By the counts alone where training is that of Eq. 4, and by held-out rows whatever training did.
    """
    rng = np.random.default_rng(0)
    y = (rng.random((4000, 1)) < 0.1).astype(int)
    x = rng.standard_normal((4000, 1)) + 2 * y
    tagger = ContinualTagger(random_state=0, **params).fit(x, y)
    grid = np.linspace(-1, 3, 9)[:, None]
    true = 1 / (1 + np.exp(-(2 * grid - 2 + np.log(1 / 9))))
    np.testing.assert_allclose(tagger.predict_proba(grid), true, atol=0.06)
    assert abs(tagger.predict_proba(x).mean() - 0.1) < 0.02


def test_calls_repeat_exactly_and_seeds_differ():
    x, _ = problem(seed=1)
    one = fitted().decision_function(x)
    assert np.array_equal(one, fitted().decision_function(x))
    assert not np.array_equal(one, fitted(random_state=1).decision_function(x))
    states = [fitted(random_state=np.random.RandomState(5)).decision_function(x) for _ in range(2)]
    assert np.array_equal(*states)
    assert not np.array_equal(*(fitted(random_state=None).decision_function(x) for _ in range(2)))


def test_fit_discards_earlier_calls():
    x, y = problem()
    tagger = fitted().fit(x, y[:, :1], classes=["new"])
    fresh = ContinualTagger(**SMALL).fit(x, y[:, :1], classes=["new"])
    assert tagger.classes_.tolist() == ["new"]
    assert np.array_equal(tagger.decision_function(x), fresh.decision_function(x))


def test_a_call_that_fails_changes_nothing():
    x, y = problem()
    tagger = fitted()
    before = tagger.decision_function(x)
    tagger.set_params(lr=1e30)
    with pytest.raises(TrainingError, match="nothing was learnt from this call"):
        tagger.partial_fit(x, y[:, :1], classes=["new"])
    with pytest.raises(InputError):
        tagger.set_params(lr=0.1).partial_fit(x, y[:, :1] + 1, classes=["new"])
    assert tagger.classes_.tolist() == ["c0", "c1", "c2", "c3"]
    assert np.array_equal(tagger.decision_function(x), before)


def test_the_memory_may_shrink_between_calls():
    x, y = problem()
    tagger = fitted().set_params(memory_size=10)
    assert len(tagger.memory_) == 40
    assert len(tagger.partial_fit(x, y[:, :1], classes=["new"]).memory_inputs_) == 10


def test_a_class_without_positives_is_named_and_learnt_later():
    x, y = problem()
    tagger = ContinualTagger(**SMALL)
    with pytest.warns(UserWarning, match=r"the classes \['b'\] have no positive or no negative row so far"):
        tagger.partial_fit(x, np.c_[y[:, 0], np.zeros(len(y))], classes=["a", "b"])
    assert np.isfinite(tagger.predict_proba(x)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger.partial_fit(x, y[:, :2], classes=["a", "b"])
    assert tagger.score(x, y[:, 1:2], classes=["b"]) > 0.85
