"""Label policies: for which classes a row contributes to the loss, and with which targets.

Only the classes of a row's own task are annotated. Everything else is a policy: leave it out (``task``), treat it as
negative (``seen``, ``none``), or ask the old network (``pseudo``). A policy is a class with keyword-only options,
registered in `LABEL_POLICIES`; `targets` returns targets and mask of the shape of the logits, and what must survive a
checkpoint inside a task is in `state`. See specification.md#label-policies.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.errors import check_number
from mlcl.methods.step import Step, TaskContext
from mlcl.registry import Registry

LABEL_POLICIES: Registry[type[LabelPolicy]] = Registry("label policy")


class LabelPolicy:
    """Turns known labels into targets and a mask. Subclasses override what differs."""

    needs_teacher = False
    across_tasks = False
    """Whether rows of all tasks meet in a class; else the loss compares rows of one task only."""

    def start_task(self, context: TaskContext) -> None:
        """Prepare for a task."""

    def targets(self, known: Tensor, own: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """Return targets and the mask of the classes that contribute to the loss, both [B, K].

        Args:
            known: labels, zero outside the row's own task, float [B, K].
            own: whether the class belongs to the row's own task, bool [B, K].
        """
        raise NotImplementedError

    def state(self) -> dict[str, float]:
        """Return what must be kept to resume inside a task."""
        return {}

    def load_state(self, state: dict[str, float]) -> None:
        """Restore what `state` returned."""


@LABEL_POLICIES.register(
    "task", summary="Each row contributes for its own task's classes only (the paper's method)."
)
class OwnTask(LabelPolicy):
    """Only the classes of the row's own task contribute."""

    def targets(self, known: Tensor, own: Tensor, step: Step) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Leave everything except for the row's own task out."""
        return known, own


@LABEL_POLICIES.register(
    "seen", summary="All classes so far: old labels of new images become false negatives."
)
class SeenClasses(LabelPolicy):
    """All classes seen so far contribute.

    A class has no positive among the rows of another task. Losses that weigh positives against negatives of a batch
    (rldam, ru) leave such a class out, so with them this is the same as ``task``; ``negatives`` is not.
    """

    def targets(self, known: Tensor, own: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """Treat classes of other tasks as negative, except for future ones."""
        return known, step.context.seen.expand_as(own)


@LABEL_POLICIES.register("none", summary="No mask: all K classes, also those of later tasks.")
class AllClasses(LabelPolicy):
    """All K classes contribute."""

    def targets(self, known: Tensor, own: Tensor, step: Step) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Treat classes of other tasks as negative."""
        return known, torch.ones_like(own)


@LABEL_POLICIES.register(
    "pseudo",
    summary="KRT's dynamic pseudo-labels: old classes are labelled by the old network, at a fitted threshold.",
    reference="Dong et al., ICCV 2023",
)
class PseudoLabels(LabelPolicy):
    """All classes so far contribute; old classes are positive where the old network is sure.

    See specification.md#krt.

    Args:
        mean_labels: mu, the mean number of labels per image over all classes (1.4 on VOC, 2.9 on COCO). Not set: the
            labels per image and class of the new task, carried over to the old classes.
    """

    needs_teacher = True

    def __init__(self, *, mean_labels: float | None = None) -> None:
        self.mean_labels = None if mean_labels is None else check_number("mean_labels", mean_labels)
        self.threshold = 2.0  # no probability is above it

    def start_task(self, context: TaskContext) -> None:
        """Fit the threshold to the task's images (exactly, by a quantile)."""
        if context.teacher is None:
            return
        teacher, old = context.teacher, context.old
        probabilities, labels = [], 0.0
        with torch.no_grad():
            for inputs, known in context.batches():
                logits, _ = teacher.forward_with_embeddings(inputs)
                probabilities.append(logits[:, old].sigmoid())
                labels += float(known.nansum())
        stacked = torch.cat(probabilities)
        if self.mean_labels is None:
            # Labels per image and class on this task, carried over to the old classes.
            goal = labels / len(stacked) / len(context.classes) * int(old.sum())
        else:
            goal = self.mean_labels * int(old.sum()) / int(context.seen.sum())
        self.threshold = pseudo_threshold(stacked, goal)

    def targets(self, known: Tensor, own: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """Add pseudo-labels of old classes to what is known; stored labels are OR-ed in."""
        mask = step.context.seen.expand_as(own)
        if step.context.teacher is None:
            return known, mask
        logits, _ = step.teacher_output
        sure = (logits.sigmoid() > self.threshold) & step.context.old & ~own
        return torch.maximum(known, sure.to(known.dtype)), mask

    def state(self) -> dict[str, float]:
        """Return the threshold."""
        return {"threshold": self.threshold}

    def load_state(self, state: dict[str, float]) -> None:
        """Restore the threshold."""
        self.threshold = state["threshold"]


@LABEL_POLICIES.register(
    "relabel",
    summary="RebLL's relabelling: missing old labels by the old network, new ones of memory rows by the new one.",
    reference="RebLL, 2024",
)
class Relabelling(LabelPolicy):
    """All classes so far contribute; where a label is missing, a network fills it in.

    The old network labels the old classes, of new rows and of memory rows of other tasks; the network as it is labels
    the new classes of memory rows. See specification.md#rebll.

    Args:
        threshold: probability above which a missing label is filled in as positive; otherwise as negative.
    """

    needs_teacher = True

    def __init__(self, *, threshold: float = 0.5) -> None:
        self.threshold = check_number("threshold", threshold, high=1)

    def targets(self, known: Tensor, own: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """Fill in what is not known of the classes seen so far."""
        seen = step.context.seen
        if step.context.teacher is None:
            return known, own & seen
        taught, _ = step.teacher_output
        looks = torch.where(step.context.old, taught, step.logits.detach())
        filled = (looks.sigmoid() > self.threshold) & seen & ~own
        return torch.maximum(known, filled.to(known.dtype)), seen.expand_as(own)


@LABEL_POLICIES.register(
    "negatives",
    summary="Own task's classes; of the others, the rows that look least like a class are its negatives.",
)
class TrustedNegatives(LabelPolicy):
    """Let every class meet the images of other tasks as negatives, where that is likely to be true.

    A class of which a row has no label is most often absent, but not always: of the rows of other tasks in the
    batch, the share ``trust`` that the network ranks lowest count as negative, the rest are left out. Old classes
    are ranked by the old network, new ones by the network as it is. Memory rows so serve the new classes, and new
    images the old classes, as a tagger will meet them (pooled Macro-AUC).

    Args:
        trust: share of the rows of other tasks that count as negative, per class.
    """

    needs_teacher = True
    across_tasks = True

    def __init__(self, *, trust: float = 0.75) -> None:
        self.trust = check_number("trust", trust, high=1)

    def targets(self, known: Tensor, own: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """Add trusted negatives to the row's own task."""
        if step.context.teacher is None:
            return known, own
        taught, _ = step.teacher_output
        looks = torch.where(step.context.old, taught, step.logits.detach())
        return known, own | lowest_share(looks, step.context.seen & ~own, self.trust)


def lowest_share(scores: Tensor, among: Tensor, share: float) -> Tensor:
    """Mark, in each column, the ``share`` of the cells in ``among`` with the lowest scores, rounded down."""
    ranks = torch.where(among, scores, torch.inf).argsort(0).argsort(0)
    return among & (ranks < (share * among.sum(0)).floor())


def pseudo_threshold(probabilities: Tensor, goal: float) -> float:
    """Return the threshold at which the mean number of classes above it is as near to ``goal`` as it can be.

    KRT moves a threshold by 0.005 until it is within 0.1 of the goal; the quantile of all probabilities is exact. With
    ``m`` positives wanted in all, the threshold lies between the m-th and the (m+1)-th largest probability.

    Args:
        probabilities: of the old network on the task's images, [n, old classes].
        goal: wanted mean number of old classes above the threshold, per image.
    """
    ordered = probabilities.flatten().double().sort(descending=True).values
    wanted = min(max(round(goal * len(probabilities)), 0), len(ordered))
    if wanted == 0:
        return float(ordered[0])
    if wanted == len(ordered):
        return -1.0
    return float((ordered[wanted - 1] + ordered[wanted]) / 2)
