"""AlexNet as PyTorch publishes it (Krizhevsky 2014), without dropout."""

from torch import nn

from tangentlab.models._layers import Layers, ReadoutNetwork, hidden_layers, scaled

# The smallest side for which the third pooling still has a 3 x 3 window.
SMALLEST = 63


class AlexNet(ReadoutNetwork):
    """Five convolutions, three max poolings, average pooling to 6 x 6, three dense layers.

    samarin2022 takes "the PyTorch implementation with 10 outputs rather than 1000" and leaves dropout out
    (section 3). 57,044,810 parameters with 10 outputs, 61,100,840 with 1,000, torchvision's own count; the
    paper says "about 60m". ``width`` multiplies every channel count and hidden width. Smallest side 63.
    """

    def __init__(self, input_shape: tuple[int, int, int], outputs: int, width: float, layers: Layers) -> None:
        super().__init__()
        c1, c2, c3, c4, hidden = (scaled(n, width) for n in (64, 192, 384, 256, 4096))
        self.features = nn.Sequential(
            layers.conv(input_shape[0], c1, 11, stride=4, padding=2),
            layers.act(),
            nn.MaxPool2d(3, 2),
            layers.conv(c1, c2, 5, padding=2),
            layers.act(),
            nn.MaxPool2d(3, 2),
            layers.conv(c2, c3, 3, padding=1),
            layers.act(),
            layers.conv(c3, c4, 3, padding=1),
            layers.act(),
            layers.conv(c4, c4, 3, padding=1),
            layers.act(),
            nn.MaxPool2d(3, 2),
            nn.AdaptiveAvgPool2d((6, 6)),
            *hidden_layers(layers, c4 * 36, hidden, hidden),
        )
        self.readout = layers.linear(hidden, outputs)
