"""The registry of losses, and the rules that every loss in it keeps.

A loss is a factory in one file, decorated with ``LOSSES.register``:

    factory(counts, *, options...) -> module

``counts`` are the label counts of the dataset (`mlcl.labels.LabelCounts`); a loss that does not need them takes them
nevertheless. The options are keyword-only; each has a type, a default, and a line in the Args section of the factory's
docstring, which becomes its help text on the command line. The factory raises `mlcl.errors.InputError` for a bad value.

The module is called as ``loss(logits, labels, *, mask=None, groups=None, group_weights=None)``:

- ``logits``: floats ``[B, K]``; ``labels``: 0 or 1, ``[B, K]``;
- ``mask``: booleans ``[B, K]``, which cells (row, class) contribute to the loss; None: all of them;
- ``groups``: the group (task) of each row, ``[B]``, or of each class, ``[1, K]``; None: one group;
- ``group_weights``: ``w_g``, ``[G]``; None: all 1.

Rules (specification.md#losses), which ``mlcl.testing.check_loss`` tests:

- It returns ``sum_g w_g R_g``, a finite scalar with a finite gradient, also for float32 logits of 10,000. ``R_g`` is a
  mean over the contributing cells, classes or pairs of group g, and a group that is absent from the batch adds nothing.
- A masked cell has no effect: neither its logit, which may be NaN, nor its label changes the loss or a gradient.
- A class without positives or without negatives gives no loss where the loss needs them (for its counts, its means or
  its pairs).
- Where nothing contributes, and for a batch without rows, the loss is 0 with a zero gradient: a path to the logits
  remains, so that ``backward`` works.
- A loss may keep running values, as buffers in its ``state_dict``, which a checkpoint holds. A call changes them in
  training mode only, and then depends on the calls before; every other rule holds in evaluation mode.
- It does not depend on the order of the rows, and an option ``scale`` is a factor on the whole loss.
- It does not change its arguments, and no gradient flows into labels, counts or group weights.
- Logits with another number of classes than ``counts`` are an `InputError`.

A loss that gives the positives and the negatives of a class the same total weight has an attribute ``balanced`` that is
True: its logits are log-odds where half of the rows are positive, and probabilities are shifted to the share of
positives that there is (`mlcl.metrics.prior_shift`).

`mlcl.losses.batch` checks a batch and computes the weights of its cells, so that a loss is a few lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from mlcl.labels import LabelCounts
from mlcl.registry import Registry

LOSSES: Registry[Callable[..., nn.Module]] = Registry("loss")
"""The losses by name."""


def build_loss(kind: str, counts: LabelCounts, **options: Any) -> nn.Module:
    """Return the loss called ``kind`` for a dataset with these counts; None keeps an option's default.

    >>> counts = LabelCounts.of([[1, 0], [0, 1], [0, 0]])
    >>> build_loss("rldam", counts, margin=3.5)
    MarginLoss(classes=2, margin=3.5, reweight=batch, base=logistic)
    >>> build_loss("bce", counts, margin=3.5)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: loss 'bce' takes no option 'margin' (given: 3.5); its options are: scale.
    """
    loss: nn.Module = LOSSES.build(kind, counts, **options)
    return loss
