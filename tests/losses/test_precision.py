"""Smooth average precision against a loop over positives, and against scikit-learn where it is sharp."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.losses import build_loss


def build(classes, **options):
    return build_loss("smooth-ap", LabelCounts.of(np.zeros((1, classes))), **options)


def loop(scores, labels, mask, groups, weights, temperature):
    total = scores.new_zeros(())
    for group, weight in enumerate(weights):
        found = []
        for k in range(scores.shape[1]):
            rows = [r for r in range(len(scores)) if groups[r] == group and mask[r, k]]
            positives = [r for r in rows if labels[r, k]]
            if not positives or len(positives) == len(rows):
                continue
            precision = scores.new_zeros(())
            for i in positives:
                passed = {
                    j: torch.sigmoid((scores[j, k] - scores[i, k]) / temperature) for j in rows if j != i
                }
                among = 1 + sum(value for j, value in passed.items() if j in positives)
                precision = precision + among / (1 + sum(passed.values()))
            found.append(1 - precision / len(positives))
        if found:
            total = total + weight * torch.stack(found).mean()
    return total


@pytest.mark.parametrize("seed", range(5))
def test_values_and_gradients_equal_the_loop(seed):
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.normal(size=(9, 3)), requires_grad=True)
    labels, mask = torch.tensor(rng.random((9, 3)) < 0.4), torch.tensor(rng.random((9, 3)) < 0.8)
    groups, weights = torch.tensor(rng.integers(0, 2, 9)), torch.tensor([0.5, 2.0])
    found = build(3, temperature=0.7)(scores, labels, mask=mask, groups=groups, group_weights=weights)
    expected = loop(scores, labels, mask, groups, weights, 0.7)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, scores)[0] for v in (found, expected)))


def test_a_low_temperature_gives_the_average_precision():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(40, 4)), rng.random((40, 4)) < 0.3
    found = build(4, temperature=1e-5)(torch.tensor(scores), torch.tensor(labels))
    assert 1 - found.item() == pytest.approx(average_precision_score(labels, scores, average="macro"))


def test_bad_options():
    with pytest.raises(InputError, match="temperature is 0"):
        build(1, temperature=0.0)
