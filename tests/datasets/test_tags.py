"""Tags per row wherever labels are given."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import MultiLabelBinarizer

import mlcl
from mlcl.datasets import Dataset
from mlcl.datasets.tags import alike
from mlcl.errors import InputError

TRAIN = [["cat"], ["cat", "dog"], ["dog"], [], ["cow", "cat"], ["dog"]]
TEST = [["cat", "cow"], ["dog"], []]


@pytest.mark.filterwarnings("ignore:.*notes on the tasks")
@pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
def test_a_benchmark_of_tags(kind):
    binarizer = MultiLabelBinarizer().fit(TRAIN + TEST)
    x = np.arange(12.0).reshape(6, 2)
    found = mlcl.Benchmark.from_arrays(
        x, [kind(row) for row in TRAIN], x[:3], [kind(row) for row in TEST], tasks=3, seed=0
    )
    assert found.classes == tuple(binarizer.classes_)
    assert np.array_equal(found.dataset.train.labels, binarizer.transform(TRAIN))
    assert np.array_equal(found.dataset.test.labels, binarizer.transform(TEST))


def test_given_classes_fix_the_order_and_unknown_tags_are_named():
    x = np.arange(12.0).reshape(6, 2)
    names = ["dog", "cow", "cat", "hen"]
    found = Dataset.of("x", names, x, TRAIN, x[:3], TEST)
    assert found.classes == tuple(names)
    assert found.train.labels.sum(axis=0).tolist() == [3, 1, 3, 0]
    with pytest.raises(InputError, match="unknown label 'cow' in row 5"):
        mlcl.Benchmark.from_arrays(x, TRAIN, x[:3], TEST, tasks=1, classes=["cat", "dog"])


def test_tags_in_one_split_only_and_odd_tags_are_refused():
    x = np.arange(12.0).reshape(6, 2)
    with pytest.raises(InputError, match="y_test is no list of tags per row"):
        mlcl.Benchmark.from_arrays(x, TRAIN, x[:3], np.eye(3), tasks=1)
    with pytest.raises(InputError, match=r"y_train has the tag 1\.5"):
        mlcl.Benchmark.from_arrays(x, [{1.5}] * 6, x[:3], TEST, tasks=1)
    with pytest.raises(InputError, match="y_train has 6 rows, but 5 were expected"):
        mlcl.Benchmark.from_arrays(x[:5], TRAIN, x[:3], TEST, tasks=1)


def test_alike():
    assert alike(["a", "b", "A ", "B", "c"]) == [(0, 2), (1, 3)]
    assert alike(["ß", "SS", "ss"]) == [(0, 1, 2)]
    assert alike(["a b", "a_b"]) == []
