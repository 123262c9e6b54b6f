"""Augmentation against a loop over images."""

from __future__ import annotations

import torch

from mlcl.methods.augment import AUGMENTATIONS, random_crop, random_flip


def images(n=9):
    return torch.randint(0, 255, (n, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_flip_is_a_flip_of_about_half_of_the_images():
    x = images(200)
    out = random_flip(x, torch.Generator().manual_seed(0))
    flipped = [torch.equal(o, i.flip(-1)) for o, i in zip(out, x, strict=True)]
    kept = [torch.equal(o, i) for o, i in zip(out, x, strict=True)]
    assert all(a != b for a, b in zip(flipped, kept, strict=True))
    assert 70 < sum(flipped) < 130


def test_crop_is_a_window_of_the_padded_image():
    x = images(60)
    out = random_crop(x, torch.Generator().manual_seed(0), padding=2)
    padded = torch.nn.functional.pad(x, (2, 2, 2, 2))
    places = set()
    for o, p in zip(out, padded, strict=True):
        found = [(i, j) for i in range(5) for j in range(5) if torch.equal(o, p[:, i : i + 6, j : j + 6])]
        assert found
        places.update(found)
    assert len(places) > 15


def test_the_same_seed_gives_the_same_images_and_shapes_stay():
    for kind in AUGMENTATIONS.names():
        augment = AUGMENTATIONS.build(kind)
        first, second = (augment(images(), torch.Generator().manual_seed(3)) for _ in range(2))
        assert torch.equal(first, second)
        assert first.shape == images().shape
        assert first.dtype == torch.uint8
