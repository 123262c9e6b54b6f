"""The feature map against scikit-learn's principal components, dense and sparse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import subspace_angles
from sklearn.decomposition import PCA

from mlcl.exact import FeatureMap, fit_map
from mlcl.exact import features as module


def rows_of(n=200, features=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)) @ rng.normal(size=(4, features)) + 0.1 * rng.normal(size=(n, features))


@pytest.mark.parametrize("limit", [2048, 3])
def test_the_projection_is_to_principal_components_of_half_standardised_rows(limit, monkeypatch):
    monkeypatch.setattr(module, "DENSE", limit)  # few features, or so many that the covariance is never made
    rows = rows_of()
    found = fit_map(rows, dimensions=4)
    root = np.sqrt(rows.std(0))
    expected = PCA(4).fit((rows - rows.mean(0)) / root).components_.T
    assert subspace_angles(found.projection * root[:, None], expected).max() < 1e-4
    assert found.random == 0
    np.testing.assert_allclose(found(rows).mean(0), 0, atol=1e-12)


@pytest.mark.parametrize("limit", [2048, 3])
@pytest.mark.parametrize("dimensions", [None, 4])
def test_sparse_rows_and_dense_rows_give_the_same(limit, dimensions, monkeypatch):
    monkeypatch.setattr(module, "DENSE", limit)
    monkeypatch.setattr(module, "BLOCK", 100)  # many blocks
    monkeypatch.setattr(module, "ROWS", 1)
    rows = rows_of() * (np.random.default_rng(1).random((200, 12)) < 0.3)
    one, other = fit_map(rows, dimensions=dimensions), fit_map(sparse.csr_matrix(rows), dimensions=dimensions)
    np.testing.assert_allclose(one.centre, other.centre, atol=1e-12)
    np.testing.assert_allclose(one(rows), one(sparse.csr_matrix(rows)), atol=1e-12)
    if dimensions:
        assert subspace_angles(one.projection, other.projection).max() < 1e-6


def test_few_features_are_only_centred():
    rows = rows_of().astype(np.float32)
    found = fit_map(rows, dimensions=12)
    assert found.projection is None
    assert found.dimension == found.features == 12
    assert found(rows).dtype == np.float64
    np.testing.assert_allclose(found(rows), rows.astype(float) - rows.astype(float).mean(0), atol=1e-12)


def test_weights_on_mapped_rows_become_weights_on_rows():
    rows, weights = rows_of(), np.random.default_rng(1).normal(size=(3, 5))
    found = fit_map(rows, dimensions=5)
    folded = found.fold(weights)
    np.testing.assert_allclose((rows - found.centre) @ folded.T, found(rows) @ weights.T, atol=1e-10)


def test_fewer_rows_than_dimensions_leave_random_directions():
    rows = rows_of()
    found = fit_map(rows[:3], dimensions=6)
    assert found.random == 4  # three rows have two directions
    assert np.linalg.matrix_rank(found.projection) == 6
    again = fit_map(rows[:3], dimensions=6)
    assert np.array_equal(again.projection, found.projection)
    one = fit_map(rows[:1], dimensions=6)
    assert one.random == 6
    assert np.linalg.matrix_rank(one.projection) == 6


def test_constant_features():
    rows = rows_of()
    rows[:, 5] = 1 / 3
    found = fit_map(rows, dimensions=4)
    np.testing.assert_allclose(found.projection[5], 0, atol=1e-12)
    assert not (rows - found.centre)[:, 5].any()  # exactly: the mean of equal numbers is that number


def test_principal_components_stay_as_they_are():
    """Half standardised, the leading ones would lose weight. Other features, also independent ones, are so."""
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(400, 60)) * np.logspace(0, -2, 60) @ rng.normal(size=(60, 60))
    turned = PCA().fit_transform(mixed)
    found = fit_map(turned, dimensions=20)
    np.testing.assert_allclose(np.abs(found.projection), np.eye(60)[:, :20], atol=1e-8)
    for rows in (mixed, turned[:, rng.permutation(60)], rng.normal(size=(400, 60)) * rng.random(60)):
        columns = np.sqrt((fit_map(rows, dimensions=20).projection ** 2).sum(0))
        assert (np.abs(columns - 1) > 0.01).any()


@pytest.mark.parametrize(("factor", "rows"), [(1.0, 400), (1e6, 400), (1e-6, 400), (1.0, 30)])
def test_components_are_recognised_on_new_rows_and_in_any_units(factor, rows):
    rng = np.random.default_rng(1)
    mixed = rng.normal(size=(2000, 60)) * np.logspace(0, -2, 60) @ rng.normal(size=(60, 60))
    turned = factor * PCA().fit(mixed[:1000]).transform(mixed[1000 : 1000 + rows])
    assert module.are_components(np.cov(turned.T), rows)
    assert not module.are_components(np.cov(factor * mixed[:rows].T), rows)


def test_the_same_map():
    rows = rows_of()
    assert fit_map(rows).same(fit_map(rows[:9]))  # only the centre differs
    assert fit_map(rows, dimensions=3).same(fit_map(rows, dimensions=3))
    assert not fit_map(rows, dimensions=3).same(fit_map(rows[:99], dimensions=3))
    assert not fit_map(rows, dimensions=3).same(fit_map(rows))
    assert not fit_map(rows).same(FeatureMap(np.zeros(11), None))
