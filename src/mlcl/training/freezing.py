"""What of a pre-trained backbone does not learn: its layers up to one, and the statistics of its normalisations."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mlcl.errors import InputError, nearest
from mlcl.models import Network

ALL = "all"


def frozen_layers(network: Network, up_to: str | None, *, model: str = "") -> tuple[nn.Module, ...]:
    """Return the modules of a backbone up to and including the layer of a name, in the order of their registration.

    Parameters that a module around that layer owns itself, such as a transformer's position embeddings, come before the
    layers in it.

    Args:
        network: the network; its head is never frozen.
        up_to: name of a layer, such as ``blocks.3`` or ``layer2``; ``all``: the whole backbone; None: nothing.
        model: name of the model, for the error.

    >>> from mlcl.models import build_model
    >>> network = build_model("mlp", (4,), 3, hidden=8)
    >>> [type(module).__name__ for module in frozen_layers(network, "layers.1")]
    ['VectorBackbone', 'Sequential', 'Linear', 'LayerNorm']
    """
    if up_to is None:
        return ()
    backbone = network.backbone
    modules = dict(backbone.named_modules())
    if up_to == ALL:
        return tuple(modules.values())
    # Models of packages are one level down.
    name = next((name for name in (up_to, f"model.{up_to}") if name and name in modules), None)
    if name is None:
        known = [other.removeprefix("model.") for other in modules if other not in ("", "model")]
        raise InputError(
            f"train.freeze is {up_to!r}; expected 'all' or a layer of model {model!r}, such as {known[-1]!r}."
            f"{nearest(up_to, known)}"
            if known
            else f"train.freeze is {up_to!r}, but model {model!r} has no layers; expected 'all' or nothing."
        )
    last = max(place for place, other in enumerate(modules) if other == name or other.startswith(f"{name}."))
    return tuple(modules.values())[: last + 1]


def freeze(modules: Sequence[nn.Module]) -> None:
    """Exclude the parameters of modules from learning; those of modules in them are the caller's to list."""
    for module in modules:
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(False)


def training_mode(network: Network, frozen: Sequence[nn.Module], *, statistics: bool) -> None:
    """Switch a network to training, except for what is frozen.

    Args:
        network: the network.
        frozen: modules that do not learn, of `frozen_layers`: they are as in evaluation, without dropout, and with
            their running statistics; except for those around layers that learn.
        statistics: whether all batch normalisations of the backbone use, and keep, their running statistics.
    """
    network.train()
    whole = set(frozen)
    for module in frozen:
        if whole.issuperset(module.modules()):
            module.training = False
    if statistics:
        for module in network.backbone.modules():
            if isinstance(module, _BatchNorm):
                module.eval()
