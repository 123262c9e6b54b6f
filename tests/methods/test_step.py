"""The share of a process in a batch."""

from __future__ import annotations

import pytest
import torch

from mlcl.methods.augment import AUGMENTATIONS
from mlcl.methods.step import Share


@pytest.mark.parametrize("total", [0, 1, 2, 5, 64])
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_shares_cover_a_batch_in_order_and_differ_by_one_row(total, parts):
    shares = [Share.of(total, number, parts).rows for number in range(parts)]
    assert [row for rows in shares for row in range(total)[rows]] == list(range(total))
    sizes = [rows.stop - rows.start for rows in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("kind", AUGMENTATIONS.names())
def test_augmented_shares_are_rows_of_the_augmented_batch(kind):
    images = torch.randint(
        0, 255, (9, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    augment = AUGMENTATIONS.build(kind)
    whole = augment(images, torch.Generator().manual_seed(3))
    shares = [Share.of(9, number, 2) for number in (0, 1)]
    parts = [augment(images[s.rows], torch.Generator().manual_seed(3), s) for s in shares]
    assert torch.equal(torch.cat(parts), whole)
