"""What every loss shares: shapes, masks and groups are checked in one place, with one sentence each."""

import numpy as np
import pytest
import torch

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.losses import MarginLoss
from mlcl.losses.base import check_batch, inverse

F, Y = torch.zeros(3, 2), torch.zeros(3, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"logits": torch.zeros(3)}, r"logits has shape \(3,\), but \[rows, 2\]"),
        ({"logits": torch.zeros(3, 4)}, r"logits has shape \(3, 4\), but \[rows, 2\]"),
        ({"logits": torch.zeros(3, 2, dtype=torch.long)}, r"logits is torch.int64"),
        ({"labels": torch.zeros(2, 2)}, r"labels has shape \(2, 2\)"),
        ({"labels": torch.zeros(3, 2, dtype=torch.complex64)}, "labels is torch.complex64"),
        ({"mask": torch.ones(3, 2)}, "mask is torch.float32"),
        ({"mask": torch.ones(3, dtype=torch.bool)}, r"mask is torch.bool of shape \(3,\)"),
        ({"groups": torch.zeros(3)}, "groups is torch.float32"),
        ({"groups": torch.zeros(3, dtype=torch.bool)}, "groups is torch.bool"),
        ({"groups": torch.zeros(2, dtype=torch.long)}, r"groups is torch.int64 of shape \(2,\)"),
        ({"groups": torch.tensor([0, -1, 2])}, "groups has the value -1"),
        (
            {"groups": torch.tensor([0, 1, 2]), "group_weights": torch.ones(2)},
            "value 2, but values from 0 to 1",
        ),
        ({"group_weights": torch.ones(2)}, "group_weights has 2 values"),
        ({"group_weights": torch.ones(1, 1)}, r"group_weights has shape \(1, 1\)"),
        (
            {"group_weights": torch.ones(0), "groups": torch.tensor([0, 1, 2])},
            r"group_weights has shape \(0,\)",
        ),
    ],
)
def test_bad_batches_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        check_batch(**{"logits": F, "labels": Y, "classes": 2, **arguments})


def test_masked_cells_are_emptied():
    mask = torch.tensor([[True, False]])
    batch = check_batch(torch.tensor([[5.0, 6.0]]), torch.tensor([[1, 1]]), classes=2, mask=mask)
    assert batch.logits.tolist() == [[5.0, 0.0]]
    assert batch.labels.tolist() == [[1.0, 0.0]]


def test_groups_are_counted_from_the_weights_or_the_rows():
    groups = torch.tensor([0, 2, 2], dtype=torch.int32)
    assert check_batch(F, Y, classes=2, groups=groups).weights.tolist() == [1.0, 1.0, 1.0]
    weighted = check_batch(F, Y, classes=2, groups=groups, group_weights=torch.tensor([1, 2, 3, 4]))
    assert weighted.weights.tolist() == [1.0, 2.0, 3.0, 4.0]
    (counts,) = weighted.group_counts(torch.ones(3, 2))
    assert counts.tolist() == [[1, 1], [0, 0], [2, 2], [0, 0]]


def test_no_gradient_reaches_the_group_weights():
    weights = torch.ones(1, requires_grad=True)
    assert not check_batch(F, Y, classes=2, group_weights=weights).weights.requires_grad


def test_inverse_of_nothing_is_nothing():
    assert inverse(torch.tensor([0.0, 1.0, 4.0])).tolist() == [0.0, 1.0, 0.25]


def test_labels_of_numpy_and_lists_are_taken():
    logits = torch.tensor([[2.0, -1.0], [-1.0, 0.5]], requires_grad=True)
    labels = [[1, 0], [0, 1]]
    counts = LabelCounts.of([[1, 0], [0, 1], [0, 0]])
    wanted = MarginLoss(counts)(logits, torch.tensor(labels))
    for given in (np.array(labels), np.array(labels, np.uint8), np.array(labels, bool), labels):
        found = MarginLoss(counts)(logits, given)
        assert torch.equal(found, wanted)
        assert found.requires_grad


def test_what_is_no_tensor_is_named():
    counts = LabelCounts.of([[1, 0], [0, 1]])
    with pytest.raises(
        InputError, match="logits is a ndarray, but a tensor, which has a gradient, was expected"
    ):
        MarginLoss(counts)(np.zeros((2, 2)), torch.zeros(2, 2))
    with pytest.raises(InputError, match="labels is a list that torch cannot read"):
        MarginLoss(counts)(torch.zeros(2, 2), [["a", "b"], ["c", "d"]])
    with pytest.raises(
        InputError, match=r"counts is a ndarray, but LabelCounts was expected, such as LabelCounts.of"
    ):
        MarginLoss(np.zeros((2, 2)))
