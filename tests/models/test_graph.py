"""The label graph against its formula class by class, and what new classes change."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.models import GraphHead, build_model
from mlcl.models.network import grown


def shaken(seed=0, *, classes=5, seen=(0, 2, 3)):
    """Return a head in double precision with parameters away from their start, edges included."""
    head = GraphHead(4, classes, dim=3).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=generator)
    head.add_session(seen)
    return head


def leaky(values):
    return np.where(values > 0, values, 0.2 * values)


def naive(head, features, seen):
    """The formulas of specification.md#label-graph with numpy, one image and class at a time."""
    p = {name: value.detach().numpy() for name, value in head.named_parameters()}
    logits = np.zeros((len(features), len(p["adjacency"])))
    for b, one in enumerate(features.numpy()):
        cells = one.reshape(len(one), -1).T
        nodes = []
        for k in range(len(p["gates"])):
            scores = np.exp([p["linear.weight"][k] @ cell for cell in cells])
            own = sum(w * cell for w, cell in zip(scores / scores.sum(), cells, strict=True))
            nodes.append(p["gates"][k] * (p["transform.weight"] @ own + p["transform.bias"]))
        for k, node in enumerate(nodes):
            taken = np.zeros_like(node)
            for j in seen if k in seen else ():
                taken = taken + p["adjacency"][k, j] * nodes[j]
            related = node + leaky(p["mix.weight"] @ leaky(taken))
            plain = p["linear.weight"][k] @ cells.mean(0) + p["linear.bias"][k]
            logits[b, k] = (plain + p["output.weight"][k] @ related + p["output.bias"][k]) / 2
    return logits


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 99), st.sets(st.integers(0, 4)), st.booleans())
def test_the_graph_is_its_formula(seed, seen, on_map):
    head = shaken(seed, seen=sorted(seen) if seen else [])
    shape = (2, 4, 2, 3) if on_map else (2, 4)
    features = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    assert np.allclose(head(features).detach().numpy(), naive(head, features, seen))


@pytest.mark.parametrize("shape", [(2, 4, 2, 2), (2, 4)])
def test_gradients_are_those_of_finite_differences(shape):
    head = shaken()
    features = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    assert torch.autograd.gradcheck(head, features.requires_grad_())
    names = [name for name, _ in head.named_parameters()]

    def by_parameters(*values):
        return torch.func.functional_call(head, dict(zip(names, values, strict=True)), (features.detach(),))

    assert torch.autograd.gradcheck(by_parameters, tuple(head.parameters()))


def test_taking_in_classes_changes_no_score_and_edges_of_later_classes_do_not_learn():
    head = shaken(seen=[0, 2])
    with torch.no_grad():  # as training leaves it: weight decay and gradients keep unseen edges at 0
        head.adjacency *= head.seen[:, None] & head.seen
    features = torch.randn(3, 4, dtype=torch.double)
    before = head(features)
    before.square().sum().backward()
    gradient = head.adjacency.grad
    assert gradient[[0, 0, 2, 2], [0, 2, 0, 2]].ne(0).all()
    assert gradient[[1, 3, 4]].eq(0).all()
    assert gradient[:, [1, 3, 4]].eq(0).all()
    head.add_session(np.array([4, 1]))
    assert torch.equal(head(features), before)
    head(features).square().sum().backward()
    assert head.adjacency.grad[[4, 0, 1], [0, 4, 1]].ne(0).all()
    head.add_session([0])  # more rows of a known class: nothing new
    assert head.seen.tolist() == [True, True, True, False, True]


def test_a_graph_grows_by_rows_and_columns():
    old, new = shaken(seen=[0, 1, 2, 3, 4]), GraphHead(4, 7, dim=3).double()
    fresh = copy.deepcopy(new.state_dict())
    state = {name: grown(value, fresh[name]) for name, value in old.state_dict().items()}
    new.load_state_dict(state)
    features = torch.randn(3, 4, dtype=torch.double)
    torch.testing.assert_close(new(features)[:, :5], old(features))
    assert torch.equal(new.mix.weight, old.mix.weight)
    assert new.seen.tolist() == [True] * 5 + [False] * 2
    assert grown(torch.ones(2, 3), torch.zeros(4, 5)).shape == (
        2,
        3,
    )  # something else: left for others to refuse


def test_the_head_by_name_learns_with_its_edges():
    network = build_model("mlp", (6,), 4, head="graph", hidden=8)
    network.head.add_session([0, 1])
    start = network.head.edges().clone()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5)
    inputs = torch.randn(16, 6, generator=torch.Generator().manual_seed(0))
    target = (inputs[:, :2] > 0).float()
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(network(inputs)[:, :2], target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert (network.head.edges() != start)[:2, :2].all()
    assert network.head.edges()[2:].eq(0).all()
