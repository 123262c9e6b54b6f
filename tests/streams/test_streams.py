"""Task streams against plain loops: class orders, rows of tasks, the official imbalance, hold-out."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.datasets.base import Dataset
from mlcl.datasets.digits import make_digits
from mlcl.errors import InputError
from mlcl.streams import (
    PAPER_ORDERS,
    Benchmark,
    build_benchmark,
    build_tasks,
    class_groups,
    hold_out,
    measurable,
    official_imbalance,
)
from mlcl.streams.tasks import delete_rows, draw_goals

NAMES = [f"c{k}" for k in range(20)]
FEW = settings(deadline=None, max_examples=40)


def dataset(seed, *, rows=60, test_rows=40, width=7, density=0.3, fill=True):
    """A dataset whose feature is the row number; with ``fill`` no task of it can be empty."""
    rng = np.random.default_rng(seed)
    y_train, y_test = (rng.random((n, width)) < density for n in (rows, test_rows))
    if fill:
        y_train[:width] |= np.eye(width, dtype=bool)
        y_test[:width] |= np.eye(width, dtype=bool)
    x_train, x_test = np.arange(rows)[:, None], -1 - np.arange(test_rows)[:, None]
    return Dataset.of("random", None, x_train, y_train, x_test, y_test)


def build(data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return build_benchmark(data, **options)


# ---- orders ----


@given(
    width=st.integers(1, 40),
    tasks=st.integers(1, 40),
    seed=st.integers(0, 9),
    order=st.sampled_from(["random", "sorted"]),
)
@FEW
def test_equal_slices(width, tasks, seed, order):
    names = [f"c{k}" for k in range(width)]
    if tasks > width:
        with pytest.raises(InputError, match=f"tasks is {tasks} and there are {width} classes"):
            class_groups(names, tasks=tasks, order=order, seed=seed)
        return
    groups = class_groups(names, tasks=tasks, order=order, seed=seed)
    sizes = [len(group) for group in groups]
    assert sorted(np.concatenate(groups)) == list(range(width))
    assert len(sizes) == tasks
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1
    if order == "sorted":
        assert np.concatenate(groups).tolist() == list(range(width))


def test_the_random_order_follows_the_seed():
    orders = {tuple(np.concatenate(class_groups(NAMES, seed=seed))) for seed in (0, 0, 1, 2)}
    assert len(orders) == 3
    assert len(class_groups(NAMES)) == 5


@pytest.mark.parametrize(("width", "tasks", "each"), [(20, 5, 4), (80, 8, 10), (81, 9, 9)])
def test_paper_orders_are_permutations(width, tasks, each):
    groups = class_groups([f"c{k}" for k in range(width)], order="paper")
    assert [len(group) for group in groups] == [each] * tasks
    assert sorted(np.concatenate(groups)) == list(range(width))
    assert groups[0].tolist() == list(PAPER_ORDERS[width][0])


def test_paper_order_of_voc():
    expected = [[13, 15, 7, 17], [11, 9, 10, 14], [16, 19, 5, 12], [1, 3, 0, 18], [4, 2, 8, 6]]
    assert [group.tolist() for group in class_groups(NAMES, order="paper", tasks=5)] == expected


@pytest.mark.parametrize(
    ("width", "base", "increment", "sizes"),
    [
        (20, 0, 4, [4] * 5),
        (20, 10, 2, [10] + [2] * 5),
        (80, 0, 10, [10] * 8),
        (80, 40, 10, [40] + [10] * 4),
        (20, 10, 4, [10, 4, 4, 2]),
        (20, 19, 5, [19, 1]),
    ],
)
def test_base_and_increment(width, base, increment, sizes):
    groups = class_groups([f"c{k}" for k in range(width)], base=base, increment=increment, seed=3)
    assert [len(group) for group in groups] == sizes
    assert sorted(np.concatenate(groups)) == list(range(width))


def test_explicit_orders_by_id_and_name():
    names = ["cat", "dog", "cow", "hen"]
    for order in ([3, 0, 2, 1], ["hen", "cat", "cow", "dog"], np.array([3, 0, 2, 1])):
        assert [g.tolist() for g in class_groups(names, tasks=2, order=order)] == [[3, 0], [2, 1]]
    nested = class_groups(names, order=[["hen", 0, "cow"], [1]], tasks=2)
    assert [g.tolist() for g in nested] == [[3, 0, 2], [1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": 0}, "tasks is 0"),
        ({"tasks": 5}, "tasks is 5 and there are 4 classes"),
        ({"order": "randon"}, "order is 'randon'.*Did you mean 'random'"),
        ({"order": "paper"}, "has 4 classes, but the paper's orders are for 20"),
        ({"order": ["cat", "dgo", "cow", "hen"]}, "class 'dgo'.*Did you mean 'dog'"),
        ({"order": [0, 1, 2, 4]}, "entry 4, but class ids from 0 to 3"),
        ({"order": [0, 1, 2, -1]}, "entry -1"),
        ({"order": [0, 1, 2, True]}, "entry True"),
        ({"order": [0, 1, 2, 1.0]}, "entry 1.0"),
        ({"order": [0, 1, 2, "dog", 3]}, r"class 1 \('dog'\) twice"),
        ({"order": [[0, 1], [2]]}, "leaves out 'hen'"),
        ({"order": [[0, 1], [], [2, 3]]}, "a task with no class"),
        ({"order": []}, "no class"),
        ({"order": [[0, 1], 2, 3]}, "either a list of classes or a list of lists"),
        ({"order": [[0, 1], [2, 3]], "tasks": 3}, "tasks is 3, but the order has 2 tasks"),
        ({"order": [[0, 1], [2, 3]], "increment": 2}, "the order has its own tasks"),
        ({"base": 2}, "base is 2 without increment"),
        ({"base": 4, "increment": 1}, "base is 4 and there are 4 classes"),
        ({"base": -1, "increment": 1}, "base is -1"),
        ({"increment": 0}, "increment is 0"),
        ({"base": 2, "increment": 1, "tasks": 2}, "tasks is 2, but base 2 and increment 1 make 3 tasks"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_orders_are_named(options, message):
    with pytest.raises(InputError, match=message):
        class_groups(["cat", "dog", "cow", "hen"], **options)


# ---- rows of tasks ----


@given(seed=st.integers(0, 10_000), tasks=st.integers(1, 7))
@FEW
def test_overlap_has_every_row_with_a_class_of_the_task(seed, tasks):
    data = dataset(seed)
    stream = build(data, tasks=tasks, seed=seed)
    for task in stream:
        for rows, split in ((task.train, data.train), (task.test, data.test)):
            expected = [i for i in range(len(split)) if any(split.labels[i][k] for k in task.classes)]
            assert rows.tolist() == expected


@given(seed=st.integers(0, 10_000), tasks=st.integers(1, 7), setting=st.sampled_from(["overlap", "disjoint"]))
@FEW
def test_labels_and_counts_are_those_of_the_task_alone(seed, tasks, setting):
    data = dataset(seed, rows=200, test_rows=200)
    stream = build(data, tasks=tasks, seed=seed, setting=setting)
    owner = stream.task_of_class
    for task in stream:
        assert [int(owner[k]) for k in task.classes] == [task.index] * len(task.classes)
        for name, rows, split in (("train", task.train, data.train), ("test", task.test, data.test)):
            shown = stream.task_labels(task, split=name)
            assert shown.shape == (len(rows), len(task.classes))
            for i, row in enumerate(rows):
                assert shown[i].tolist() == [split.labels[row, k] for k in task.classes]
        shown = stream.task_labels(task.index)
        assert task.counts.positive.tolist() == shown.sum(axis=0).tolist()
        assert task.counts.total == len(task.train)
        # Rows of the two splits are never mixed: the inputs tell which split a row is from.
        assert (data.train.inputs[task.train] >= 0).all()
        assert (data.test.inputs[task.test] < 0).all()


@given(seed=st.integers(0, 10_000), tasks=st.integers(1, 5))
@FEW
def test_disjoint_covers_every_labelled_row_once(seed, tasks):
    data = dataset(seed, rows=200, test_rows=200)
    stream = build(data, tasks=tasks, seed=seed, setting="disjoint")
    for split, part in (("train", data.train), ("test", data.test)):
        rows = np.concatenate([getattr(task, split) for task in stream])
        assert sorted(rows) == np.flatnonzero(part.labels.any(axis=1)).tolist()
        for task in stream:
            assert stream.task_labels(task, split=split).any(axis=1).all()


def test_disjoint_draws_evenly_and_by_seed():
    y = np.ones((6000, 3), dtype=np.uint8)
    data = Dataset.of("full", None, np.zeros((6000, 1)), y, np.zeros((6000, 1)), y)
    first, again, other = (build(data, tasks=3, setting="disjoint", seed=seed) for seed in (0, 0, 1))
    assert all(abs(len(task.train) - 2000) < 200 for task in first)  # 2000 +- 5.5 deviations
    np.testing.assert_array_equal(first.tasks[1].train, again.tasks[1].train)
    assert first.tasks[1].train.tolist() != other.tasks[1].train.tolist()
    assert first.tasks[1].train.tolist() != first.tasks[1].test.tolist()


@given(seed=st.integers(0, 10_000), tasks=st.integers(1, 7))
@FEW
def test_all_negatives(seed, tasks):
    data = dataset(seed)
    for task in build(data, tasks=tasks, seed=seed, negatives="all"):
        assert task.train.tolist() == list(range(60))
        assert task.test.tolist() == list(range(40))
        assert task.counts.positive.tolist() == data.train.labels[:, task.classes].sum(axis=0).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"setting": "disjoint", "negatives": "all"}, "negatives is 'all' and setting is 'disjoint'"),
        ({"setting": "disjunct"}, "setting is 'disjunct'.*Did you mean 'disjoint'"),
        ({"negatives": "al"}, "negatives is 'al'"),
        ({"imbalance": "oficial"}, "imbalance is 'oficial'.*Did you mean 'official'"),
        ({"seed": -3}, "seed is -3"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        build(dataset(0), order="sorted", tasks=2, **options)


@pytest.mark.parametrize("split", ["training", "test"])
def test_an_empty_task_is_refused(split):
    full, empty = np.ones((5, 2)), np.array([[1, 0]] * 5)
    y_train, y_test = (empty, full) if split == "training" else (full, empty)
    data = Dataset.of("tiny", ["cat", "dog"], np.zeros((5, 1)), y_train, np.zeros((5, 1)), y_test)
    with pytest.raises(InputError, match=rf"task 2 \(classes dog\) has no {split} row"):
        build(data, tasks=2, order="sorted")


def warned(y_train, y_test):
    data = Dataset.of("tiny", ["cat", "dog"], np.eye(len(y_train)), y_train, np.eye(len(y_train)), y_test)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build_benchmark(data, tasks=1, order="sorted")
    assert all(w.category is UserWarning and w.filename == __file__ for w in caught)
    return [str(w.message) for w in caught]


def test_odd_tasks_are_warned_of():
    good = np.array([[1, 0], [1, 1], [0, 1]])
    assert warned(good, good) == []
    (message,) = warned(np.array([[1, 0], [0, 1], [0, 1]]), good)
    assert message.startswith("task 1 (classes cat, dog) has no training row with two labels")
    (message,) = warned(good, np.array([[1, 1], [1, 0], [1, 0]]))
    assert message.startswith("task 1 has no negative test row of cat,")
    (message,) = warned(np.array([[1, 0], [1, 0], [1, 0]]), good)
    assert message == (
        "3 notes on the tasks: 2 of 2 classes cannot be learnt, for want of a positive or a negative training row in "
        "their task; 1 of 1 tasks have no training row with two labels, which the paper's assumption 1.2 requires"
    )


def test_all_notes_are_kept_and_count_tasks_from_one():
    y = np.array([[1, 0], [1, 0], [1, 0]])
    data = Dataset.of("tiny", ["cat", "dog"], np.eye(3), y, np.eye(3), [[1, 0], [1, 1], [0, 1]])
    with pytest.warns(UserWarning, match="3 notes on the tasks"):
        found = build_benchmark(data, tasks=1, order="sorted")
    assert [note.partition(",")[0] for note in found.notes] == [
        "task 1 has no positive training row of dog",
        "task 1 has no negative training row of cat",
        "task 1 (classes cat",
    ]
    assert found.headline_problem == ""


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("negatives", "words"),
    [
        (
            "in_task",
            r"undefined \(nan\) in every task, and so is the headline: a task of one class has no negatives",
        ),
        ("all", "^$"),
    ],
)
def test_one_class_per_task_has_no_headline_without_negatives(negatives, words):
    y = np.array([[1, 0], [1, 1], [0, 1], [0, 0]])
    found = Benchmark.from_arrays(np.eye(4), y, np.eye(4), y, tasks=2, negatives=negatives)
    assert re.search(words, found.headline_problem)
    assert measurable(found.dataset, found.tasks).tolist() == [negatives == "all"] * 2


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_headline_that_leaves_out_tasks_names_them():
    y = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 1, 1]])
    found = Benchmark.from_arrays(np.eye(4), y, np.eye(4), y, tasks=[[0, 1], [2]])
    assert "in 1 of 2 tasks (2), which the headline leaves out" in found.headline_problem


@pytest.mark.parametrize("classes", [[[0, 2], [1, 3]], [["a", "c"], ["b", "d"]], np.array([[0, 2], [1, 3]])])
def test_tasks_may_list_their_classes(classes):
    x, y = np.eye(8), np.tile([[1, 1, 0, 0], [0, 1, 1, 1], [1, 0, 1, 1], [0, 0, 1, 1]], (2, 1))
    found = Benchmark.from_arrays(x, y, x, y, tasks=classes, classes=list("abcd"))
    assert [task.classes.tolist() for task in found] == [[0, 2], [1, 3]]
    assert (found.stream or {})["order"] == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("tasks", "order", "words"),
    [
        ("2", "random", "tasks is '2'; expected a whole number of at least 1"),
        (2.5, "random", "tasks is 2.5; expected a whole number"),
        ([0, 1], "random", "expected a number, or one list of classes per task"),
        ([[0, 1], [2, 3]], "sorted", "tasks lists the classes of each task and order is 'sorted'"),
    ],
)
def test_bad_tasks_are_named(tasks, order, words):
    y = np.tile([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1], [0, 0, 1, 1]], (2, 1))
    with pytest.raises(InputError, match=words):
        Benchmark.from_arrays(np.eye(8), y, np.eye(8), y, tasks=tasks, order=order)


# ---- official imbalance ----


def slow_official(labels, rng):
    """Return the rows kept and the distance after each deletion: specification.md#imbalance in plain loops."""
    n, width = labels.shape
    positive = [sum(labels[:, k].tolist()) for k in range(width)]
    percent = rng.integers(5, 100, size=width)
    largest = positive.index(max(positive))
    goals = [p if k == largest else int(percent[k]) * p // 100 for k, p in enumerate(positive)]

    def distance_without(row):
        left = [positive[k] - (0 if row is None else int(labels[row, k])) for k in range(width)]
        return sum(abs(left[k] - goals[k]) for k in range(width)) / width

    rows, idle, history = list(range(n)), 0, [distance_without(None)]
    while idle < 10 and rows:
        best, found = history[-1], None
        for at in rng.choice(len(rows), size=min(100, len(rows)), replace=False):
            after = distance_without(rows[at])
            if after < best - 1e-9:
                best, found = after, at
        if found is None:
            idle += 1
            continue
        idle = 0
        history.append(best)
        positive = [positive[k] - int(labels[rows[found], k]) for k in range(width)]
        rows[found] = rows[-1]
        rows.pop()
    return sorted(rows), history


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 25), width=st.integers(1, 4))
@settings(deadline=None, max_examples=30)
def test_official_imbalance_against_plain_loops(seed, rows, width):
    labels = (np.random.default_rng(seed).random((rows, width)) < 0.5).astype(np.uint8)
    expected, history = slow_official(labels, np.random.default_rng([seed, 1]))
    kept = official_imbalance(labels, rng=np.random.default_rng([seed, 1]))
    assert kept.tolist() == expected
    assert len(kept) == rows - len(history) + 1


@pytest.mark.parametrize("seed", range(6))
def test_official_imbalance_against_plain_loops_when_few_rows_are_worth_deleting(seed):
    """Rounds without a hit are common here, so the count of idle rounds decides when it ends."""
    labels = np.zeros((3000, 3), dtype=np.uint8)
    labels[:, 0] = 1
    rare = np.random.default_rng(seed).choice(3000, size=30, replace=False)
    labels[rare] = np.array([0, 1, 0])
    labels[rare[:10]] = np.array([1, 1, 1])
    expected, history = slow_official(labels, np.random.default_rng(seed))
    assert official_imbalance(labels, rng=np.random.default_rng(seed)).tolist() == expected
    assert 1 < len(history) < 30


def test_it_ends_after_ten_rounds_without_a_deletion():
    labels = np.ones((500, 2), dtype=np.uint8)
    rng, twin = np.random.default_rng(0), np.random.default_rng(0)
    assert delete_rows(labels, labels.sum(axis=0, dtype=np.int64), rng=rng).tolist() == []
    for _ in range(10):
        twin.choice(500, size=100, replace=False)
    assert rng.bit_generator.state == twin.bit_generator.state


@given(seed=st.integers(0, 10_000), density=st.floats(0.05, 0.9))
@FEW
def test_each_deletion_lowers_the_distance(seed, density):
    rng = np.random.default_rng(seed)
    labels = (rng.random((400, 6)) < density).astype(np.uint8)
    positive = labels.sum(axis=0, dtype=np.int64)
    goals = draw_goals(positive, rng=rng)
    assert (goals <= positive).all()
    assert goals.max() == positive.max()
    deleted = delete_rows(labels, goals, rng=rng)
    assert len(set(deleted.tolist())) == len(deleted)
    left = positive - np.cumsum(labels[deleted], axis=0, dtype=np.int64)
    distance = np.abs(np.vstack([positive, left]) - goals).mean(axis=1)
    assert (np.diff(distance) < 0).all()


def test_goals_are_whole_parts_of_five_to_ninety_nine_percent():
    positive = np.array([1000] + [100] * 5000)
    goals = draw_goals(positive, rng=np.random.default_rng(0))
    assert goals[0] == 1000
    assert set(goals[1:]) == set(range(5, 100))
    assert (
        draw_goals(np.array([3, 3]), rng=np.random.default_rng(1))[0] == 3
    )  # of equals, the first keeps all


def test_single_label_classes_reach_their_goals():
    labels = np.repeat(np.eye(4, dtype=np.uint8), [300, 200, 100, 50], axis=0)
    goals = draw_goals(labels.sum(axis=0, dtype=np.int64), rng=np.random.default_rng(5))
    rng = np.random.default_rng(5)
    kept = official_imbalance(labels, rng=rng)
    assert labels[kept].sum(axis=0).tolist() == goals.tolist()


def test_official_imbalance_of_a_benchmark_touches_training_rows_only():
    data = make_digits(train=1500, test=500)
    plain, thinned, again = (build(data, imbalance=kind) for kind in ("none", "official", "official"))
    for before, after, same in zip(plain, thinned, again, strict=True):
        assert set(after.train) < set(before.train)
        np.testing.assert_array_equal(after.test, before.test)
        np.testing.assert_array_equal(after.train, same.train)
        assert after.counts.total == len(after.train)
    assert (
        build(data, imbalance="official", seed=1).tasks[0].train.tolist() != thinned.tasks[0].train.tolist()
    )


# ---- benchmark ----


def test_from_arrays_takes_numpy_and_torch():
    torch = pytest.importorskip("torch")
    data = dataset(0)
    parts = (data.train.inputs, data.train.labels, data.test.inputs, data.test.labels)
    ours = build(data, tasks=3, seed=4)
    for arrays in (parts, [torch.tensor(part) for part in parts]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            stream = Benchmark.from_arrays(*arrays, tasks=3, seed=4)
        assert stream.name == "arrays"
        assert stream.classes[:2] == ("class-0", "class-1")
        assert len(stream) == 3
        for task, other in zip(stream, ours, strict=True):
            assert task.classes.tolist() == other.classes.tolist()
            assert task.train.tolist() == other.train.tolist()


def test_from_arrays_passes_every_option_on():
    data = dataset(1, rows=300, test_rows=300)
    parts = (data.train.inputs, data.train.labels, data.test.inputs, data.test.labels)
    options = {
        "base": 3,
        "increment": 2,
        "setting": "disjoint",
        "imbalance": "official",
        "order": "sorted",
        "seed": 2,
    }
    expected = build(data, name="mine", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = Benchmark.from_arrays(*parts, tasks=None, name="mine", **options)
        every = Benchmark.from_arrays(*parts, tasks=2, negatives="all", classes=list("abcdefg"))
    assert found.name == expected.name == "mine"
    assert [t.train.tolist() for t in found] == [t.train.tolist() for t in expected]
    assert len(every.tasks[1].train) == 300
    assert every.classes == tuple("abcdefg")


def test_float_images_are_refused():
    x, y = np.zeros((4, 3, 8, 8)), np.ones((4, 2))
    with pytest.raises(InputError, match="x_train has images of dtype float64, but uint8 pixels"):
        Benchmark.from_arrays(x, y, x, y, tasks=1)


def test_describe():
    y_train = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 1], [1, 1, 0, 0]])
    x = np.zeros((6, 1))
    data = Dataset.of("tiny", ["cat", "dog", "hen", "cow"], x, y_train, x[:4], y_train[:4])
    first, second = build(data, tasks=2, order=["dog", "cat", "cow", "hen"]).describe()
    assert (first.index, first.class_ids, first.classes) == (0, (1, 0), ("dog", "cat"))
    assert (first.train_rows, first.test_rows) == (4, 3)
    assert first.positive.tolist() == [3, 3]
    assert first.negative.tolist() == [1, 1]
    assert first.test_positive.tolist() == [2, 2]
    assert first.tau.tolist() == [0.25, 0.25]
    assert first.labels_per_row == 1.5
    assert (second.index, second.classes, second.train_rows) == (1, ("cow", "hen"), 3)


def test_task_labels_refuses_an_unknown_split():
    with pytest.raises(InputError, match="split is 'val'"):
        build(dataset(0), tasks=1).task_labels(0, split="val")


def test_build_tasks_reads_no_inputs():
    """Labels are stored apart from the images, and nothing reads an image to find a label."""
    data = dataset(0)
    blind = Dataset(
        data.name,
        data.classes,
        type(data.train)(None, data.train.labels),
        type(data.test)(None, data.test.labels),
        "",
    )
    groups = class_groups(data.classes, tasks=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        seen, unseen = build_tasks(data, groups), build_tasks(blind, groups)
    assert [t.train.tolist() for t in seen] == [t.train.tolist() for t in unseen]


# ---- hold-out ----


@given(rows=st.integers(2, 50), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 99))
@FEW
def test_hold_out_splits_the_training_rows(rows, fraction, seed):
    data = dataset(seed, rows=rows, fill=False)
    part = hold_out(data, fraction=fraction, seed=seed)
    kept, held = part.train.inputs[:, 0].astype(int), part.test.inputs[:, 0].astype(int)
    assert sorted([*kept, *held]) == list(range(rows))  # training rows only, each once
    assert abs(len(held) - rows * fraction) <= 1
    assert len(kept) >= 1 <= len(held)
    np.testing.assert_array_equal(part.train.labels, data.train.labels[kept])
    np.testing.assert_array_equal(part.test.labels, data.train.labels[held])


def test_hold_out_by_seed_and_fingerprint():
    data = dataset(0)
    prints = {hold_out(data, seed=seed, fraction=f).fingerprint for seed, f in ((0, 0.2), (1, 0.2), (0, 0.3))}
    assert len({*prints, data.fingerprint}) == 4
    assert hold_out(data).fingerprint in prints
    assert hold_out(data).name == "random-validation"


def test_hold_out_keeps_the_encoder():
    data = replace(make_digits(train=20, test=5), encoder=b"words", dropped={"some reason": 3})
    part = hold_out(data)
    assert (part.encoder, part.dropped, part.augmentation) == (b"words", {}, data.augmentation)


def test_hold_out_of_a_memory_map_reads_rows_when_asked(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (30, 3, 4, 4), dtype=np.uint8)
    np.save(tmp_path / "x.npy", x)
    y = np.ones((30, 2), dtype=np.uint8)
    plain = hold_out(Dataset.of("a", None, x, y, x, y))
    mapped = hold_out(Dataset.of("a", None, np.load(tmp_path / "x.npy", mmap_mode="r"), y, x, y))
    assert mapped.fingerprint == plain.fingerprint
    for lazy, full in ((mapped.train, plain.train), (mapped.test, plain.test)):
        assert not isinstance(lazy.inputs, np.ndarray)
        assert lazy.kind == "images"
        assert (lazy.inputs.shape, lazy.inputs.dtype, lazy.inputs.nbytes) == (
            full.inputs.shape,
            full.inputs.dtype,
            full.inputs.nbytes,
        )
        mask = np.arange(len(full)) % 2 == 0
        for index in (0, -1, slice(1, 4), np.array([3, 0, 3]), mask):
            np.testing.assert_array_equal(lazy.inputs[index], full.inputs[index])
        np.testing.assert_array_equal(np.asarray(lazy.inputs), full.inputs)
        assert len(lazy.inputs) == len(full.inputs)
    again = hold_out(mapped, seed=1)  # a hold-out of a hold-out
    np.testing.assert_array_equal(np.asarray(again.test.inputs), hold_out(plain, seed=1).test.inputs)


@pytest.mark.parametrize(
    "options", [{"fraction": 0}, {"fraction": 1.0}, {"fraction": float("nan")}, {"seed": -1}]
)
def test_bad_hold_outs_are_named(options):
    with pytest.raises(InputError, match=f"{next(iter(options))} is"):
        hold_out(dataset(0), **options)


def test_one_row_cannot_be_held_out():
    data = Dataset.of("one", None, [[1.0]], [[1]], [[1.0]], [[1]])
    with pytest.raises(InputError, match="'one' has 1 training row"):
        hold_out(data)
