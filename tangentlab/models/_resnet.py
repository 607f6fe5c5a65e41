"""Residual networks for small images (He et al. 2016): 18, 34, 50, 101, 152 and 200 layers."""

from torch import Tensor, nn

from tangentlab.models._layers import Layers, SamePadding, scaled

# Blocks per stage, and whether they are bottlenecks; 200 as in Flax's list, which ortiz2021 (code) carries.
DEPTHS: dict[int, tuple[tuple[int, int, int, int], bool]] = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
    200: ((3, 24, 36, 3), True),
}
PADDINGS = ("torch", "same")
_EXPANSION = 4


class Block(nn.Module):
    """The block act(shortcut(x) + residual(x)), whose residual ends in a batch normalization.

    The residual is 3x3, 3x3 or, as a bottleneck, 1x1, 3x3, 1x1 with four times the channels; the stride is
    in the first 3x3. The shortcut is the identity, or a strided 1x1 convolution and a normalization where
    shapes differ. Convolutions have no biases.
    """

    def __init__(
        self, inputs: int, channels: int, stride: int, *, bottleneck: bool, same: bool, layers: Layers
    ) -> None:
        super().__init__()
        outputs = channels * _EXPANSION if bottleneck else channels
        strided = _conv3x3(inputs if not bottleneck else channels, channels, stride, same=same, layers=layers)
        if bottleneck:
            first = [
                layers.conv(inputs, channels, 1, bias=False),
                layers.norm(channels),
                layers.act(),
                strided,
            ]
            last = layers.conv(channels, outputs, 1, bias=False)
        else:
            first = [strided]
            last = _conv3x3(channels, outputs, 1, same=same, layers=layers)
        self.residual = nn.Sequential(*first, layers.norm(channels), layers.act(), last)
        self.last_norm = layers.norm(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                layers.conv(inputs, outputs, 1, stride=stride, bias=False), layers.norm(outputs)
            )
        self.act = layers.act()

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        return self.act(self.last_norm(self.residual(x)) + self.shortcut(x))


class ResNet(nn.Module):
    """A 3 x 3 stem with stride 1 and no max pooling, stages of 64, 128, 256, 512 channels, a dense readout.

    11,173,962 parameters for 18 layers with 10 outputs on three channels. Works on any side; stages two to
    four halve it, rounding up.

    Args:
        input_shape: (C, H, W).
        outputs: Number of outputs.
        depth: 18, 34, 50, 101, 152 or 200.
        width: Factor on every channel count. mohamadi2022 counts in WF = 4 * width: "when WF = 4, the
            constructed network will have the exact architecture as the classical ResNet18".
        zero_init_residual: The last normalization of every block starts with scale zero, so that every block
            starts as its shortcut (ortiz2021, code: Flax's example network).
        padding: Padding of the strided 3 x 3 convolutions: ``"torch"``, one pixel on each side; ``"same"``, JAX's,
            see :class:`SamePadding` (ortiz2021, code).
        layers: Activation and initialization.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        outputs: int,
        depth: int,
        width: float,
        zero_init_residual: bool,
        padding: str,
        layers: Layers,
    ) -> None:
        super().__init__()
        blocks, bottleneck = DEPTHS[depth]
        same = padding == "same"
        channels = scaled(64, width)
        self.stem = nn.Sequential(
            layers.conv(input_shape[0], channels, 3, padding=1, bias=False),
            layers.norm(channels),
            layers.act(),
        )
        stages: list[nn.Module] = []
        for stage, count in enumerate(blocks):
            planes = scaled(64 * 2**stage, width)
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                stages.append(Block(channels, planes, stride, bottleneck=bottleneck, same=same, layers=layers))
                channels = planes * _EXPANSION if bottleneck else planes
        self.blocks = nn.Sequential(*stages)
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.readout = layers.linear(channels, outputs)
        if zero_init_residual:
            for block in self.blocks:
                if isinstance(block, Block):
                    nn.init.zeros_(block.last_norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, outputs)."""
        return self.readout(self.pool(self.blocks(self.stem(x))))


def _conv3x3(inputs: int, outputs: int, stride: int, *, same: bool, layers: Layers) -> nn.Module:
    if same and stride > 1:
        return nn.Sequential(SamePadding(3, stride), layers.conv(inputs, outputs, 3, stride=stride, bias=False))
    return layers.conv(inputs, outputs, 3, stride=stride, padding=1, bias=False)
