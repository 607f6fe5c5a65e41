"""Fully connected networks: the MLP of ortiz2021 and the FCN of mohamadi2022."""

import math
from collections.abc import Sequence

from torch import Tensor, nn

from tangentlab.models._layers import Layers, hidden_layers, scaled


class MLP(nn.Module):
    """Dense layers with an activation between them, on flattened inputs.

    ortiz2021: two hidden layers of 100, 3072-100-100-1 on CIFAR-10 with 317,501 parameters.
    mohamadi2022's FCN "of depth 3": three weight layers, so two hidden ones of equal width. The paper names
    its FCNs by exact width, which is ``hidden`` here; the widths themselves are not in its text.

    Args:
        input_shape: (C, H, W) of a sample; only the product matters.
        outputs: Number of outputs.
        hidden: Width of each hidden layer, before the factor.
        width: Factor on every hidden width.
        layers: Activation and initialization.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        outputs: int,
        hidden: Sequence[int],
        width: float,
        layers: Layers,
    ) -> None:
        super().__init__()
        sizes = [math.prod(input_shape), *(scaled(h, width) for h in hidden)]
        self.body = nn.Sequential(*hidden_layers(layers, *sizes))
        self.readout = layers.linear(sizes[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, outputs)."""
        return self.readout(self.body(x))
