"""Batch normalisation over the rows of all processes: torch's own on a GPU, an equivalent on a CPU.

Without it every process would normalise by the statistics of its own rows, and two processes would train a different
network than one.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from mlcl.errors import InputError

M = TypeVar("M", bound=nn.Module)
_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def share_statistics(network: M, device: torch.device) -> M:
    """Return the network with batch normalisations over the rows of all processes.

    Parameters, statistics and their names do not change, nor does anything in evaluation mode.
    """
    for module in network.modules():
        # timm has batch normalisations with an activation inside, which would be lost silently.
        if isinstance(module, _BatchNorm) and type(module) not in _PLAIN:
            raise InputError(
                f"the network has layers of the kind {type(module).__name__}, whose statistics several processes "
                f"cannot share; expected train.devices 1, or a model with torch's own batch normalisation"
            )
    if device.type == "cpu":
        return cast(M, _replaced(network))
    return cast(M, nn.SyncBatchNorm.convert_sync_batchnorm(network))  # type: ignore[no-untyped-call]


def _replaced(module: nn.Module) -> nn.Module:
    if isinstance(module, _BatchNorm) and not isinstance(module, SharedBatchNorm):
        return SharedBatchNorm.like(module)
    for name, child in module.named_children():
        setattr(module, name, _replaced(child))
    return module


class SharedBatchNorm(_BatchNorm):
    """Batch normalisation of [B, C, ...] over the rows of all processes, in training mode."""

    @classmethod
    def like(cls, module: _BatchNorm) -> SharedBatchNorm:
        """Take over settings, parameters and statistics."""
        made = cls(
            module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats
        )
        made.training = module.training
        made._parameters, made._buffers = module._parameters, module._buffers
        return made

    def _check_input_dim(self, input: Tensor) -> None:
        pass  # the module that this one stands for had the right inputs

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, input: Tensor) -> Tensor:
        """Normalise; statistics are updated as torch does."""
        if not self.training or not dist.is_initialized():
            return super().forward(input)
        output, mean, variance, count = _Normalise.apply(input, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        if self.running_mean is not None and self.running_var is not None:
            assert self.num_batches_tracked is not None  # noqa: S101  (they come together)
            self.num_batches_tracked.add_(1)
            share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            # In place: a running average of the weights holds on to these tensors.
            self.running_mean.lerp_(mean.to(self.running_mean), share)
            unbiased = variance * (count / (count - 1))
            self.running_var.lerp_(unbiased.to(self.running_var), share)
        return cast(Tensor, output)


class _Normalise(torch.autograd.Function):
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` with mean and variance over all processes' rows."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = _wide(x)
        axes = [axis for axis in range(x.ndim) if axis != 1]
        own = wide.new_zeros(3, x.shape[1])
        if x.numel():
            own[1], own[0] = torch.var_mean(wide, axes, correction=0)
            own[2] = x.numel() // x.shape[1]
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, own)
        means, variances, counts = torch.stack(parts, 1)
        count = counts[:, :1].sum()
        if count <= 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got {int(count)}")
        mean = (counts * means).sum(0) / count
        variance = (counts * (variances + (means - mean).square())).sum(0) / count
        output = functional.batch_norm(wide, mean, variance, weight, bias, training=False, eps=eps)
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(variance + eps), count)
        ctx.mark_non_differentiable(mean, variance, count)
        return output.to(x.dtype), mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        x, weight, mean, scale, count = ctx.saved_tensors
        axes = [axis for axis in range(x.ndim) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
        wide = _wide(gradient)
        normal = (_wide(x) - mean.view(shape)) * scale.view(shape)
        own = torch.stack([wide.sum(axes), (wide * normal).sum(axes)])
        # Of own rows only: DDP adds up the gradients of parameters. Both are None if there are no parameters.
        to_bias, to_weight = own.clone() if weight is not None else (None, None)
        dist.all_reduce(own)
        own /= count
        back = wide - own[0].view(shape) - normal * own[1].view(shape)
        factor = scale if weight is None else scale * weight
        return (back * factor.view(shape)).to(x.dtype), to_weight, to_bias, None


def _wide(tensor: Tensor) -> Tensor:
    """Return at least single precision, in which sums over a batch are taken."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
