"""The rules of models; `mlcl.models.network` says what a backbone is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlcl.errors import InputError
from mlcl.models import MODELS, Backbone, LinearHead, Network, frozen_copy
from mlcl.models.network import seeded
from mlcl.testing.rules import (
    CheckedPart,
    Rule,
    case_count,
    expect,
    global_state,
    registered,
    rules_in,
    run_rules,
)

CLASSES = 3
IMAGE_SHAPES = ((3, 32, 32), (1, 33, 40), (3, 40, 35), (1, 48, 32))
VECTOR_SHAPES = ((5,), (12,), (1,), (30,))


@dataclass(frozen=True)
class ModelCase:
    """The shape of one input, and a seed for weights and inputs."""

    shape: tuple[int, ...]
    seed: int
    rows: int = 3

    def __str__(self) -> str:
        return f"{self.rows} inputs of shape {self.shape} and seed {self.seed}"

    def inputs(self) -> Tensor:
        """Return a batch of inputs, from 0 to 1 as images are."""
        generator = torch.Generator().manual_seed(self.seed)
        return torch.rand((self.rows, *self.shape), generator=generator)


def check_model(
    part: str | Callable[..., Backbone],
    *,
    shapes: tuple[tuple[int, ...], ...] | None = None,
    cases: int = 2,
    seed: int = 0,
    **options: Any,
) -> None:
    """Check that a model keeps the rules of all models.

    Args:
        part: a name in ``MODELS``, or the factory itself.
        shapes: of one input, if the model takes only certain ones; otherwise small images and feature vectors are
            tried, and those that it refuses with an `mlcl.InputError` are left out.
        cases: how many of the shapes are tried.
        seed: of weights and inputs.
        options: of the model.

    >>> check_model("mlp", hidden=8)
    """
    count = case_count(cases, seed)
    with registered(MODELS, part, options) as found:
        taken = shapes or _taken(found)
        run_rules(
            found,
            MODEL_RULES,
            [ModelCase(shape, seed + number) for number, shape in enumerate(taken[:count])],
        )


def _taken(part: CheckedPart[ModelCase]) -> tuple[tuple[int, ...], ...]:
    """Return the shapes, all of images or all of vectors, that a model takes."""
    for shapes in (VECTOR_SHAPES, IMAGE_SHAPES):
        try:
            part.build(shapes[0])
        except InputError:
            continue
        return shapes
    raise AssertionError(
        f"model {part.name!r} takes neither images of shape {IMAGE_SHAPES[0]} nor vectors of shape "
        f"{VECTOR_SHAPES[0]}; name the shapes that it takes with shapes=."
    )


def _network(part: CheckedPart[ModelCase], case: ModelCase, more: int = 0) -> Network:
    with seeded(case.seed + more):
        backbone = part.build(case.shape)
        expect(isinstance(backbone, Backbone), f"returns a {type(backbone).__name__}, not a Backbone")
        return Network(backbone, LinearHead(backbone.width, CLASSES))


def features_are_as_declared(part: CheckedPart[ModelCase], case: ModelCase) -> None:
    """The features have the width that the backbone declares: vectors, or a map of the size that it declares."""
    backbone = _network(part, case).eval().backbone
    expect(backbone.kind in ("map", "vector"), f"declares the kind {backbone.kind!r}, not 'map' or 'vector'")
    expected: tuple[int, ...] = (case.rows, backbone.width)
    if backbone.kind == "map":
        expected += backbone.map_size(case.shape)
    found = tuple(backbone(case.inputs()).shape)
    expect(found == expected, f"returns features of shape {found}, where it declares {expected}")


def weights_follow_the_seed(part: CheckedPart[ModelCase], case: ModelCase) -> None:
    """The same seed gives the same weights; nothing else is random."""
    one, two = (_network(part, case).state_dict() for _ in range(2))
    differing = [name for name, value in one.items() if not torch.equal(value, two[name])]
    expect(not differing, f"gives {differing[:1]} other values the second time")


def global_random_state_stays(part: CheckedPart[ModelCase], case: ModelCase) -> None:
    """Building a model and evaluating it leave global random generators alone."""
    before = global_state()
    _network(part, case).eval()(case.inputs())
    expect(global_state() == before, "draws from a global random generator")


def rows_are_independent_in_evaluation(part: CheckedPart[ModelCase], case: ModelCase) -> None:
    """In evaluation mode the logits are the same every time, and those of a row do not depend on other rows."""
    network, inputs = _network(part, case).eval(), case.inputs()
    with torch.no_grad():
        logits, again = network(inputs), network(inputs)
        alone = torch.cat([network(row[None]) for row in inputs])
    expect(torch.equal(logits, again), "returns other logits the second time")
    gap = float((alone - logits).abs().max())
    expect(
        gap <= 1e-3 * (1 + float(logits.abs().max())),
        f"returns logits that differ by {gap:.3g} for single rows",
    )


def evaluation_changes_nothing(part: CheckedPart[ModelCase], case: ModelCase) -> None:
    """In evaluation mode a model changes neither its parameters and buffers nor its inputs."""
    network, inputs = _network(part, case).eval(), case.inputs()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network(inputs)
    changed = [name for name, value in network.state_dict().items() if not torch.equal(value, before[name])]
    expect(not changed, f"changes {changed[:1]} in evaluation mode")
    expect(torch.equal(inputs, case.inputs()), "changes its inputs in place")


def gradients_reach_all_parameters(part: CheckedPart[ModelCase], case: ModelCase) -> None:
    """In training mode the gradient of the logits is finite and reaches every parameter that is not frozen."""
    network = _network(part, case).train()
    logits = network(case.inputs())
    expect(logits.shape == (case.rows, CLASSES), f"gives logits of shape {tuple(logits.shape)}")
    logits.square().sum().backward()
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            expect(parameter.grad is not None, f"has the parameter {name!r}, which no gradient reaches")
            expect(
                torch.as_tensor(parameter.grad).isfinite().all(),
                f"has a gradient of {name!r} that is not finite",
            )


def survives_saving(part: CheckedPart[ModelCase], case: ModelCase) -> None:
    """A model with the state_dict of another one, and a copy of it, return the same logits."""
    network, other, inputs = _network(part, case), _network(part, case, more=1), case.inputs()
    network.train()(inputs)  # moves running statistics, where there are any
    other.load_state_dict(network.state_dict())
    with torch.no_grad():
        expected = network.eval()(inputs)
        for found, what in (
            (other.eval(), "its state_dict is loaded into another"),
            (frozen_copy(network), "copied"),
        ):
            expect(torch.equal(found(inputs), expected), f"returns other logits when {what}")


def fitting_follows_its_generator(part: CheckedPart[ModelCase], case: ModelCase) -> None:
    """What a model learns from inputs alone (``fit``) follows from inputs and generator, and is in its state_dict."""
    inputs = case.inputs()
    networks = [_network(part, case) for _ in range(2)]
    before = global_state()
    for network in networks:
        generator = torch.Generator().manual_seed(case.seed)
        network.eval().backbone.fit(inputs, generator=generator, mirror=True)
    expect(global_state() == before, "draws from a global random generator")
    expect(torch.equal(inputs, case.inputs()), "changes its inputs in place")
    one, two = (network.state_dict() for network in networks)
    differing = [name for name, value in one.items() if not torch.equal(value, two[name])]
    expect(not differing, f"learns other values of {differing[:1]} the second time")
    other = _network(part, case, more=1).eval()
    other.load_state_dict(one)
    with torch.no_grad():
        expected = networks[0](inputs)
        expect(expected.isfinite().all(), "gives logits that are not finite")
        expect(
            torch.equal(other(inputs), expected),
            "returns other logits when its state_dict is loaded into another",
        )


MODEL_RULES: tuple[Rule[ModelCase], ...] = rules_in(__name__)
