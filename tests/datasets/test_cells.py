"""Labels in one cell: whatever a program prints is read back, and no text is evaluated."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcl.datasets.tags import parse_list, split_cells
from mlcl.errors import InputError

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
