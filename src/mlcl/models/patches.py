"""``patches``: features of images without labels, gradients or pre-trained weights (Coates and Ng, 2012).

`Patches.fit` looks at the first task's images once: patches of them are contrast-normalised, whitened and clustered.
From then on every place of an image responds to every centre by how much closer than average it is (the "triangle"
activation), and an image's features are the mean responses in each quadrant and the largest response anywhere, for the
image and its mirror image; then their principal components. Nothing is trained, so what later tasks learn on these
features cannot change them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.errors import InputError, check_int
from mlcl.models.mlp import linear
from mlcl.models.network import MODELS, Backbone, Inputs, image_channels

CONTRAST, WHITEN = 0.01, 0.1
"""What is added to the variance of a patch of pixels in [0, 1], and to the variances of normalised patches."""
DRAWN, PATCHES, IMAGES = 2_000, 50_000, 8_000
"""How many images patches are drawn from, how many patches, and how many images show the principal components."""
POOLED = 5
"""Numbers per patch: the means of four quadrants and the maximum."""
EMPTY = 2.0**-20
"""Directions that vary by less of the first one are the rounding of float32."""
PIECE = 8
"""Images at once: their maps of responses fit into a core's cache, which is 1.5 times faster than 64 at once."""


def draw_patches(images: Tensor, count: int, side: int, generator: torch.Generator) -> Tensor:
    """Return ``count`` patches of random images at random places, [count, C * side * side]."""
    windows = images.unfold(2, side, 1).unfold(3, side, 1)  # [n, C, rows, columns, side, side], a view
    sizes = (windows.shape[0], windows.shape[2], windows.shape[3])
    image, row, column = (torch.randint(size, (count,), generator=generator) for size in sizes)
    return windows[image, :, row, column].flatten(1)


def normalise_contrast(patches: Tensor, *, floor: float) -> Tensor:
    """Return patches [n, D] with mean 0 and a variance near 1; ``floor`` is added to the variance of each."""
    centred = patches - patches.mean(1, keepdim=True)
    # Not a division by a square root: MKL's depends on the processor, also in portable runs.
    return centred * (centred.square().mean(1, keepdim=True) + floor).rsqrt()


def whitening(rows: Tensor, *, floor: float) -> tuple[Tensor, Tensor]:
    """Return mean [D] and symmetric matrix [D, D] such that ``(rows - mean) @ matrix`` are uncorrelated (ZCA).

    Args:
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
    """
    if len(rows) < count:
        raise InputError(f"there are {len(rows)} rows to cluster, expected at least the {count} centres")
    centres = first_centres(rows, count, generator)
    lengths = rows.square().sum(1)
    before = None
    for _ in range(rounds):
        # (distance^2 - |row|^2) / 2
        half = torch.addmm(centres.square().sum(1) / 2, rows, centres.T, alpha=-1)
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
    """
    mean = rows.double().mean(0)
    centred = rows.double() - mean
    _, directions = torch.linalg.eigh(centred.T @ centred)
    found = directions.flip(1)[:, :count].T
    largest = found.gather(1, found.abs().argmax(1, keepdim=True))
    return mean.to(rows.dtype), (found * largest.sign()).to(rows.dtype)


def spread(rows: Tensor) -> Tensor:
    """Return the root of the mean variance of the columns; 1 where all rows are the same."""
    found = rows.var(0, correction=0).mean().sqrt()
    return found if found > 0 else torch.ones_like(found)


class Patches(Backbone):
    """The responses of whitened patches, their means over quadrants and their maxima, as principal components."""

    kind = "vector"
    normalises = True  # patches are normalised one by one
    fits = True
    projects = True
    filters: Tensor
    bias: Tensor
    components: Tensor
    offset: Tensor

    def __init__(
        self, input_shape: tuple[int, ...], *, centres: int, patch: int, dimensions: int, mirror: bool | None
    ) -> None:
        super().__init__()
        self.centres, self.patch, self.width, self.mirror = centres, patch, dimensions, mirror
        self.mirrors = bool(mirror)
        numbers = input_shape[0] * patch**2
        # Random filters and directions until `fit` is called: a random map of features, but one.
        filters = torch.randn(centres + numbers, input_shape[0], patch, patch) / numbers**0.5
        self.register_buffer("filters", filters)
        self.register_buffer("bias", torch.zeros(centres + numbers))
        numbers = POOLED * centres
        self.register_buffer("components", torch.randn(dimensions, numbers) / numbers**0.5)
        self.register_buffer("offset", torch.zeros(dimensions))

    def get_extra_state(self) -> Tensor:
        """Return whether images are mirrored, which `fit` settles, for the state dict."""
        return torch.tensor(self.mirrors)

    def set_extra_state(self, state: Tensor) -> None:
        """Take it from a state dict."""
        self.mirrors = bool(state)

    def fit(self, inputs: Inputs, *, generator: torch.Generator, mirror: bool) -> None:
        """Learn patches and principal components from images in [0, 1]; at most 8,000 of them are looked at."""
        self.mirrors = mirror if self.mirror is None else self.mirror
        order = torch.randperm(len(inputs), generator=generator)
        with torch.no_grad():
            rows = order[:DRAWN].sort().values
            drawn = [
                draw_patches(
                    inputs[piece].cpu(), -(-PATCHES * len(piece) // len(rows)), self.patch, generator
                )
                for piece in torch.split(rows, 256)
            ]
            patches = normalise_contrast(torch.cat(drawn), floor=CONTRAST)
            mean, whiten = whitening(patches, floor=WHITEN)
            centres = kmeans((patches - mean) @ whiten, self.centres, generator)
            # A whitened patch is z = whiten ((p - mean(p)) / s - mean), its squared distance to a centre c is
            # |z|^2 - 2 c.z + |c|^2: both are a convolution of the image, divided by s, plus a bias.
            filters = torch.cat([-2 * centres, torch.eye(len(mean))]) @ whiten
            self.bias.copy_(-filters @ mean)
            self.bias[: self.centres] += centres.square().sum(1).to(self.bias)
            self.filters.copy_((filters - filters.mean(1, keepdim=True)).view_as(self.filters))
            rows = order[:IMAGES].sort().values
            pooled = torch.cat([self.pooled(inputs[piece]).cpu() for piece in torch.split(rows, 512)])
            # Means and maxima on one scale: what a place in the image adds to a mean is small.
            means = (POOLED - 1) * self.centres
            scale = torch.ones(pooled.shape[1], dtype=pooled.dtype)
            scale[means:] = spread(pooled[:, :means]) / spread(pooled[:, means:])
            centre, directions = principal_components(pooled * scale, self.width)
            # A direction in which these images do not vary is rounding alone: fewer images than components.
            varies = (pooled * scale @ directions.T).std(0)
            directions[varies < EMPTY * varies.max()] = 0
            self.components.copy_(directions * scale)
            self.offset.copy_(-directions @ centre)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images [B, C, H, W] in [0, 1] to vectors [B, width]."""
        return F.linear(self.pooled(inputs), self.components, self.offset)

    def pooled(self, images: Tensor) -> Tensor:
        """Return the mean response of every centre in every quadrant, then the largest of each, [B, 5 * centres]."""
        if torch.compiler.is_compiling():  # an exported graph takes any number of images
            return self._pooled(images)
        return torch.cat([self._pooled(piece) for piece in torch.split(images, PIECE)])

    def _pooled(self, images: Tensor) -> Tensor:
        found = self._responses(images)
        return (found + self._responses(images.flip(-1))) / 2 if self.mirrors else found

    def _responses(self, images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        mean = F.avg_pool2d(images.mean(1, keepdim=True), self.patch, 1)
        square = F.avg_pool2d(images.square().mean(1, keepdim=True), self.patch, 1)
        contrast = ((square - mean.square()).clamp_min(0) + CONTRAST).rsqrt()
        found = torch.addcmul(self.bias.view(1, -1, 1, 1), F.conv2d(images, self.filters), contrast)
        length = found[:, self.centres :].square().sum(1, keepdim=True)
        # In place, because most of the time is spent on moving these maps; at 0 the root has no gradient.
        distance = (found[:, : self.centres] + length).clamp_min_(1e-6)
        distance = distance * distance.rsqrt()  # sqrt is MKL's, which depends on the processor
        responses = (distance.mean(1, keepdim=True) - distance).relu_()
        sides = [-(-side // 2) for side in responses.shape[2:]]  # of odd maps the middle is in both halves
        steps = [side - half for side, half in zip(responses.shape[2:], sides, strict=True)]
        means = F.avg_pool2d(responses, sides, steps)
        return torch.cat([means.flatten(1), responses.amax((2, 3))], 1)


@MODELS.register(
    "patches",
    summary="K-means patches of the first task's images: no labels, no gradients; options centres, patch, dimensions",
    reference="Coates and Ng, 2012",
)
def patches(
    input_shape: tuple[int, ...],
    *,
    centres: int = 400,
    patch: int = 6,
    dimensions: int = 400,
    mirror: bool | None = None,
) -> Patches:
    """Return the encoder, with random patches until the learner shows it the first task's images.

    Args:
        centres: Number of patches.
        patch: Side of a patch in pixels; at most one pixel less than the images.
        dimensions: Number of features, principal components of five per patch.
        mirror: Average over image and mirror image. Not set: where the dataset's augmentation has a flip.

    >>> encoder = patches((3, 16, 16), centres=8, dimensions=5)
    >>> encoder.fit(torch.rand(20, 3, 16, 16), generator=torch.Generator().manual_seed(0), mirror=True)
    >>> encoder(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 5])
    """
    check_int("centres", centres, 1)
    check_int("patch", patch, 1)
    check_int("dimensions", dimensions, 1)
    image_channels("patches", input_shape, smallest=patch + 1)
    return Patches(
        input_shape, centres=centres, patch=patch, dimensions=min(dimensions, POOLED * centres), mirror=mirror
    )


@MODELS.register(
    "fixed",
    summary="What needs no training: 'patches' for images, and feature vectors as they are ('linear')",
)
def fixed(
    input_shape: tuple[int, ...],
    *,
    centres: int = 400,
    patch: int = 6,
    dimensions: int = 400,
    mirror: bool | None = None,
) -> Backbone:
    """Return `patches` for images, or `linear` for feature vectors, which has no options.

    >>> fixed((12,)).width, fixed((3, 16, 16), dimensions=64).width
    (12, 64)
    """
    if len(input_shape) == 1:
        return linear(input_shape)
    return patches(input_shape, centres=centres, patch=patch, dimensions=dimensions, mirror=mirror)
