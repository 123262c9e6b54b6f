"""Generators of the streams: one per purpose, so that one option does not change the draws of another."""

from __future__ import annotations

import numpy as np

from mlcl.errors import check_int

# `mlcl.seeds` derives its generators in another way. To use it here would change the bits of every stream, and with
# them every published number: at the next version.
ORDER, DISJOINT, IMBALANCE, HOLD_OUT, KEEP_OUT = range(1, 6)


def generator(seed: int, *key: int) -> np.random.Generator:
    """Return the generator for one purpose, named by ``key``, under the user's ``seed``.

    >>> [generator(0, key).integers(100, size=3).tolist() for key in (ORDER, DISJOINT)]
    [[52, 88, 99], [97, 8, 28]]
    """
    return np.random.default_rng([check_int("seed", seed, 0), *key])
