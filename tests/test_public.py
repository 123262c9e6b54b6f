"""The names of the package itself."""

from __future__ import annotations

import pytest

import mlcl
from helpers import small_arrays


def test_public_names_are_all_there():
    for name in mlcl.__all__:
        assert getattr(mlcl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        mlcl.nonsense  # noqa: B018


def test_every_public_name_has_an_example():
    named = (getattr(mlcl, name) for name in mlcl.__all__)
    assert [one.__name__ for one in named if callable(one) and ">>>" not in (one.__doc__ or "")] == []


def test_anybodys_arrays_run_in_four_lines():
    benchmark = mlcl.Benchmark.from_arrays(*small_arrays(), *small_arrays(seed=1), tasks=2, seed=0)
    result = mlcl.run({"model": "mlp", "train": {"epochs": 2}}, benchmark=benchmark)
    assert result.matrix.shape == (2, 2)
    assert result.macro_auc == pytest.approx(result.matrix[-1].mean())
