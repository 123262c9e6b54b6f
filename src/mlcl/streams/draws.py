"""Generators: one for each thing that is drawn, so that one option does not change the draws of another."""

from __future__ import annotations

import numpy as np

from mlcl.errors import InputError

ORDER, DISJOINT, IMBALANCE, HOLD_OUT = range(1, 5)


def generator(seed: int, *key: int) -> np.random.Generator:
    """Return the generator of one thing to draw, named by ``key``, under the user's ``seed``.

    >>> [generator(0, key).integers(100, size=3).tolist() for key in (ORDER, DISJOINT)]
    [[52, 88, 99], [97, 8, 28]]
    """
    if seed < 0:
        raise InputError(f"seed is {seed}, but a whole number of at least 0 was expected")
    return np.random.default_rng([seed, *key])
