"""Values that would cost the sums their digits are refused, and so is forgetting of which too few would be left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.exact import Learner, Options, fit_map, solve
from mlcl.exact.counting import Counter
from mlcl.exact.digits import HALF, Seen, first_over, usual
from mlcl.exact.features import squares_of
from mlcl.exact.moments import Moments
from mlcl.exact.sums import Sums
from mlcl.sklearn import ExactTagger

NODATA = -3.4028234663852886e38


def problem(n=400, d=8, k=3, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random((n, k)) < 0.3).astype(np.uint8)
    x = rng.normal(size=(n, d))
    x[:, :k] += 2.0 * y
    return x, y


def bits(learner):
    return {name: value.tobytes() for name, value in learner.arrays().items()}


def unchecked(x, y, more):
    """A learner as version 0.1 left it: with rows that would be refused now."""
    before = Learner.begin(x).learn(x, y, range(y.shape[1]))
    huge = Sums.of(before.features(more), np.ones((len(more), y.shape[1]), np.bool_))
    return before, Learner(before.features, before.sums + huge)


def test_a_huge_row_is_refused_and_nothing_changes():
    x, y = problem()
    tagger = ExactTagger().partial_fit(x, y)
    before, score = bits(tagger.learner_), tagger.score(x, y)
    for row in (np.full((1, 8), 1e10), np.where(np.arange(8) == 5, NODATA, x[:1])):
        with pytest.raises(InputError, match=r"at row 0, column \d, where other values are about 1\.?\d*"):
            tagger.partial_fit(row, y[:1])
    assert bits(tagger.learner_) == before
    assert tagger.score(x, y) == score


def test_forgetting_what_took_the_digits_is_refused_and_nothing_changes():
    x, y = problem()
    huge = np.full((1, 8), 1e10)
    _, learner = unchecked(x, y, huge)
    before = bits(learner)
    with pytest.raises(
        InputError, match=r"too few digits are left.* must be learnt anew.*nothing was changed"
    ):
        learner.forget(huge, np.ones((1, 3), np.uint8), range(3))
    assert bits(learner) == before


def test_digits_lost_earlier_are_remembered_also_by_a_file():
    x, y = problem(d=2, k=1)
    learner = Learner.begin(x).learn(x, y, [0])
    steps = [np.full((1, 2), size) for size in (1.5e5, 1.0)]
    for row in steps:
        learner = learner.learn(row, np.zeros((1, 1)), [0])
    learner = learner.forget(steps[0], np.zeros((1, 1)), [0])  # half the digits are left, and no more may go
    again = Learner.from_arrays(learner.arrays())
    for one in (learner, again):
        assert one.sums.total.peaks.min() > 2e10
        with pytest.raises(InputError, match="too few digits are left"):
            one.forget(x[20:], y[20:], [0])


def test_a_class_of_few_rows_is_checked_by_itself():
    x, y = problem(n=4000, d=2, k=1)
    y[:] = 0
    y[:3] = 1
    row, mark = np.full((1, 2), 1e5), np.ones((1, 1))
    learner = Learner.begin(x).learn(x, y, [0]).learn(row, mark, [0])
    with pytest.raises(InputError, match="rows positive for 'cat': too few digits are left"):
        learner.forget(row, mark, [0], names=["cat"])
    assert learner.remove(0).sums.total.count == 4001


@pytest.mark.parametrize("share", [0.002, 0.1, 0.6])
@pytest.mark.parametrize("everywhere", [False, True], ids=["one column", "all columns"])
@pytest.mark.parametrize("dimensions", [None, 4])
def test_nodata_in_the_first_rows(share, everywhere, dimensions):
    x, y = problem(n=1000)
    hit = np.random.default_rng(1).random(1000) < share
    hit[417] = True
    x[hit] = np.where(np.full(8, everywhere) | (np.arange(8) == 3), NODATA, x[hit])
    first, column = int(np.flatnonzero(hit)[0]), 0 if everywhere else 3
    with pytest.raises(InputError, match=rf"-3\.40282e\+38 at row {first}, column {column}.*NoData"):
        ExactTagger(dimensions=dimensions).partial_fit(x, y)


@pytest.mark.parametrize("scale", [1e16, 1e-16])
@pytest.mark.parametrize("dimensions", [None, 4])
def test_scales_that_cannot_be_solved_together_are_refused(scale, dimensions):
    x, y = problem()
    x[:, 7] *= scale
    with pytest.raises(
        InputError, match=r"column \d varies by .* and column \d by .* in units that differ less"
    ):
        ExactTagger(dimensions=dimensions).partial_fit(x, y)


def test_columns_of_very_different_scales_rank_as_if_standardised():
    x, y = problem()
    scales = np.array([1e-6, 1.0, 1e6, 1.0, 1e6, 1.0, 1e-6, 1.0])
    plain, scaled = (ExactTagger(exponent=1.0).fit(one, y) for one in (x, x * scales))
    np.testing.assert_allclose(plain.decision_function(x), scaled.decision_function(x * scales), rtol=1e-6)


DRAWS = {
    "cauchy": lambda rng, n: rng.standard_cauchy((n, 6)),
    "log-normal": lambda rng, n: np.exp(3 * rng.normal(size=(n, 6))),
    "softmax": lambda rng, n: (lambda z: z / z.sum(1, keepdims=True))(np.exp(4 * rng.normal(size=(n, 200)))),
    "rare and large": lambda rng, n: np.column_stack([rng.normal(size=(n, 3)), 1e6 * (rng.random(n) < 0.01)]),
    "words": lambda rng, n: rng.poisson(0.02, (n, 100)).astype(float),
    "far from 0": lambda rng, n: 1e6 + rng.normal(size=(n, 6)),
    "constant": lambda rng, n: np.column_stack([rng.normal(size=(n, 3)), np.full(n, 0.1) * 3]),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=list(DRAWS))
@pytest.mark.parametrize("cut", [2, 30, 2000])
def test_heavy_tails_and_rare_values_are_accepted(draw, cut):
    rng = np.random.default_rng(0)
    x, y = draw(rng, 2000), problem(2000)[1]
    tagger = ExactTagger(dimensions=64 if x.shape[1] > 100 and cut > 64 else None)
    for start in range(0, 2000, cut) if cut > 2 else (0, *range(2, 60)):
        stop = start + (cut if cut > 2 else 1 + (start == 0))
        tagger.partial_fit(x[start:stop], y[start:stop], classes=[0, 1, 2])
    assert np.isfinite(tagger.coef_).all()


@pytest.mark.parametrize(
    ("first", "then", "sentence"),
    [
        ([1.0, 1e30, 1.0], None, r"sample_weight is 1e\+30 at row 1 and 1 at row 0"),
        ([1e30, 1e30, 1e30], [1.0, 1.0, 1.0], r"sample_weight is 1 at row 0, and 3e\+30 of all rows before"),
        ([1e30, 1e30, 1e30], None, None),
        ([1.0, 1.0, 1.0], [1e30, 1e30, 1e30], r"sample_weight is 1e\+30 at row 0, and 3 of all rows before"),
        ([1.0, 0.0, 1e6], [1e-3, 0.0, 1.0], None),
    ],
)
def test_light_rows_beside_heavy_ones(first, then, sentence):
    x, y = problem(n=6)
    tagger = ExactTagger()

    def both():
        tagger.partial_fit(x[:3], y[:3], sample_weight=first)
        if then is not None:
            tagger.partial_fit(x[3:], y[3:], sample_weight=then)

    if sentence is None:
        both()
        return
    with pytest.raises(InputError, match=sentence):
        both()
    assert not hasattr(tagger, "learner_") or tagger.learner_.sums.total.count == sum(first)


def test_rows_without_weights_beside_heavy_ones():
    x, y = problem(n=6)
    tagger = ExactTagger().partial_fit(x[:3], y[:3], sample_weight=[1e30] * 3)
    with pytest.raises(InputError, match="of the lighter rows too few digits would be left"):
        tagger.partial_fit(x[3:], y[3:])


def test_merging_with_rows_of_another_scale_is_refused():
    x, y = problem()
    tagger, other = ExactTagger(dimensions=None).fit(x, y), ExactTagger(dimensions=None)
    other.fit(1e9 * x[:20], y[:20])
    before = bits(tagger.learner_)
    with pytest.raises(InputError, match=r"the 20 rows of one part are about .* and the 400 of the other"):
        tagger.merge(other)
    assert bits(tagger.learner_) == before
    tagger.merge(ExactTagger(dimensions=None).fit(1e3 * x[:20], y[:20]))


def test_a_part_is_judged_by_the_first_rows_whatever_its_own():
    x, _ = problem()
    features = fit_map(x, dimensions=None)
    seen = Seen(squares_of(features, x), float(len(x)))
    tags = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    Counter(features, seen).add(30.0 * x[:5], tags, [])
    counter, rows = Counter(features, seen), np.where(np.arange(40).reshape(5, 8) == 20, 1e9, x[:5])
    with pytest.raises(InputError, match=r"a\.parquet contains .* at row 702, column 4"):
        counter.add(rows, tags, [], start=700, where="a.parquet")


def test_the_first_value_over_the_limit_is_the_oracles():
    """By brute force: a value is an outlier beside the exact sum of the squares before it."""
    rng = np.random.default_rng(3)
    before = rng.normal(size=(2000, 3))
    seen = Seen((before**2).sum(0), 2000.0)
    for size in np.logspace(3, 8, 40):
        rows = rng.normal(size=(5, 3))
        rows[3, 1] = size
        found = first_over(lambda piece, k, rows=rows: rows[piece][:, k], 5, (rows**2).sum(0), seen, width=3)
        expected = size**2 > HALF * np.sum(before[:, 1].astype(np.longdouble) ** 2)
        assert (found is not None) == bool(expected)
        assert found is None or found[:2] == (3, 1)


def test_outliers_are_left_out_of_what_is_usual():
    rows = np.random.default_rng(0).normal(size=(50, 2))
    rows[:20, 0] = 1e12
    np.testing.assert_allclose(usual(rows), [(rows[20:, 0] ** 2).sum(), (rows[:, 1] ** 2).sum()])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    scales=st.lists(st.floats(-6, 6), min_size=4, max_size=4),
    size=st.floats(0, 12),
    count=st.integers(1, 5),
)
def test_accepted_rows_can_be_forgotten(seed, scales, size, count):
    """Weights are those of never having seen the rows, or learning or forgetting refuses and no bit changes."""
    rng = np.random.default_rng(seed)
    x, y = problem(n=300, d=4, k=2, seed=seed)
    factor = 10.0 ** np.array(scales)
    more, marks = (
        rng.normal(size=(count, 4)) * 10.0**size * factor,
        (rng.random((count, 2)) < 0.5).astype(np.uint8),
    )
    learner = Learner.begin(x * factor).learn(x * factor, y, range(2))
    before = bits(learner)
    try:
        learnt = learner.learn(more, marks, range(2))
        held = bits(learnt)
        try:
            after = learnt.forget(more, marks, range(2))
        except InputError as error:
            assert "too few digits" in str(error)
            assert bits(learnt) == held
            return
    except InputError as error:
        assert "more than half of their digits" in str(error)
        assert bits(learner) == before
        assert size > 3
        return
    options = Options(ridge=0.1, exponent=1.0)
    expected, found = solve(learner, options).weights * factor, solve(after, options).weights * factor
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def test_forgetting_is_compared_with_more_digits():
    """What is left of the sums after a large accepted row, beside sums in extended precision."""
    x, y = problem(d=3)
    rows = np.random.default_rng(1).normal(size=(2, 3)) * 1e4
    learner = Learner.begin(x).learn(x, y, range(3))
    after = learner.learn(rows, y[:2] * 0, range(3)).forget(rows, y[:2] * 0, range(3))
    z = learner.features(x).astype(np.longdouble)
    np.testing.assert_allclose(after.sums.total.squares, (z**2).sum(0).astype(float), rtol=HALF * 2.0**-52)


def test_columns_of_which_rounding_is_left_are_constant():
    rows = np.array([[0.3, 1.0], [0.7, 2.0], [0.1, -1.0]])
    rest = Moments.of(np.array([[0.0, 1.0], [0.0, -1.0], [0.0, 3.0]]))
    found = rest + Moments.of(rows[:1]) + Moments.of(rows[1:2]) + Moments.of(rows[2:])
    for row in (0, 2, 1):
        found = found.without(Moments.of(rows[row : row + 1]))
    assert found.variances[0] == 0.0
    assert found.variances[1] > 0
