"""WRU against brute force over all rows, step by step."""

from __future__ import annotations

import warnings
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.memories import TaskSamples, select_wru, wru, wru_gap
from mlcl.memories.wru import update_wru


def objective(labels: np.ndarray, rows: list[int], criterion: str) -> float:
    """J of a set of rows by specification.md#wru, with explicit loops and counts taken afresh."""
    total = 0.0
    for k in range(labels.shape[1]):
        positive = sum(int(y) for y in labels[:, k])
        negative = len(labels) - positive
        if positive == 0 or negative == 0:
            continue
        chosen = sum(int(labels[row, k]) for row in rows)
        if criterion == "ratio":
            total += abs(positive / negative - chosen / (len(rows) - chosen + 0.01))
        else:
            total += abs(positive / len(labels) - chosen / len(rows))
    return total


def quiet_select(labels: np.ndarray, size: int, **options: object) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return select_wru(labels, size, **options)


matrices = st.tuples(
    st.integers(1, 14), st.integers(1, 4), st.sampled_from([0.15, 0.5, 0.85]), st.integers(0, 10**6)
).map(lambda a: (np.random.default_rng(a[3]).random(a[:2]) < a[2]).astype(np.uint8))


@settings(deadline=None, max_examples=50)
@given(matrices, st.sampled_from(["ratio", "prevalence"]), st.integers(0, 3))
def test_every_step_is_as_good_as_brute_force(labels: np.ndarray, criterion: str, seed: int) -> None:
    n = len(labels)
    chosen = quiet_select(labels, n + 3, seed=seed, criterion=criterion).tolist()
    assert sorted(chosen) == list(range(n))  # asked for more than there are: all rows, in greedy order
    for step, row in enumerate(chosen):
        best = min(objective(labels, [*chosen[:step], other], criterion) for other in chosen[step:])
        assert objective(labels, [*chosen[:step], row], criterion) == pytest.approx(best, abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(matrices, st.sampled_from([None, 1, 3]), st.integers(0, 3))
def test_a_prefix_of_a_selection_is_a_selection(
    labels: np.ndarray, candidates: int | None, seed: int
) -> None:
    chosen = quiet_select(labels, len(labels), seed=seed, candidates=candidates)
    for size in range(len(labels)):
        assert np.array_equal(quiet_select(labels, size, seed=seed, candidates=candidates), chosen[:size])


@settings(deadline=None, max_examples=30)
@given(matrices, st.sampled_from(["ratio", "prevalence"]))
def test_greedy_removal_removes_what_brute_force_would(labels: np.ndarray, criterion: str) -> None:
    whole = TaskSamples.of(0, np.arange(labels.shape[1]), np.arange(len(labels)), labels)
    empty = TaskSamples.of(1, [99], [], np.zeros((0, 1)))
    rng = np.random.default_rng(0)
    rest = list(range(len(labels)))
    for size in range(len(labels) - 1, 0, -1):
        old, _ = update_wru((whole,), empty, size, rng, shrink="greedy_removal", criterion=criterion)
        assert set(old.rows.tolist()) < set(rest)
        best = min(objective(labels, [r for r in rest if r != out], criterion) for out in rest)
        rest = old.rows.tolist()
        assert objective(labels, rest, criterion) == pytest.approx(best, abs=1e-9)
        assert old.counts == LabelCounts.of(labels)  # the target stays that of the whole task


@settings(deadline=None, max_examples=30)
@given(matrices.filter(lambda y: y.size > 1), st.sampled_from(["ratio", "prevalence"]), st.integers(1, 14))
def test_patterns_by_their_labels_give_the_same_choice(labels: np.ndarray, criterion: str, size: int) -> None:
    whole = TaskSamples.of(0, np.arange(labels.shape[1]), np.arange(len(labels)), labels)
    empty = TaskSamples.of(1, [99], [], np.zeros((0, 1)))

    def choose() -> tuple[np.ndarray, np.ndarray]:
        thin = update_wru(
            (whole,), empty, size, np.random.default_rng(0), shrink="greedy_removal", criterion=criterion
        )
        return quiet_select(labels, size, criterion=criterion), thin[0].rows

    dense = choose()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wru, "_SMALL", 0)
        patch.setattr(wru, "_LARGE", 1)  # as where patterns times classes are too many
        sparse = choose()
    np.testing.assert_array_equal(dense[0], sparse[0])
    np.testing.assert_array_equal(dense[1], sparse[1])


def test_candidates_come_near_to_the_exact_choice() -> None:
    rng = np.random.default_rng(2)
    labels = (rng.random((4000, 30)) < np.geomspace(0.3, 0.01, 30)).astype(np.uint8)
    counts = LabelCounts.of(labels)
    gaps = [wru_gap(counts, labels[select_wru(labels, 300, candidates=c)]) for c in (1, 20, 400, None)]
    assert gaps[0] > 2 * gaps[1]
    assert gaps[1] > gaps[2]
    assert gaps[2] < 1.5 * gaps[3]


def test_greedy_removal_drops_the_row_chosen_last() -> None:
    labels = np.array([[1], [0], [1], [0], [1], [0]])
    whole = TaskSamples.of(0, [0], [10, 11, 12, 13, 14, 15], labels)
    empty = TaskSamples.of(1, [1], [], np.zeros((0, 1)))
    old, _ = update_wru((whole,), empty, 2, np.random.default_rng(0), shrink="greedy_removal")
    assert old.rows.tolist() == [10, 11]


def test_old_tasks_keep_their_first_rows_and_all_their_counts() -> None:
    rng = np.random.default_rng(3)
    tasks: tuple[TaskSamples, ...] = ()
    for number in range(4):
        labels = (rng.random((50, 3)) < 0.3).astype(np.uint8)
        before = tasks
        tasks = update_wru(tasks, TaskSamples.of(number, np.arange(3), np.arange(50), labels), 30, rng)
        for old, now in zip(before, tasks, strict=False):
            assert np.array_equal(now.rows, old.rows[: len(now)])
            assert now.counts is old.counts
    assert [len(samples) for samples in tasks] == [8, 8, 7, 7]


def test_random_shrink_is_uniform() -> None:
    labels = np.tile([[1, 0], [0, 1]], (5, 1))
    whole = TaskSamples.of(0, [0, 1], np.arange(10), labels)
    empty = TaskSamples.of(1, [2], [], np.zeros((0, 1)))
    rng = np.random.default_rng(0)
    kept = np.zeros(10)
    for _ in range(1000):
        kept[update_wru((whole,), empty, 4, rng, shrink="random")[0].rows] += 1
    # Inclusion counts of a draw of fixed size: this scaled sum is chi-square with 9 degrees of freedom.
    assert ((kept - 400) ** 2).sum() / (1000 * 0.4 * 0.6) * 0.9 < 27.9  # 0.999 quantile


def test_many_candidates_are_all_rows() -> None:
    labels = (np.random.default_rng(0).random((40, 4)) < 0.3).astype(np.uint8)
    some = select_wru(labels, 20, candidates=40)
    every = select_wru(labels, 20)
    # Rows within a pattern are drawn in the same order, because the shuffle comes before the other draws.
    assert np.array_equal(some, every)


@pytest.mark.slow
def test_one_candidate_is_a_uniform_draw() -> None:
    labels = np.array([[1, 0]] * 2 + [[0, 1]] * 5 + [[1, 1]] * 3)
    first = np.bincount([select_wru(labels, 1, seed=s, candidates=1)[0] for s in range(2000)], minlength=10)
    assert chisquare(first).pvalue > 1e-3


@pytest.mark.slow
def test_candidates_are_drawn_without_replacement() -> None:
    """The best pattern is taken whenever one of its b rows is among the m: 1 - C(n-b,m)/C(n,m)."""
    labels = np.array([[1, 1]] * 9 + [[0, 0]] * 3)
    exact = labels[select_wru(labels, 1)[0]]
    assert exact.tolist() == [0, 0]  # y = 1 costs |3 - 100| per class, y = 0 only 3
    runs, chance = 2000, 1 - comb(9, 4) / comb(12, 4)
    hits = sum(labels[select_wru(labels, 1, seed=s, candidates=4)[0], 0] == 0 for s in range(runs))
    assert abs(hits - runs * chance) < 4 * (runs * chance * (1 - chance)) ** 0.5


def test_within_a_pattern_rows_are_drawn_uniformly() -> None:
    labels = np.array([[1, 0]] * 6 + [[0, 1]] * 6)
    chosen = np.concatenate([select_wru(labels, 4, seed=s) for s in range(1500)])
    held = np.bincount(chosen, minlength=12)
    assert chisquare(held[:6]).pvalue > 1e-3
    assert chisquare(held[6:]).pvalue > 1e-3


@pytest.mark.parametrize("criterion", ["ratio", "prevalence"])
@pytest.mark.parametrize(("classes", "sums"), [(5, (3,)), (7, (1, 2, 3)), (7, (3, 4))])
def test_ties_go_to_the_first_label_vector(classes: int, sums: tuple[int, ...], criterion: str) -> None:
    """Classes that are alike: many patterns are equally good, and rounding must not choose between them."""
    labels = np.array([y for y in product([0, 1], repeat=classes) if sum(y) in sums])  # lexicographic order
    left = list(range(len(labels)))
    path: list[int] = []
    for _ in range(min(20, len(left))):
        scores = [objective(labels, [*path, row], criterion) for row in left]
        path.append(left.pop(next(i for i, score in enumerate(scores) if score <= min(scores) + 1e-9)))
    assert select_wru(labels, len(path), criterion=criterion).tolist() == path  # one row a pattern: no draws


def test_undefined_classes_are_left_out_with_a_warning() -> None:
    rng = np.random.default_rng(0)
    useful = (rng.random((30, 2)) < 0.4).astype(np.uint8)
    labels = np.column_stack([useful[:, 0], np.ones(30), useful[:, 1], np.zeros(30)]).astype(np.uint8)
    with pytest.warns(UserWarning, match=r"without a negative row \(columns 1, 3\) stay out"):
        chosen = select_wru(labels, 12)
    assert np.array_equal(chosen, select_wru(useful, 12))
    with pytest.warns(UserWarning, match="without a negative row stay out of WRU's criterion$"):
        update_wru((), TaskSamples.of(7, [10, 20, 30, 40], np.arange(30), labels), 5, rng)


def test_the_gap_is_brute_force_and_far_below_that_of_random_rows() -> None:
    rng = np.random.default_rng(1)
    labels = (rng.random((3000, 8)) < np.geomspace(0.4, 0.01, 8)).astype(np.uint8)
    counts = LabelCounts.of(labels)
    for criterion in ("ratio", "prevalence"):
        chosen = select_wru(labels, 150, criterion=criterion)
        gap = wru_gap(counts, labels[chosen], criterion=criterion)
        assert gap == pytest.approx(objective(labels, chosen.tolist(), criterion))
        drawn = [rng.choice(3000, 150, replace=False) for _ in range(20)]
        assert gap < 0.2 * np.mean([wru_gap(counts, labels[rows], criterion=criterion) for rows in drawn])


def test_shapes_and_bad_input() -> None:
    chosen = select_wru([[1, 0], [0, 1]], 0)
    assert chosen.dtype == np.int64
    assert chosen.shape == (0,)
    assert select_wru(np.zeros((0, 3)), 5).shape == (0,)
    with pytest.raises(InputError, match="size is -1"):
        select_wru([[1, 0], [0, 1]], -1)
    with pytest.raises(InputError, match="labels has the value 2"):
        select_wru([[2, 0], [0, 1]], 1)
    with pytest.raises(InputError, match="criterion is 'both'"):
        select_wru([[1, 0], [0, 1]], 1, criterion="both")
