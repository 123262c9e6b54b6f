"""Macro-AUC as a torchmetrics ``Metric``; the only module here that needs torch and torchmetrics (an extra)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from mlcl.errors import InputError, check_choice
from mlcl.metrics.inputs import check_average
from mlcl.metrics.ranking import Ties, macro_auc

try:
    from torchmetrics import Metric
except ModuleNotFoundError:
    raise InputError(
        "mlcl.metrics.MacroAUC needs torchmetrics; install it with: pip install 'mlcl[torchmetrics]'"
    ) from None


class MacroAUC(Metric):  # type: ignore[misc]  # torchmetrics is an extra, so its types may be missing
    """The exact `macro_auc` of everything that `update` has seen, on all processes.

    Exact AUC needs all scores, so they are kept until `reset`: 4 + 1 bytes per score (8 + 1 for float64). A process
    without data takes part in the computation of the others.

    Args:
        average: ``"macro"`` for the mean over the classes with an AUC, ``None`` for one value per class.
        ties: as in `macro_auc`.
        options: what every torchmetrics ``Metric`` takes, such as ``compute_on_cpu``.

    >>> import torch
    >>> metric = MacroAUC()
    >>> metric.update(torch.tensor([[0.9, 0.2], [0.9, 0.7]]), torch.tensor([[1, 0], [0, 1]]))
    >>> metric.update(torch.tensor([[0.1, 0.4]]), torch.tensor([[0, 0]]))
    >>> metric.compute()
    tensor(0.8750)
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    # Flat, so that a process without data, which does not know the number of classes, has a tensor of the same rank.
    scores: list[Tensor]
    labels: list[Tensor]  # 0, 1, and -1 where the mask is false
    classes: Tensor

    def __init__(
        self, *, average: Literal["macro"] | None = "macro", ties: Ties = "half", **options: Any
    ) -> None:
        super().__init__(**options)
        check_average(average)
        check_choice("ties", ties, ("half", "strict", "lenient"))
        self.average, self.ties = average, ties
        self.add_state("scores", default=[], dist_reduce_fx="cat")
        self.add_state("labels", default=[], dist_reduce_fx="cat")
        self.add_state("classes", default=torch.tensor(0), dist_reduce_fx=_agreed)

    def update(self, scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            scores: ``[n, K]``, any increasing scale; no sigmoid is needed and none is applied.
            labels: ``[n, K]``, 0 or 1.
            mask: ``[n, K]``, true where the label is known; None: everywhere.
        """
        _check(scores, labels, mask)
        self.classes = _agreed(torch.stack([self.classes, self.classes.new_tensor(scores.shape[1])]))
        known = labels.to(torch.int8)
        if mask is not None:
            known = torch.where(mask, known, -1)
        self.scores.append(_wide(scores.detach()).reshape(-1))
        self.labels.append(known.reshape(-1))

    def compute(self) -> Tensor:
        """Return Macro-AUC, a scalar (nan if no class has positives and negatives), or one value per class ``[K]``.

        torchmetrics turns a vector of one element into a scalar, also for ``average=None`` with a single class.
        """
        width = int(self.classes)
        scores, labels = _joined(self.scores), _joined(self.labels)
        like = {"dtype": torch.get_default_dtype(), "device": self.device}
        if scores.numel() == 0:
            return torch.full((width,) if self.average is None else (), torch.nan, **like)
        labels = labels.reshape(-1, width)
        known = labels >= 0
        mask = None if bool(known.all()) else known
        value: Any = macro_auc(
            scores.reshape(-1, width), labels.clamp_min(0), average=self.average, ties=self.ties, mask=mask
        )
        return torch.as_tensor(value, **like)

    def sync(
        self,
        dist_sync_fn: Callable[..., Any] | None = None,
        process_group: Any | None = None,
        should_sync: bool = True,
        distributed_available: Callable[[], bool] | None = None,
    ) -> None:
        """Gather the states of all processes, after converting them to one type.

        A process without data cannot know the type of the others' scores, and tensors of different types cannot be
        gathered, so all send the widest. float64 represents every float32 exactly.
        """
        available = distributed_available or self.distributed_available_fn
        if should_sync and not self._is_synced and callable(available) and available():
            empty = torch.zeros(0, device=self.device)
            self.scores = [torch.cat([empty.double(), *self.scores])]
            self.labels = [torch.cat([empty.to(torch.int8), *self.labels])]
        super().sync(dist_sync_fn, process_group, should_sync, distributed_available)


def _agreed(widths: Tensor) -> Tensor:
    """Return the number of classes that all agree on; 0 stands for a process without data.

    >>> _agreed(torch.tensor([0, 3, 3]))
    tensor(3)
    """
    found = sorted({int(width) for width in widths.reshape(-1)} - {0})
    if len(found) > 1:
        raise InputError(
            f"scores has {found[0]} columns in one batch or process and {found[1]} in another, "
            f"but the same classes were expected"
        )
    return widths.max()


def _joined(state: list[Tensor] | Tensor) -> Tensor:
    """Return a state as one tensor; after a synchronisation torchmetrics has already concatenated it."""
    if isinstance(state, Tensor):
        return state
    return torch.cat(state) if state else torch.zeros(0)


def _wide(scores: Tensor) -> Tensor:
    """Return float64 unchanged, narrower floats as float32, whole numbers as float64; no value changes."""
    if scores.dtype == torch.float64:
        return scores
    return scores.to(torch.float32 if scores.is_floating_point() else torch.float64)


def _check(scores: Tensor, labels: Tensor, mask: Tensor | None) -> None:
    """Check shapes and types, and that labels are 0 or 1; that scores are finite is checked by `macro_auc`."""
    if scores.dim() != 2 or scores.shape[1] == 0 or scores.is_complex():
        raise InputError(
            f"scores is {scores.dtype} of shape {tuple(scores.shape)}, but numbers [rows, classes] were expected"
        )
    if labels.shape != scores.shape:
        raise InputError(
            f"labels has shape {tuple(labels.shape)}, but that of scores, {tuple(scores.shape)}, was expected"
        )
    if mask is not None and (mask.shape != scores.shape or mask.dtype != torch.bool):
        raise InputError(
            f"mask is {mask.dtype} of shape {tuple(mask.shape)}, "
            f"but torch.bool of shape {tuple(scores.shape)} was expected"
        )
    if labels.dtype != torch.bool:
        good = (labels == 0) | (labels == 1)
        good = good if mask is None else good | ~mask
        if not bool(good.all()):
            row, column = torch.nonzero(~good)[0].tolist()
            raise InputError(
                f"labels has the value {labels[row, column].item()} at row {row}, column {column}, "
                f"but only 0 and 1 are allowed"
            )
