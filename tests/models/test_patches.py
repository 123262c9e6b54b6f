"""The encoder `patches`, against its definition written as loops over places."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlcl.errors import InputError
from mlcl.models import build_model
from mlcl.models import patches as room
from mlcl.models.clustering import draw_patches, kmeans, normalise_contrast, whitening
from mlcl.models.patches import CONTRAST, PATCHES, WHITEN, fixed, patches

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
