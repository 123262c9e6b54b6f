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


def wide(seed, n=400, d=300):
    rng = np.random.default_rng(seed)
    labels = rng.random((n, 3)) < 0.3
    return rng.normal(size=(n, d)) @ np.diag(np.linspace(3, 0.1, d)) + labels @ rng.normal(
        size=(3, d)
    ), labels


@pytest.mark.parametrize(
    ("width", "options", "count"),
    [
        (300, {"dimensions": 512}, 48),
        (300, {"dimensions": None}, 0),
        (300, {"dimensions": None, "fixed": True}, 48),
        (300, {"dimensions": 100}, 48),
        (256, {"dimensions": 512}, 0),
        (256, {"dimensions": 512, "fixed": True}, 48),
        (64, {"fixed": True}, 0),
        (300, {"form": "full"}, 0),
    ],
)
def test_the_form_follows_from_the_first_rows(width, options, count):
    rows, _ = wide(0, d=width)
    sums = Learner.begin(rows, **{"form": "auto", **options}).sums
    assert (0 if sums.lead is None else sums.lead.shape[1]) == count
    assert sums.shared == (width > 64 and "form" not in options)


def test_leading_directions_hold_most_of_the_variance():
    rows, _ = wide(0)
    rows[:, 7] = 5.0
    for kind in (np.asarray, sparse.csr_matrix):
        lead = Learner.begin(kind(rows), dimensions=300, form="auto").sums.lead
        scale = np.where(rows.std(0) > 0, rows.std(0), np.inf) ** -0.5
        vectors = np.linalg.eigh(np.cov((rows * scale).T))[1]
        best = vectors[:, -48:].T @ np.divide(
            lead, scale[:, None], out=np.zeros_like(lead), where=scale[:, None] > 0
        )
        assert (np.linalg.svd(best)[1][:24] > 0.99).all()
    assert Learner.begin(rows[:3], dimensions=300, form="auto").sums.lead.shape[1] == 2
    assert Learner.begin(rows[:1], dimensions=300, form="auto").sums.lead is None


def test_wide_learners_of_one_beginning_in_any_order_and_cut():
    rows, labels = wide(1)
    begun = Learner.begin(rows[:100], dimensions=512, form="auto")
    once = begun.learn(rows, labels)
    parts = [begun.learn(rows[p], labels[p]) for p in (slice(0, 90), slice(90, 300), slice(300, 400))]
    for other in (
        begun.learn(rows[200:], labels[200:, ::-1], [2, 1, 0]).learn(rows[:200], labels[:200]),
        parts[2].merge(parts[0]).merge(parts[1]),
        once.merge(parts[1]).forget(rows[90:300], labels[90:300]),
        Learner.from_arrays(once.arrays()),
    ):
        assert other.sums.lead is not None
        a, b = (solve(one, Options(unlabelled=0.3)).weights for one in (once, other))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(a).max())


def test_wide_learners_that_began_apart_keep_what_both_have():
    rows, labels = wide(2)
    one, other = (
        Learner.begin(rows[p], dimensions=512, form="auto").learn(rows[p], labels[p])
        for p in (slice(0, 200), slice(200, 400))
    )
    begun = Learner.begin(rows, dimensions=None, form="auto")
    for merged in (one.merge(other), other.merge(one)):
        assert merged.sums.lead is None
        a, b = (solve(each).weights for each in (merged, begun.learn(rows, labels)))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(a).max())
    more = one.merge(other).learn(rows[:50], labels[:50]).forget(rows[:50], labels[:50])
    a, b = (solve(each).weights for each in (more, one.merge(other)))
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9 * np.abs(a).max())
