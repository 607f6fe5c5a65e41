"""The fully convolutional network of mohamadi2022."""

from torch import nn

from tangentlab.models._layers import Layers, ReadoutNetwork, scaled


class ConvNet(ReadoutNetwork):
    """3 x 3 convolutions with stride 1 and SAME padding, global average pooling, a dense readout.

    mohamadi2022 says "fully-convolutional networks (ConvNet) of depth 8 (as in Arora et al. 2019, Lee et al.
    2020)" and that a final dense readout is assumed; the rest is chosen here. Depth counts weight layers, so
    depth 8 is seven convolutions and the readout; every convolution has 16 * width channels, the base that
    the paper gives for its other widening factors. 14,538 parameters at width 1 on 3 channels, 10 outputs.
    """

    def __init__(
        self, input_shape: tuple[int, int, int], outputs: int, depth: int, width: float, layers: Layers
    ) -> None:
        super().__init__()
        channels = scaled(16, width)
        body: list[nn.Module] = []
        for index in range(depth - 1):
            inputs = input_shape[0] if index == 0 else channels
            body += [layers.conv(inputs, channels, 3, padding=1), layers.act()]
        self.features = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.readout = layers.linear(channels, outputs)
