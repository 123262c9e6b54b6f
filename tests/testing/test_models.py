"""`check_model`: all shipped models pass, and each rule meets a model that breaks it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mlcl.errors import InputError
from mlcl.models import MODELS, Backbone
from mlcl.models.mlp import VectorBackbone
from mlcl.testing import MODEL_RULES, check_model

SLOW = ("resnet18", "resnet34", "resnet50", "patches")
STRAY = torch.Generator().manual_seed(0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {"cases": 1} if kind in SLOW else {}) for kind in MODELS.names()),
        ("mlp", {"hidden": 7, "depth": 3, "cases": 4}),
        ("resnet8", {"width": 3, "cases": 4}),
        ("resnet14", {"shapes": ((3, 9, 21),)}),
    ],
    ids=str,
)
def test_shipped_models(kind, options):
    check_model(kind, **options)


def good(input_shape, *, width: int = 6):
    """A model that keeps all rules."""
    if len(input_shape) != 1:
        raise InputError(f"inputs have shape {input_shape}; expected (D,)")
    return VectorBackbone(width, nn.Sequential(nn.Linear(input_shape[0], width), nn.Dropout(), nn.ReLU()))


class Own(Backbone):
    """A model of one linear layer; subclasses break it."""

    kind = "vector"
    width = 5

    def __init__(self, input_shape):
        super().__init__()
        self.linear = nn.Linear(input_shape[0], 5)
        self.prepare()

    def prepare(self):
        pass

    def forward(self, inputs):
        return self.linear(inputs)


class NoBackbone(nn.Linear):
    def __init__(self, input_shape):
        super().__init__(input_shape[0], 5)
        self.width = 5


class KeepsTheMap(Own):
    def forward(self, inputs):
        return self.linear(inputs)[:, :, None, None]


class DrawsWeightsElsewhere(Own):
    def prepare(self):
        nn.init.normal_(self.linear.weight, generator=STRAY)


class DropsOutInEvaluation(Own):
    def forward(self, inputs):
        return nn.functional.dropout(self.linear(inputs), training=True)


class ComparesRows(Own):
    def forward(self, inputs):
        out = self.linear(inputs)
        return out - out.mean(0)


class CountsBatches(Own):
    def prepare(self):
        self.register_buffer("batches", torch.zeros(()))

    def forward(self, inputs):
        self.batches += 1
        return self.linear(inputs)


class ClampsInPlace(Own):
    def forward(self, inputs):
        return self.linear(inputs.clamp_(max=0.5))


class UnusedLayer(Own):
    def prepare(self):
        self.unused = nn.Linear(2, 2)


class KeepsATensorOutOfItsState(Own):
    def prepare(self):
        self.shift = torch.rand(5)

    def forward(self, inputs):
        return self.linear(inputs) + self.shift


class FitsAtRandom(Own):
    def fit(self, inputs, *, generator, mirror):
        with torch.no_grad():
            self.linear.bias.normal_(generator=STRAY)


class FitsWithoutSaving(Own):
    def prepare(self):
        self.mean = 0.0

    def fit(self, inputs, *, generator, mirror):
        self.mean = inputs.mean()

    def forward(self, inputs):
        return self.linear(inputs - self.mean)


BROKEN = [
    ("features_are_as_declared", NoBackbone),
    ("features_are_as_declared", KeepsTheMap),
    ("weights_follow_the_seed", DrawsWeightsElsewhere),
    ("global_random_state_stays", DropsOutInEvaluation),
    ("rows_are_independent_in_evaluation", ComparesRows),
    ("evaluation_changes_nothing", CountsBatches),
    ("evaluation_changes_nothing", ClampsInPlace),
    ("gradients_reach_all_parameters", UnusedLayer),
    ("survives_saving", KeepsATensorOutOfItsState),
    ("fitting_follows_its_generator", FitsAtRandom),
    ("fitting_follows_its_generator", FitsWithoutSaving),
]


@pytest.mark.parametrize(("rule", "part"), BROKEN, ids=lambda v: getattr(v, "__name__", v))
def test_a_model_that_breaks_a_rule_is_named_with_the_rule(rule, part):
    with pytest.raises(
        AssertionError,
        match=rf"model '{part.__name__}' breaks the rule '{rule}' \(.*\): with 3 inputs of shape \(5,\)",
    ):
        check_model(part)


def test_every_rule_has_a_model_that_breaks_it():
    assert {rule for rule, _ in BROKEN} == {rule.__name__ for rule in MODEL_RULES}


def test_a_good_model_of_ones_own_passes():
    check_model(good, width=3)


def test_a_model_that_takes_neither_shape_needs_shapes():
    def long_vectors(input_shape):
        if input_shape != (99,):
            raise InputError(f"inputs have shape {input_shape}; expected (99,)")
        return good(input_shape)

    check_model(long_vectors, shapes=((99,),))
    with pytest.raises(AssertionError, match=r"takes neither images .* nor vectors .* with shapes="):
        check_model(long_vectors)
