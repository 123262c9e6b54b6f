"""Patches, whitening, k-means and principal components, against scikit-learn and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from mlcl.errors import InputError
from mlcl.models.clustering import (
    draw_patches,
    first_centres,
    kmeans,
    normalise_contrast,
    principal_components,
    whitening,
)


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def correlated(rows, columns, *, seed=0):
    """Rows with correlated columns, as patches are."""
    mix = torch.randn(columns, columns, generator=seeded(seed + 100)) / columns**0.5
    return torch.randn(rows, columns, generator=seeded(seed)) @ mix + 3


def inertia(rows, centres):
    return float(torch.cdist(rows.double(), centres.double()).min(1).values.square().sum())


def test_every_patch_is_cut_out_of_an_image():
    images = torch.rand(3, 2, 5, 6, generator=seeded())
    windows = {
        tuple(image[:, row : row + 3, column : column + 3].flatten().tolist())
        for image in images
        for row in range(3)
        for column in range(4)
    }
    found = draw_patches(images, 400, 3, seeded(1))
    assert {tuple(patch.tolist()) for patch in found} == windows  # none that is not there, and none left out


def test_contrast_is_that_of_each_patch_alone():
    patches = torch.rand(5, 12, generator=seeded()) * torch.tensor([[1e-3], [1.0], [5.0], [0.0], [1.0]])
    found = normalise_contrast(patches, floor=0.01).numpy()
    for row, patch in zip(found, patches.numpy(), strict=True):
        np.testing.assert_allclose(row, (patch - patch.mean()) / np.sqrt(patch.var() + 0.01), atol=1e-5)


def test_whitened_rows_have_the_identity_as_covariance():
    rows = correlated(4000, 12).double()
    mean, matrix = whitening(rows, floor=0.0)
    white = ((rows - mean) @ matrix).numpy()
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(12), atol=1e-8)
    assert torch.allclose(matrix, matrix.T)


def test_the_floor_leaves_directions_of_small_variance_small():
    rows = torch.randn(4000, 2, generator=seeded()).double() * torch.tensor([10.0, 1e-4])
    mean, matrix = whitening(rows, floor=0.1)
    first, second = ((rows - mean) @ matrix).std(0)
    assert abs(first - 1) < 0.01
    assert second < 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_kmeans_is_as_good_as_scikit_learns(seed):
    rows = correlated(3000, 10, seed=seed)
    ours = inertia(rows, kmeans(rows, 40, seeded(seed), rounds=100))
    theirs = KMeans(40, n_init=1, random_state=seed).fit(rows.numpy()).inertia_
    assert ours <= 1.03 * theirs


def test_kmeans_ends_where_every_centre_is_the_mean_of_its_rows():
    rows = correlated(500, 4).double()
    centres = kmeans(rows, 12, seeded(), rounds=500)
    owner = torch.cdist(rows, centres).argmin(1)
    for number, centre in enumerate(centres):
        torch.testing.assert_close(centre, rows[owner == number].mean(0))


def test_kmeans_with_fewer_distinct_rows_than_centres_stays_finite():
    rows = torch.tensor([[0.0, 0.0], [1.0, 0.0]]).repeat(5, 1)
    centres = kmeans(rows, 4, seeded())
    assert {tuple(centre.tolist()) for centre in centres} == {(0.0, 0.0), (1.0, 0.0)}


def test_more_centres_than_rows_is_refused():
    with pytest.raises(InputError, match="3 rows to cluster, expected at least the 4 centres"):
        kmeans(torch.zeros(3, 2), 4, seeded())


def test_first_centres_are_spread_out():
    """With as many centres as tight groups, k-means++ nearly always starts in each of them."""
    groups = 10 * torch.eye(8)
    rows = (groups[:, None] + 0.01 * torch.randn(8, 50, 8, generator=seeded())).flatten(0, 1)
    chosen = first_centres(rows, 8, seeded(1))
    assert sorted(chosen.argmax(1).tolist()) == list(range(8))


def test_principal_components_are_scikit_learns():
    rows = correlated(300, 7).double()
    mean, directions = principal_components(rows, 4)
    expected = PCA(4).fit(rows.numpy())
    np.testing.assert_allclose(mean.numpy(), expected.mean_, atol=1e-9)
    signs = np.sign((directions.numpy() * expected.components_).sum(1))
    np.testing.assert_allclose(directions.numpy(), signs[:, None] * expected.components_, atol=1e-8)


def test_with_few_rows_the_directions_are_orthonormal_still():
    _, directions = principal_components(correlated(3, 6).double(), 6)
    torch.testing.assert_close(directions @ directions.T, torch.eye(6).double())
