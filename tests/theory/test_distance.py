"""How far a memory is from its task: risks against the loss and plain loops, expectations against all subsets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.losses import margin_loss
from mlcl.memories import TaskSamples, wru_gap
from mlcl.memories.wru import gap_terms
from mlcl.theory import (
    RiskSettings,
    Scored,
    class_risks,
    diagnose_task,
    imbalance_terms,
    optimal_margins,
    random_choice,
)

BASES = ("logistic", "hinge", "squared-hinge", "exponential")


def some_task(seed, *, n=24, classes=3, defined=True):
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, classes)) < rng.uniform(0.1, 0.7, classes)).astype(np.uint8)
    if defined:
        labels[0], labels[1] = 1, 0
    return labels, rng.normal(0, 2, (n, classes)), rng


def loss_of(z, base):
    return {
        "logistic": math.log1p(math.exp(-z)),
        "hinge": max(0, 1 - z),
        "squared-hinge": max(0, 1 - z) ** 2,
        "exponential": math.exp(-z),
    }[base]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("seed", range(4))
def test_the_full_risk_is_the_sum_over_all_pairs(base, seed):
    """Eq. 4, first line."""
    labels, logits, _ = some_task(seed)
    counts = LabelCounts.of(labels)
    margins = optimal_margins(counts, margin=1.5)
    found = class_risks(logits, labels, counts, margins=margins, base=base)
    for k in range(labels.shape[1]):
        pairs = [
            loss_of(logits[p, k] - margins[k], base) + loss_of(-logits[q, k] - margins[k], base)
            for p, q in itertools.product(np.flatnonzero(labels[:, k]), np.flatnonzero(1 - labels[:, k]))
        ]
        assert found[k] == pytest.approx(sum(pairs) / len(pairs))


@pytest.mark.parametrize("seed", range(6))
def test_an_estimate_is_the_loss_on_the_stored_rows(seed):
    """The mean over classes is the margin loss, with weights of the dataset and with those of the batch."""
    labels, logits, rng = some_task(seed)
    kept = np.concatenate([[0, 1], rng.choice(np.arange(2, len(labels)), 7, replace=False)])
    counts, own = LabelCounts.of(labels), LabelCounts.of(labels[kept])
    margins = optimal_margins(counts)
    parts = [torch.tensor(a) for a in (logits[kept], labels[kept], counts.positive, counts.negative)]
    for weights, reweight in ((counts, "dataset"), (own, "batch")):
        found = class_risks(logits[kept], labels[kept], weights, margins=margins).mean()
        assert found == pytest.approx(float(margin_loss(*parts, margin=1.0, reweight=reweight)))


def test_the_estimate_from_stored_constants_is_unbiased():
    """Over all subsets of one size, its mean is the full risk; that of a set with doubled positives is not."""
    labels, logits, _ = some_task(3, n=8, classes=2)
    counts = LabelCounts.of(labels)
    margins = optimal_margins(counts)
    full = class_risks(logits, labels, counts, margins=margins)
    subsets = [list(rows) for rows in itertools.combinations(range(8), 3)]
    risks = [class_risks(logits[rows], labels[rows], counts, margins=margins) for rows in subsets]
    assert np.mean(risks, axis=0) == pytest.approx(full)
    assert np.std([r[0] for r in risks]) > 0.1


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_random_rows_are_the_mean_over_all_subsets(seed, size):
    labels, _, _ = some_task(seed, n=7, classes=3, defined=False)
    counts = LabelCounts.of(labels)
    subsets = [labels[list(rows)] for rows in itertools.combinations(range(7), size)]
    found = random_choice(counts, size)
    defined = counts.defined
    assert found.gap == pytest.approx(np.mean([wru_gap(counts, s) for s in subsets]))
    prevalence = [wru_gap(counts, s, criterion="prevalence") for s in subsets]
    assert found.gap_prevalence == pytest.approx(np.mean(prevalence))
    lost = [(defined & ~LabelCounts.of(s).defined).sum() for s in subsets]
    # with one row a class is undefined in any case, so the two ways of losing one never overlap
    assert found.lost == pytest.approx(np.mean(lost))


def test_each_class_has_its_part_of_the_gap():
    labels, _, _ = some_task(5, classes=4)
    labels[:, 2] = 0
    counts, kept = LabelCounts.of(labels), labels[:9]
    found = gap_terms(counts, kept.sum(0, dtype=np.int64), 9)
    for k in (0, 1, 3):
        c = int(kept[:, k].sum())
        assert found[k] == pytest.approx(abs(counts.positive[k] / counts.negative[k] - c / (9 - c + 0.01)))
    assert math.isnan(found[2])
    assert wru_gap(counts, kept) == pytest.approx(np.nansum(found))


@pytest.mark.parametrize("base", BASES)
def test_the_ratio_by_counts_is_that_of_a_network_that_says_nothing(base):
    labels, _, _ = some_task(8)
    task = TaskSamples.of(2, [5, 6, 7], np.arange(24), labels)
    held = task.take([0, 1, 5, 9, 20])
    zero = np.zeros((24, 3))
    found = diagnose_task(held, settings=RiskSettings(2.0, base=base), scored=Scored(zero, labels, zero[:5]))
    assert found.ratio == pytest.approx(found.ratio_counts)
    assert found.ratio_own == pytest.approx(np.ones(3))
    for k in range(3):
        p, n, c = int(labels[:, k].sum()), 24, int(held.labels[:, k].sum())
        assert found.ratio_counts[k] == pytest.approx(((c / 5) / (p / n) + ((5 - c) / 5) / ((n - p) / n)) / 2)


def test_a_task_and_what_is_stored_of_it():
    labels, logits, _ = some_task(11, n=40, classes=4)
    labels[:, 1] = 0
    labels[7:, 2] = 0  # class 2 lives in the first rows only
    task = TaskSamples.of(0, [3, 1, 0, 2], np.arange(100, 140), labels)
    kept = np.r_[0, 20:31]
    held = task.take(kept)
    found = diagnose_task(held, classes=list("abcd"), scored=Scored(logits, labels, logits[kept]))
    counts, stored = LabelCounts.of(labels), LabelCounts.of(labels[kept])
    both = np.array([True, False, True, True])
    assert found.counts == counts
    assert found.stored == stored
    margins = np.where(both, np.maximum(counts.positive, 1) ** -0.25, np.nan)
    assert found.margins == pytest.approx(margins, nan_ok=True)
    assert found.data == imbalance_terms(counts.select(both), found.margins[both])
    assert found.memory == imbalance_terms(stored.select(both), found.margins[both])
    assert found.proposition.closed == pytest.approx(counts.positive[both] ** -0.25)
    assert np.isnan(found.ratio).tolist() == np.isnan(found.ratio_counts).tolist() == (~both).tolist()
    full = class_risks(logits, labels, counts, margins=margins)
    part = class_risks(logits[kept], labels[kept], counts, margins=margins)
    assert found.ratio[both] == pytest.approx((part / full)[both])
    assert found.gap == pytest.approx(wru_gap(counts, labels[kept]))
    assert found.random == random_choice(counts, len(kept))
    assert not found.lost.any()


def test_a_lost_class_makes_the_terms_infinite_and_is_named():
    labels = np.array([[1, 1], [1, 0], [0, 0], [0, 1], [0, 1]], np.uint8)
    found = diagnose_task(TaskSamples.of(0, [0, 1], range(5), labels).take([2, 3]))
    assert found.lost.tolist() == [True, False]
    assert (found.memory.lost, found.memory.complexity) == (1, math.inf)
    assert found.kept == imbalance_terms(LabelCounts([1], [1], 2), found.margins[1:])
    assert found.ratio_counts[0] == pytest.approx(((2 / 2) / (3 / 5)) / 2)
    assert np.isnan(found.ratio).all()  # no network was given


def test_a_memory_without_rows_tells_of_the_task_alone():
    labels, _, _ = some_task(1)
    found = diagnose_task(TaskSamples.of(0, [0, 1, 2], range(24), labels).take([]))
    assert np.isfinite(found.data.complexity)
    assert all(
        math.isnan(v) for v in (found.memory.complexity, found.gap, *found.random, *found.ratio_counts)
    )
    assert not found.lost.any()
    nothing = diagnose_task(TaskSamples.of(0, [0], range(3), [[1], [1], [1]]))
    assert nothing.proposition is None
    assert math.isnan(nothing.data.complexity)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"logits": np.zeros((3, 2))}, r"logits has shape \(3, 2\), but \(4, 2\)"),
        ({"margins": np.ones(3)}, r"margins has shape \(3,\)"),
        ({"counts": LabelCounts([1], [1], 2)}, "counts has 1 classes"),
        ({"base": "cubic"}, "base is 'cubic'"),
        ({"labels": np.full((4, 2), 2)}, "labels has the value 2"),
    ],
)
def test_bad_input(change, words):
    labels = np.array([[1, 0], [0, 1], [0, 0], [1, 1]])
    given = {"logits": np.zeros((4, 2)), "labels": labels, "counts": LabelCounts.of(labels)}
    given |= {"margins": np.ones(2)} | change
    with pytest.raises(InputError, match=words):
        class_risks(**given)
    with pytest.raises(InputError, match="size is 9"):
        random_choice(LabelCounts.of(labels), 9)
