"""The rules of augmentations; `mlcl.methods.augment` has their interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlcl.methods.augment import AUGMENTATIONS, Augmentation
from mlcl.methods.step import Share
from mlcl.testing.rules import CheckedPart, Rule, case_count, check_rules, expect, global_state, rules_in


@dataclass(frozen=True)
class ImageCase:
    """A batch of images, uint8 ``[B, C, H, W]``, and the seed of the generator."""

    images: Tensor
    seed: int

    def __str__(self) -> str:
        return f"images of shape {tuple(self.images.shape)} and seed {self.seed}"

    def generator(self) -> torch.Generator:
        """Return a new generator."""
        return torch.Generator().manual_seed(self.seed)


def check_augmentation(
    part: str | Callable[..., Augmentation], *, cases: int = 20, seed: int = 0, **options: Any
) -> None:
    """Check that an augmentation keeps the rules of all augmentations, on grey and colour images of several sizes.

    >>> check_augmentation("flip-crop", padding=3)
    """
    check_rules(AUGMENTATIONS, part, options, AUGMENTATION_RULES, image_cases(case_count(cases, seed), seed))


def image_cases(count: int, seed: int) -> list[ImageCase]:
    """Return random batches, the ones with the fewest pixels first."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for number in range(count):
        rows, height, width = (int(torch.randint(1, high, (), generator=generator)) for high in (9, 21, 21))
        shape = (rows, 3 if number % 2 else 1, height, width)
        images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        found.append(ImageCase(images, number))
    return sorted(found, key=lambda case: case.images.numel())


def shape_and_dtype_stay(part: CheckedPart[ImageCase], case: ImageCase) -> None:
    """Augmented images have the shape and the dtype of the images."""
    found = part.build()(case.images, case.generator())
    expect(
        found.shape == case.images.shape and found.dtype == case.images.dtype,
        f"returns {found.dtype} of shape {tuple(found.shape)}",
    )


def inputs_stay(part: CheckedPart[ImageCase], case: ImageCase) -> None:
    """An augmentation does not change the images that it is given."""
    before = case.images.clone()
    part.build()(case.images, case.generator())
    expect(torch.equal(before, case.images), "changes the images in place")


def same_generator_same_images(part: CheckedPart[ImageCase], case: ImageCase) -> None:
    """The same images and the same generator give the same result; nothing else is random."""
    augment = part.build()
    first, second = (augment(case.images, case.generator()) for _ in range(2))
    expect(torch.equal(first, second), "returns other images the second time")


def shares_make_the_batch(part: CheckedPart[ImageCase], case: ImageCase) -> None:
    """Two processes that augment their shares of a batch make the images that one process makes of the whole."""
    augment, rows = part.build(), len(case.images)
    whole = augment(case.images, case.generator())
    shares = [Share.of(rows, number, 2) for number in range(2)]
    parts = [augment(case.images[share.rows], case.generator(), share) for share in shares]
    expect(
        torch.equal(torch.cat(parts), whole), "returns other images for two shares than for the whole batch"
    )


def global_random_state_stays(part: CheckedPart[ImageCase], case: ImageCase) -> None:
    """An augmentation draws from the generator that it is given and leaves global random generators alone."""
    before = global_state()
    part.build()(case.images, case.generator())
    expect(global_state() == before, "draws from a global random generator")


AUGMENTATION_RULES: tuple[Rule[ImageCase], ...] = rules_in(__name__)
