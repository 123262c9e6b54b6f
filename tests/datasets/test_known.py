"""Labels that are not known: from a table to a store, its tasks and its measures, they are neither yes nor no."""

import numpy as np
import pytest

from mlcl.datasets import Dataset, open_store, prepare_source, read_ids
from mlcl.datasets.base import joined_known
from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.metrics import f1_scores, false_positive_rate, macro_auc, session_measures
from mlcl.metrics.changes import auc_changes
from mlcl.streams import Benchmark, build_benchmark, hold_out, keep_out
from mlcl.training.evaluation import Evaluations


def made_up(seed=0, rows=60, classes=4):
    rng = np.random.default_rng(seed)
    x, y, known = (
        rng.normal(size=(rows, 5)),
        rng.random((rows, classes)) < 0.4,
        rng.random((rows, classes)) < 0.7,
    )
    return x, y.astype(np.uint8), known


def dataset(seed=0, **options):
    (x, y, known), (u, v, seen) = made_up(seed), made_up(seed + 1, 40)
    return Dataset.of("made-up", None, x, y, u, v, known, seen, **options)


def test_what_is_not_known_is_zero_and_in_no_count():
    _x, y, known = made_up()
    data = dataset()
    assert np.array_equal(data.train.labels, y * known)
    rows, classes = np.arange(7, 40), np.array([2, 0])
    counts = data.train.counts(rows, classes)
    for place, k in enumerate(classes):
        own = rows[known[rows, k]]
        assert counts.positive[place] == y[own, k].sum()
        assert counts.negative[place] == (1 - y[own, k]).sum()
    assert counts == LabelCounts.of(y[np.ix_(rows, classes)], known[np.ix_(rows, classes)])
    assert np.array_equal(data.train.without(1).known, np.delete(known, 1, axis=1))


def test_what_is_known_is_part_of_the_fingerprint_and_all_known_is_no_mask():
    x, y, known = made_up()
    given = {"x_train": x, "y_train": y * known, "x_test": x, "y_test": y}
    whole = Dataset.of("a", None, **given)
    assert Dataset.of("a", None, **given, known_train=known).fingerprint != whole.fingerprint
    every = Dataset.of("a", None, **given, known_train=np.ones_like(known))
    assert (every.fingerprint, every.train.known) == (whole.fingerprint, None)
    with pytest.raises(InputError, match=r"known_test has shape \(60, 3\); expected \(60, 4\)"):
        Dataset.of("a", None, **given, known_test=known[:, :3])


def test_a_store_has_it(tmp_path):
    (x, y, known), (u, v, seen) = made_up(), made_up(1, 40)
    arrays = {"x_train": x, "y_train": y, "x_test": u, "y_test": v}
    np.savez(tmp_path / "a.npz", **arrays, known_train=known, known_test=seen)
    np.savez(tmp_path / "b.npz", **arrays)
    prepare_source("arrays", tmp_path / "a.npz", out=tmp_path / "some")
    prepare_source("arrays", tmp_path / "b.npz", out=tmp_path / "all")
    some, whole = open_store(tmp_path / "some", check=True), open_store(tmp_path / "all")
    assert np.array_equal(some.train.known, known)
    assert np.array_equal(some.test.known, seen)
    assert np.array_equal(some.train.labels, y * known)
    assert whole.train.known is None
    assert not (tmp_path / "all" / "known.npy").exists()
    assert np.array_equal(joined_known(some.train, whole.test)[len(x) :], np.ones_like(v))
    (tmp_path / "some" / "known.npy").write_bytes(b"x")
    with pytest.raises(InputError, match=r"known\.npy"):
        open_store(tmp_path / "some")


@pytest.mark.parametrize("negatives", ["in_task", "all"])
def test_tasks_and_held_out_rows_count_what_is_known(negatives):
    x, y, known = made_up()
    stream = Benchmark.from_arrays(
        x, y, x, y, tasks=2, known_train=known, known_test=known, negatives=negatives, order="sorted"
    )
    for benchmark in (
        stream,
        keep_out(stream, share=0.3),
    ):
        for task in benchmark:
            own = np.ix_(task.train, task.classes)
            assert task.counts == LabelCounts.of(y[own], known[own])
    part = hold_out(stream.dataset)
    assert len(part.train) + len(part.test) == len(x)
    assert part.train.known.shape == part.train.labels.shape
    if negatives == "in_task":  # a label that is not known puts no row into a task
        assert all((y * known)[task.train][:, task.classes].any(1).all() for task in stream)


def test_measures_leave_it_out():
    data = dataset(3)
    stream = Benchmark(
        "made-up",
        data,
        Benchmark.from_arrays(
            data.train.inputs, data.train.labels, data.test.inputs, data.test.labels, tasks=1, negatives="all"
        ).tasks,
    )
    scores = np.random.default_rng(5).normal(size=data.test.labels.shape)
    other = np.where(data.test.known, scores, -99.0)  # what a model says of cells that are not known
    found = []
    for one in (scores, other):
        measured = Evaluations()
        measured.add(one, stream, learnt=1)
        found.append((measured.matrix, measured.per_class, measured.pooled, measured.precision))
    assert found[0] == found[1]
    auc = [
        macro_auc(scores[own, k][:, None], data.test.labels[own, k][:, None])
        for k, own in enumerate(data.test.known.T)
    ]
    assert found[0][0][0][0] == pytest.approx(np.mean(auc))
    cells = {"labels": data.test.labels, "mask": data.test.known}
    assert session_measures(scores, **cells, threshold=0.0) == session_measures(other, **cells, threshold=0.0)
    some = data.test.known[:, 0]
    assert f1_scores(scores, **cells, threshold=0.0).f1[0] == pytest.approx(
        f1_scores(scores[some][:, :1], data.test.labels[some][:, :1], threshold=0.0).f1[0]
    )
    negative = (data.test.labels == 0) & data.test.known
    assert false_positive_rate(scores, **cells, threshold=0.0) == pytest.approx((scores > 0)[negative].mean())


def test_changes_of_the_auc_leave_it_out():
    data = dataset(4)
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, *data.test.labels.shape))
    found = auc_changes(before, after, data.test.labels, mask=data.test.known)
    known, labels = data.test.known, data.test.labels
    for k in range(labels.shape[1]):
        own = known[:, k]
        expected = [macro_auc(one[own, k][:, None], labels[own, k][:, None]) for one in (before, after)]
        assert [found.before[k], found.after[k]] == pytest.approx(expected)
    hidden = np.where(known, after, 7.0)
    again = auc_changes(before, hidden, labels, mask=known)
    assert np.array_equal(found.low, again.low)
    assert (found.low < found.change).all()


def test_a_store_of_test_rows_alone(tmp_path):
    x, y, _ = made_up()
    np.savez(tmp_path / "a.npz", features=x, tags=y)
    prepare_source(
        "arrays", tmp_path / "a.npz", out=tmp_path / "gate", x="features", y="tags", test_fraction=1
    )
    found = open_store(tmp_path / "gate")
    assert (len(found.train), len(found.test)) == (0, 60)
    with pytest.raises(InputError, match="has no training row"):
        build_benchmark(found, tasks=1)


def test_ids_of_rows_in_a_file_of_arrays(tmp_path):
    x, y, _ = made_up(rows=4)
    ids = np.array(["a", "b", "c", "d"])
    np.savez(
        tmp_path / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y, ids_train=ids, ids_test=np.arange(4)
    )
    prepare_source("arrays", tmp_path / "a.npz", out=tmp_path / "store")
    assert read_ids(tmp_path / "store") == ["a", "b", "c", "d", "0", "1", "2", "3"]
    np.savez(tmp_path / "b.npz", x_train=x, y_train=y, x_test=x, y_test=y, ids_train=ids)
    with pytest.raises(
        InputError, match="has ids for one split; expected ids_train and ids_test, or neither"
    ):
        prepare_source("arrays", tmp_path / "b.npz", out=tmp_path / "other")
