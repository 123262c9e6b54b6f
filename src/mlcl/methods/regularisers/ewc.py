"""Elastic weight consolidation: weights that mattered to old tasks are held near their old values."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from mlcl.errors import InputError, check_choice, check_int, check_number
from mlcl.methods.regularisers.base import REGULARISERS, Regulariser
from mlcl.methods.step import Step, TaskContext
from mlcl.models import Network


@REGULARISERS.register(
    "ewc",
    summary="Elastic weight consolidation with a diagonal Fisher from per-sample gradients.",
    reference="Kirkpatrick et al., PNAS 2017; online form: Schwarz et al., ICML 2018",
)
class ElasticWeights(Regulariser):
    """``strength / 2 * sum_i sum_theta F_i (theta - theta_i)^2`` over past tasks i.

    The sum over anchors is a quadratic in theta, so one mean anchor and a constant stand for all tasks, however many:
    ``F = sum_i F_i``, ``anchor = sum_i F_i theta_i / F``, ``spread = sum_i F_i (theta_i - anchor)^2``.

    A step of gradient descent on the penalty moves a weight by ``lr * strength * F`` of its way to the anchor; above 1
    it overshoots, and soon diverges. So F is capped at ``1 / (lr * strength)``. See specification.md#ewc.

    Args:
        strength: the factor lambda.
        online: keep one anchor, the newest weights, with a running Fisher ``decay * F + F_t``.
        decay: what is kept of the old Fisher (online).
        samples: samples of a task that the Fisher is estimated on, drawn without replacement.
        fisher: ``empirical`` (labels of the data) or ``true`` (labels drawn from the network).
    """

    def __init__(
        self,
        *,
        strength: float = 1.0,
        online: bool = False,
        decay: float = 1.0,
        samples: int = 1000,
        fisher: Literal["empirical", "true"] = "empirical",
    ) -> None:
        self.strength, self.online = check_number("strength", strength), online
        self.decay = check_number("decay", decay, high=1)
        if decay != 1.0 and not online:
            raise InputError(f"decay is {decay}; it is used with regulariser.online true only")
        self.samples = check_int("samples", samples, 1)
        check_choice("fisher", fisher, ("empirical", "true"))
        self.fisher: Literal["empirical", "true"] = fisher
        self.importance: dict[str, Tensor] = {}
        self.anchor: dict[str, Tensor] = {}
        self.spread = torch.zeros((), dtype=torch.float64)

    def penalty(self, step: Step) -> Tensor | None:
        """Return the penalty; None until a task is learnt."""
        if not self.importance:
            return None
        parameters = dict(step.context.model.named_parameters())
        reach = step.context.lr * self.strength
        most = 1 / reach if reach > 0 else math.inf
        terms = [
            (f.clamp(max=most) * (parameters[n] - self.anchor[n]).square()).sum()
            for n, f in self.importance.items()
        ]
        return self.strength / 2 * (torch.stack(terms).sum() + self.spread.to(terms[0]))

    def end_task(self, context: TaskContext) -> None:
        """Estimate the Fisher on the learnt task and add its anchor."""
        found = task_fisher(context, samples=self.samples, kind=self.fisher)
        parameters = dict(context.model.named_parameters())
        for name, new in found.items():
            weights = parameters[name].detach()
            old = self.importance.get(name, torch.zeros_like(new))
            if self.online:
                self.importance[name], self.anchor[name] = self.decay * old + new, weights.clone()
                continue
            gap = weights - self.anchor.get(name, weights)
            share = new / (old + new).clamp(min=torch.finfo(new.dtype).tiny)
            self.importance[name] = old + new
            self.anchor[name] = weights - (1 - share) * gap
            # Not in place: a state that was taken before stays as it was.
            self.spread = self.spread + (old * share * gap.square()).sum().double().cpu()

    def state(self) -> dict[str, Tensor]:
        """Return Fisher, anchor and spread."""
        state = {f"importance.{name}": value for name, value in self.importance.items()}
        state |= {f"anchor.{name}": value for name, value in self.anchor.items()}
        return state | {"spread": self.spread}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        for prefix, target in (("importance.", self.importance), ("anchor.", self.anchor)):
            target.clear()
            target.update({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
        self.spread = state["spread"]


def task_fisher(
    context: TaskContext, *, samples: int, kind: Literal["empirical", "true"]
) -> dict[str, Tensor]:
    """Estimate the diagonal Fisher of a task's own classes on at most ``samples`` of its samples."""
    batches = list(context.batches())
    inputs = torch.cat([batch for batch, _ in batches])
    labels = torch.cat([known for _, known in batches])
    chosen = torch.randperm(len(inputs), generator=context.generator)[:samples].to(inputs.device)
    inputs, labels = inputs[chosen], labels[chosen][:, context.classes]
    if kind == "true":
        with torch.no_grad():
            chances = context.model(inputs)[:, context.classes].sigmoid().cpu()
        labels = torch.bernoulli(chances, generator=context.generator).to(inputs.device)
    return diagonal_fisher(context.model, inputs, labels, context.classes)


def diagonal_fisher(
    network: Network, inputs: Tensor, labels: Tensor, classes: Tensor, *, chunk: int = 32
) -> dict[str, Tensor]:
    """Return the mean over samples of the squared gradient of each sample's log-likelihood, by parameter name.

    The likelihood is that of independent labels over ``classes``; parameters without a gradient (frozen ones) are left
    out. Per-sample gradients by ``torch.func``: no loop over samples. Chunks bound the memory.

    Args:
        network: in evaluation mode (batch statistics would couple samples).
        labels: [n, len(classes)]; nan where they are not known.
        classes: columns of the logits that the labels belong to.
    """
    learnt = {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}
    fixed = {name: p.detach() for name, p in network.named_parameters() if not p.requires_grad}
    fixed |= dict(network.named_buffers())

    def negative_likelihood(parameters: dict[str, Tensor], sample: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(network, {**fixed, **parameters}, (sample[None],))
        known = ~label.isnan()
        losses = functional.binary_cross_entropy_with_logits(
            logits[0, classes], label.nan_to_num(), reduction="none"
        )
        return (losses * known).sum()

    per_sample = vmap(grad(negative_likelihood), in_dims=(None, 0, 0))
    total = {name: torch.zeros_like(p) for name, p in learnt.items()}
    for start in range(0, len(inputs), chunk):
        piece = slice(start, start + chunk)
        for name, gradient in per_sample(learnt, inputs[piece], labels[piece]).items():
            total[name] += gradient.square().sum(0)
    return {name: value / len(inputs) for name, value in total.items()}
