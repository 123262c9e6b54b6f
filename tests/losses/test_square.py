"""The square loss of AUC against all pairs, and its running means against what they are means of."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from helpers import settings_for, small_benchmark
from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.losses import build_loss
from mlcl.runs.run import resume, run
from mlcl.training.callbacks import Callback, Interrupted


def batch(seed, rows=12, classes=3):
    rng = np.random.default_rng(seed)
    labels = rng.random((rows, classes)) < 0.4
    labels[:2] = [[True], [False]]
    return torch.tensor(rng.normal(size=(rows, classes))), torch.tensor(labels)


def build(classes=3, **options):
    return build_loss("auc-square", LabelCounts.of(np.zeros((1, classes))), **options)


def moments(scores, labels, margin):
    """Return the loss of each class by its definition, with torch's own variance and mean."""
    total = []
    for k in range(scores.shape[1]):
        high, low = scores[labels[:, k], k], scores[~labels[:, k], k]
        spread = high.var(correction=0) + low.var(correction=0)
        total.append(spread + (margin - (high.mean() - low.mean())).clamp_min(0) ** 2)
    return torch.stack(total).mean()


@pytest.mark.parametrize("margin", [0.1, 1.0, 5.0])
def test_the_first_batch_has_the_moments_of_its_pairs(margin):
    scores, labels = batch(0)
    scores.requires_grad_()
    expected = moments(scores, labels, margin)
    for loss in (build(margin=margin).eval(), build(margin=margin).train()):
        found = loss(scores, labels)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            *(torch.autograd.grad(v, scores, retain_graph=True) for v in (found, expected))
        )
    if margin == 5.0:  # nothing is cut off: the mean over all pairs
        pairs = [
            torch.stack([(margin - (p - n)) ** 2 for p in scores[y, k] for n in scores[~y, k]]).mean()
            for k, y in enumerate(labels.T)
        ]
        torch.testing.assert_close(expected, torch.stack(pairs).mean())


def test_a_batch_without_positives_has_the_gradient_that_its_rows_have_among_all_rows():
    scores, labels = batch(1)
    loss = build(momentum=1.0)  # forgets nothing: the running means are those of all rows so far
    loss(scores, labels)
    more, none = (
        torch.tensor(np.random.default_rng(2).normal(size=(4, 3))),
        torch.zeros(4, 3, dtype=torch.bool),
    )
    more.requires_grad_()
    (found,) = torch.autograd.grad(loss(more, none), more)
    every, known = torch.cat([scores, more]), torch.cat([labels, none])
    (expected,) = torch.autograd.grad(moments(every, known, 1.0), more)
    negatives = (~known).sum(0)
    torch.testing.assert_close(found * 4 / negatives, expected)  # a mean over 4 rows, or over all negatives
    assert (found != 0).all()
    only = build().eval()(more, none)  # nothing is known of positives yet
    assert only == 0
    assert only.requires_grad


def test_running_means_keep_their_momentum_and_survive_saving():
    loss, total, count = build(1, momentum=0.5), 0.0, 0.0
    for seed in range(4):
        scores, labels = batch(seed, classes=1)
        loss(scores, labels)
        total, count = 0.5 * total + float(scores[labels].sum()), 0.5 * count + int(labels.sum())
    assert float(loss.sums[0] / loss.counts[0]) == pytest.approx(total / count)
    twin = build(1, momentum=0.5)
    twin.load_state_dict(copy.deepcopy(loss.state_dict()))
    scores, labels = batch(9, classes=1)
    assert twin(scores, labels) == loss(scores, labels)


def test_masked_rows_do_not_enter_the_means():
    scores, labels = batch(3)
    mask = torch.ones_like(labels)
    mask[5:] = False
    whole, part = build(), build()
    whole(scores, labels, mask=mask)
    part(scores[:5], labels[:5])
    torch.testing.assert_close(whole.sums, part.sums)
    assert torch.equal(whole.counts, part.counts)


@pytest.mark.parametrize("options", [{"margin": -1}, {"momentum": 1.1}, {"scale": float("nan")}])
def test_bad_options(options):
    with pytest.raises(InputError, match=next(iter(options))):
        build(**options)


class StopInsideTheSecondTask(Callback):
    def on_step(self, learner, loss):
        if learner.task_index == 1 and learner.step == 2:
            raise Interrupted


def test_a_run_stopped_inside_a_task_goes_on_with_the_running_means(tmp_path):
    config, benchmark = settings_for("er", loss={"kind": "auc-square", "momentum": 0.99}), small_benchmark()
    whole = run(config, benchmark=benchmark)
    with pytest.raises(Interrupted):
        run(config, benchmark=benchmark, out=tmp_path / "run", callback=StopInsideTheSecondTask())
    again = resume(tmp_path / "run", benchmark=benchmark)
    assert again.matrix.tobytes() == whole.matrix.tobytes()
    assert torch.equal(again.learner.optimisation.criterion.sums, whole.learner.optimisation.criterion.sums)
