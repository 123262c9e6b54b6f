"""The checks that all rooms share: one sentence with the option, the value and what was expected."""

import math

import numpy as np
import pytest

from mlcl.errors import InputError, check_choice, check_int, check_number, first_unfit, one_line


def test_good_values_pass():
    assert check_choice("x", "a", ("a", "b")) == "a"
    assert check_int("x", np.int32(3), 3) == 3
    assert check_number("x", 0.0) == 0.0
    assert check_number("x", np.float32(1), high=1.0) == 1.0
    assert check_number("x", -10, low=-10, high=10) == -10.0


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "1", None, True])
def test_numbers_outside_an_open_limit_are_refused(value):
    with pytest.raises(InputError, match=rf"^x is {value!r}; expected a number above 0$"):
        check_number("x", value, open_low=True)


def test_limits_are_named():
    with pytest.raises(InputError, match=r"^x is 2; expected a number from 0 to 1$"):
        check_number("x", 2, high=1.0)
    with pytest.raises(InputError, match=r"^x is -1; expected a number of at least 0$"):
        check_number("x", -1)
    with pytest.raises(InputError, match=r"^x is 0; expected a number above 0, up to 1$"):
        check_number("x", 0, high=1, open_low=True)


@pytest.mark.parametrize("value", [0, 2.0, "2", True, None])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(InputError, match=rf"^x is {value!r}; expected a whole number of at least 1$"):
        check_int("x", value, 1)


@pytest.mark.parametrize("value", ["c", None, 1])
def test_what_is_no_choice_is_refused(value):
    with pytest.raises(InputError, match=rf"^x is {value!r}; expected one of: a, b."):
        check_choice("x", value, ("a", "b"))


def test_one_line_is_bounded():
    assert one_line(RuntimeError("a\n\tb.")) == "a b"
    assert len(one_line(RuntimeError("x" * 500))) == 200


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_only_values_that_cannot_be_summed_in_squares_are_unfit(kind):
    values = np.full((3, 4), np.finfo(kind).max if kind != np.float64 else 1e40, kind)
    for good in (values, -values, np.zeros((0, 4), kind), np.asfortranarray(values)):
        assert first_unfit(good) is None
    for bad, found in ((np.nan, "NaN"), (-np.inf, "infinity")):
        values[1, 2] = bad
        for order in (values, np.asfortranarray(values)):
            assert first_unfit(order) == (6, found, "finite numbers")
