"""Pairwise surrogates against a loop over every pair."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.labels import LabelCounts
from mlcl.losses import build_loss

KINDS = ("pairwise-hinge2", "pairwise-logistic")


def pair_loss(kind, gap):
    """Return the loss of one pair with ``gap = f+ - f-``, of a tensor, so that autograd can follow."""
    if kind == "pairwise-hinge2":
        return torch.clamp(1 - gap, min=0) ** 2
    return torch.logaddexp(torch.zeros_like(gap), -gap)


def loop(kind, f, labels, mask, groups, weights):
    total = f.new_zeros(())
    for g in range(len(weights)):
        means = []
        for k in range(f.shape[1]):
            contributing = [r for r in range(len(f)) if groups[r] == g and mask[r, k]]
            pairs = [
                pair_loss(kind, f[p, k] - f[q, k])
                for p in contributing
                if labels[p, k] == 1
                for q in contributing
                if labels[q, k] == 0
            ]
            if pairs:
                means.append(torch.stack(pairs).mean())
        if means:
            total = total + weights[g] * torch.stack(means).mean()
    return total


def build(kind, classes):
    return build_loss(kind, LabelCounts.of(np.zeros((1, classes))))  # the counts are not used: no warning


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(KINDS),
    st.integers(0, 10**6),
    st.integers(1, 9),
    st.integers(1, 4),
    st.floats(0.3, 1),
    st.sampled_from([0.0, 50.0]),
)
def test_values_and_gradients_equal_the_loop(kind, seed, rows, classes, contributing, offset):
    rng = np.random.default_rng(seed)
    f = torch.tensor(
        np.round(rng.normal(size=(rows, classes)) * 2, 1) + offset, requires_grad=True
    )  # with ties
    labels = torch.tensor(rng.random((rows, classes)) < 0.4)
    mask, groups = (
        torch.tensor(rng.random((rows, classes)) < contributing),
        torch.tensor(rng.integers(0, 3, rows)),
    )
    weights = torch.tensor(rng.random(4))
    found = build(kind, classes)(f, labels, mask=mask, groups=groups, group_weights=weights)
    expected = loop(kind, f, labels, mask, groups, weights)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    (mine,) = torch.autograd.grad(found, f)
    theirs = torch.autograd.grad(expected, f)[0] if expected.requires_grad else torch.zeros_like(f)
    torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_one_group_without_mask(kind):
    rng = np.random.default_rng(0)
    f, labels = torch.tensor(rng.normal(size=(20, 3))), torch.tensor(rng.random((20, 3)) < 0.3)
    expected = loop(kind, f, labels, torch.ones(20, 3), [0] * 20, [1.0])
    torch.testing.assert_close(build(kind, 3)(f, labels), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind):
    rng = np.random.default_rng(3)
    f = torch.tensor(rng.normal(size=(7, 2)), requires_grad=True)
    labels = torch.tensor(rng.random((7, 2)) < 0.5)
    groups = torch.tensor([1, 0, 1, 0, 1, 0, 0])
    assert torch.autograd.gradcheck(lambda x: build(kind, 2)(x, labels, groups=groups), (f,))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_huge_logits_stay_finite_and_right(kind, dtype):
    # one positive far below one negative, and one far above: gaps of -2e4 and 2e4
    f = torch.tensor([[-1e4, 1e4], [1e4, -1e4]], dtype=dtype, requires_grad=True)
    loss = build(kind, 2)(f, torch.tensor([[1, 1], [0, 0]]))
    low = float(f[0, 0].detach() - f[1, 0].detach())
    expected = (1 - low) ** 2 if kind == "pairwise-hinge2" else -low
    assert loss.item() == pytest.approx(expected / 2, rel=1e-6)
    loss.backward()
    assert f.grad.isfinite().all()
    assert (f.grad[:, 1] == 0).all()


def test_the_sums_do_not_cancel_away():
    """Neither a common offset nor far-off rows may cost more than the rounding of the logits themselves."""
    rng = np.random.default_rng(1)
    f, labels = torch.tensor(rng.normal(size=(40, 2)) + 1e7), torch.tensor(rng.random((40, 2)) < 0.2)
    found = build("pairwise-hinge2", 2)(f, labels)
    expected = loop("pairwise-hinge2", f, labels, torch.ones(40, 2), [0] * 40, [1.0])
    assert found.item() == pytest.approx(expected.item(), rel=1e-7)

    f, labels = (
        torch.tensor([[1e4], [1e4 - 0.5], [-1e4], [-1e4], [-1e4]]),
        torch.tensor([[1], [0], [0], [0], [0]]),
    )
    assert build("pairwise-hinge2", 1)(f, labels).item() == pytest.approx(0.25 / 4, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("labels", [torch.ones(2, 2), torch.zeros(2, 2), torch.ones(0, 2)])
def test_no_pairs_is_a_zero_with_a_zero_gradient(kind, labels):
    f = torch.full(labels.shape, 1e4, requires_grad=True)
    loss = build(kind, 2)(f, labels)
    loss.backward()
    assert loss.item() == 0
    assert math.isfinite(loss.item())
    assert (f.grad == 0).all()
