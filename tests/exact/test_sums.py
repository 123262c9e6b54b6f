"""Sums by class against moments of the rows themselves, chosen by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from mlcl.errors import InputError
from mlcl.exact import Moments, Sums
from mlcl.exact.moments import unpack
from mlcl.exact.storing import read_sums, sums_arrays


def problem(seed, *, n=30, d=3, classes=4, patterns=None):
    rng = np.random.default_rng(seed)
    known = rng.random((n, classes)) < 0.6
    if patterns is not None:
        known = known[rng.integers(0, patterns, n)]
    return rng.normal(size=(n, d)), rng.random((n, classes)) < 0.4, known


def same(found, rows):
    expected = Moments.of(rows)
    assert found.count == expected.count
    np.testing.assert_allclose(found.sum, expected.sum, atol=1e-11)
    np.testing.assert_allclose(found.second, expected.second, atol=1e-11)


def check(sums, rows, labels, known):
    same(sums.total, rows)
    for k in range(labels.shape[1]):
        same(sums.annotated_for(k), rows[known[:, k]])
        same(sums.positive[k], rows[known[:, k] & labels[:, k]])


@given(st.integers(0, 10**6), st.sampled_from([None, 1, 2, 3]), st.integers(0, 30))
def test_every_class_has_the_moments_of_its_rows(seed, patterns, cut):
    rows, labels, known = problem(seed, patterns=patterns)
    check(Sums.of(rows, labels, known), rows, labels, known)
    parts = [Sums.of(rows[part], labels[part], known[part]) for part in (slice(cut), slice(cut, None))]
    check(parts[0] + parts[1], rows, labels, known)
    left = (parts[1] + parts[0]).without(parts[1])
    check(left, rows[:cut], labels[:cut], known[:cut])


def test_classes_that_are_annotated_together_share_their_moments():
    rows, labels, _ = problem(0)
    first, second = Sums.of(rows[:10], labels[:10, :3]), Sums.of(rows[10:], labels[10:, 3:])
    sums = first.grown(4) + second.placed([3], 4)
    assert sums.block_of == (0, 0, 0, 1)
    known = np.zeros((30, 4), bool)
    known[:10, :3] = known[10:, 3] = True
    check(sums, rows, labels, known)
    more = sums + Sums.of(rows[:5], labels[:5, [2, 0]]).placed([2, 0], 4)  # now class 1 differs from 0 and 2
    assert more.block_of == (0, 1, 0, 2)
    assert more.annotated_for(0).count == 15
    assert more.annotated_for(1).count == 10


def test_the_negatives_of_a_class():
    rows, labels, known = problem(1)
    sums = Sums.of(rows, labels, known)
    for u in (0.0, 0.3, 1.0):
        positive, negative = sums.sides(2, u)
        weights = np.where(known[:, 2], ~labels[:, 2], u)
        expected = Moments.of(rows, weights.astype(float))
        assert negative.count == pytest.approx(expected.count)
        np.testing.assert_allclose(negative.second, expected.second, atol=1e-11)
        same(positive, rows[known[:, 2] & labels[:, 2]])


def test_a_removed_class_leaves_the_others():
    rows, labels, known = problem(2)
    keep = [0, 2, 3]
    removed = Sums.of(rows, labels, known).removed(1)
    check(removed, rows, labels[:, keep], known[:, keep])
    assert sorted(set(removed.block_of)) == list(range(len(removed.annotated)))


def test_rows_that_were_not_learnt_so_are_refused():
    rows, labels, known = problem(5)
    known[:] = True
    sums = Sums.of(rows, labels)
    flipped = labels.copy()
    flipped[:, 1] = True
    with pytest.raises(InputError, match="rows positive for 'b'"):
        sums.without(Sums.of(rows, flipped), ["a", "b", "c", "d"])
    with pytest.raises(InputError, match=r"rows: .*nothing was changed"):
        sums.without(Sums.of(100 + rows[:2], labels[:2]))
    with pytest.raises(InputError, match="more positives than rows"):
        # All rows again, but as rows that have no positive.
        sums.without(Sums.of(rows, labels & False))
    with pytest.raises(InputError, match="do not go with"):
        sums + Sums.zeros(3, 5)


def test_the_size_counts_what_is_shared_once():
    rows, labels, _ = problem(6)
    one = Moments.zeros(3).nbytes
    assert Sums.of(rows, labels).nbytes == (1 + 4) * one  # all rows are annotated: the total serves
    assert Sums.zeros(3, 4).nbytes == 0
    twice = Sums.of(rows, labels) + Sums.of(rows, labels)
    assert twice.nbytes == read_sums(sums_arrays(twice)).nbytes == (1 + 4) * one
    other = twice + Sums.of(rows, labels[:, :2]).placed([0, 1], 4)  # two classes were not annotated now
    assert other.nbytes == (1 + 1 + 4) * one
    check(Sums.of(rows, labels) + Sums.zeros(3, 4), rows, labels, np.ones_like(labels))


def test_counts_are_those_of_the_sides():
    rng = np.random.default_rng(0)
    rows, labels, known = rng.normal(size=(40, 3)), rng.random((40, 5)) < 0.4, rng.random((40, 5)) < 0.6
    labels[:, 3], known[:, 4] = True, True
    for sums in (Sums.of(rows, labels, known, rng.random(40)), Sums.of(rows, labels), Sums.zeros(3, 5)):
        for u in (0.0, 0.3, 1.0):
            expected = [[side.count for side in sums.sides(k, u)] for k in range(5)]
            np.testing.assert_allclose(np.transpose(sums.counts(u)), expected, rtol=1e-12)


@given(st.integers(0, 10**6), st.sampled_from([0, 1, 3]), st.booleans())
@settings(max_examples=30)
def test_the_shared_form_is_the_diagonal_of_the_full_one(seed, ids, weighted):
    """In all that is done with sums: add, place, forget, remove, save; with known cells, weights and any scale."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(60, 3)) * [1.0, 1e5, 1e-4]
    labels, known = rng.random((60, 4)) < 0.4, rng.random((60, 4)) < 0.7
    weights = rng.random(60) + 0.5 if weighted else None
    done = []
    lead = rng.normal(size=(3, 1))
    for kept in ({}, {"shared": True}, {"shared": True, "lead": lead}):
        parts = [
            Sums.of(rows[p], labels[p], known[p], None if weights is None else weights[p], **kept)
            for p in (slice(0, 20), slice(20, 50), slice(50, 60))
        ]
        sums = (parts[2] + parts[0] + parts[1]).without(parts[0]).grown(6).removed(ids)
        done.append(read_sums(sums_arrays(sums + sums.placed([4, 2, 0, 1, 3], 5))))
    full, short, longer = done
    assert longer.alike(parts[0])
    for one, other in zip(full.positive, longer.positive, strict=True):
        whole = lead.T @ unpack(one.second) @ lead
        found = other.second[3:] if other.count else np.zeros(1)
        assert found[0] == pytest.approx(
            whole[0, 0], rel=1e-9, abs=1e-9 * one.squares.sum() * (lead**2).sum()
        )
    short = longer.as_shared() if weighted else short
    diagonal, shift = np.diag([2.0, 3.0, 0.5]), np.full(3, 1e-3)
    there, moved = full.mapped(diagonal, shift).as_shared(), short.mapped(diagonal, shift)
    assert short.shared
    assert not full.shared
    check = full.as_shared()
    assert (check.block_of, check.total.count) == (short.block_of, short.total.count)
    for one, other in zip(
        (*check.annotated, *check.positive), (*short.annotated, *short.positive), strict=True
    ):
        assert one.count == pytest.approx(other.count)
        np.testing.assert_allclose(one.sum, other.sum, rtol=1e-9, atol=1e-9 * np.abs(one.sum).max(initial=0))
        np.testing.assert_allclose(
            one.second, other.second, rtol=1e-9, atol=1e-9 * np.abs(one.second).max(initial=0)
        )
    for one, other in zip(there.positive, moved.positive, strict=True):
        size = 1e-9 * one.mean_squares.max(initial=0)
        np.testing.assert_allclose(one.mean, other.mean, atol=size**0.5 * 1e-4)
        np.testing.assert_allclose(one.variances, other.variances, rtol=1e-6, atol=size)


def test_a_sparse_matrix_of_labels_gives_the_same_sums():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(40, 3)), rng.random((40, 50)) < 0.05
    for shared in (False, True):
        dense, found = (Sums.of(rows, one, shared=shared) for one in (labels, sparse.csr_matrix(labels)))
        for one, other in zip(dense.positive, found.positive, strict=True):
            assert one.count == other.count
            np.testing.assert_allclose(one.second, other.second)


def test_sums_of_unlike_forms_keep_what_both_have(monkeypatch):
    rng = np.random.default_rng(0)
    rows, labels, lead = rng.normal(size=(40, 5)), rng.random((40, 3)) < 0.5, rng.normal(size=(5, 2))
    long, other = (Sums.of(rows, labels, shared=True, lead=one) for one in (lead, 2 * lead))
    short = Sums.of(rows, labels, shared=True)
    for sums in (long + other, long + short, short + long, (long + short).without(long)):
        assert sums.lead is None
        assert all(len(one.second) == 5 for one in sums.positive)
    assert (long + Sums.of(rows, labels, shared=True, lead=lead.copy())).lead is not None
    monkeypatch.setattr("mlcl.exact.sums.MANY", 2)
    assert (long + long).lead is None
    assert Sums.of(rows, labels, shared=True, lead=lead).lead is None
