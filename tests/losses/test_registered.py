"""Losses by name: every one keeps the rules of losses, and the margin family is what specification.md says."""

import copy
import pickle

import numpy as np
import pytest
import torch

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.losses import LOSSES, MarginLoss, build_loss
from mlcl.testing import check_loss

RNG = np.random.default_rng(0)
LABELS = np.vstack([np.ones(4), np.zeros(4), RNG.random((18, 4)) < 0.3])
LOGITS = torch.tensor(RNG.normal(size=LABELS.shape))
COUNTS = LabelCounts.of(LABELS)
EVERY = [
    *("asl", "auc-square", "bce", "db", "focal", "margin", "pairwise-hinge2", "pairwise-logistic"),
    *("partial-auc", "rldam", "ru", "smooth-ap"),
]


def test_names():
    assert LOSSES.names() == EVERY


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in EVERY),
        ("rldam", {"margin": 3.5, "reweight": "dataset"}),
        ("ru", {"reweight": "dataset", "scale": 0.5}),
        ("margin", {"power": 1.0, "margin_count": "minority"}),
        ("asl", {"gamma_positive": 1.0, "clip": 0.0}),
        ("focal", {"alpha": 0.25, "gamma": 0.5}),
        ("db", {"gamma": 2.0}),
        ("auc-square", {"margin": 0.3, "momentum": 0.5}),
        ("partial-auc", {"share": 0.6}),
        ("smooth-ap", {"temperature": 2.0}),
    ],
    ids=str,
)
def test_the_rules_of_losses(kind, options):
    check_loss(kind, **options)


@pytest.mark.parametrize("kind", EVERY)
def test_a_loss_is_above_0_and_says_in_a_sentence_what_it_is(kind):
    value = build_loss(kind, COUNTS)(LOGITS, torch.tensor(LABELS))
    assert value > 0
    assert LOSSES.summary(kind).endswith(".")


@pytest.mark.parametrize("kind", EVERY)
def test_other_shapes_are_named(kind):
    with pytest.raises(InputError, match=r"logits has shape \(2, 3\)"):
        build_loss(kind, COUNTS)(torch.zeros(2, 3), torch.zeros(2, 3))


@pytest.mark.parametrize("kind", EVERY)
def test_a_step_down_the_gradient_lowers_the_loss(kind):
    loss = build_loss(kind, COUNTS)
    f = LOGITS.clone().requires_grad_()
    before = loss(f, torch.tensor(LABELS))
    (gradient,) = torch.autograd.grad(before, f)
    assert loss(f - 0.01 * gradient, torch.tensor(LABELS)) < before


@pytest.mark.parametrize("kind", EVERY)
def test_losses_can_be_copied_and_pickled(kind):
    loss = build_loss(kind, COUNTS)
    value = loss(LOGITS, torch.tensor(LABELS))
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert twin(LOGITS, torch.tensor(LABELS)) == value


@pytest.mark.parametrize(
    ("kind", "given", "same"),
    [
        ("rldam", {}, {"margin": 1.0, "reweight": "batch"}),
        ("rldam", {"reweight": "dataset"}, {"margin": 1.0, "reweight": "dataset"}),
        ("rldam", {"margin": 3.5, "reweight": "batch"}, {"margin": 3.5, "reweight": "batch"}),
        (
            "rldam",
            {"base": "hinge", "power": 0.5, "margin_count": "minority", "scale": 2.0},
            {"reweight": "batch", "base": "hinge", "power": 0.5, "margin_count": "minority", "scale": 2.0},
        ),
        ("ru", {}, {"margin": 0.0, "reweight": "batch"}),
        ("ru", {"reweight": "dataset"}, {"margin": 0.0, "reweight": "dataset"}),
        (
            "ru",
            {"reweight": "batch", "base": "exponential", "scale": 0.5},
            {"margin": 0.0, "reweight": "batch", "base": "exponential", "scale": 0.5},
        ),
        ("margin", {"margin": 2.0}, {"margin": 2.0, "reweight": "none"}),
        (
            "margin",
            {"base": "hinge", "power": 1.0, "margin_count": "minority", "scale": 2.0},
            {"base": "hinge", "power": 1.0, "margin_count": "minority", "scale": 2.0, "reweight": "none"},
        ),
        ("bce", {"scale": 2.0}, {"margin": 0.0, "reweight": "none", "scale": 2.0}),
    ],
)
def test_the_margin_family(kind, given, same):
    batch = LOGITS[:7], torch.tensor(LABELS[:7])
    assert build_loss(kind, COUNTS, **given)(*batch) == MarginLoss(COUNTS, **same)(*batch)


def test_the_four_settings_differ():
    batch = LOGITS[:7], torch.tensor(LABELS[:7])
    assert len({build_loss(kind, COUNTS)(*batch).item() for kind in ("rldam", "ru", "margin", "bce")}) == 4


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("bcee", {}, "unknown loss 'bcee'.* Did you mean 'bce'"),
        ("bce", {"margin": 1.0}, "takes no option 'margin'"),
        ("rldam", {"reweight": "none"}, r"reweight is 'none'.* one of:? dataset, batch"),
        ("ru", {"reweight": "none"}, r"reweight is 'none'.* one of:? dataset, batch"),
        ("asl", {"clip": 1.0}, "clip is 1.0"),
        ("asl", {"gamma_negative": -1}, "gamma_negative is -1"),
        ("asl", {"gamma_positive": -1}, "gamma_positive is -1"),
        ("focal", {"alpha": 1.5}, "alpha is 1.5"),
        ("focal", {"gamma": -1}, "gamma is -1"),
        ("db", {"lambda_negative": 0}, "lambda_negative is 0"),
        ("db", {"beta": 0}, "beta is 0"),
        ("db", {"mu": float("nan")}, "mu is nan"),
    ],
)
def test_bad_options_are_named(kind, options, message):
    with pytest.raises(InputError, match=message):
        build_loss(kind, COUNTS, **options)


def test_none_keeps_the_default():
    assert build_loss("rldam", COUNTS, margin=None).member.margin == 1.0


# The weights of db depend on all labels of a row, of which the classes of a group are only a part.
@pytest.mark.parametrize("name", [name for name in LOSSES.names() if name != "db"])
def test_groups_of_classes_are_losses_of_those_classes(name):
    """With the group of each class the loss is the weighted sum of the losses on the classes of each group."""
    rng = np.random.default_rng(3)
    labels = (rng.random((12, 6)) < 0.4).astype(np.uint8)
    counts = LabelCounts.of(labels)
    loss = LOSSES.build(name, counts)
    logits, targets = torch.tensor(rng.normal(size=(12, 6))), torch.tensor(labels)
    mask = torch.tensor(rng.random((12, 6)) < 0.8)
    groups, weights = torch.tensor([[0, 2, 2, 0, 1, 2]]), torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    found = loss(logits, targets, mask=mask, groups=groups, group_weights=weights)
    parts = [weights[g] * loss(logits, targets, mask=mask & (groups == g)) for g in range(3)]
    torch.testing.assert_close(found, sum(parts))


@pytest.mark.parametrize("kind", EVERY)
def test_a_batch_that_is_not_validated_has_the_same_loss(kind):
    mask, groups = torch.tensor(LABELS + RNG.random(LABELS.shape) > 0.4), torch.arange(len(LABELS)) % 2
    given = {"mask": mask, "groups": groups, "group_weights": torch.tensor([0.5, 1.0])}
    loss = build_loss(kind, COUNTS).eval()
    expected = loss(LOGITS, torch.tensor(LABELS), **given)
    loss.validate = False
    assert torch.equal(loss(LOGITS, torch.tensor(LABELS), **given), expected)
    half = loss(LOGITS.half(), torch.tensor(LABELS), **given)
    assert half.dtype == torch.float32
