"""Any order, any cut, merging and forgetting: the same sums, and the same weights within 1e-9."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from mlcl.errors import InputError
from mlcl.exact import Learner, Options, solve

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
