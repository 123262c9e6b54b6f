"""EWC against explicit loops over samples and anchors; distillation against its formula."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
from torch.nn import functional

from mlcl.errors import InputError
from mlcl.methods.presets import get_preset
from mlcl.methods.regularisers import (
    REGULARISERS,
    confidence,
    diagonal_fisher,
    distillation_loss,
    embedding_drift,
)
from mlcl.methods.step import Step, TaskContext
from mlcl.models import build_model


def context(network, inputs, labels, classes, *, index=0, teacher=None, total=5):
    seen = torch.zeros(total, dtype=torch.bool)
    seen[: max(classes) + 1] = True
    old = seen.clone()
    old[classes] = False
    full = torch.zeros(len(inputs), total)
    full[:, classes] = labels
    return TaskContext(
        index=index,
        classes=torch.tensor(classes),
        seen=seen,
        old=old,
        model=network,
        teacher=teacher,
        batches=lambda: iter([(inputs[:4], full[:4]), (inputs[4:], full[4:])]),
        generator=torch.Generator().manual_seed(0),
    )


def small_network(kind="resnet8"):
    shape = (3, 16, 16) if kind == "resnet8" else (4,)
    network = build_model(kind, shape, 5, seed=1, width=4 if kind == "resnet8" else None).eval()
    inputs = torch.randn((10, *shape), generator=torch.Generator().manual_seed(0))
    labels = (torch.rand(10, 2, generator=torch.Generator().manual_seed(1)) < 0.5).float()
    return network, inputs, labels


@pytest.mark.parametrize("kind", ["resnet8", "mlp"])
def test_fisher_is_the_mean_squared_gradient_of_single_samples(kind):
    network, inputs, labels = small_network(kind)
    found = diagonal_fisher(network, inputs, labels, torch.tensor([1, 3]), chunk=4)
    expected = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    for x, y in zip(inputs, labels, strict=True):
        network.zero_grad()
        logits = network(x[None])[0, [1, 3]]
        functional.binary_cross_entropy_with_logits(logits, y, reduction="sum").backward()
        for name, p in network.named_parameters():
            expected[name] += p.grad**2 / len(inputs)
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=1e-3, atol=1e-6), name
    head = found["head.linear.weight"]
    assert torch.count_nonzero(head[[0, 2, 4]]) == 0  # other classes' heads are not judged
    assert torch.count_nonzero(head[[1, 3]]) > 0


@pytest.mark.parametrize("online", [False, True])
def test_ewc_penalty_is_the_sum_over_anchors(online):
    network, inputs, labels = small_network("mlp")
    extra = {"decay": 0.5} if online else {}
    ewc = REGULARISERS.build("ewc", strength=3.0, online=online, **extra)
    anchors = []
    step = Step(context(network, inputs, labels, [0, 1]), inputs, torch.zeros(10, 5), None)
    assert ewc.penalty(step) is None
    for index, classes in enumerate(([0, 1], [2, 3], [3, 4])):
        with torch.no_grad():
            for p in network.parameters():
                p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(index)))
        task = context(network, inputs, labels, classes, index=index)
        anchors.append(
            (diagonal_fisher(network, inputs, labels, task.classes), copy.deepcopy(network.state_dict()))
        )
        ewc.end_task(task)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.05)
    if online:
        running = {
            name: 0.25 * anchors[0][0][name] + 0.5 * anchors[1][0][name] + f
            for name, f in anchors[2][0].items()
        }
        anchors = [(running, anchors[2][1])]
    expected = sum(
        (fisher[name] * (p - old[name]) ** 2).sum()
        for fisher, old in anchors
        for name, p in network.named_parameters()
    )
    assert ewc.penalty(step).item() == pytest.approx(1.5 * expected.item(), rel=1e-4)
    again = REGULARISERS.build("ewc", strength=3.0, online=online, **extra)
    again.load_state(ewc.state())
    assert again.penalty(step).item() == ewc.penalty(step).item()


def test_the_penalty_never_throws_a_weight_beyond_its_anchor():
    network, inputs, labels = small_network("mlp")
    ewc = REGULARISERS.build("ewc", strength=1e9)
    task = context(network, inputs, labels, [0, 1])
    ewc.end_task(task)
    anchor = {name: p.detach().clone() for name, p in network.named_parameters()}
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.5)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    step = Step(dataclasses.replace(task, lr=0.2), inputs, torch.zeros(10, 5), None)
    ewc.penalty(step).backward()
    torch.optim.SGD(network.parameters(), lr=0.2).step()
    for name, p in network.named_parameters():
        assert torch.all((p - anchor[name]).abs() <= (before[name] - anchor[name]).abs() + 1e-6), name


def test_true_fisher_draws_labels_from_the_network():
    network, inputs, labels = small_network("mlp")
    values = []
    for kind in ("empirical", "true"):
        ewc = REGULARISERS.build("ewc", fisher=kind)
        ewc.end_task(context(network, inputs, labels, [0, 1]))
        values.append(ewc.importance["head.linear.bias"])
    assert not torch.equal(*values)


def test_ewc_options_that_do_nothing_are_refused():
    with pytest.raises(InputError, match=r"decay is 0\.5; it is used with regulariser\.online true"):
        REGULARISERS.build("ewc", decay=0.5)


@pytest.mark.parametrize("distance", ["bce", "mse", "huber"])
def test_distillation_follows_its_formula(distance):
    new, old = torch.randn(2, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = distillation_loss(new, old, distance=distance, temperature=3.0)
    if distance == "mse":
        expected = ((new - old) ** 2).mean()
    elif distance == "huber":
        gap = (new - old).abs()
        assert (gap > 1).any()
        expected = torch.where(gap < 1, gap**2, 2 * gap - 1).mean()
    else:
        p, q = torch.sigmoid(old / 3), torch.sigmoid(new / 3)
        expected = -9 * (p * q.log() + (1 - p) * (1 - q).log()).mean()
    assert found.item() == pytest.approx(expected.item())


def test_distillation_moves_only_the_new_network_and_only_old_classes():
    network, inputs, labels = small_network("mlp")
    teacher = build_model("mlp", (4,), 5, seed=9).eval()
    task = context(network, inputs, labels, [3, 4], index=1, teacher=teacher)
    logits, embeddings = network.forward_with_embeddings(inputs)
    REGULARISERS.build("lwf", distance="mse").penalty(Step(task, inputs, logits, embeddings)).backward()
    assert all(p.grad is None for p in teacher.parameters())
    head = network.head.linear.weight.grad
    assert torch.count_nonzero(head[[3, 4]]) == 0
    assert torch.count_nonzero(head[[0, 1, 2]]) > 0


def test_embedding_drift_is_the_mean_cosine_distance_of_past_sessions():
    new, old = torch.randn(4, 3, 8), torch.randn(4, 2, 8)
    expected = sum(
        1 - float(new[b, s] @ old[b, s]) / float(new[b, s].norm() * old[b, s].norm())
        for b in range(4)
        for s in range(2)
    )
    assert float(embedding_drift(new, old)) == pytest.approx(expected / 8, rel=1e-4)


def test_the_entropy_term_is_minus_the_entropy_and_a_constant():
    logits = torch.randn(
        6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    p = logits.sigmoid()
    entropy = torch.stack([-(row * row.log()).sum() for row in p]).mean()
    torch.testing.assert_close(confidence(logits), 3 / math.e - entropy)
    torch.testing.assert_close(*(torch.autograd.grad(v, logits)[0] for v in (confidence(logits), -entropy)))
    flat = torch.full((2, 3), math.log(1 / (math.e - 1)), dtype=torch.float64)  # all probabilities 1/e
    assert confidence(flat).item() == pytest.approx(0, abs=1e-12)
    assert confidence(torch.tensor([[1e4, -1e4]])).isfinite()


def test_csc_is_its_formula_for_seen_classes():
    """``(1-a) BCE(sigma(old), sigma(teacher)) - b H``, up to the constant, beside a BCE of the new classes."""
    network, inputs, labels = small_network("mlp")
    teacher = copy.deepcopy(network)
    with torch.no_grad():
        for p in network.parameters():
            p += 0.01
    task = context(network, inputs, labels, [2, 3], index=1, teacher=teacher)
    logits = network(inputs)
    step = Step(task, inputs, logits, None)
    preset = get_preset("csc").parts
    options = {name: value for name, value in preset["regulariser"].items() if name != "kind"}
    found = REGULARISERS.build(preset["regulariser"]["kind"], **options).penalty(step)
    taught, p = teacher(inputs)[:, :2].sigmoid(), logits.sigmoid()
    mine = p[:, :2]
    distance = -(taught * mine.log() + (1 - taught) * (1 - mine).log()).mean()
    entropy = -(p[:, :4] * p[:, :4].log()).sum(1).mean()
    torch.testing.assert_close(found, 0.5 * distance + 0.04 * (4 / math.e - entropy))
    assert preset["loss"] == {"kind": "bce", "scale": 0.5}
    alone = REGULARISERS.build("entropy", strength=0.04)
    torch.testing.assert_close(alone.penalty(step), 0.04 * (4 / math.e - entropy))
    assert alone.penalty(dataclasses.replace(step, context=dataclasses.replace(task, index=0))) is None
    released = REGULARISERS.build(
        "entropy", strength=-0.04
    )  # the other sign: a gradient of the opposite direction
    torch.testing.assert_close(released.penalty(step), 0.04 * entropy)
    one, other = (
        torch.autograd.grad(each.penalty(step), logits, retain_graph=True)[0] for each in (alone, released)
    )
    torch.testing.assert_close(one, -other)


@pytest.mark.parametrize("distance", ["bce", "mse", "huber"])
def test_sure_cells_of_the_old_network_weigh_less(distance):
    """``mean_c (1 - q_c)^decay d_c``: the weight falls with the old network's probability, and at 0 all are alike."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 3, generator=generator, dtype=torch.double, requires_grad=True)
    taught = 3 * torch.randn(4, 3, generator=generator, dtype=torch.double)
    pairs = zip(logits.flatten(), taught.flatten(), strict=True)
    cells = torch.stack([distillation_loss(x, t, distance=distance) for x, t in pairs])
    q = 1 / (1 + torch.exp(-taught.flatten()))
    for decay in (0.0, 0.5, 2.0):
        found = distillation_loss(logits, taught, distance=distance, decay=decay)
        torch.testing.assert_close(found, ((1 - q) ** decay * cells).mean())
        assert torch.autograd.gradcheck(
            lambda x, d=decay: distillation_loss(x, taught, distance=distance, decay=d), logits
        )
    sure = torch.tensor([[200.0]])
    assert distillation_loss(torch.zeros(1, 1), sure, distance=distance, decay=1.0) == 0
    assert distillation_loss(torch.zeros(1, 1), -sure, distance=distance, decay=1.0) > 0


def test_rebll_decays_by_its_setting():
    network, inputs, labels = small_network("mlp")
    teacher = copy.deepcopy(network)
    with torch.no_grad():
        for p in network.parameters():
            p += 0.1
    step = Step(
        context(network, inputs, labels, [2, 3], index=1, teacher=teacher), inputs, network(inputs), None
    )
    preset = {
        name: value for name, value in get_preset("rebll").parts["regulariser"].items() if name != "kind"
    }
    assert preset["decay"] > 0
    found = REGULARISERS.build("lwf", **preset).penalty(step)
    q, p = teacher(inputs)[:, :2].double().sigmoid(), step.logits[:, :2].double().sigmoid()
    cells = -(q * p.log() + (1 - q) * (1 - p).log())
    torch.testing.assert_close(found.double(), ((1 - q) ** preset["decay"] * cells).mean(), rtol=1e-4, atol=0)
    with pytest.raises(InputError, match="decay is -1"):
        REGULARISERS.build("lwf", decay=-1)
