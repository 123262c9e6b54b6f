"""Sums as arrays: the same after reading, and refused where they do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from mlcl.errors import InputError
from mlcl.exact import Sums
from mlcl.exact.storing import read_sums, sums_arrays


def problem(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(30, 3)), rng.random((30, 4)) < 0.4, rng.random((30, 4)) < 0.6


def test_saved_sums_are_the_same():
    rows, labels, known = problem(3)
    labels[:, 1] = False
    sums = Sums.of(rows, labels, known)
    arrays = sums_arrays(sums)
    again = read_sums(arrays)
    assert again.block_of == sums.block_of
    pairs = zip(
        (sums.total, *sums.annotated, *sums.positive),
        (again.total, *again.annotated, *again.positive),
        strict=True,
    )
    for one, other in pairs:
        assert one.count == other.count
        assert np.array_equal(one.sum, other.sum)
        assert np.array_equal(one.second, other.second)
    assert len(arrays["sums"]) == 1 + len(sums.annotated) + 3  # the class without positives takes no space


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("counts", lambda a: a[:-1]),
        ("counts", lambda a: -a),
        ("places", lambda a: a + 1),
        ("places", lambda a: a - 1),
        ("places", lambda a: a[1:]),
        ("sums", lambda a: a[:, :-1]),
        ("sums", lambda a: a * np.nan),
        ("seconds", lambda a: a.astype(np.float32)),
        ("block_of", lambda a: a + 1),
        ("block_of", lambda a: a[:, None]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, change):
    arrays = sums_arrays(Sums.of(*problem(4)))
    with pytest.raises(InputError, match="do not fit"):
        read_sums({**arrays, name: change(arrays[name])})


def test_more_positives_than_rows_are_refused():
    arrays = sums_arrays(Sums.of(*problem(4)))
    with pytest.raises(InputError, match="more positives of class 0 than rows"):
        read_sums(
            {**arrays, "counts": np.ones_like(arrays["counts"]) * np.arange(1, len(arrays["counts"]) + 1)}
        )


@pytest.mark.parametrize(
    "lead", [np.ones((3, 2)), np.ones((2, 1)), np.full((3, 1), np.nan), np.ones(3), np.ones((3, 0))]
)
def test_leading_directions_that_do_not_fit_are_refused(lead):
    rows, labels, _ = problem(4)
    arrays = sums_arrays(Sums.of(rows, labels, shared=True, lead=np.eye(3, 1)))
    assert read_sums(arrays).lead.shape == (3, 1)
    for changed in ({**arrays, "lead": lead}, {name: one for name, one in arrays.items() if name != "lead"}):
        with pytest.raises(InputError, match="do not fit"):
            read_sums(changed)
