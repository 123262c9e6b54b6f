"""The lanes against their formula written out cell by cell, and what is frozen in them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.models import LaneHead, build_model
from mlcl.models.lanes import select


def head_of(sessions, *, width=6, classes=7, on_map=True, seed=0, shake=True, **options):
    """Return lanes in double precision, their parameters well away from their start."""
    head = LaneHead(width, classes, on_map=on_map, dim=5, seed=seed, **options).double()
    for ids in sessions:
        head.add_session(ids)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=generator) if shake else 0
    return head


def naive(head, feature_map):
    """The formulas of specification.md#lanes with numpy, one image, session, selector and cell at a time."""
    logits = np.zeros((len(feature_map), len(head.slots)))
    for lane, classes in zip(head.lanes, head.sessions, strict=True):
        selectors, (linear, norm, _) = lane.selectors.detach().numpy(), lane.layer
        for b, image in enumerate(feature_map.numpy()):
            cells = image.reshape(len(image), -1).T
            embeddings = []
            for selector in selectors:
                scores = []
                for cell in cells:
                    normal = (cell - cell.mean()) / np.sqrt(cell.var() + 1e-5)
                    scores.append(selector @ normal / np.sqrt(len(cell)))
                weights = np.exp(scores) / np.exp(scores).sum()
                chosen = sum(w * cell for w, cell in zip(weights, cells, strict=True))
                hidden = linear.weight.detach().numpy() @ chosen + linear.bias.detach().numpy()
                hidden = (hidden - hidden.mean()) / np.sqrt(hidden.var() + 1e-5)
                hidden = hidden * norm.weight.detach().numpy() + norm.bias.detach().numpy()
                embeddings.append(np.maximum(hidden, 0))
            last = lane.classifier
            found = last.weight.detach().numpy() @ np.mean(embeddings, 0) + last.bias.detach().numpy()
            logits[b, list(classes)] = found
    return logits


@settings(deadline=None, max_examples=10)
@given(st.permutations(range(7)), st.integers(1, 3), st.integers(1, 4), st.integers(0, 99))
def test_lanes_are_their_formula(order, sessions, selectors, seed):
    parts = np.array_split(np.array(order)[:6], sessions)
    head = head_of(parts, seed=seed, selectors=selectors)
    features = torch.randn(2, 6, 2, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    logits, embeddings = head.forward_with_embeddings(features)
    assert np.allclose(logits.detach().numpy(), naive(head, features))
    assert (logits[:, order[6]] == 0).all()
    assert embeddings.shape == (2, sessions, 5)


def test_gradients_are_those_of_finite_differences():
    head = head_of([[0, 3], [2]], selectors=2)
    cells = torch.randn(2, 4, 6, dtype=torch.double)
    selectors = torch.randn(3, 6, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: select(s, cells), selectors)
    features = torch.randn(2, 6, 2, 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(head, features)


def test_a_vector_is_one_cell_of_which_nothing_is_selected():
    head = head_of([[0, 1], [2]], on_map=False)
    assert all(lane.selectors is None for lane in head.lanes)
    vectors = torch.randn(4, 6, dtype=torch.double)
    lane = head.lanes[1]
    expected = lane.classifier(lane.layer(vectors))
    torch.testing.assert_close(head(vectors)[:, [2]], expected)
    assert torch.autograd.gradcheck(head, vectors.requires_grad_())


@pytest.mark.parametrize("on_map", [True, False])
def test_what_is_learnt_later_changes_no_earlier_logit(on_map):
    head = head_of([[4, 0], [2]], on_map=on_map, shake=False)
    features = torch.randn(5, 6, *((2, 2) if on_map else ()), dtype=torch.double)
    before = head(features)[:, [4, 0, 2]]
    head.add_session([1, 3])
    optimiser = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        head(features).square().sum().backward()
        optimiser.step()
    assert torch.equal(head(features)[:, [4, 0, 2]], before)
    assert [lane.classifier.weight.requires_grad for lane in head.lanes] == [False, False, True]
    assert all(p.grad is None for lane in head.lanes[:2] for p in lane.parameters())
    assert all(p.grad is not None for p in head.lanes[2].parameters())


def test_a_state_restores_lanes_and_the_seed_alone_draws_them():
    saved, other = head_of([[4, 0], [2]]), head_of([[1, 2], [3]], seed=3)
    other.load_state_dict(saved.state_dict())
    features = torch.randn(3, 6, 2, 2, dtype=torch.double)
    assert other.sessions == ((4, 0), (2,))
    assert torch.equal(other(features), saved(features))
    one, two = (head_of([[0, 1]], shake=False) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert {p.dtype for p in one.parameters()} == {torch.float64}


def test_lanes_on_images_and_vectors_by_name():
    network = build_model("resnet8", (3, 8, 8), 5, width=4, head="lanes").eval()
    network.head.add_session([0, 1])
    assert network(torch.zeros(2, 3, 8, 8)).shape == (2, 5)
    assert network.head.lanes[0].selectors.shape == (10, network.backbone.width)
    vectors = build_model("linear", (9,), 5, head="lanes")
    vectors.head.add_session([0, 1])
    assert vectors(torch.zeros(2, 9)).shape == (2, 5)


def test_misuse_is_one_sentence():
    with pytest.raises(InputError, match="no session yet"):
        LaneHead(6, 5, on_map=False)(torch.zeros(1, 6))
    with pytest.raises(InputError, match="selectors is 0"):
        LaneHead(6, 5, on_map=True, selectors=0)
    with pytest.raises(InputError, match="none of an earlier session"):
        head_of([[0, 1]]).add_session([1])
