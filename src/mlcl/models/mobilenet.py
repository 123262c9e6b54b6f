"""MobileNetV2 and EfficientNet-Lite0: small encoders for which pre-trained weights are easy to get.

Layers, their shapes and the names of their tensors are those of timm's ``mobilenetv2_100`` and
``tf_efficientnet_lite0``, so that weights for these load here, and neither timm nor torchvision is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from mlcl.errors import InputError
from mlcl.models.network import MODELS, pool
from mlcl.models.packages import PackageBackbone, check_images, weights_of_file
from mlcl.models.weight_files import is_weight_file

FEATURES = 1280
EXPANSION = 6

Stage = tuple[int, int, int, int]
"""Blocks, kernel size, stride of the first block, channels out."""

# Table 2 of Sandler et al.; the first block has no expansion.
MOBILENET_V2: tuple[Stage, ...] = (
    (1, 3, 1, 16),
    (2, 3, 2, 24),
    (3, 3, 2, 32),
    (4, 3, 2, 64),
    (3, 3, 1, 96),
    (3, 3, 2, 160),
    (1, 3, 1, 320),
)
# Table 1 of Tan and Le (EfficientNet-B0), without squeeze-and-excitation.
EFFICIENTNET_LITE0: tuple[Stage, ...] = (
    (1, 3, 1, 16),
    (2, 3, 2, 24),
    (2, 5, 2, 40),
    (3, 3, 2, 80),
    (3, 5, 1, 112),
    (4, 5, 2, 192),
    (1, 3, 1, 320),
)


@dataclass(frozen=True)
class Design:
    """What distinguishes the two networks.

    Attributes:
        stages: their blocks.
        same: pad as TensorFlow does, more on the right and at the bottom where a stride leaves an odd rest.
        eps: of batch normalisation.
        mean: of inputs in [0, 1] per channel, which pre-trained weights expect to be subtracted.
        std: by which they expect inputs to be divided then.
    """

    stages: Sequence[Stage]
    same: bool
    eps: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


DESIGNS = {
    "mobilenetv2": Design(
        MOBILENET_V2, same=False, eps=1e-5, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
    ),
    "efficientnet-lite0": Design(
        EFFICIENTNET_LITE0, same=True, eps=1e-3, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)
    ),
}


class SameConv2d(nn.Conv2d):
    """A convolution padded as TensorFlow's ``SAME``: output sides are ``ceil(side / stride)``."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Pad by the least that gives this size, the odd rest on the right and at the bottom, and convolve."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        height, width = (
            max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in inputs.shape[2:]
        )
        padding = (width // 2, width - width // 2, height // 2, height - height // 2)
        if padding[0] == padding[1] and padding[2] == padding[3]:
            symmetric = (padding[2], padding[0])
            return F.conv2d(inputs, self.weight, self.bias, self.stride, symmetric, groups=self.groups)
        return super().forward(F.pad(inputs, padding))


def _conv(
    design: Design, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    if design.same and kernel > 1:
        return SameConv2d(inputs, outputs, kernel, stride=stride, groups=groups, bias=False)
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)


class Separable(nn.Module):
    """A depthwise and a pointwise convolution: the first block, which has no expansion and no shortcut."""

    def __init__(self, design: Design, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.conv_dw = _conv(design, inputs, inputs, kernel, groups=inputs)
        self.bn1 = nn.BatchNorm2d(inputs, eps=design.eps)
        self.conv_pw = _conv(design, inputs, outputs, 1)
        self.bn2 = nn.BatchNorm2d(outputs, eps=design.eps)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, outputs, H, W]."""
        hidden = F.relu6(self.bn1(self.conv_dw(inputs)), inplace=True)
        output: Tensor = self.bn2(self.conv_pw(hidden))
        return output


class InvertedResidual(nn.Module):
    """Expansion to six times the channels, a depthwise convolution, a linear projection, a shortcut where it fits."""

    def __init__(self, design: Design, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        hidden = EXPANSION * inputs
        self.conv_pw = _conv(design, inputs, hidden, 1)
        self.bn1 = nn.BatchNorm2d(hidden, eps=design.eps)
        self.conv_dw = _conv(design, hidden, hidden, kernel, stride=stride, groups=hidden)
        self.bn2 = nn.BatchNorm2d(hidden, eps=design.eps)
        self.conv_pwl = _conv(design, hidden, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs, eps=design.eps)
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, inputs: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, outputs, H/stride, W/stride]."""
        hidden = F.relu6(self.bn1(self.conv_pw(inputs)), inplace=True)
        hidden = F.relu6(self.bn2(self.conv_dw(hidden)), inplace=True)
        output: Tensor = self.bn3(self.conv_pwl(hidden))
        return output + inputs if self.has_shortcut else output


class MobileNet(nn.Module):
    """A network of inverted residuals without its classifier."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        channels = 32
        self.conv_stem = _conv(design, 3, channels, 3, stride=2)
        self.bn1 = nn.BatchNorm2d(channels, eps=design.eps)
        stages = []
        for number, (count, kernel, stride, outputs) in enumerate(design.stages):
            blocks: list[nn.Module] = []
            for index in range(count):
                block = (
                    InvertedResidual(design, channels, outputs, kernel, stride if index == 0 else 1)
                    if number
                    else Separable(design, channels, outputs, kernel)
                )
                blocks.append(block)
                channels = outputs
            stages.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*stages)
        self.conv_head = _conv(design, channels, FEATURES, 1)
        self.bn2 = nn.BatchNorm2d(FEATURES, eps=design.eps)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def features(self, inputs: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to a feature map [B, 1280, ceil(H/32), ceil(W/32)]."""
        hidden = F.relu6(self.bn1(self.conv_stem(inputs)), inplace=True)
        hidden = self.conv_head(self.blocks(hidden))
        return F.relu6(self.bn2(hidden), inplace=True)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to pooled features [B, 1280]."""
        return pool(self.features(inputs))


def _add(name: str, title: str, design: Design, reference: str) -> None:
    """Register one of the two networks."""

    @MODELS.register(
        name,
        summary=f"{title} for images of 32 pixels and more; options pretrained (a file) and resize",
        reference=reference,
    )
    def build(
        input_shape: tuple[int, ...], *, pretrained: bool | str | None = None, resize: int | None = None
    ) -> PackageBackbone:
        """Return the network, 1280 features out.

        Args:
            pretrained: File with pre-trained weights; images are then normalised as these expect.
            resize: Side in pixels to which images are resized before they reach the model.
        """
        check_images(name, input_shape, resize, smallest=32)
        if pretrained and not is_weight_file(pretrained):
            raise InputError(
                f"model.pretrained is {pretrained!r}, but model {name!r} downloads no weights; expected a file "
                f"(.safetensors, .pth, .pt or .bin)"
            )
        return PackageBackbone(
            name,
            input_shape,
            MobileNet(design),
            to_map=MobileNet.features,
            resize=resize,
            statistics=(design.mean, design.std) if pretrained else None,
            fetch=partial(weights_of_file, name, Path(pretrained)) if is_weight_file(pretrained) else None,
        )


_add(
    "mobilenetv2",
    "MobileNetV2 (width 1.0)",
    DESIGNS["mobilenetv2"],
    "Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, CVPR 2018",
)
_add(
    "efficientnet-lite0",
    "EfficientNet-Lite0",
    DESIGNS["efficientnet-lite0"],
    "Tan and Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, ICML 2019",
)
