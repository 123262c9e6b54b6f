"""Parts that were tried beside a taught committee and did not pay (lab/decisions.md#parts-that-did-not-pay).

    mlcl run c-voc-small --method taught-committee --validate true --plugin results/trials/parts.py \
        --regulariser prototypes

The three regularisers are ``lwf`` with the Huber distance, as a committee has it, and one more term each.
"""

from __future__ import annotations

import ast
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from mlcl.methods.regularisers.base import REGULARISERS
from mlcl.methods.regularisers.distillation import LogitDistillation
from mlcl.methods.step import Step, TaskContext
from mlcl.models.network import MODELS, Backbone, Inputs
from mlcl.models.patches import IMAGES, Patches, batches, principal_components, spread

Moments = tuple[Tensor, Tensor]
"""Mean and covariance."""


class _Held(LogitDistillation):
    """The old classes' logits are held, as by ``lwf``; ``extra`` is the factor on a further term.

    Args:
        strength: as for ``lwf``.
        distance: as for ``lwf``.
        extra: factor on the further term.
    """

    def __init__(
        self, *, strength: float = 1.0, distance: Literal["bce", "mse", "huber"] = "huber", extra: float = 1.0
    ) -> None:
        super().__init__(strength=strength, distance=distance)
        self.extra = extra


@REGULARISERS.register("features", summary="Trial: the old network's features are held beside its logits.")
class HeldFeatures(_Held):
    """Mean squared difference of features, in units of their variance."""

    def penalty(self, step: Step) -> Tensor | None:
        """Return the distillation of logits and features."""
        held = super().penalty(step)
        if held is None:
            return None
        _, taught = step.teacher_output
        if step.embeddings is None or taught is None:
            return held
        variance = taught.var(0).mean().clamp_min(1e-6)
        return held + self.extra * functional.mse_loss(step.embeddings, taught) / variance


@REGULARISERS.register("rotations", summary="Trial: half of the rows are turned, and features must tell how.")
class Rotations(_Held):
    """Cross-entropy of the quarter turn, predicted from features by a fixed random layer."""

    def start_task(self, context: TaskContext) -> None:
        """Draw the layer; it is the same in every task."""
        width = context.model.backbone.width
        self.layer = torch.randn(4, width, generator=torch.Generator().manual_seed(5)) / width**0.5 * 3

    def penalty(self, step: Step) -> Tensor | None:
        """Return the distillation and the loss of the turns."""
        held, generator = super().penalty(step), step.context.generator
        rows = step.inputs[torch.randperm(len(step.inputs), generator=generator)[: len(step.inputs) // 2]]
        turns = torch.randint(0, 4, (len(rows),), generator=generator)
        turned = torch.stack(
            [torch.rot90(row, int(turn), (1, 2)) for row, turn in zip(rows, turns, strict=True)]
        )
        features = step.context.model.features(turned.contiguous(memory_format=torch.channels_last))
        loss = self.extra * functional.cross_entropy(features @ self.layer.T, turns)
        return loss if held is None else held + loss


@REGULARISERS.register("prototypes", summary="Trial: features of old classes are drawn from carried moments.")
class Prototypes(_Held):
    """The head's loss on features that are drawn from the moments of old classes (positives) and tasks (negatives).

    Rows of a class's own task weigh 1 among its negatives, those of other tasks ``unlabelled``; new classes have the
    old tasks as negatives. Moments are carried by a linear map after each task.

    Args:
        strength: as for ``lwf``.
        distance: as for ``lwf``.
        extra: factor on the loss of drawn features.
        unlabelled: weight of rows of other tasks.
    """

    def __init__(
        self,
        *,
        strength: float = 1.0,
        distance: Literal["bce", "mse", "huber"] = "huber",
        extra: float = 1.0,
        unlabelled: float = 0.3,
    ) -> None:
        super().__init__(strength=strength, distance=distance, extra=extra)
        self.unlabelled = unlabelled
        self.classes: list[int] = []
        self.task_of: list[int] = []
        self.positives: list[Moments] = []
        self.tasks: list[Moments] = []

    def end_task(self, context: TaskContext) -> None:
        """Carry the moments there are to the new network, and add those of the task."""
        rows, before, labels = [], [], []
        with torch.no_grad():
            for inputs, known in context.batches():
                rows.append(context.model.features(inputs))
                labels.append(known)
                if context.teacher is not None:
                    before.append(context.teacher.features(inputs))
            new, marks = torch.cat(rows), torch.cat(labels)
            if before and self.tasks:
                weight, shift = _linear_map(torch.cat(before), new)
                carried = [
                    [(weight @ mean + shift, weight @ cov @ weight.T) for mean, cov in part]
                    for part in (self.positives, self.tasks)
                ]
                self.positives, self.tasks = carried
            self.tasks.append(_moments(new))
            for k in context.classes.tolist():
                own = new[marks[:, k] > 0]
                if len(own) > 2:
                    self.classes.append(k)
                    self.positives.append(_moments(own))
                    self.task_of.append(len(self.tasks) - 1)
            self.drawn_from = [_roots(part) for part in (self.positives, self.tasks)]

    def penalty(self, step: Step) -> Tensor | None:
        """Return the distillation and the loss on drawn features."""
        held = super().penalty(step)
        if held is None:
            return None
        head = step.context.model.head
        scores = []
        for (mean, root), count in zip(self.drawn_from, (4, 16), strict=True):
            noise = torch.randn(*mean.shape, count, generator=step.context.generator)
            drawn = mean[:, None] + (root @ noise).transpose(1, 2)
            scores.append(head(drawn.flatten(0, 1)).unflatten(0, drawn.shape[:2]))
        of_classes, of_tasks = scores
        classes, each = torch.tensor(self.classes), torch.arange(len(self.classes))
        weights = torch.full((len(of_tasks), len(classes)), self.unlabelled)
        weights[torch.tensor(self.task_of), each] = 1.0
        up = functional.softplus(-of_classes[each, :, classes]).mean(1)
        down = (functional.softplus(of_tasks[:, :, classes]).mean(1) * weights).sum(0) / weights.sum(0)
        new = functional.softplus(of_tasks[:, :, step.context.classes]).mean()
        return held + self.extra * ((up + down).mean() + new * self.unlabelled)


def _moments(rows: Tensor) -> Moments:
    """Return mean and covariance, drawn towards its diagonal where rows are few."""
    width = rows.shape[1]
    found, share = torch.cov(rows.T), width / (width + len(rows))
    floor = 1e-3 * found.diagonal().mean().clamp_min(1e-6)
    return rows.mean(0), (1 - share) * found + share * torch.diag(found.diagonal() + floor)


def _linear_map(old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.cat([old, torch.ones(len(old), 1)], 1)
    gram = rows.T @ rows
    gram = gram + 1e-3 * gram.diagonal().mean() * torch.eye(len(gram))
    found = torch.linalg.solve(gram, rows.T @ new)
    return found[:-1].T, found[-1]


def _roots(part: list[Moments]) -> tuple[Tensor, Tensor]:
    roots = []
    for _, covariance in part:
        floor = 1e-5 * covariance.diagonal().mean().clamp_min(1e-6)
        roots.append(torch.linalg.cholesky(covariance + floor * torch.eye(len(covariance))))
    return torch.stack([mean for mean, _ in part]), torch.stack(roots)


class _Smaller:
    """Images by a smaller scale."""

    def __init__(self, inputs: Inputs, by: int) -> None:
        self.inputs, self.by = inputs, by

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return functional.avg_pool2d(self.inputs[rows], self.by)


class Scales(Backbone):
    """`patches` on images of several sizes, side by side, as joint principal components."""

    kind = "vector"
    normalises = fits = projects = True
    components: Tensor
    offset: Tensor

    def __init__(
        self, input_shape: tuple[int, ...], parts: list[tuple[int, int, int]], dimensions: int
    ) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.width, self.by = dimensions, [by for by, _, _ in parts]
        self.parts = torch.nn.ModuleList(
            Patches((channels, height // by, width // by), centres=n, patch=patch, dimensions=8, mirror=None)
            for by, n, patch in parts
        )
        self.register_buffer("components", torch.zeros(dimensions, sum(5 * n for _, n, _ in parts)))
        self.register_buffer("offset", torch.zeros(dimensions))

    def fit(self, inputs: Inputs, *, generator: torch.Generator, mirror: bool) -> None:
        """Learn the patches of every size, then the components of all."""
        for by, part in zip(self.by, self.parts, strict=True):
            part.fit(_Smaller(inputs, by), generator=generator, mirror=mirror)
        with torch.no_grad():
            rows = torch.randperm(len(inputs), generator=generator)[:IMAGES].sort().values
            pooled = torch.cat([self.pooled(inputs[piece]).cpu() for piece in batches(rows, 512)])
            widths = [width for part in self.parts for width in (4 * part.centres, part.centres)]
            scale = torch.cat(
                [(1 / spread(piece)).expand(piece.shape[1]) for piece in pooled.split(widths, 1)]
            )
            scale = scale / scale[0].clone()
            centre, directions = principal_components(pooled * scale, self.width)
            self.components.copy_(directions * scale)
            self.offset.copy_(-directions @ centre)

    def pooled(self, images: Tensor) -> Tensor:
        """Return the pooled responses of all sizes."""
        both = zip(self.by, self.parts, strict=True)
        return torch.cat([part.pooled(functional.avg_pool2d(images, by)) for by, part in both], 1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images to vectors."""
        return functional.linear(self.pooled(inputs), self.components, self.offset)


@MODELS.register("scales", summary="Trial: patches on images of several sizes.")
def scales(
    input_shape: tuple[int, ...], *, dimensions: int = 400, parts: str = "[(1, 400, 6), (2, 400, 6)]"
) -> Scales:
    """Return the encoder.

    Args:
        input_shape: (C, H, W).
        dimensions: Number of features.
        parts: For each size the factor by which images are smaller, the number of patches and their side.
    """
    return Scales(input_shape, ast.literal_eval(parts), dimensions)
