"""What both taggers are given: rows of features, and the goal of their thresholds; refused in one sentence each."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from mlcl.errors import InputError, check_choice
from mlcl.metrics.decisions import KINDS, Goal, GoalKind


def check_rows(estimator: Any, X: Any, **options: Any) -> Any:
    """Return features as scikit-learn's ``validate_data`` does.

    Where its message would quote the array, or not name it, an `InputError` says what was wrong with ``X``.
    """
    try:
        return validate_data(estimator, X, **options)
    except ValueError as error:
        text = str(error)
        if "Reshape your data" in text:
            raise InputError(
                f"X has shape {np.shape(X)}; expected rows of features [n, D]. "
                "Reshape your data: a single row by X.reshape(1, -1)"
            ) from None
        if text.startswith("Complex data not supported"):
            raise InputError(
                "X has complex numbers; expected real ones. Complex data not supported"
            ) from None
        if text.startswith("could not convert"):
            raise InputError(f"X has an entry that is no number: {text}; expected numbers") from None
        raise


def goal_of(decide: GoalKind, decide_value: float | None) -> Goal:
    """Return the goal that two parameters of a tagger name.

    >>> goal_of("precision", 90)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: decide_value: precision is 90; expected a number above 0, up to 1
    """
    check_choice("decide", decide, KINDS)
    try:
        return Goal(decide, decide_value)
    except InputError as error:
        raise InputError(f"decide_value: {error}") from None
