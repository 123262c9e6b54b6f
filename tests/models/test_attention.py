"""KRT's head against attention written out session by session with `nn.MultiheadAttention`."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mlcl.errors import InputError
from mlcl.models import IncrementalAttentionHead, Network, build_model


@pytest.fixture(autouse=True)
def _fixed_draws() -> None:
    torch.manual_seed(0)


def _shaken(head: IncrementalAttentionHead, seed: int = 0) -> IncrementalAttentionHead:
    """Move every parameter (norms and tokens too) well away from its start."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=generator)
    return head


def _naive(head: IncrementalAttentionHead, feature_map: Tensor) -> tuple[Tensor, Tensor]:
    """The formulas of specification.md#krt, one session at a time."""
    attention = nn.MultiheadAttention(head.dim, head.heads, batch_first=True)
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.cat([head.query.weight, head.key_value.weight]))
        attention.in_proj_bias.copy_(torch.cat([head.query.bias, head.key_value.bias]))
        attention.out_proj.weight.copy_(head.output.weight)
        attention.out_proj.bias.copy_(head.output.bias)
    batch, _, height, width = feature_map.shape
    kernel = head.project.weight[:, :, 0, 0]
    rows = [
        feature_map[:, :, i, j] @ kernel.T + head.project.bias for i in range(height) for j in range(width)
    ]
    patches = torch.stack(rows, 1) + head.positions
    logits = torch.zeros(batch, len(head.slots))
    embeddings = []
    u = head.transfer.expand(batch, 1, -1)
    for token, classifier, classes in zip(head.retention, head.classifiers, head.sessions, strict=True):
        z = head.norm(torch.cat([u, token.expand(batch, 1, -1), patches], 1))
        e = u + attention(z[:, :1], z, z)[0]
        norm, grow, _, shrink = head.mlp
        e = (e + shrink(F.gelu(grow(norm(e)))))[:, 0]
        embeddings.append(e)
        scores = classifier(e)
        for place, k in enumerate(classes):
            logits[:, k] = scores[:, place]
    return logits, torch.stack(embeddings, 1)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 6),
    st.integers(1, 3),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.sampled_from([(8, 8), (16, 8), (12, 3)]),
    st.permutations(range(9)),
    st.integers(0, 2**16),
)
def test_equals_attention_session_by_session(
    sessions: int, batch: int, size: tuple[int, int], dim: tuple[int, int], order: list[int], seed: int
) -> None:
    head = IncrementalAttentionHead(5, 9, size, dim=dim[0], heads=dim[1], mlp_ratio=2)
    for part in np.array_split(np.array(order)[:8], sessions):
        head.add_session(part)
    _shaken(head, seed)
    features = torch.randn(batch, 5, *size, generator=torch.Generator().manual_seed(seed))
    logits, embeddings = head.forward_with_embeddings(features)
    expected_logits, expected_embeddings = _naive(head, features)
    torch.testing.assert_close(embeddings, expected_embeddings, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits, expected_logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(head(features), logits)
    torch.testing.assert_close(head.embeddings(features), embeddings)
    assert (logits[:, order[8]] == 0).all()


def test_gradients_equal_those_of_the_naive_form() -> None:
    head = _shaken(_with_sessions([[0, 1], [2]]))
    features = torch.randn(3, 8, 2, 3, requires_grad=True)
    (fast,) = torch.autograd.grad(head(features).square().sum(), features)
    (slow,) = torch.autograd.grad(_naive(head, features)[0].square().sum(), features)
    torch.testing.assert_close(fast, slow, rtol=1e-3, atol=1e-3)


def test_large_scores_stay_finite() -> None:
    head = _with_sessions([[0, 1], [2]])
    with torch.no_grad():
        head.query.weight *= 1e4
        head.key_value.weight *= 1e4
    features = torch.randn(2, 8, 2, 3)
    logits = head(features)
    assert logits.isfinite().all()
    torch.testing.assert_close(logits, _naive(head, features)[0], rtol=1e-2, atol=1e-2)


def _with_sessions(sessions: list[list[int]], *, seed: int = 0) -> IncrementalAttentionHead:
    head = IncrementalAttentionHead(8, 5, (2, 3), seed=seed)
    for classes in sessions:
        head.add_session(classes)
    return head


def _old(network: Network) -> dict[str, Tensor]:
    return {
        name: parameter
        for name, parameter in network.head.named_parameters()
        if name.startswith(("retention.0", "retention.1", "classifiers.0", "classifiers.1"))
    }


@pytest.mark.parametrize("kept_optimiser", [True, False])
def test_old_tokens_and_classifiers_are_really_frozen(kept_optimiser: bool) -> None:
    network = build_model("resnet8", (3, 8, 8), 5, width=4, head="attention")
    head = network.head
    assert isinstance(head, IncrementalAttentionHead)
    images = torch.randn(4, 3, 8, 8)

    def optimiser() -> torch.optim.Optimizer:
        return torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)

    def steps(chosen: torch.optim.Optimizer) -> None:
        for _ in range(3):
            chosen.zero_grad(set_to_none=False)
            logits, embeddings = network.forward_with_embeddings(images)
            (logits.square().sum() + embeddings.sum()).backward()
            chosen.step()

    head.add_session([0, 1])
    head.add_session([2])
    first = optimiser()
    steps(first)  # leaves gradients and momentum behind for session 1
    head.add_session([3, 4])
    frozen = {name: parameter.detach().clone() for name, parameter in _old(network).items()}
    moving = {n: p.detach().clone() for n, p in network.named_parameters() if p.requires_grad}
    assert len(frozen) == 10
    if kept_optimiser:  # an optimiser from before the freeze, still holding momentum
        first.add_param_group({"params": [head.retention[2], *head.classifiers[2].parameters()]})
    steps(first if kept_optimiser else optimiser())
    for name, parameter in _old(network).items():
        assert not parameter.requires_grad
        assert parameter.grad is None
        assert torch.equal(parameter, frozen[name]), name
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            assert not torch.equal(parameter, moving[name]), name
    assert {"head.transfer", "head.positions", "head.retention.2", "head.query.weight"} <= moving.keys()


def test_a_new_session_leaves_the_old_logits_as_they_were() -> None:
    head = _shaken(_with_sessions([[4, 0], [2]]))
    features = torch.randn(3, 8, 2, 3)
    before, embeddings = head.forward_with_embeddings(features)
    head.add_session([1])
    after, more = head.forward_with_embeddings(features)
    torch.testing.assert_close(after[:, [0, 2, 4]], before[:, [0, 2, 4]])
    torch.testing.assert_close(more[:, :2], embeddings)
    assert (before[:, [1, 3]] == 0).all()
    assert (after[:, 1] != 0).all()
    assert (after[:, 3] == 0).all()


def test_a_copy_is_a_snapshot() -> None:
    network = build_model("resnet8", (3, 8, 8), 5, width=4, head="attention").eval()
    network.head.add_session([0, 1])
    snapshot = copy.deepcopy(network).requires_grad_(False)
    images = torch.randn(2, 3, 8, 8)
    before = network(images)
    network.head.add_session([2])
    _shaken(network.head)
    assert torch.equal(snapshot(images), before)
    assert snapshot.head.sessions == ((0, 1),)
    assert not torch.equal(network(images)[:, :2], before[:, :2])


def test_state_dict_restores_sessions_and_classes() -> None:
    saved = _shaken(_with_sessions([[4, 0], [2]]))
    loaded = _with_sessions([[0, 1], [3]], seed=9)
    loaded.load_state_dict(saved.state_dict())
    features = torch.randn(2, 8, 2, 3)
    assert loaded.sessions == ((4, 0), (2,))
    assert torch.equal(loaded(features), saved(features))
    assert [token.requires_grad for token in loaded.retention] == [False, True]
    with pytest.raises(RuntimeError, match="size mismatch"):
        _with_sessions([[0], [1, 2]]).load_state_dict(saved.state_dict())
    with pytest.raises(RuntimeError, match=r"Unexpected key.*retention\.1"):
        _with_sessions([[0, 1]]).load_state_dict(saved.state_dict())


def test_new_sessions_are_seeded_and_leave_global_state_alone() -> None:
    before = torch.get_rng_state()
    one, two, other = (_with_sessions([[0, 1], [2, 3]], seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    state = one.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in two.state_dict().items())
    assert not torch.equal(one.retention[0], one.retention[1])
    assert not torch.equal(one.retention[0], other.retention[0])
    assert not torch.equal(one.classifiers[0][1].weight, one.classifiers[1][1].weight)


def test_new_parameters_take_the_heads_dtype() -> None:
    head = IncrementalAttentionHead(8, 5, (2, 3)).double()
    head.add_session([0])
    assert {parameter.dtype for parameter in head.parameters()} == {torch.float64}
    assert head(torch.zeros(1, 8, 2, 3, dtype=torch.float64)).dtype == torch.float64


def test_class_ids_may_be_a_tensor_or_a_read_only_array(recwarn: pytest.WarningsRecorder) -> None:
    ids = np.array([2, 3])
    ids.flags.writeable = False
    head = IncrementalAttentionHead(8, 5, (2, 3))
    head.add_session(ids)
    head.add_session(torch.tensor([0]))
    assert head.sessions == ((2, 3), (0,))
    assert len(recwarn) == 0


def test_runs_under_bfloat16_autocast() -> None:
    head = _with_sessions([[0, 1], [2]])
    features = torch.randn(2, 8, 2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        logits = head(features)
    torch.testing.assert_close(logits.float(), head(features), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", ["resnet8", "resnet18"])
def test_works_in_channels_last(name: str) -> None:
    plain = build_model(name, (3, 40, 48), 5, head="attention")
    plain.head.add_session([0, 3])
    last = copy.deepcopy(plain).eval().to(memory_format=torch.channels_last)
    images = torch.randn(2, 3, 40, 48)
    expected = plain.eval()(images)
    assert plain.head.dim == plain.backbone.width
    torch.testing.assert_close(
        last(images.contiguous(memory_format=torch.channels_last)), expected, rtol=1e-3, atol=1e-4
    )


@pytest.mark.slow
def test_exports_with_a_free_batch_size() -> None:
    network = build_model("resnet8", (3, 8, 8), 6, width=4, head="attention").eval()
    network.head.add_session([4, 1])
    network.head.add_session([0])
    batch = torch.export.Dim("batch", min=1, max=64)
    exported = torch.export.export(network, (torch.randn(3, 3, 8, 8),), dynamic_shapes=({0: batch},))
    images = torch.randn(5, 3, 8, 8)
    torch.testing.assert_close(exported.module()(images), network(images))


@pytest.mark.slow
def test_learns_two_sessions_by_heart() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(16, 3, 8, 8, generator=generator)
    labels = (torch.rand(16, 4, generator=generator) < 0.4).float()
    network = build_model("resnet8", (3, 8, 8), 4, head="attention")
    for classes in ([0, 1], [2, 3]):
        network.head.add_session(classes)
        optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
        for _ in range(60):
            optimiser.zero_grad()
            loss = F.binary_cross_entropy_with_logits(network(images)[:, classes], labels[:, classes])
            loss.backward()
            optimiser.step()
        assert loss.item() < 0.1


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([], r"are \[\], expected ids from 0 to 4"),
        ([5], r"are \[5\], expected ids from 0 to 4"),
        ([-1], r"are \[-1\], expected ids"),
        ([0.5], "expected ids"),
        (np.array([[3, 4]]), "expected ids"),
        (np.array(3), "are 3, expected ids"),
        ([3, 3], r"are \[3, 3\], expected each once"),
        ([3, 1], r"none of an earlier session \(taken already: \[1\]\)"),
    ],
)
def test_bad_classes_are_refused_and_change_nothing(classes: object, message: str) -> None:
    head = _with_sessions([[0, 1]])
    with pytest.raises(InputError, match=message):
        head.add_session(classes)  # type: ignore[arg-type]
    assert head.sessions == ((0, 1),)
    assert all(parameter.requires_grad for parameter in head.parameters())


def test_misuse_is_reported_in_one_sentence() -> None:
    with pytest.raises(InputError, match="no session yet"):
        IncrementalAttentionHead(8, 5, (2, 3))(torch.zeros(1, 8, 2, 3))
    with pytest.raises(
        InputError, match="dim of the attention head is 12, expected a multiple of its 8 heads"
    ):
        IncrementalAttentionHead(8, 5, (2, 3), dim=12)
