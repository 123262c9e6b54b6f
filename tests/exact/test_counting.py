"""Counting in place against `Sums.of` on all rows at once; parts against each other in any cut and order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.exact import Sums, fit_map
from mlcl.exact.counting import Counter
from mlcl.exact.parts import Part

NAMES = ("ant", "bee", "cat", "dog", "elk")


def pairs(marks):
    return tuple(np.nonzero(marks)[i].astype(np.int64) for i in (0, 1))


def counted(features, rows, positive, annotated, everything, *, step, **kept):
    """Count rows in batches; ``everything`` marks rows that were annotated for all labels."""
    counter = Counter(features, **kept)
    for start in range(0, len(rows), step):
        piece = slice(start, start + step)
        some = ~everything[piece]
        listed = [pairs(annotated[piece] & some[:, None])]
        bare = np.flatnonzero(some & ~annotated[piece].any(1))
        listed.append((bare, np.full(len(bare), -1)))
        known = tuple(np.concatenate([one[i] for one in listed]) for i in (0, 1))
        counter.add(rows[piece], pairs(positive[piece]), NAMES, known)
    return counter.part()


def equal(part, sums):
    """Whether a part and sums over all of `NAMES` and the rest have the same moments."""
    for k, name in enumerate((*NAMES, None)):
        own = len(part.names) if name is None or name not in part.names else part.names.index(name)
        for mine, theirs in (
            (part.sums.annotated_for(own), sums.annotated_for(k)),
            (part.sums.positive[own], sums.positive[k]),
            (part.sums.total, sums.total),
        ):
            assert mine.count == theirs.count
            np.testing.assert_allclose(mine.sum, theirs.sum, atol=1e-10)
            np.testing.assert_allclose(mine.second, theirs.second, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 60),
    d=st.sampled_from([1, 3, 24]),
    step=st.integers(1, 30),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    form=st.sampled_from(["full", "shared", "lead"]),
)
def test_batches_and_parts_equal_all_rows_at_once(seed, n, d, step, share, form):
    rng = np.random.default_rng(seed)
    rows = rng.normal(1, 1, (n, d))
    everything = rng.random(n) >= share
    annotated = (rng.random((n, 5)) < 0.6) | everything[:, None]
    positive = (rng.random((n, 5)) < 0.3) & annotated
    features = fit_map(rows[:5])
    kept = {
        "shared": form != "full",
        "lead": rng.normal(size=(24, 2)) if form == "lead" and d == 24 else None,
    }
    rest = np.hstack([annotated, everything[:, None]])
    whole = Sums.of(features(rows), np.hstack([positive, np.zeros((n, 1), bool)]), rest, **kept)
    part = counted(features, rows, positive, annotated, everything, step=step, **kept)
    equal(part, whole)
    cut = int(rng.integers(0, n + 1))
    both = [
        counted(features, rows[p], positive[p], annotated[p], everything[p], step=step, **kept)
        for p in (slice(cut), slice(cut, None))
    ]
    equal(both[0] + both[1], whole)
    equal(both[1] + both[0], whole)
    equal(Part.from_arrays(part.names, part.arrays()), whole)
    assert (whole.lead is not None) == (form == "lead" and d == 24)


def test_a_tag_given_twice_counts_once():
    counter = Counter(fit_map(np.eye(2)))
    counter.add(np.eye(2), (np.array([1, 1, 0]), np.array([0, 0, 0])), ["cat"])
    assert counter.part().sums.positive[0].count == 2


def test_arrays_of_other_labels_are_refused():
    part = Part(("cat",), Sums.of(np.ones((2, 1)), np.array([[True, False], [False, False]])))
    with pytest.raises(InputError, match="expected 2 and the rest"):
        Part.from_arrays(("cat", "dog"), part.arrays())
    rest = Part((), Sums.of(np.ones((2, 1)), np.array([[True], [False]])))
    with pytest.raises(InputError, match="the rest"):
        Part.from_arrays((), rest.arrays())


def test_with_many_labels_leading_directions_are_given_up(monkeypatch):
    """In whichever batch or part there are too many: the sums are those without such directions."""
    monkeypatch.setattr("mlcl.exact.counting.MANY", 3)
    rng = np.random.default_rng(0)
    rows, positive, lead = rng.normal(size=(20, 5)), rng.random((20, 5)) < 0.3, rng.normal(size=(5, 2))
    positive[:10, 3:] = False
    everything, features = np.ones(20, bool), fit_map(rows)
    short, long = (
        counted(features, rows, positive, ~positive, everything, step=5, shared=True, lead=one)
        for one in (None, lead)
    )
    assert long.sums.lead is None
    equal(long, Sums.of(features(rows), np.hstack([positive, everything[:, None] & False]), shared=True))
    first = counted(
        features, rows[:10], positive[:10], positive[:10], everything[:10], step=5, shared=True, lead=lead
    )
    assert first.sums.lead is not None
    assert (first + long).sums.lead is None
    assert len(short.names) == 5
