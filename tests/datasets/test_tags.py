"""Tags per row wherever labels are given, and in one cell: what a program prints is read back, no text is evaluated."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import MultiLabelBinarizer

import mlcl
from mlcl.datasets import Dataset
from mlcl.datasets.tags import alike, parse_list, split_cells
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


NAMES = st.lists(
    st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), min_size=1).filter(
        lambda name: name == name.strip() and "\\" not in name
    ),
    max_size=5,
)


@given(NAMES)
def test_a_printed_list_is_read_back(names):
    assert parse_list(json.dumps(names, ensure_ascii=False)) == names
    if all(name.isprintable() for name in names):  # repr escapes the other ones by their numbers
        assert parse_list(repr(names)) == names
        assert parse_list(repr(tuple(names))) == names


@given(st.text())
def test_any_text_is_a_list_or_none(text):
    found = parse_list(text)
    assert found is None or all(isinstance(item, str) and item == item.strip() for item in found)


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "[__import__('os').getcwd()]", "['a'", "['a]", "[[1], [2]]", "]", "[", "", "['a'b]"],
)
def test_what_is_no_list_of_texts_is_none(text):
    assert parse_list(text) is None


@pytest.mark.parametrize(
    "text", ["[" + " " * 10**6 + "(]", "['" + "\\" * 10**6 + "]", "[" + "a " * 10**5 + "(]"]
)
def test_a_long_cell_is_read_in_one_pass(text):
    assert parse_list(text) is None  # would take hours where a pattern goes back and tries again


def test_what_numpy_prints():
    assert parse_list(str(np.array(["cat", "hot dog"]))) == ["cat", "hot dog"]


def test_a_bracket_alone_is_a_name():
    assert split_cells(["[misc]", "cat"], separator=None, where="x")[0] == [["[misc]"], ["cat"]]
    assert split_cells(["(other)", "cat|(other)"], separator=None, where="x")[0] == [
        ["(other)"],
        ["cat", "(other)"],
    ]


def test_an_explicit_separator_is_taken_as_it_is():
    assert split_cells(["clear  primary road", ""], separator=" ", where="x")[0] == [
        ["clear", "primary", "road"],
        [],
    ]
    assert split_cells(["a::b"], separator="::", where="x") == ([["a", "b"]], "::")
    with pytest.raises(InputError, match="separator is empty"):
        split_cells(["a"], separator="", where="x")
