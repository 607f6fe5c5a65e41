"""The architectures by name, with their options and their sources."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from tangentlab.models import _alexnet, _lenet, _resnet, _wide_resnet
from tangentlab.models._alexnet import AlexNet
from tangentlab.models._convnet import ConvNet
from tangentlab.models._layers import ACTIVATIONS, INITS, Layers
from tangentlab.models._lenet import LeNet
from tangentlab.models._mlp import MLP
from tangentlab.models._resnet import ResNet
from tangentlab.models._wide_resnet import WideResNet16

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Option:
    """One option of an architecture: its default, what it may be, and what it does.

    Attributes:
        default: The value taken when none is given.
        kind: The type of its values; a list of positive integers is ``tuple``.
        choices: The values allowed, or empty for any value of that type.
        help: What it does.
    """

    default: object
    kind: type
    help: str
    choices: tuple[object, ...] = ()


@dataclass(frozen=True)
class Architecture:
    """An entry of the registry.

    Attributes:
        name: What :func:`build` calls it.
        summary: One line.
        source: The papers that use it.
        input_shape: (C, H, W) that those papers give it, the default of :func:`build`.
        options: Its own options, besides the ones that all architectures share.
        smallest: Given the options, the smallest side of an input.
    """

    name: str
    summary: str
    source: str
    input_shape: Shape
    make: Callable[..., nn.Module] = field(repr=False)
    options: Mapping[str, Option] = field(default_factory=dict)
    smallest: Callable[[Mapping[str, Any]], int] = field(default=lambda options: 1, repr=False)


# What every architecture takes; the values are described in `build` and `Layers`.
COMMON_OPTIONS: Mapping[str, Option] = {
    "width": Option(1.0, float, "factor on every channel count and hidden width"),
    "input_shape": Option(None, tuple, "(C, H, W); by default the papers' own"),
    "outputs": Option(10, int, "number of outputs"),
    "activation": Option("relu", str, "activation between the layers", ACTIVATIONS),
    "init": Option("default", str, "PyTorch's own, LeCun-normal, or NTK parameterization", INITS),
    "seed": Option(None, int, "seed of the weights; without one, PyTorch's global generator is used"),
    "sigma_w": Option(None, float, "weight scale of init='ntk', sqrt(2) by default"),
    "sigma_b": Option(None, float, "bias scale of init='ntk', 0.1 by default"),
}


def _mlp(input_shape: Shape, outputs: int, width: float, layers: Layers, hidden: tuple[int, ...]) -> MLP:
    return MLP(input_shape, outputs, hidden, width, layers)


def _fcn(input_shape: Shape, outputs: int, width: float, layers: Layers, hidden: int, depth: int) -> MLP:
    return MLP(input_shape, outputs, [hidden] * (depth - 1), width, layers)


def _resnet_of(depth: int) -> Architecture:
    def make(
        input_shape: Shape, outputs: int, width: float, layers: Layers, zero_init_residual: bool, padding: str
    ) -> ResNet:
        return ResNet(input_shape, outputs, depth, width, zero_init_residual, padding, layers)

    kind = "bottleneck blocks" if _resnet.DEPTHS[depth][1] else "basic blocks"
    return Architecture(
        f"resnet{depth}",
        f"residual network of {depth} layers, {kind}, 3x3 stem, no max pooling",
        "ortiz2021, mohamadi2022 (WF = 4 * width)" if depth == 18 else "mohamadi2022 (fig1)",
        (3, 32, 32),
        make,
        {
            "zero_init_residual": Option(
                False, bool, "scale of the last normalization of each block starts at zero (ortiz2021, code)"
            ),
            "padding": Option(
                "torch",
                str,
                "padding of strided convolutions: PyTorch's, or JAX's SAME (ortiz2021, code)",
                _resnet.PADDINGS,
            ),
        },
    )


_ARCHITECTURES = (
    Architecture(
        "mlp",
        "dense layers on flattened inputs, 3072-100-100-1 in the paper",
        "ortiz2021",
        (3, 32, 32),
        _mlp,
        {"hidden": Option((100, 100), tuple, "width of each hidden layer, before the factor")},
    ),
    Architecture(
        "fcn",
        "dense layers of equal width, named by exact width",
        "mohamadi2022",
        (3, 32, 32),
        _fcn,
        {
            "hidden": Option(1024, int, "exact width of the hidden layers, before the factor"),
            "depth": Option(3, int, "number of weight layers"),
        },
    ),
    Architecture(
        "lenet",
        "LeNet-5, max pooling and no padding (samarin2022) or average pooling and SAME padding (ortiz2021)",
        "samarin2022, ortiz2021",
        (1, 32, 32),
        LeNet,
        {"variant": Option("samarin2022", str, "the paper whose form it takes", _lenet.VARIANTS)},
        lambda options: _lenet.SMALLEST[options["variant"]],
    ),
    Architecture(
        "alexnet",
        "PyTorch's AlexNet without dropout",
        "samarin2022",
        (3, 224, 224),
        AlexNet,
        smallest=lambda options: _alexnet.SMALLEST,
    ),
    Architecture(
        "convnet",
        "3x3 convolutions of equal width, global average pooling",
        "mohamadi2022",
        (3, 32, 32),
        ConvNet,
        {"depth": Option(8, int, "number of weight layers, the readout included")},
    ),
    *(_resnet_of(depth) for depth in _resnet.DEPTHS),
    Architecture(
        "wide_resnet16",
        "WideResNet-16-k with k = width; two groups (mohamadi2022) or three (standard)",
        "mohamadi2022",
        (3, 32, 32),
        WideResNet16,
        {"variant": Option("mohamadi2022", str, "groups and stem", _wide_resnet.VARIANTS)},
    ),
)


def available() -> tuple[Architecture, ...]:
    """Return every architecture with its options.

    Examples:
        >>> from tangentlab import models
        >>> "lenet" in [architecture.name for architecture in models.available()]
        True

    See also:
        :func:`tangentlab.models.build`.
    """
    return _ARCHITECTURES
