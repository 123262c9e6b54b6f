"""The one kind of error that a user can fix, bad input, and the checks that raise it in one sentence."""

from __future__ import annotations

import contextlib
import difflib
import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

LARGEST = 1e40
"""The largest absolute value of a feature, and the largest weight, where squares are summed. All of float32 is below
it, and float64 ends at 1e308: sums of weighted squares stay finite, and so do the products of two of them."""


class InputError(ValueError):
    """Bad input from outside. Its message names the file or field, the value, and what was expected.

    The command line prints the message alone and exits with code 2.

    >>> import mlcl
    >>> mlcl.macro_auc([[0.1], [0.2]], [[2], [0]])
    Traceback (most recent call last):
    mlcl.errors.InputError: labels has the value 2 at row 0, column 0, but only 0 and 1 are allowed
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the closest known name, or an empty string.

    >>> nearest("rldam-wur", ["ft", "er", "rldam-wru"])
    " Did you mean 'rldam-wru'?"
    """
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {found[0]!r}?" if found else ""


def one_line(error: object, *, limit: int = 200) -> str:
    """Return what an error of another library says as part of a sentence: one line, bounded, without a final dot.

    >>> one_line(RuntimeError("Error(s) in loading state_dict for Net:\\n\\tsize mismatch for w."))
    'Error(s) in loading state_dict for Net: size mismatch for w'
    >>> one_line(KeyError())
    'KeyError'
    """
    return (" ".join(str(error).split())[:limit] or type(error).__name__).rstrip(".")


def reason(error: BaseException) -> str:
    """Return what an error says in one line, without the path that the sentence has already."""
    return one_line(error.strerror if isinstance(error, OSError) and error.strerror else error)


@contextlib.contextmanager
def parsing(complaint: str) -> Iterator[None]:
    """Make an `InputError` of whatever the parser of an untrusted file trips over in the block.

    >>> with parsing("a.json is not readable JSON"):
    ...     raise KeyError("shape")
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: a.json is not readable JSON: 'shape'
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{complaint}: {reason(error)}") from None


def check_choice(name: str, value: object, known: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``known``; otherwise an `InputError` that names the option.

    >>> check_choice("ties", "haf", ("half", "strict"))
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: ties is 'haf'; expected one of: half, strict. Did you mean 'half'?
    """
    allowed = list(known)
    if not isinstance(value, str) or value not in allowed:
        raise InputError(
            f"{name} is {value!r}; expected one of: {', '.join(allowed)}.{nearest(str(value), allowed)}"
        )
    return value


def check_int(name: str, value: Any, least: int) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``least``.

    >>> check_int("size", 2.5, 1)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: size is 2.5; expected a whole number of at least 1
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or operator.index(value) < least:
        raise InputError(f"{name} is {value!r}; expected a whole number of at least {least}")
    return operator.index(value)


def check_number(
    name: str, value: Any, *, low: float = 0.0, high: float = math.inf, open_low: bool = False
) -> float:
    """Return a finite number from ``low`` (above it, if ``open_low``) to ``high``; refuse anything else.

    >>> check_number("share", 1.5, high=1)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: share is 1.5; expected a number from 0 to 1
    """
    numeric = isinstance(value, int | float) or hasattr(value, "dtype")
    try:
        number = float(value) if numeric and not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):  # an array of several values
        number = math.nan
    if not (math.isfinite(number) and low <= number <= high) or (open_low and number == low):
        limits = f"above {low:g}" if open_low else f"of at least {low:g}"
        if not math.isinf(high):
            limits = f"above {low:g}, up to {high:g}" if open_low else f"from {low:g} to {high:g}"
        raise InputError(f"{name} is {value!r}; expected a number {limits}")
    return number


def first_unfit(values: Any) -> tuple[int, str, str] | None:
    """Return the place of the first value that is NaN, infinite or above `LARGEST`, its name and what was expected.

    Args:
        values: a numpy array of floating-point numbers; the place counts along all its axes.

    Returns:
        None if all values can be summed in squares.

    >>> import numpy as np
    >>> first_unfit(np.array([[1.0, 2.0], [-1e155, np.nan]]))
    (2, '-1e+155', 'finite numbers of at most 1e+40 in absolute value')
    """
    # Two passes without a copy; NaN passes through both.
    if float(values.min(initial=0)) >= -LARGEST and float(values.max(initial=0)) <= LARGEST:
        return None
    flat = values.ravel().astype("float64")
    place = int((~(abs(flat) <= LARGEST)).argmax())
    value = float(flat[place])
    expected = "finite numbers"
    if math.isfinite(value):
        return place, f"{value:g}", f"{expected} of at most {LARGEST:g} in absolute value"
    return place, "NaN" if math.isnan(value) else "infinity", expected
