"""A committee's score: a weighted mean, of which only the network's part can learn."""

from __future__ import annotations

import numpy as np
import torch

from mlcl.models import build_committee, build_model


def solved(*, weight=1.0, moments=0.0, encoder="linear"):
    """A committee on vectors whose members have random weights, as if they were solved."""
    network = build_model("mlp", (5,), 3, seed=1, hidden=8)
    committee = build_committee(network, (5,), 3, encoder=encoder, weight=weight, moments=moments)
    generator = torch.Generator().manual_seed(0)
    for member in committee.members.values():
        member.linear.weight.copy_(torch.randn(member.linear.weight.shape, generator=generator))
        member.linear.bias.copy_(torch.randn(3, generator=generator))
    return committee.eval()


def test_the_score_is_the_weighted_mean_of_all_members():
    committee = solved(weight=2.0, moments=0.5)
    rows = torch.randn(7, 5, generator=torch.Generator().manual_seed(2))
    network, encoder, moments = committee.network, committee.member("encoder"), committee.member("moments")
    logits, features = network(rows).detach().numpy(), network.features(rows).detach().numpy()
    of_encoder = rows.numpy() @ encoder.linear.weight.numpy().T + encoder.linear.bias.numpy()
    of_moments = features @ moments.linear.weight.numpy().T + moments.linear.bias.numpy()
    expected = (logits + 2 * of_encoder + 0.5 * of_moments) / 3.5
    np.testing.assert_allclose(committee(rows).detach().numpy(), expected, atol=1e-5)


def test_gradients_reach_the_network_and_no_member():
    committee = solved(moments=1.0)
    committee(torch.ones(2, 5)).sum().backward()
    assert all(parameter.grad is not None for parameter in committee.network.parameters())
    assert all(parameter.grad is None for parameter in committee.members.parameters())
    assert not any(parameter.requires_grad for parameter in committee.members.parameters())


def test_members_never_switch_to_training():
    committee = solved(encoder="mlp")
    committee.train()
    assert committee.network.training
    assert not any(module.training for module in committee.member("encoder").modules())


def test_the_encoder_sees_the_inputs_as_it_wants_them():
    """The network's inputs are standardised, and patches look at pixels in [0, 1]."""
    network = build_model("resnet8", (3, 16, 16), 2)
    committee = build_committee(network, (3, 16, 16), 2, encoder="patches", options={"centres": 4})
    pixels = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    mean, deviation = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1), torch.full((1, 3, 1, 1), 0.25)
    member = committee.member("encoder")
    member.adapt(deviation, mean)
    found = member.features((pixels - mean) / deviation)
    torch.testing.assert_close(found, committee.encoder(pixels), atol=1e-5, rtol=1e-4)


def test_the_seed_decides_the_encoders_weights_and_leaves_the_networks():
    one, two, other = (
        build_committee(build_model("mlp", (5,), 3, seed=1), (5,), 3, encoder="mlp", seed=seed)
        for seed in (4, 4, 5)
    )
    rows = torch.ones(1, 5)
    assert torch.equal(one.member("encoder").features(rows), two.member("encoder").features(rows))
    assert not torch.equal(one.member("encoder").features(rows), other.member("encoder").features(rows))
    assert torch.equal(one.network(rows), other.network(rows))


def test_an_encoder_of_weight_0_is_not_asked():
    """It has only taught the network, which then predicts alone."""
    committee = solved(weight=0.0)
    rows = torch.randn(3, 5)
    committee.member("encoder").encoder = None
    assert torch.equal(committee(rows), committee.network(rows))
