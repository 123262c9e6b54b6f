"""Streaming Macro-AUC: exact where it says so, within its bound elsewhere, and the same in any order."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.metrics import StreamingMacroAUC, macro_auc
from mlcl.metrics.streaming import LARGEST, Histogram, Tally, ordered_keys


def state(metric):
    """All that a metric holds, as plain numbers."""
    metric.compute()
    return [
        (h.level, *(side.tolist() for tally in (h.positive, h.negative) for side in tally))
        for h in metric._held
    ]


@st.composite
def problems(draw):
    """Scores of several kinds: few levels, continuous, squashed, huge, beside 1; any imbalance."""
    n, k = draw(st.integers(0, 150)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    plain = rng.normal(size=(n, k))
    kind = draw(st.sampled_from(["levels", "plain", "squashed", "wide", "offset"]))
    scores = {
        "levels": rng.integers(-3, 4, (n, k)) / 2,
        "plain": plain,
        "squashed": 1 / (1 + np.exp(-9 * plain)),
        "wide": plain * 10.0 ** rng.integers(-30, 30, (n, k)),
        "offset": 1000 + plain,
    }[kind]
    labels = (rng.random((n, k)) < rng.random(k)).astype(np.uint8)
    return scores.astype(draw(st.sampled_from([np.float32, np.float64]))), labels


def streamed(scores, labels, bins, cuts=(), mask=None):
    metric = StreamingMacroAUC(scores.shape[1], bins=bins)
    for part in np.split(np.arange(len(scores)), sorted(cuts)):
        metric.update(scores[part], labels[part], mask=None if mask is None else mask[part])
    return metric


@pytest.mark.slow
@given(problems(), st.integers(2, 40), st.lists(st.integers(0, 150), max_size=4), st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_state_depends_on_the_rows_alone(problem, bins, cuts, seed):
    scores, labels = problem
    order = np.random.default_rng(seed).permutation(len(scores))
    whole = streamed(scores, labels, bins)
    assert state(streamed(scores[order], labels[order], bins, cuts)) == state(whole)
    parts = [streamed(scores[p], labels[p], bins) for p in np.split(order, sorted(cuts))]
    left = parts[0]
    for part in parts[1:]:
        left = left + part
    right = StreamingMacroAUC(scores.shape[1], bins=bins)
    for part in reversed(parts):
        right.merge(part)
    assert state(left) == state(right) == state(whole)
    assert left.rows == right.rows == len(scores)


@given(problems(), st.integers(2, 40))
@settings(deadline=None, max_examples=60)
def test_error_is_within_the_bound(problem, bins):
    scores, labels = problem
    metric = streamed(scores, labels, bins)
    exact = macro_auc(scores, labels, average=None)
    got, bound = metric.compute(average=None), metric.error_bound(average=None)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    defined = ~np.isnan(exact)
    assert (np.abs(got - exact)[defined] <= bound[defined] + 1e-15).all()
    for column in range(scores.shape[1]):
        kinds = [len(np.unique(scores[labels[:, column] == label, column])) for label in (0, 1)]
        if defined[column] and max(kinds) <= bins:  # nothing was joined, so nothing may be lost
            assert got[column] == exact[column]
            assert bound[column] == 0
    if defined.any():
        assert metric.compute() == pytest.approx(got[defined].mean())
        assert metric.error_bound() == pytest.approx(bound[defined].mean())
    else:
        assert np.isnan(metric.compute())


@given(problems(), st.integers(2, 40))
@settings(deadline=None, max_examples=40)
def test_level_is_the_least_that_fits(problem, bins):
    scores, labels = problem
    metric = streamed(scores, labels, bins)
    metric.compute()
    for column, held in enumerate(metric._held):
        sides = [np.sort(scores[labels[:, column] == label, column]) for label in (1, 0)]
        keys = [[int(key) for key in ordered_keys(side)] for side in sides]

        def fits(level, keys=keys):
            return all(len({key >> level for key in side}) <= bins for side in keys)

        assert fits(held.level)
        assert held.level == 0 or not fits(held.level - 1)
        for side, tally in zip(keys, (held.positive, held.negative), strict=True):
            wanted = {}
            for key in side:
                wanted[key >> held.level] = wanted.get(key >> held.level, 0) + 1
            assert dict(zip(tally.keys.tolist(), tally.counts.tolist(), strict=True)) == wanted


def test_keys_are_in_the_order_of_the_scores():
    points = [0.0, 5e-324, 1e-300, 0.25, 0.5, 0.75, 1.0, 2.0, 1e9, LARGEST]
    near = [np.nextafter(p, towards) for p in points for towards in (-np.inf, np.inf) if p < LARGEST]
    values = np.array(sorted({s * v for s in (1, -1) for v in (*points, *near)}))
    keys = ordered_keys(values).tolist()
    assert all(a < b for a, b in itertools.pairwise(keys))
    assert ordered_keys(np.array([-0.0, 0.0])).tolist() == [0, 0]


@given(st.lists(st.floats(-1.5, 1.5), min_size=1, max_size=50))
@settings(deadline=None, max_examples=60)
def test_keys_tell_any_two_doubles_apart(values):
    ordered = np.sort(np.array(values))
    keys = ordered_keys(ordered)
    np.testing.assert_array_equal(keys[1:] > keys[:-1], ordered[1:] > ordered[:-1])
    assert (keys[1:] >= keys[:-1]).all()


@given(st.lists(st.integers(-1000, 1000), max_size=60), st.integers(2, 10))
@settings(deadline=None, max_examples=60)
def test_levels_to_fit_tries_every_level(numbers, bins):
    keys = np.unique(np.array(numbers, dtype=np.int64))
    tally = Tally(keys, np.ones_like(keys))
    wanted = next(level for level in range(64) if len(np.unique(keys >> level)) <= bins)
    assert tally.levels_to_fit(bins) == wanted
    assert len(tally.coarser(wanted).keys) <= bins


@pytest.mark.parametrize(
    "squash",
    [
        lambda z: z,
        lambda z: 2 * z - 6,
        lambda z: 1 / (1 + np.exp(-z)),
        lambda z: 1 / (1 + np.exp(-2 * z - 6)),
        lambda z: 1 / (1 + np.exp(-20 * z)),
        lambda z: z + 1000,
        lambda z: z * 1e30,
        lambda z: np.tanh(3 * z),
        lambda z: np.where(np.arange(z.size).reshape(z.shape) % 9999 == 0, z * 1e9, z),
    ],
    ids=["logits", "rare", "sigmoid", "near 1", "saturated", "offset", "huge", "tanh", "outliers"],
)
def test_error_is_small_whatever_the_range(squash):
    rng = np.random.default_rng(5)
    labels = (rng.random((30_000, 4)) < [0.3, 0.05, 0.01, 0.003]).astype(np.uint8)
    scores = squash(rng.normal(size=labels.shape) + 1.5 * labels).astype(np.float32)
    metric = streamed(scores, labels, 4096, cuts=range(700, 30_000, 700))
    assert max(len(side.keys) for h in metric._held for side in (h.positive, h.negative)) <= 4096
    assert np.abs(metric.compute(average=None) - macro_auc(scores, labels, average=None)).max() < 1e-4
    assert metric.error_bound() < 1e-3


def test_scores_saturated_at_one_leave_the_bound_small():
    rng = np.random.default_rng(1)
    scores = np.where(rng.random((4000, 1)) < 0.5, 1.0, rng.random((4000, 1)))
    labels = rng.random((4000, 1)) < 0.3
    assert streamed(scores, labels, 1000).error_bound() < 1e-3  # a quarter of all pairs are tied at 1


@given(problems(), st.integers(0, 99), st.integers(0, 150))
@settings(deadline=None, max_examples=40)
def test_mask_leaves_entries_out(problem, seed, cut):
    scores, labels = problem
    mask = np.random.default_rng(seed).random(scores.shape) < 0.7
    hidden = np.where(mask, scores, np.nan)
    metric = streamed(hidden, labels, 200, [cut], mask)
    np.testing.assert_array_equal(
        metric.compute(average=None), macro_auc(hidden, labels, average=None, mask=mask)
    )
    metric.update(scores, labels)  # rows with and without a mask together
    both = np.concatenate([hidden, scores]), np.concatenate([labels, labels])
    every = np.concatenate([mask, np.ones_like(mask)])
    np.testing.assert_allclose(
        metric.compute(average=None), macro_auc(*both, average=None, mask=every), atol=1e-15
    )


def test_caller_may_use_the_arrays_again():
    scores, labels = np.array([[1.0], [2.0], [3.0]]), np.array([[0], [1], [0]], dtype=np.uint8)
    metric = StreamingMacroAUC(1).update(scores, labels)
    scores[:], labels[:] = 0, 1
    assert metric.compute() == 0.5


def test_reset_pickle_and_self_merge():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(100, 2)), rng.random((100, 2)) < 0.5
    metric = streamed(scores, labels, 30)
    assert state(pickle.loads(pickle.dumps(metric))) == state(metric)
    twice = streamed(np.concatenate([scores, scores]), np.concatenate([labels, labels]), 30)
    assert state(metric.merge(metric)) == state(twice)
    assert np.isnan(metric.reset().compute())
    assert metric.rows == 0


def test_large_update_is_cut_into_pieces():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(2000, 2)), rng.random((2000, 2)) < 0.5
    assert state(streamed(scores, labels, 16)) == state(streamed(scores, labels, 16, range(0, 2000, 7)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StreamingMacroAUC(0), "classes is 0; expected a whole number of at least 1"),
        (lambda: StreamingMacroAUC(2, bins=1), "bins is 1; expected a whole number of at least 2"),
        (lambda: StreamingMacroAUC(2, bins=2.5), "bins is 2.5"),
        (lambda: StreamingMacroAUC(2).update([[1.0]], [[1]]), "scores has 1 columns, but 2 were expected"),
        (lambda: StreamingMacroAUC(1).update([[np.nan]], [[1]]), "finite numbers were expected"),
        (
            lambda: StreamingMacroAUC(1).update([[1e300]], [[1]]),
            "scores has the value 1e\\+300 at row .*, but magnitudes",
        ),
        (lambda: StreamingMacroAUC(1).compute(average="micro"), "average is 'micro'"),
        (lambda: StreamingMacroAUC(1).merge(StreamingMacroAUC(2)), "the other metric has 2 classes and 8192"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_only_metrics_add():
    with pytest.raises(TypeError):
        StreamingMacroAUC(1) + 3


def test_histogram_without_a_sign_has_no_auc():
    assert np.isnan(Histogram.of(np.array([1.0, 2.0]), np.array([True, True])).auc()).all()
