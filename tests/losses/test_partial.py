"""One-way partial AUC against a loop over the hardest negatives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.losses import build_loss


def build(kind, classes, **options):
    return build_loss(kind, LabelCounts.of(np.zeros((1, classes))), **options)


def loop(scores, labels, mask, groups, weights, share):
    total = scores.new_zeros(())
    for group, weight in enumerate(weights):
        found = []
        for k in range(scores.shape[1]):
            rows = [r for r in range(len(scores)) if groups[r] == group and mask[r, k]]
            high = [scores[r, k] for r in rows if labels[r, k]]
            low = sorted((scores[r, k] for r in rows if not labels[r, k]), key=float, reverse=True)
            hard = low[: math.ceil(round(share * len(low), 6))]
            if high and hard:
                pairs = [(1 - (p - n)).clamp_min(0) ** 2 for p in high for n in hard]
                found.append(torch.stack(pairs).mean())
        if found:
            total = total + weight * torch.stack(found).mean()
    return total


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.3, 0.5, 0.9]), st.integers(1, 14))
def test_values_and_gradients_equal_the_loop(seed, share, rows):
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.normal(size=(rows, 3)), requires_grad=True)
    labels, mask = torch.tensor(rng.random((rows, 3)) < 0.4), torch.tensor(rng.random((rows, 3)) < 0.8)
    groups, weights = torch.tensor(rng.integers(0, 2, rows)), torch.tensor([0.5, 2.0])
    loss = build("partial-auc", 3, share=share)
    found = loss(scores, labels, mask=mask, groups=groups, group_weights=weights)
    expected = loop(scores, labels, mask, groups, weights, share)
    torch.testing.assert_close(found, expected)
    mine = torch.autograd.grad(found, scores)[0]
    theirs = torch.autograd.grad(expected, scores)[0] if expected.requires_grad else torch.zeros_like(scores)
    torch.testing.assert_close(mine, theirs)


def test_the_whole_share_is_the_pairwise_loss():
    rng = np.random.default_rng(0)
    scores, labels = torch.tensor(rng.normal(size=(30, 4))), torch.tensor(rng.random((30, 4)) < 0.3)
    whole = build("pairwise-hinge2", 4)(scores, labels)
    torch.testing.assert_close(build("partial-auc", 4, share=1.0)(scores, labels), whole)
    assert build("partial-auc", 4, share=0.2)(scores, labels) > whole  # the highest negatives are the worst


def test_bad_options():
    with pytest.raises(InputError, match="share is 0"):
        build("partial-auc", 1, share=0.0)
