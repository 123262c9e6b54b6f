"""Asymmetric, focal and distribution-balanced losses against their formulas, written out cell by cell."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mlcl.labels import LabelCounts
from mlcl.losses import build_loss
from mlcl.losses.elementwise import asymmetric_cells, balanced_cells, focal_cells


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def log_sigmoid(x):
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


def asl_cell(f, y, gamma_positive, gamma_negative, clip):
    if y:
        return -(sigmoid(-f) ** gamma_positive) * log_sigmoid(f)
    if clip == 0:
        return -(sigmoid(f) ** gamma_negative) * log_sigmoid(-f)
    p = max(sigmoid(f) - clip, 0.0)
    return -(p**gamma_negative) * math.log1p(-p)


def focal_cell(f, y, gamma, alpha):
    weight = 1.0 if alpha is None else alpha if y else 1 - alpha
    signed = f if y else -f  # p_t = sigmoid(signed)
    return -weight * sigmoid(-signed) ** gamma * log_sigmoid(signed)


def db_cells(logits, labels, positive, total, alpha, beta, mu, kappa, lam, gamma):
    """Wu et al. 2020: P^C = 1/n_i, P^I = sum over the row's labels of 1/n_i, r = P^C / P^I."""
    cells = np.zeros(logits.shape)
    for r, row in enumerate(labels):
        instance = sum(1 / positive[j] for j in range(len(row)) if row[j])
        for k, y in enumerate(row):
            ratio = 1 / positive[k] / instance if instance else math.inf
            weight = alpha + (1.0 if math.isinf(ratio) else sigmoid(beta * (ratio - mu)))
            bias = -math.log(1 / (positive[k] / total) - 1)  # of a model that predicts the class's frequency
            nu = -kappa * bias
            x = logits[r, k] - nu
            if y:
                cells[r, k] = -weight * log_sigmoid(x) * sigmoid(-x) ** gamma
            else:
                cells[r, k] = -weight / lam * log_sigmoid(-lam * x) * sigmoid(lam * x) ** gamma
    return cells


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(8, 5)) * 3, (rng.random((8, 5)) < 0.4).astype(np.float64)
    labels[3] = 0
    return logits, labels


def each(function, logits, labels, *options):
    cells = zip(logits.ravel(), labels.ravel(), strict=True)
    return np.array([function(f, y, *options) for f, y in cells]).reshape(logits.shape)


@pytest.mark.parametrize(
    "options", [(0, 4, 0.05), (1, 4, 0.05), (0, 4, 0.0), (2, 2, 0.0), (0.5, 0.5, 0.3), (0, 0, 0)]
)
def test_asymmetric_loss(data, options):
    names = dict(zip(("gamma_positive", "gamma_negative", "clip"), options, strict=True))
    found = asymmetric_cells(*map(torch.tensor, data), **names)
    np.testing.assert_allclose(found, each(asl_cell, *data, *options), rtol=1e-10, atol=1e-30)


@pytest.mark.parametrize("options", [(2.0, None), (2.0, 0.25), (0.5, 0.9), (0.0, None)])
def test_focal_loss(data, options):
    found = focal_cells(*map(torch.tensor, data), **dict(zip(("gamma", "alpha"), options, strict=True)))
    np.testing.assert_allclose(found, each(focal_cell, *data, *options), rtol=1e-10)


def test_without_focusing_all_three_are_bce(data):
    f, y = map(torch.tensor, data)
    bce = F.binary_cross_entropy_with_logits(f, y, reduction="none")
    torch.testing.assert_close(asymmetric_cells(f, y, gamma_negative=0, clip=0), bce)
    torch.testing.assert_close(focal_cells(f, y, gamma=0), bce)
    weightless = balanced_cells(
        f, y, torch.full((5,), 9), torch.full((5,), 9), alpha=0.5, beta=1e-12, lambda_negative=1.0
    )
    rows = y.sum(1) > 0  # a row without labels has weight alpha + 1
    torch.testing.assert_close(weightless[rows], bce[rows])


@pytest.mark.parametrize("gamma", [0.0, 2.0])
@pytest.mark.parametrize(
    "options", [(0.1, 10.0, 0.2, 0.05, 2.0), (0.1, 10.0, 0.3, 0.05, 5.0), (0.5, 1.0, 0.9, 0.5, 3.3)]
)
def test_distribution_balanced_loss(data, options, gamma):
    positive, total = np.array([3, 40, 7, 25, 90]), 100
    names = dict(zip(("alpha", "beta", "mu", "kappa", "lambda_negative"), options, strict=True))
    logits, labels = map(torch.tensor, data)
    counts = torch.tensor(positive), torch.tensor(total - positive)
    found = balanced_cells(logits, labels, *counts, **names, gamma=gamma)
    expected = db_cells(*data, positive, total, *options, gamma=gamma)  # type: ignore[call-arg]  # two arrays
    np.testing.assert_allclose(found, expected, rtol=1e-10)


LOSSES = [
    ("asl", {}),
    ("asl", {"gamma_positive": 0.5, "gamma_negative": 0.5}),
    ("asl", {"clip": 0}),
    ("focal", {"alpha": 0.25}),
    ("focal", {"gamma": 0.5}),
    ("db", {}),
    ("db", {"gamma": 2.0}),
]


@pytest.mark.parametrize(("kind", "options"), LOSSES)
def test_the_loss_is_the_weighted_mean_of_each_groups_contributing_cells(kind, options, data):
    logits, labels = data
    rng = np.random.default_rng(1)
    mask, groups = rng.random(logits.shape) < 0.7, np.array([0, 2, 2, 0, 0, 2, 0, 2])
    counts = LabelCounts(np.array([3, 40, 7, 25, 90]), 100 - np.array([3, 40, 7, 25, 90]), 100)
    loss = build_loss(kind, counts, **options)
    # the cells by themselves: the same loss of one contributing cell at a time
    cells = np.zeros(logits.shape)
    for r in range(8):
        for k in np.flatnonzero(mask[r]):
            if kind == "db":  # its weight looks at the row's contributing labels
                cells[r, k] = db_cells(
                    logits[r : r + 1],
                    labels[r : r + 1] * mask[r],
                    counts.positive,
                    100,
                    *(0.1, 10.0, 0.2, 0.05, 2.0),
                    options.get("gamma", 0.0),
                )[0, k]
            elif kind == "asl":
                cells[r, k] = asl_cell(
                    logits[r, k],
                    labels[r, k],
                    options.get("gamma_positive", 0),
                    options.get("gamma_negative", 4),
                    options.get("clip", 0.05),
                )
            else:
                cells[r, k] = focal_cell(
                    logits[r, k], labels[r, k], options.get("gamma", 2), options.get("alpha")
                )
    weights = np.array([0.5, 7.0, 2.0, 3.0])
    expected = sum(weights[g] * cells[groups == g][mask[groups == g]].mean() for g in (0, 2))
    found = loss(
        *map(torch.tensor, data),
        mask=torch.tensor(mask),
        groups=torch.tensor(groups),
        group_weights=torch.tensor(weights),
    )
    assert found.item() == pytest.approx(expected, rel=1e-10)
    plain = loss(*map(torch.tensor, data))
    everything = loss(*map(torch.tensor, data), mask=torch.ones(8, 5, dtype=torch.bool))
    assert plain.item() == pytest.approx(everything.item(), rel=1e-12)


@pytest.mark.parametrize(("kind", "options"), LOSSES)
def test_gradients(kind, options, data):
    logits, labels = data
    loss = build_loss(kind, LabelCounts.of(np.random.default_rng(5).random((50, 5)) < 0.3), **options)
    f = torch.tensor(logits, requires_grad=True)
    mask = torch.rand(8, 5, generator=torch.Generator().manual_seed(0)) < 0.6
    assert torch.autograd.gradcheck(lambda x: loss(x, torch.tensor(labels), mask=mask), (f,))


@pytest.mark.parametrize(("kind", "options"), LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_huge_logits_stay_finite(kind, options, dtype, data):
    labels = torch.tensor(data[1])
    f = (torch.tensor(data[0]).sign() * 1e4).to(dtype).requires_grad_()
    loss = build_loss(kind, LabelCounts.of(np.random.default_rng(5).random((50, 5)) < 0.3), **options)(
        f, labels
    )
    loss.backward()
    assert loss.isfinite()
    assert loss > 0
    assert loss.dtype == torch.float32
    assert f.grad.isfinite().all()


def test_a_probability_exactly_at_the_clip_has_a_gradient():
    f = torch.zeros(1, 1, requires_grad=True)  # sigmoid(0) - 0.5 is 0, where the square root has no slope
    asymmetric_cells(f, torch.zeros(1, 1), gamma_negative=0.5, clip=0.5).sum().backward()
    assert f.grad.item() == 0


@pytest.mark.parametrize("kind", ["asl", "focal", "db"])
@pytest.mark.parametrize("rows", [0, 2])
def test_nothing_contributing_is_a_zero_with_a_zero_gradient(kind, rows):
    f = torch.full((rows, 2), 1e4, requires_grad=True)
    mask = torch.zeros(rows, 2, dtype=torch.bool)
    loss = build_loss(kind, LabelCounts.of([[1, 0], [0, 1]]))(f, torch.ones(rows, 2), mask=mask)
    loss.backward()
    assert loss.item() == 0
    assert (f.grad == 0).all()


def test_the_balanced_loss_drops_classes_without_a_sign_and_warns():
    with pytest.warns(UserWarning, match=r"columns \[1, 2\]"):
        loss = build_loss("db", LabelCounts.of([[1, 0, 1], [0, 0, 1]]))
    f = torch.zeros(4, 3, requires_grad=True)
    loss(f, torch.tensor([[1, 1, 1], [0, 0, 0], [1, 0, 1], [0, 1, 0]])).backward()
    assert (f.grad[:, 1:] == 0).all()
    assert (f.grad[:, 0] != 0).all()


def test_the_constants_move_with_the_module():
    loss = build_loss("db", LabelCounts.of([[1, 0], [0, 1]])).to("meta")
    assert {name: buffer.device.type for name, buffer in loss.named_buffers()} == {
        "positive": "meta",
        "negative": "meta",
    }
    assert loss.state_dict() == {}
