"""Macro-AUC and average precision against pair counting and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from mlcl.errors import InputError
from mlcl.metrics import average_precision, batch_mean_auc, columns, macro_auc
from mlcl.metrics.columns import by_class, insertion_points, ordered_pairs, split, transposed

TIE_VALUE = {"half": 0.5, "strict": 0.0, "lenient": 1.0}


def auc_by_pairs(scores, labels, ties):
    """AUC of one class: look at every (positive, negative) pair."""
    values = []
    for positive in scores[labels == 1]:
        for negative in scores[labels == 0]:
            values.append(1.0 if positive > negative else TIE_VALUE[ties] if positive == negative else 0.0)
    return sum(values) / len(values) if values else float("nan")


def precision_by_thresholds(scores, labels):
    """AP of one class: lower the threshold through every distinct score."""
    total, recall = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        chosen = scores >= threshold
        precision = labels[chosen].mean()
        gained = labels[chosen].sum() / labels.sum()
        total, recall = total + (gained - recall) * precision, gained
    return total


@st.composite
def problems(draw):
    """Scores from a few levels (many ties) or continuous; labels of any imbalance, undefined classes too."""
    n, k = draw(st.integers(1, 40)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.sampled_from([1, 2, 5, 0]))
    scores = rng.integers(0, levels, (n, k)) / 4 if levels else rng.normal(size=(n, k))
    labels = (rng.random((n, k)) < rng.random(k)).astype(np.uint8)
    return scores.astype(draw(st.sampled_from([np.float32, np.float64]))), labels


@given(problems(), st.sampled_from(["half", "strict", "lenient"]))
@settings(deadline=None, max_examples=60)
def test_auc_counts_every_pair(problem, ties):
    scores, labels = problem
    expected = [auc_by_pairs(s, y, ties) for s, y in zip(scores.T, labels.T, strict=True)]
    np.testing.assert_allclose(
        macro_auc(scores, labels, average=None, ties=ties), expected, rtol=0, atol=1e-12
    )
    defined = [value for value in expected if not np.isnan(value)]
    got = macro_auc(scores, labels, ties=ties)
    assert isinstance(got, float)
    assert np.isnan(got) if not defined else abs(got - np.mean(defined)) < 1e-12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("prevalence", [0.01, 0.1, 0.3, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("decimals", [None, 1])
def test_agrees_with_scikit_learn_on_both_ways_of_searching(dtype, prevalence, decimals):
    rng = np.random.default_rng(3)
    labels = (rng.random((2000, 3)) < prevalence).astype(np.uint8)
    scores = (rng.normal(size=labels.shape) + labels).astype(dtype)
    if decimals is not None:
        scores = scores.round(decimals)
    np.testing.assert_allclose(
        macro_auc(scores, labels, average=None), roc_auc_score(labels, scores, average=None), atol=1e-12
    )
    np.testing.assert_allclose(
        average_precision(scores, labels, average=None),
        average_precision_score(labels, scores, average=None),
        atol=1e-12,
    )


@given(problems())
@settings(deadline=None, max_examples=40)
def test_average_precision_sweeps_every_threshold(problem):
    scores, labels = problem
    expected = [
        precision_by_thresholds(s, y) if y.any() else np.nan for s, y in zip(scores.T, labels.T, strict=True)
    ]
    np.testing.assert_allclose(average_precision(scores, labels, average=None), expected, atol=1e-12)


@given(problems())
@settings(deadline=None, max_examples=40)
def test_auc_sees_order_only(problem):
    scores, labels = problem
    auc = macro_auc(scores, labels, average=None)
    np.testing.assert_array_equal(
        auc, macro_auc(np.exp(scores.astype(np.float64)) * 3 - 1, labels, average=None)
    )
    np.testing.assert_allclose(macro_auc(-scores, labels, average=None), 1 - auc, atol=1e-12)
    np.testing.assert_allclose(macro_auc(scores, 1 - labels, average=None), 1 - auc, atol=1e-12)
    strict, lenient = (macro_auc(scores, labels, average=None, ties=t) for t in ("strict", "lenient"))
    np.testing.assert_allclose((strict + lenient) / 2, auc, atol=1e-12)


@given(problems(), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_mask_leaves_entries_out(problem, seed):
    scores, labels = problem
    mask = np.random.default_rng(seed).random(scores.shape) < 0.7
    expected = [auc_by_pairs(s[m], y[m], "half") for s, y, m in zip(scores.T, labels.T, mask.T, strict=True)]
    hidden = np.where(mask, scores, np.nan)  # what is masked is not even looked at
    np.testing.assert_allclose(macro_auc(hidden, labels, average=None, mask=mask), expected, atol=1e-12)
    expected = [
        precision_by_thresholds(s[m], y[m]) if y[m].any() else np.nan
        for s, y, m in zip(scores.T, labels.T, mask.T, strict=True)
    ]
    np.testing.assert_allclose(
        average_precision(hidden, labels, average=None, mask=mask), expected, atol=1e-12
    )


def test_double_precision_is_not_lost():
    step = np.nextafter(1.0, 2.0)  # equal to 1 in float32
    scores = np.array([[step], [1.0]])
    assert macro_auc(scores, [[1], [0]], ties="strict") == 1.0
    assert macro_auc(scores, [[0], [1]], ties="lenient") == 0.0
    assert macro_auc(scores.astype(np.float32), [[1], [0]]) == 0.5


def test_both_zeros_tie_and_extreme_scores_order():
    assert macro_auc([[0.0], [-0.0]], [[1], [0]]) == 0.5
    largest = float(np.finfo(np.float64).max)
    assert macro_auc([[largest], [-largest], [5e-324], [0.0]], [[1], [0], [1], [0]]) == 1.0


def test_undefined_classes_are_skipped():
    scores = np.array([[0.9, 0.1, 0.3], [0.2, 0.3, 0.4]])
    labels = np.array([[1, 0, 1], [0, 0, 1]])
    np.testing.assert_array_equal(macro_auc(scores, labels, average=None), [1.0, np.nan, np.nan])
    assert macro_auc(scores, labels) == 1.0
    assert np.isnan(macro_auc(scores, np.zeros((2, 3))))
    np.testing.assert_array_equal(average_precision(scores, labels, average=None), [1.0, np.nan, 1.0])
    assert average_precision(scores, labels) == 1.0


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_empty_input_has_no_auc(shape):
    empty = np.zeros(shape)
    assert np.isnan(macro_auc(empty, empty))
    assert macro_auc(empty, empty, average=None).shape == (shape[1],)
    assert np.isnan(average_precision(empty, empty))


def test_reads_arrays_and_tensors_of_any_kind():
    rng = np.random.default_rng(0)
    whole = rng.integers(-3, 4, (60, 4))
    labels = rng.random((60, 4)) < 0.4
    expected = macro_auc(whole.astype(np.float64), labels)
    kinds = [whole.tolist(), whole, whole.astype(np.float16), whole.astype(">f4"), np.asfortranarray(whole)]
    kinds += [
        np.repeat(whole, 2, axis=1)[:, ::2],
        torch.tensor(whole),
        torch.tensor(whole).to(torch.bfloat16),
    ]
    kinds += [torch.tensor(whole, dtype=torch.float32, requires_grad=True), whole.astype(np.longdouble)]
    for kind in kinds:
        assert macro_auc(kind, labels) == expected
    for kind in [labels.tolist(), labels.astype(float), torch.tensor(labels), np.asfortranarray(labels)]:
        assert macro_auc(whole, kind) == expected


@pytest.mark.parametrize("order", ["C", "F"])
def test_input_is_left_as_it_was(order):
    rng = np.random.default_rng(0)
    scores = np.array(rng.normal(size=(50, 3)).astype(np.float32), order=order)
    labels = np.array((rng.random((50, 3)) < 0.3).astype(np.uint8), order=order)
    before = scores.copy(), labels.copy()
    scores.setflags(write=False)
    labels.setflags(write=False)
    macro_auc(scores, labels)
    average_precision(scores, labels)
    np.testing.assert_array_equal(scores, before[0])
    np.testing.assert_array_equal(labels, before[1])


def test_threads_do_not_change_the_result(monkeypatch):
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(300, 70)), rng.random((300, 70)) < 0.2
    mask = rng.random((300, 70)) < 0.5
    alone = macro_auc(scores, labels, average=None), macro_auc(scores, labels, average=None, mask=mask)
    monkeypatch.setattr(columns, "_WORTH_THREADS", 0)
    for count in (1, 3, 8):
        monkeypatch.setattr(columns, "cores", lambda count=count: count)
        np.testing.assert_array_equal(macro_auc(scores, labels, average=None), alone[0])
        np.testing.assert_array_equal(macro_auc(scores, labels, average=None, mask=mask), alone[1])


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=60),
    st.lists(st.integers(-1, 7), min_size=1, max_size=12),
)
@settings(deadline=None, max_examples=50)
def test_insertion_points_are_those_of_searchsorted(hay, needles):
    hay, needles = np.sort(np.array(hay, dtype=float)), np.sort(np.array(needles, dtype=float))
    lower, upper = insertion_points(hay, needles)
    np.testing.assert_array_equal(lower, hay.searchsorted(needles, side="left"))
    np.testing.assert_array_equal(upper, hay.searchsorted(needles, side="right"))


AWKWARD = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    2e-308,
    1.0,
    -1.0,
    2.0,
    -2.0,
    np.nextafter(1.0, 2.0),
    1e-300,
    -1e300,
    1e300,
]


@given(st.lists(st.sampled_from(AWKWARD), min_size=2, max_size=30), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=80)
def test_pairs_are_counted_whatever_the_numbers(values, seed):
    column = np.array(values)
    positive = np.random.default_rng(seed).random(column.size) < 0.5
    counted = ordered_pairs(column.copy(), positive)
    above, below = column[positive][:, None], column[~positive]
    assert counted == ((above > below).sum(), (above >= below).sum())


@pytest.mark.parametrize(
    ("values", "packs"),
    [
        ([-0.3, 0.7, 1.9, 0.0], True),
        ([-30.0, 0.001, 1e6, -1e-6], True),
        ([0.0, 2.0, -1.0, 1.0], False),  # no bit to spare
        ([1e-300, 1e300, 1.0, 2.0], False),
    ],
)
def test_packing_is_used_where_it_is_exact(values, packs):
    positive = np.array([True, False, True, False])
    assert (columns._pairs_by_packing(np.array(values), positive, 2) is not None) == packs


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 2), (3000, 40), (70000, 1)])
def test_transposed_is_the_transpose(shape):
    matrix = np.arange(shape[0] * shape[1]).reshape(shape)
    result = transposed(matrix)
    np.testing.assert_array_equal(result, matrix.T)
    assert result.flags.c_contiguous
    assert not np.shares_memory(result, matrix)


@pytest.mark.parametrize("prevalence", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_split_sorts_each_sign_apart(prevalence):
    rng = np.random.default_rng(1)
    column, positive = rng.normal(size=101), rng.random(101) < prevalence
    positives, negatives = split(column.copy(), positive)
    np.testing.assert_array_equal(positives, np.sort(column[positive]))
    np.testing.assert_array_equal(negatives, np.sort(column[~positive]))


def test_by_class_keeps_the_order_of_classes(monkeypatch):
    monkeypatch.setattr(columns, "_WORTH_THREADS", 0)
    scores = np.tile(np.arange(130.0), (2, 1))
    labels = np.array([[True] * 130, [False] * 130])
    np.testing.assert_array_equal(
        by_class(lambda column, positive: column[positive][0], scores, labels), np.arange(130.0)
    )


def test_batch_mean_is_the_mean_over_full_batches():
    rng = np.random.default_rng(5)
    scores, labels = rng.normal(size=(107, 4)), rng.random((107, 4)) < [0.02, 0.1, 0.5, 0.0]
    order = np.random.default_rng(9).permutation(107)
    means = []
    for start in range(0, 107 - 20 + 1, 20):  # five batches, seven rows dropped
        rows = order[start : start + 20]
        values = [auc_by_pairs(scores[rows, k], labels[rows, k], "half") for k in range(4)]
        values = [value for value in values if not np.isnan(value)]
        if values:
            means.append(np.mean(values))
    assert batch_mean_auc(scores, labels, batch_size=20, seed=9) == pytest.approx(np.mean(means), abs=1e-12)
    assert batch_mean_auc(scores, labels, batch_size=107) == pytest.approx(
        macro_auc(scores, labels), abs=1e-12
    )
    assert np.isnan(batch_mean_auc(scores, labels, batch_size=108))


GOOD = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
Y = np.array([[0, 1], [1, 0], [1, 1]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_must_be_finite(bad):
    scores = GOOD.copy()
    scores[2, 1] = bad
    for metric in (macro_auc, average_precision):
        with pytest.raises(InputError, match=rf"scores has the value {bad} at row 2, column 1"):
            metric(scores, Y)
    with pytest.raises(InputError, match="row 2, column 1"):  # even where the class is undefined
        macro_auc(scores, np.zeros_like(Y))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: macro_auc(GOOD[:, 0], Y), r"scores has shape \(3,\)"),
        (lambda: macro_auc([["a", "b"]], [[0, 1]]), "scores has shape .* and dtype"),
        (lambda: macro_auc([[1.0], [1.0, 2.0]], Y), "scores is not a matrix of numbers"),
        (lambda: macro_auc(GOOD, Y[:2]), "labels has 2 rows, but 3 were expected"),
        (lambda: macro_auc(GOOD, Y[:, :1]), r"labels has shape \(3, 1\), but \(3, 2\) was expected"),
        (lambda: macro_auc(GOOD, Y * 2), "labels has the value 2"),
        (lambda: macro_auc(GOOD, Y, ties="halves"), "ties is 'halves'.*Did you mean 'half'"),
        (lambda: macro_auc(GOOD, Y, average="micro"), "average is 'micro', but 'macro' or None"),
        (lambda: average_precision(GOOD, Y, average="micro"), "average is 'micro'"),
        (lambda: macro_auc(GOOD, Y, mask=Y[:2]), r"mask has shape \(2, 2\), but \(3, 2\)"),
        (lambda: macro_auc(GOOD, Y, mask=Y * 0.5), "mask has the value 0.5"),
        (lambda: batch_mean_auc(GOOD, Y, batch_size=1), "batch_size is 1"),
        (lambda: batch_mean_auc(GOOD, Y, batch_size=2.5), "batch_size is 2.5"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
