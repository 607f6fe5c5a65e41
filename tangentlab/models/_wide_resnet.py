"""WideResNet-16-k (Zagoruyko and Komodakis 2016) and the form of it that mohamadi2022 uses."""

from torch import Tensor, nn

from tangentlab.models._layers import Layers, scaled

VARIANTS = ("mohamadi2022", "standard")
# (16 - 4) / 6 as the name says, also with two groups, although fewer than 16 layers are left then.
_BLOCKS_PER_GROUP = 2


class PreActivationBlock(nn.Module):
    """The block x + conv(act(norm(conv(act(norm(x)))))), with a 1 x 1 shortcut if shapes differ.

    Where there is a 1 x 1 shortcut it is taken from act(norm(x)), as in the authors' released network.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, layers: Layers) -> None:
        super().__init__()
        self.preactivation = nn.Sequential(layers.norm(inputs), layers.act())
        self.residual = nn.Sequential(
            layers.conv(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            layers.norm(outputs),
            layers.act(),
            layers.conv(outputs, outputs, 3, padding=1, bias=False),
        )
        self.shortcut: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.shortcut = layers.conv(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        activated = self.preactivation(x)
        return self.residual(activated) + (x if self.shortcut is None else self.shortcut(activated))


class WideResNet16(nn.Module):
    """WideResNet-16-k with k = ``width``: two pre-activation blocks per group, bias-free convolutions.

    - ``"mohamadi2022"`` (the default): "we use two block layers, and the initial convolution in the network
      has a width of 16WF [...] WF = 16 means that the first block layer has a width of 256 and the second
      block layer has a width of 512" (appendix A). Stem and group one 16 k, group two 32 k. Biases and the
      place of the stride are not in the text and follow the standard network.
    - ``"standard"``: stem 16 for every k, three groups of 16 k, 32 k, 64 k. 10,961,370 parameters for k = 8
      with 10 outputs (11.0m in Zagoruyko and Komodakis).
    """

    def __init__(
        self, input_shape: tuple[int, int, int], outputs: int, variant: str, width: float, layers: Layers
    ) -> None:
        super().__init__()
        two_groups = variant == "mohamadi2022"
        channels = scaled(16, width) if two_groups else 16
        self.stem = layers.conv(input_shape[0], channels, 3, padding=1, bias=False)
        blocks: list[nn.Module] = []
        for group in range(2 if two_groups else 3):
            planes = scaled(16 * 2**group, width)
            for index in range(_BLOCKS_PER_GROUP):
                stride = 2 if group > 0 and index == 0 else 1
                blocks.append(PreActivationBlock(channels, planes, stride, layers))
                channels = planes
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.Sequential(layers.norm(channels), layers.act(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.readout = layers.linear(channels, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, outputs)."""
        return self.readout(self.pool(self.blocks(self.stem(x))))
