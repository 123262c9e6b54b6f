"""Any order, any cut, merging and forgetting: the same sums, and the same weights within 1e-9."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from mlcl.errors import InputError
from mlcl.exact import Learner, Options, features, solve

FIXED = Options(ridge=0.1, exponent=0.5, unlabelled=0.3)


def problem(seed, *, n=90, d=5, classes=4, bad=False):
    """Rows, labels, and which labels are known; badly scaled: columns in very different units, far from zero."""
    rng = np.random.default_rng(seed)
    labels = rng.random((n, classes)) < 0.4
    rows = labels @ rng.normal(size=(classes, d)) + rng.normal(size=(n, d))
    if bad:
        rows = rows * np.logspace(-4, 6, d) + rng.normal(0, 100, d) * np.logspace(-4, 6, d)
    return rows, labels, rng.random((n, classes)) < 0.7


def together(rows, labels, known, first, **options):
    return first.learn(rows, labels, range(labels.shape[1]), annotated=known, **options)


def same(one, other, options=FIXED):
    a, b = solve(one, options), solve(other, options)
    assert a.choice.ridge == b.choice.ridge
    for x, y in zip(a.weights, b.weights, strict=True):
        assert np.linalg.norm(x - y) <= 1e-9 * np.linalg.norm(x)
    np.testing.assert_allclose(a.intercepts, b.intercepts, rtol=1e-7, atol=1e-7)


@given(st.integers(0, 10**6), st.booleans(), st.data())
@settings(max_examples=40)
def test_any_order_and_cut(seed, bad, data):
    rows, labels, known = problem(seed, bad=bad)
    once = together(rows, labels, known, Learner.begin(rows))
    order = np.random.default_rng(seed + 1).permutation(len(rows))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    # The centre is that of other rows too: it does not matter.
    pieces = [piece for piece in np.split(order, cuts) if len(piece)]
    many = Learner.begin(rows[pieces[0]])
    for piece in pieces:
        many = many.learn(rows[piece], labels[piece], range(4), annotated=known[piece])
    same(once, many)
    same(once, many, Options())


@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 89))
@example(0, False, 2)  # one positive and one negative are left, without any spread
@settings(max_examples=40)
def test_merge_and_forget(seed, bad, cut):
    rows, labels, known = problem(seed, bad=bad)
    once = together(rows, labels, known, Learner.begin(rows))
    left = together(rows[:cut], labels[:cut], known[:cut], Learner.begin(rows[:cut]))
    right = together(rows[cut:], labels[cut:], known[cut:], Learner.begin(rows[cut:]))
    same(once, left.merge(right))
    same(once, right.merge(left))
    same(left, once.forget(rows[cut:], labels[cut:], annotated=known[cut:]))
    gone = once.forget(rows, labels, annotated=known)
    assert gone.nbytes == 0
    assert not solve(gone, FIXED).weights.any()


@pytest.mark.parametrize("dimensions", [None, 3])
def test_saved_learners_are_the_same_and_go_on(dimensions):
    rows, labels, known = problem(0)
    learner = together(rows[:60], labels[:60], known[:60], Learner.begin(rows, dimensions=dimensions))
    copy = Learner.from_arrays(learner.arrays())
    for a, b in zip(learner.arrays().values(), copy.arrays().values(), strict=True):
        assert np.array_equal(a, b)
    one, other = (each.learn(rows[60:], labels[60:, :2], [4, 0]) for each in (learner, copy))
    assert one.classes == 5
    assert np.array_equal(solve(one).weights, solve(other).weights)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("features.centre", np.zeros(5, np.float32), "the feature map is not one of a learner"),
        ("features.centre", np.full(5, np.nan), "the feature map is not one of a learner"),
        ("features.projection", np.zeros((4, 3)), "the feature map is not one of a learner"),
        ("features.projection", np.zeros((5, 2)), "the sums have 3 numbers; expected 2"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, value, sentence):
    rows, labels, known = problem(0)
    arrays = together(rows, labels, known, Learner.begin(rows, dimensions=3)).arrays()
    with pytest.raises(InputError, match=sentence):
        Learner.from_arrays({**arrays, name: value})


def test_rows_come_in_blocks(monkeypatch):
    rows, labels, known = problem(0)
    once = together(rows, labels, known, Learner.begin(rows), weights=np.linspace(0, 2, 90))
    monkeypatch.setattr(features, "BLOCK", 20)
    monkeypatch.setattr(features, "ROWS", 1)
    same(once, together(rows, labels, known, Learner.begin(rows), weights=np.linspace(0, 2, 90)))
    same(
        once,
        together(sparse.csr_matrix(rows), labels, known, Learner.begin(rows), weights=np.linspace(0, 2, 90)),
    )


def test_unknown_classes_and_different_maps_are_refused():
    rows, labels, known = problem(0)
    learner = together(rows, labels, known, Learner.begin(rows, dimensions=3))
    with pytest.raises(InputError, match="class 7 is not known"):
        learner.forget(rows[:1], labels[:1, :1], [7])
    with pytest.raises(InputError, match="different feature maps"):
        learner.merge(Learner.begin(rows))
    merged = learner.merge(learner.empty().remove(3).remove(2).learn(rows, labels[:, :2]), [5, 1])
    assert merged.classes == 6
    assert merged.sums.annotated_for(5).count == 90
    assert learner.remove(2).classes == 3


def test_rows_of_many_blocks_are_counted_as_one_block_would_be(monkeypatch):
    rows, labels, _ = problem(5, n=700)
    labels[:, 2] = False  # a class without positives
    whole = Learner.begin(rows).learn(rows, labels, range(4))
    monkeypatch.setattr(features, "BLOCK", 64 * 5)
    monkeypatch.setattr(features, "ROWS", 1)
    cut = Learner.begin(rows).learn(rows, labels, range(4))
    same(cut, whole)
    for k in range(4):
        np.testing.assert_allclose(cut.sums.positive[k].second, whole.sums.positive[k].second, rtol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e155])
@pytest.mark.parametrize("block", [20, 2**18])
def test_rows_whose_sums_are_not_finite_are_refused(monkeypatch, value, block):
    rows, labels, _ = problem(0)
    learner = Learner.begin(rows).learn(rows, labels, range(4))
    monkeypatch.setattr(features, "BLOCK", block)
    monkeypatch.setattr(features, "ROWS", 1)
    rows = rows.copy()
    rows[3, 1] = value
    for change in (learner.learn, learner.forget):
        with pytest.raises(
            InputError, match=r"the sums of these rows are not finite; expected finite numbers of at"
        ):
            change(rows, labels, range(4))


def test_merged_sums_that_overflow_are_refused():
    rows, labels, _ = problem(0)
    arrays = Learner.begin(rows).learn(rows, labels, range(4)).arrays()
    huge = Learner.from_arrays({**arrays, "sums.seconds": np.full_like(arrays["sums.seconds"], 1.7e308)})
    with np.errstate(over="ignore"), pytest.raises(InputError, match="the sums of these rows are not finite"):
        huge.merge(huge)


def test_sums_that_cannot_be_solved_end_in_a_sentence_instead_of_never():
    rows, labels, _ = problem(0)
    arrays = Learner.begin(rows).learn(rows, labels, range(4)).arrays()
    crafted = {"sums.counts": 1e-20 * arrays["sums.counts"], "sums.seconds": 1e295 * arrays["sums.seconds"]}
    learner = Learner.from_arrays({**arrays, **crafted})  # finite, but not the covariances
    with np.errstate(all="ignore"), pytest.raises(InputError, match="too large, or differ too much"):
        solve(learner, Options(ridge=1.0, exponent=0.0))
