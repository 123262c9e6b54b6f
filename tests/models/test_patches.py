"""The encoder `patches`, against its definition written as loops over places."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from mlcl.errors import InputError
from mlcl.models import build_model
from mlcl.models import patches as room
from mlcl.models.patches import (
    CONTRAST,
    PATCHES,
    WHITEN,
    draw_patches,
    first_centres,
    fixed,
    kmeans,
    normalise_contrast,
    patches,
    principal_components,
    whitening,
)

SHAPE = (3, 9, 10)


def images(count, shape=SHAPE, seed=0):
    """Smooth random images in [0, 1]."""
    coarse = torch.rand(count, shape[0], 4, 4, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(coarse, shape[1:], mode="bilinear")


def fitted(*, mirror=False, seed=0, **options):
    encoder = patches(SHAPE, **({"centres": 12, "patch": 4, "dimensions": 10} | options))
    encoder.fit(images(40), generator=torch.Generator().manual_seed(seed), mirror=mirror)
    return encoder.eval()


def by_definition(batch, centres, mean, whiten, side):
    """Mean triangle response of every centre in every quadrant, then its maximum; odd sides share their middle."""
    found = []
    for image in batch.double().numpy():
        rows, columns = (length - side + 1 for length in image.shape[1:])
        responses = np.zeros((len(centres), rows, columns))
        for r in range(rows):
            for c in range(columns):
                patch = image[:, r : r + side, c : c + side].ravel()
                patch = (patch - patch.mean()) / np.sqrt(patch.var() + CONTRAST)
                distances = np.linalg.norm((patch - mean) @ whiten - centres, axis=1)
                responses[:, r, c] = np.maximum(0, distances.mean() - distances)
        half = [-(-rows // 2), -(-columns // 2)]
        quadrants = [
            responses[:, top, left].mean((1, 2))
            for top in (slice(None, half[0]), slice(rows - half[0], None))
            for left in (slice(None, half[1]), slice(columns - half[1], None))
        ]
        found.append(np.concatenate([np.stack(quadrants, 1).ravel(), responses.max((1, 2))]))
    return np.array(found)


def test_features_are_those_of_the_definition():
    encoder = fitted()
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(40, generator=generator)
    drawn = draw_patches(images(40)[order.sort().values], PATCHES, 4, generator)
    drawn = normalise_contrast(drawn, floor=CONTRAST)
    mean, whiten = whitening(drawn, floor=WHITEN)
    centres = kmeans((drawn - mean) @ whiten, 12, generator)
    batch = images(5, seed=1)
    centres, mean, whiten = (value.double().numpy() for value in (centres, mean, whiten))
    expected = by_definition(batch, centres, mean, whiten, 4)
    np.testing.assert_allclose(encoder.pooled(batch).numpy(), expected, atol=2e-4)


def test_means_and_maxima_weigh_the_same_in_the_principal_components():
    """The components are those of the pooled responses with the maxima scaled to the spread of the means."""
    encoder = fitted()
    pooled = encoder.pooled(images(40)).double().numpy()
    pooled -= pooled.mean(0)
    means, maxima = pooled[:, :48], pooled[:, 48:]
    maxima *= np.sqrt(means.var(0).mean() / maxima.var(0).mean())
    _, values, directions = np.linalg.svd(np.concatenate([means, maxima], 1), full_matrices=False)
    expected = np.concatenate([means, maxima], 1) @ directions[:10].T
    found = encoder(images(40)).double().numpy()
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=2e-3 * values[0])


def test_components_of_the_images_it_has_seen_are_centred_and_uncorrelated():
    found = fitted()(images(40)).double()
    torch.testing.assert_close(found.mean(0), torch.zeros(10).double(), atol=1e-4, rtol=0)
    covariance = torch.cov(found.T)
    assert float((covariance - covariance.diag().diag()).abs().max()) < 1e-4 * float(covariance.max())
    assert (covariance.diag().diff() <= 1e-6).all()  # the largest variance first


def test_mirrored_images_have_the_same_features_if_wanted():
    batch = images(4, seed=1)
    with_mirror, without = fitted(mirror=True), fitted(mirror=False)
    torch.testing.assert_close(with_mirror(batch), with_mirror(batch.flip(-1)), atol=1e-5, rtol=1e-4)
    assert float((without(batch) - without(batch.flip(-1))).abs().max()) > 1e-2


@pytest.mark.parametrize(
    ("option", "said", "expected"), [(None, True, True), (False, True, False), (True, False, True)]
)
def test_the_users_choice_of_mirroring_wins(option, said, expected):
    encoder = patches(SHAPE, centres=4, dimensions=3, mirror=option)
    encoder.fit(images(10), generator=torch.Generator().manual_seed(0), mirror=said)
    assert encoder.mirrors is expected


def test_contrast_and_brightness_hardly_matter():
    """Patches are normalised one by one: a darker image has nearly the same features."""
    encoder, batch = fitted(), images(6, seed=1)
    shown = encoder(batch)
    shifted = encoder(batch * 0.9 + 0.05)
    assert float((shown - shifted).norm() / shown.norm()) < 0.2
    torch.testing.assert_close(encoder(batch + 0.3), shown, atol=1e-3, rtol=1e-3)


def test_the_same_seed_gives_the_same_encoder_and_another_seed_another():
    one, two, other = fitted(seed=1), fitted(seed=1), fitted(seed=2)
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name])
    assert not torch.equal(one.filters, other.filters)


def test_the_state_dict_restores_everything_also_whether_images_are_mirrored():
    encoder = fitted(mirror=True)
    other = patches(SHAPE, centres=12, patch=4, dimensions=10)
    other.load_state_dict(encoder.state_dict())
    batch = images(3, seed=1)
    assert other.mirrors
    assert torch.equal(other(batch), encoder(batch))


def test_the_number_of_images_at_once_does_not_matter(monkeypatch):
    encoder, batch = fitted(), images(21, seed=1)
    found = encoder(batch)
    monkeypatch.setattr(room, "PIECE", 100)
    torch.testing.assert_close(encoder(batch), found, atol=1e-5, rtol=1e-4)


def test_nothing_is_trained_but_gradients_reach_the_inputs():
    network = build_model("patches", SHAPE, 3, centres=8, dimensions=5)
    assert {name for name, _ in network.named_parameters()} == {"head.linear.weight", "head.linear.bias"}
    batch = images(2).requires_grad_()
    network(batch).square().sum().backward()
    assert batch.grad is not None
    assert batch.grad.isfinite().all()
    assert batch.grad.abs().sum() > 0


def test_one_colour_gives_finite_features():
    encoder = patches(SHAPE, centres=6, dimensions=5)
    encoder.fit(torch.full((5, *SHAPE), 0.5), generator=torch.Generator().manual_seed(0), mirror=True)
    assert encoder(images(3)).isfinite().all()


def test_there_are_no_more_dimensions_than_responses():
    assert patches(SHAPE, centres=3, patch=4, dimensions=100).width == 15


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((12,), {}, "takes images"),
        ((3, 6, 9), {}, "at least 7 x 7 pixels, not 6 x 9"),
        ((2, 9, 9), {}, "1 or 3 channels"),
        (SHAPE, {"centres": 0}, "centres is 0"),
        (SHAPE, {"patch": 0}, "patch is 0"),
        (SHAPE, {"dimensions": 0}, "dimensions is 0"),
    ],
)
def test_what_does_not_fit_is_refused(shape, options, message):
    with pytest.raises(InputError, match=message):
        patches(shape, **options)


def test_fixed_is_patches_on_images_and_the_identity_on_vectors():
    vectors = torch.rand(3, 5)
    assert torch.equal(fixed((5,))(vectors), vectors)
    one, two = (build_model(kind, SHAPE, 2, seed=3, centres=6) for kind in ("fixed", "patches"))
    assert torch.equal(one(images(2)), two(images(2)))


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
