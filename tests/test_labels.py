"""Label matrices against explicit loops and numpy's own unique."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mlcl.errors import InputError
from mlcl.labels import LabelCounts, Patterns, as_labels, describe

matrices = hnp.arrays(
    np.uint8,
    st.tuples(st.integers(1, 12), st.integers(1, 70)),
    elements=st.integers(0, 1),
)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float16, np.float32, np.float64])
def test_as_labels_accepts_every_kind_of_zero_and_one(dtype):
    matrix = np.array([[0, 1, 1], [1, 0, 0]], dtype=dtype)
    labels = as_labels(matrix)
    assert labels.dtype == np.uint8
    assert labels.tolist() == [[0, 1, 1], [1, 0, 0]]


def test_as_labels_does_not_copy_uint8():
    matrix = np.zeros((3, 2), dtype=np.uint8)
    assert np.shares_memory(as_labels(matrix), matrix)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_as_labels_accepts_empty_matrices(shape):
    assert as_labels(np.zeros(shape)).shape == shape


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], r"y has shape \(2,\), but a matrix"),
        (np.zeros((2, 2, 2)), r"y has shape \(2, 2, 2\)"),
        ([[0, 1], [1]], "y is not a matrix"),
        ([["a", "b"]], "y has dtype"),
        ([[0, 1], [0, -1]], "value -1 at row 1, column 1"),
        ([[0.0, 0.5], [2.0, 0.0]], "value 0.5 at row 0, column 1"),
        ([[0.0, np.nan]], "value nan at row 0, column 1"),
        ([[0.0], [np.inf]], "value inf at row 1, column 0"),
    ],
)
def test_as_labels_says_what_is_wrong(labels, message):
    with pytest.raises(InputError, match=message):
        as_labels(labels, name="y")


def test_as_labels_checks_the_rows():
    with pytest.raises(InputError, match="labels has 2 rows, but 3 were expected"):
        as_labels([[0], [1]], rows=3)
    assert as_labels([[0], [1]], rows=2).shape == (2, 1)


@settings(deadline=None, max_examples=40)
@given(matrices)
def test_counts_equal_a_loop(matrix):
    counts = LabelCounts.of(matrix)
    n, width = matrix.shape
    for k in range(width):
        positives = sum(int(matrix[r, k] == 1) for r in range(n))
        assert counts.positive[k] == positives
        assert counts.negative[k] == n - positives
        assert counts.tau[k] == pytest.approx(min(positives, n - positives) / n)
        assert counts.defined[k] == (0 < positives < n)
    assert counts.total == n
    assert len(counts) == width


@settings(deadline=None, max_examples=40)
@given(matrices, st.data())
def test_counts_merge_like_the_rows(matrix, data):
    cut = data.draw(st.integers(0, len(matrix)))
    assert LabelCounts.of(matrix[:cut]) + LabelCounts.of(matrix[cut:]) == LabelCounts.of(matrix)


@settings(deadline=None, max_examples=40)
@given(matrices, st.data())
def test_selecting_counts_is_counting_the_selection(matrix, data):
    columns = data.draw(st.lists(st.integers(0, matrix.shape[1] - 1), max_size=8))
    assert LabelCounts.of(matrix).select(columns) == LabelCounts.of(matrix[:, columns])
    mask = np.zeros(matrix.shape[1], dtype=bool)
    mask[columns] = True
    assert LabelCounts.of(matrix).select(mask) == LabelCounts.of(matrix[:, mask])


def test_place_undoes_select():
    counts = LabelCounts.of(np.random.default_rng(0).random((20, 5)) < 0.4)
    placed = counts.place([7, 0, 3, 4, 1], 9)
    assert placed.select([7, 0, 3, 4, 1]) == counts
    assert placed.positive[[2, 5, 6, 8]].tolist() == placed.negative[[2, 5, 6, 8]].tolist() == [0] * 4
    assert placed.tau[2] == 0
    with pytest.raises(InputError, match="5 distinct class numbers"):
        counts.place([0, 1, 2, 3, 3], 9)
    with pytest.raises(InputError, match="class numbers from 0 to 3"):
        counts.place([0, 1, 2, 3, 4], 4)


def test_counts_are_values():
    a = LabelCounts.of([[1, 0], [0, 0]])
    assert a == LabelCounts(np.array([1, 0]), np.array([1, 2]), 2)
    assert hash(a) == hash(LabelCounts([1, 0], [1, 2], 2))
    assert a != LabelCounts.of([[0, 1], [0, 0]])
    assert a != LabelCounts([1, 0], [1, 2], 3)
    assert a != "counts"
    with pytest.raises(ValueError, match="read-only"):
        a.positive[0] = 5


def test_counts_do_not_share_the_callers_array():
    mine = np.array([1, 2])
    counts = LabelCounts(mine, np.array([1, 0]), 2)
    mine[0] = 7
    assert counts.positive.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("positive", "negative", "total", "message"),
    [
        ([1], [1, 1], 2, "1 positive and 2 negative"),
        ([[1]], [1], 2, r"positive of LabelCounts has shape \(1, 1\)"),
        ([1], [-1], 2, r"negative of LabelCounts is \[-1\]"),
        ([1.5], [1], 3, r"positive of LabelCounts is \[1.5\]"),
        ([np.nan], [1], 3, "positive of LabelCounts"),
        ([2], [2], 3, "total 3, but a whole number of at least 4"),
    ],
)
def test_counts_refuse_nonsense(positive, negative, total, message):
    with pytest.raises(InputError, match=message):
        LabelCounts(np.array(positive), np.array(negative), total)


def test_adding_different_classes_is_refused():
    with pytest.raises(InputError, match="counts of 2 classes and of 1 classes"):
        LabelCounts.of([[1, 0]]) + LabelCounts.of([[1]])
    with pytest.raises(TypeError):
        LabelCounts.of([[1, 0]]) + 1


@pytest.mark.parametrize("columns", [[2], [-1], [0.5], [[0]], [True]])
def test_select_refuses_what_are_no_columns(columns):
    with pytest.raises(InputError, match="columns is"):
        LabelCounts.of([[1, 0]]).select(columns)


@settings(deadline=None, max_examples=60)
@given(matrices)
def test_patterns_equal_numpys_unique(matrix):
    rows, inverse, counts = np.unique(matrix, axis=0, return_inverse=True, return_counts=True)
    found = Patterns.of(matrix)
    assert found.vectors.dtype == np.uint8
    assert found.inverse.dtype == found.counts.dtype == np.int64
    assert found.inverse.ndim == 1
    np.testing.assert_array_equal(found.vectors, rows)
    np.testing.assert_array_equal(found.inverse, inverse.reshape(-1))
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_array_equal(found.vectors[found.inverse], matrix)


@pytest.mark.parametrize("width", [8, 63, 64, 65, 128, 129, 200])
def test_patterns_at_the_edges_of_a_word(width):
    matrix = (np.random.default_rng(width).random((50, width)) < 0.01).astype(np.uint8)
    matrix[7, -1] ^= 1
    found = Patterns.of(matrix)
    np.testing.assert_array_equal(found.vectors, np.unique(matrix, axis=0))
    np.testing.assert_array_equal(found.vectors[found.inverse], matrix)


def test_patterns_of_nothing():
    assert Patterns.of(np.zeros((0, 3))).vectors.shape == (0, 3)
    no_classes = Patterns.of(np.zeros((4, 0)))
    assert (len(no_classes), no_classes.counts.tolist(), no_classes.inverse.tolist()) == (1, [4], [0] * 4)


def test_describe():
    matrix = np.array([[1, 1, 0, 0], [1, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1], [1, 0, 0, 1]])
    stats = describe(matrix)
    assert stats.positive.tolist() == [4, 1, 0, 4]
    np.testing.assert_allclose(stats.tau, [0.2, 0.2, 0.0, 0.2])
    assert stats.labels_per_sample == pytest.approx(9 / 5)
    assert stats.imbalance_ratio == 4.0  # 4 / 1; the class without positives does not make it infinite


def test_describe_without_positives_or_samples():
    assert np.isnan(describe(np.zeros((3, 2))).imbalance_ratio)
    assert describe(np.zeros((3, 2))).labels_per_sample == 0.0
    assert np.isnan(describe(np.zeros((0, 2))).labels_per_sample)


def test_sparse_labels_are_taken():
    sparse = pytest.importorskip("scipy.sparse")
    matrix = np.array([[0, 1, 1], [1, 0, 0]])
    assert as_labels(sparse.csr_matrix(matrix)).tolist() == matrix.tolist()
    assert LabelCounts.of(sparse.csr_matrix(matrix)).positive.tolist() == [1, 1, 1]
