"""Augmentation on uint8 image tensors, a whole batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from mlcl.errors import check_int
from mlcl.methods.step import Share
from mlcl.registry import Registry


class Augmentation(Protocol):
    """Takes images uint8 [B, C, H, W] and random numbers, returns images of the same shape."""

    def __call__(self, images: Tensor, generator: torch.Generator, share: Share | None = None, /) -> Tensor:
        """Change images; with ``share`` they are these rows of a batch, whose other rows get their draws elsewhere."""


AUGMENTATIONS: Registry[Callable[..., Augmentation]] = Registry("augmentation")


@AUGMENTATIONS.register("none", summary="Images as they are (the paper).")
def no_augmentation() -> Augmentation:
    """Return images as they are."""
    return lambda images, _generator, _share=None: images


@AUGMENTATIONS.register("flip", summary="A horizontal flip for half of the images.")
def flip_augmentation() -> Augmentation:
    """Return `random_flip`."""
    return random_flip


@AUGMENTATIONS.register("crop", summary="A random crop after padding.")
def crop_augmentation(*, padding: int | None = None) -> Augmentation:
    """Return `random_crop`.

    Args:
        padding: pixels of padding before the crop; an eighth of the image if not set.
    """
    if padding is not None:
        check_int("padding", padding, 0)

    def apply(images: Tensor, generator: torch.Generator, share: Share | None = None) -> Tensor:
        room = images.shape[-1] // 8 if padding is None else padding
        return random_crop(images, generator, share, padding=room)

    return apply


@AUGMENTATIONS.register("flip-crop", summary="A horizontal flip for half, and a random crop after padding.")
def flip_crop_augmentation(*, padding: int | None = None) -> Augmentation:
    """Return `random_flip` followed by `random_crop`."""
    crop = crop_augmentation(padding=padding)
    return lambda images, generator, share=None: crop(random_flip(images, generator, share), generator, share)


@AUGMENTATIONS.register(
    "auto",
    summary="What the dataset declares to keep labels true: flip-crop on photographs, nothing on digits or features.",
)
def auto_augmentation(*, padding: int | None = None, suits: str = "flip-crop") -> Augmentation:
    """Return the augmentation ``suits``, which the dataset names; feature vectors stay as they are.

    Args:
        suits: the augmentation that suits the dataset.
    """
    crop_augmentation(padding=padding)  # refuses a bad padding, whoever uses it
    takes = "padding" in AUGMENTATIONS.options(suits)
    on_images = AUGMENTATIONS.build(suits, **({"padding": padding} if takes else {}))
    return lambda inputs, generator, share=None: (
        on_images(inputs, generator, share) if inputs.dim() == 4 else inputs
    )


def random_flip(images: Tensor, generator: torch.Generator, share: Share | None = None) -> Tensor:
    """Flip half of the images, drawn one by one, from left to right."""
    share = share or Share.of(len(images), 0, 1)
    flip = torch.rand(share.total, generator=generator)[share.rows] < 0.5
    return torch.where(flip.view(-1, 1, 1, 1), images.flip(-1), images)


def random_crop(
    images: Tensor, generator: torch.Generator, share: Share | None = None, *, padding: int
) -> Tensor:
    """Pad by zeros on all sides and cut out the original size at a random place per image."""
    if padding == 0:
        return images
    count, channels, height, width = images.shape
    padded = functional.pad(images, (padding, padding, padding, padding))
    share = share or Share.of(count, 0, 1)
    top, left = torch.randint(0, 2 * padding + 1, (2, share.total), generator=generator)[:, share.rows]
    rows = (top[:, None] + torch.arange(height)).view(count, 1, height, 1)
    columns = (left[:, None] + torch.arange(width)).view(count, 1, 1, width)
    samples = torch.arange(count).view(count, 1, 1, 1)
    bands = torch.arange(channels).view(1, channels, 1, 1)
    return padded[samples, bands, rows, columns]
