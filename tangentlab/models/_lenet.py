"""LeNet-5 in the two forms the papers use."""

from torch import nn

from tangentlab.models._layers import Layers, ReadoutNetwork, hidden_layers, scaled

VARIANTS = ("samarin2022", "ortiz2021")
# The smallest side for which both poolings still have something to pool.
SMALLEST = {"samarin2022": 16, "ortiz2021": 4}


class LeNet(ReadoutNetwork):
    """conv 6, pool, conv 16, pool, dense 120, dense 84, readout; 5 x 5 kernels and 2 x 2 pooling.

    - ``"samarin2022"``: unpadded convolutions as in LeNet-5 and max pooling ("we adapt the original LeNet-5
      architecture to use max-pooling and ReLU activations"). 61,706 parameters with 10 outputs on MNIST
      padded to 32 x 32, and as many on any side from 32 to 35, because pooling rounds down. Smallest side 16.
    - ``"ortiz2021"``: SAME padding and average pooling (ortiz2021, code). 136,121 parameters with one output
      on 3 x 32 x 32. Smallest side 4, so it fits the 8 x 8 digits.

    ``width`` multiplies every channel count and hidden width (samarin2022, section 3).
    """

    def __init__(
        self, input_shape: tuple[int, int, int], outputs: int, variant: str, width: float, layers: Layers
    ) -> None:
        super().__init__()
        same = variant == "ortiz2021"
        c1, c2, h1, h2 = (scaled(n, width) for n in (6, 16, 120, 84))
        channels, *sides = input_shape
        for _ in range(2):
            sides = [(side if same else side - 4) // 2 for side in sides]
        self.features = nn.Sequential(
            layers.conv(channels, c1, 5, padding=2 if same else 0),
            layers.act(),
            nn.AvgPool2d(2) if same else nn.MaxPool2d(2),
            layers.conv(c1, c2, 5, padding=2 if same else 0),
            layers.act(),
            nn.AvgPool2d(2) if same else nn.MaxPool2d(2),
            *hidden_layers(layers, c2 * sides[0] * sides[1], h1, h2),
        )
        self.readout = layers.linear(h2, outputs)
