"""Patches of images without labels: drawn, contrast-normalised, whitened and clustered (Coates and Ng, 2012)."""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.errors import InputError


def draw_patches(images: Tensor, count: int, side: int, generator: torch.Generator) -> Tensor:
    """Return ``count`` patches of random images at random places, [count, C * side * side].

    >>> images = torch.arange(16.0).reshape(1, 1, 4, 4)
    >>> draw_patches(images, 2, 2, torch.Generator().manual_seed(0))
    tensor([[ 9., 10., 13., 14.],
            [ 0.,  1.,  4.,  5.]])
    """
    windows = images.unfold(2, side, 1).unfold(3, side, 1)  # [n, C, rows, columns, side, side], a view
    sizes = (windows.shape[0], windows.shape[2], windows.shape[3])
    image, row, column = (torch.randint(size, (count,), generator=generator) for size in sizes)
    return windows[image, :, row, column].flatten(1)


def normalise_contrast(patches: Tensor, *, floor: float) -> Tensor:
    """Return patches [n, D] with mean 0 and a variance near 1; ``floor`` is added to the variance of each.

    >>> normalise_contrast(torch.tensor([[0.0, 2.0], [5.0, 5.0]]), floor=1e-6)
    tensor([[-1.0000,  1.0000],
            [ 0.0000,  0.0000]])
    """
    centred = patches - patches.mean(1, keepdim=True)
    # Not a division by a square root: MKL's depends on the processor, also in portable runs.
    return centred * (centred.square().mean(1, keepdim=True) + floor).rsqrt()


def whitening(rows: Tensor, *, floor: float) -> tuple[Tensor, Tensor]:
    """Return mean [D] and symmetric matrix [D, D] such that ``(rows - mean) @ matrix`` are uncorrelated (ZCA).

    Args:
        rows: [n, D].
        floor: Added to the variance of each principal direction: directions of a smaller variance stay small.
    """
    mean = rows.mean(0)
    centred = (rows - mean).double()
    variance, directions = torch.linalg.eigh(centred.T @ centred / len(rows))
    scale = (variance.clamp_min(0) + floor).rsqrt()
    return mean, ((directions * scale) @ directions.T).to(rows.dtype)


def kmeans(rows: Tensor, count: int, generator: torch.Generator, *, rounds: int = 25) -> Tensor:
    """Return ``count`` centres [count, D] of the rows [n, D] by Lloyd's algorithm, started by k-means++.

    A centre that loses all its rows moves to the row that is farthest from its own centre.

    Args:
        rows: [n, D]; at least as many as centres.
        count: Number of centres.
        generator: Draws the first centres.
        rounds: At most so many passes; fewer if nothing changes any more.

    >>> rows = torch.tensor([[0.0], [0.2], [5.0], [5.2], [9.0]])
    >>> kmeans(rows, 3, torch.Generator().manual_seed(0)).sort(0).values.flatten()
    tensor([0.1000, 5.1000, 9.0000])
    """
    if len(rows) < count:
        raise InputError(f"there are {len(rows)} rows to cluster, expected at least the {count} centres")
    centres = first_centres(rows, count, generator)
    lengths = rows.square().sum(1)
    before = None
    for _ in range(rounds):
        half = torch.addmm(
            centres.square().sum(1) / 2, rows, centres.T, alpha=-1
        )  # (distance^2 - |row|^2) / 2
        nearest, owner = half.min(1)
        if before is not None and torch.equal(owner, before):
            break
        before = owner
        sizes = torch.bincount(owner, minlength=count)
        sums = torch.zeros_like(centres).index_add_(0, owner, rows)
        centres = sums / sizes.clamp_min(1).to(rows.dtype)[:, None]
        empty = (sizes == 0).nonzero().flatten()
        if len(empty):
            centres[empty] = rows[(lengths + 2 * nearest).topk(len(empty)).indices]
    return centres


def first_centres(rows: Tensor, count: int, generator: torch.Generator, *, sample: int = 10_000) -> Tensor:
    """Draw centres far from those drawn before, among ``sample`` rows: k-means++ (Arthur and Vassilvitskii, 2007)."""
    if len(rows) > max(sample, count):
        rows = rows[torch.randperm(len(rows), generator=generator)[: max(sample, count)]]
    lengths = rows.square().sum(1)
    chosen = [int(torch.randint(len(rows), (1,), generator=generator))]
    distance = torch.full_like(lengths, torch.inf)
    for _ in range(count - 1):
        last = rows[chosen[-1]]
        distance = torch.minimum(distance, (lengths - 2 * (rows @ last) + last.square().sum()).clamp_min(0))
        distance[chosen[-1]] = 0
        total = distance.double().cumsum(0)
        if total[-1] > 0:
            drawn = torch.rand((), generator=generator, dtype=torch.float64) * total[-1]
            chosen.append(min(int(torch.searchsorted(total, drawn, right=True)), len(rows) - 1))
        else:  # fewer distinct rows than centres
            chosen.append(int(torch.randint(len(rows), (1,), generator=generator)))
    return rows[chosen].clone()


def principal_components(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the mean [D] and the ``count`` directions [count, D] of the largest variance, orthonormal.

    Each direction is turned so that its largest entry is positive. With fewer rows than directions the last ones
    carry no variance of these rows.

    >>> mean, directions = principal_components(torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]), 1)
    >>> mean, directions
    (tensor([2., 2.]), tensor([[0.7071, 0.7071]]))
    """
    mean = rows.double().mean(0)
    centred = rows.double() - mean
    _, directions = torch.linalg.eigh(centred.T @ centred)
    found = directions.flip(1)[:, :count].T
    largest = found.gather(1, found.abs().argmax(1, keepdim=True))
    return mean.to(rows.dtype), (found * largest.sign()).to(rows.dtype)
