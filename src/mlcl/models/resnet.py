"""Residual networks: small ones for images of 8 to 64 pixels, large ones with torchvision's layout."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from mlcl.errors import check_int
from mlcl.models.network import MODELS, Backbone, image_channels

REFERENCE = "He et al., Deep Residual Learning for Image Recognition, CVPR 2016"


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """Return the projection of option B (1x1 convolution), or None where the shapes already agree."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False),
        nn.BatchNorm2d(outputs),
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, width, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, width, H/stride, W/stride]."""
        shortcut = inputs if self.downsample is None else self.downsample(inputs)
        hidden = self.relu(self.bn1(self.conv1(inputs)))
        output: Tensor = self.relu(self.bn2(self.conv2(hidden)) + shortcut)
        return output


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut; the stride is on the 3x3 ("v1.5", as torchvision)."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = self.expansion * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, 4 width, H/stride, W/stride]."""
        shortcut = inputs if self.downsample is None else self.downsample(inputs)
        hidden = self.relu(self.bn1(self.conv1(inputs)))
        hidden = self.relu(self.bn2(self.conv2(hidden)))
        output: Tensor = self.relu(self.bn3(self.conv3(hidden)) + shortcut)
        return output


class ResNet(Backbone):
    """A residual network without its classifier; parameter names are torchvision's.

    Args:
        width: channels of the first stage, doubled by each further one.
        large_stem: start with a 7x7 convolution of stride 2 and max pooling, otherwise with one 3x3 convolution.
    """

    kind = "map"

    def __init__(
        self,
        channels: int,
        width: int,
        blocks: Sequence[int],
        *,
        block: type[BasicBlock] | type[Bottleneck] = BasicBlock,
        large_stem: bool = False,
    ) -> None:
        super().__init__()
        if large_stem:
            self.conv1 = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        else:
            self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large_stem else nn.Identity()
        self.stages = tuple(f"layer{stage + 1}" for stage in range(len(blocks)))
        inputs = width
        for stage, count in enumerate(blocks):
            layers: list[nn.Module] = []
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                layers.append(block(inputs, width * 2**stage, stride))
                inputs = block.expansion * width * 2**stage
            self.add_module(self.stages[stage], nn.Sequential(*layers))
        self.width = inputs
        self.stride = (4 if large_stem else 1) * 2 ** (len(blocks) - 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images [B, C, H, W] to a feature map [B, width, ceil(H/stride), ceil(W/stride)]."""
        features: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(inputs))))
        for stage in self.stages:
            features = self.get_submodule(stage)(features)
        return features


def _add_small(layers: int, blocks: int) -> None:
    """Register three stages of ``blocks`` blocks, widths w, 2w, 4w (section 4.2 of the reference)."""
    name = f"resnet{layers}"

    @MODELS.register(
        name, summary=f"ResNet-{layers} for images of 8 to 64 pixels; option width", reference=REFERENCE
    )
    def build(input_shape: tuple[int, ...], *, width: int = 16) -> ResNet:
        """Return a 3x3 stem and three stages.

        Args:
            width: Channels of the first stage, doubled by each further one.
        """
        check_int("width", width, 1)
        return ResNet(image_channels(name, input_shape, smallest=8), width, [blocks] * 3)


def _add_large(layers: int, block: type[BasicBlock] | type[Bottleneck], blocks: Sequence[int]) -> None:
    """Register four stages of widths 64 to 512 behind the 7x7 stem, in torchvision's layout (table 1)."""
    name, kind = f"resnet{layers}", " (v1.5)" if block is Bottleneck else ""

    @MODELS.register(
        name, summary=f"ResNet-{layers}{kind} for images of 32 pixels and more", reference=REFERENCE
    )
    def build(input_shape: tuple[int, ...]) -> ResNet:
        channels = image_channels(name, input_shape, smallest=32)
        return ResNet(channels, 64, blocks, block=block, large_stem=True)


for _layers, _blocks in ((8, 1), (14, 2), (20, 3)):
    _add_small(_layers, _blocks)
_add_large(18, BasicBlock, (2, 2, 2, 2))
_add_large(34, BasicBlock, (3, 4, 6, 3))
_add_large(50, Bottleneck, (3, 4, 6, 3))
