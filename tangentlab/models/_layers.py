"""The layers of all architectures, in one of three initializations.

An architecture gets its layers from a :class:`Layers`, which initializes them.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS = ("relu", "gelu", "gelu_tanh")
INITS = ("default", "lecun", "ntk")

# Standard deviation of a standard normal variable truncated to [-2, 2]. JAX and Flax divide by it so that
# the truncated weights have exactly the variance asked for.
_TRUNCATED_STD = 0.87962566103423978


def lecun_normal_(weight: Tensor) -> Tensor:
    """Fill ``weight`` (out, in, ...) as JAX's ``variance_scaling(1, "fan_in", "truncated_normal")`` does.

    w ~ N(0, s^2) truncated at 2 s with s = fan_in^(-1/2) / 0.8796, so that Var w = 1 / fan_in. This is Flax's
    default, with which ortiz2021 (code) starts every network.

    Cost: one random number per weight.

    Examples:
        >>> import torch
        >>> from tangentlab import models
        >>> models.lecun_normal_(torch.empty(5, 3)).shape
        torch.Size([5, 3])

    See also:
        :func:`tangentlab.models.build`.
    """
    std = weight[0].numel() ** -0.5 / _TRUNCATED_STD
    with torch.no_grad():
        return nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


class NTKLinear(nn.Module):
    """A dense layer in NTK parameterization: y = (sigma_w / sqrt(fan_in)) W x + sigma_b b.

    W (outputs, inputs) and b (outputs,) start as N(0, 1) and stay of order one in training; the scale is in
    the forward pass (Jacot et al. 2018). It is evaluated as ``sigma_b * linear(x * s / sigma_b, W, b)`` so
    that ``F.linear`` consumes both parameters themselves, not rescaled copies of them: a kernel code
    that recognizes operations on parameters then sees an ordinary dense layer.

    Cost: that of ``nn.Linear``, and one multiplication per input and per output.
    """

    def __init__(self, inputs: int, outputs: int, *, sigma_w: float, sigma_b: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.randn(outputs)) if sigma_b > 0 else None
        self.scale, self.bias_scale = _ntk_scales(sigma_w, sigma_b, self.bias, inputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        return self.bias_scale * F.linear(self.scale * x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes, as ``nn.Linear`` shows them."""
        outputs, inputs = self.weight.shape
        return f"in_features={inputs}, out_features={outputs}, bias={self.bias is not None}"


class NTKConv2d(nn.Module):
    """A convolution in NTK parameterization, with fan_in = channels * kernel^2; see :class:`NTKLinear`.

    Cost: that of ``nn.Conv2d``, and one multiplication per input and per output.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int,
        padding: int,
        bias: bool,
        sigma_w: float,
        sigma_b: float,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, kernel, kernel))
        self.bias = nn.Parameter(torch.randn(outputs)) if bias and sigma_b > 0 else None
        self.stride, self.padding = stride, padding
        self.scale, self.bias_scale = _ntk_scales(sigma_w, sigma_b, self.bias, inputs * kernel**2)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H', W')."""
        y = F.conv2d(self.scale * x, self.weight, self.bias, self.stride, self.padding)
        return self.bias_scale * y

    def extra_repr(self) -> str:
        """Return the sizes, as ``nn.Conv2d`` shows them."""
        outputs, inputs, kernel, _ = self.weight.shape
        return f"{inputs}, {outputs}, kernel_size={kernel}, stride={self.stride}, padding={self.padding}"


def _ntk_scales(sigma_w: float, sigma_b: float, bias: Tensor | None, fan_in: int) -> tuple[float, float]:
    """Return the factors before and after the operation; their product is sigma_w / sqrt(fan_in)."""
    after = 1.0 if bias is None else sigma_b
    return sigma_w / math.sqrt(fan_in) / after, after


class SamePadding(nn.Module):
    """Zero padding before a strided convolution, as in "SAME" of TensorFlow and JAX.

    The output has ceil(size / stride) positions and the odd column of padding goes to the end: a 3 x 3 kernel
    with stride 2 on an even size gets padding (0, 1), where ``padding=1`` of PyTorch gives (1, 1).
    """

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        """Pad (N, C, H, W)."""
        top, bottom = self._split(x.shape[-2])
        left, right = self._split(x.shape[-1])
        return F.pad(x, (left, right, top, bottom))

    def _split(self, size: int) -> tuple[int, int]:
        positions = -(-size // self.stride)
        total = max((positions - 1) * self.stride + self.kernel - size, 0)
        return total // 2, total - total // 2


@dataclass(frozen=True)
class Layers:
    """A factory of layers with one activation and one initialization.

    Attributes:
        activation: ``"relu"``; ``"gelu"``, x Phi(x) exactly; ``"gelu_tanh"``, its approximation, which is
            what ortiz2021 (code) gets from ``flax.linen.gelu``. None works in place, so that all survive
            ``torch.func``.
        init: ``"default"``, PyTorch's own (Kaiming-uniform with a = sqrt(5), samarin2022); ``"lecun"``, see
            :func:`lecun_normal_`, with zero biases (ortiz2021, code); ``"ntk"``, see :class:`NTKLinear`.
            Batch normalization starts at scale 1 and shift 0 in all three.
        sigma_w: Weight scale of ``"ntk"``. sqrt(2) keeps the variance through ReLU layers.
        sigma_b: Bias scale of ``"ntk"``; 0.1 as in Jacot et al. 2018, and 0 leaves the biases out.
    """

    activation: str = "relu"
    init: str = "default"
    sigma_w: float = math.sqrt(2)
    sigma_b: float = 0.1

    def act(self) -> nn.Module:
        """Return the activation."""
        if self.activation == "relu":
            return nn.ReLU()
        return nn.GELU(approximate="tanh" if self.activation == "gelu_tanh" else "none")

    def linear(self, inputs: int, outputs: int) -> nn.Module:
        """Return a dense layer with bias."""
        if self.init == "ntk":
            return NTKLinear(inputs, outputs, sigma_w=self.sigma_w, sigma_b=self.sigma_b)
        return self._initialized(nn.Linear(inputs, outputs))

    def conv(
        self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, padding: int = 0, bias: bool = True
    ) -> nn.Module:
        """Return a convolution with a square kernel."""
        if self.init == "ntk":
            sigmas = {"sigma_w": self.sigma_w, "sigma_b": self.sigma_b}
            return NTKConv2d(inputs, outputs, kernel, stride=stride, padding=padding, bias=bias, **sigmas)
        return self._initialized(nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=bias))

    def norm(self, channels: int) -> nn.BatchNorm2d:
        """Return batch normalization with PyTorch's momentum 0.1 and epsilon 1e-5, which are Flax's 0.9 and 1e-5."""
        return nn.BatchNorm2d(channels)

    def _initialized(self, layer: nn.Linear | nn.Conv2d) -> nn.Module:
        if self.init == "lecun":
            lecun_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        return layer


def scaled(channels: int, width: float) -> int:
    """Multiply ``channels`` by the width factor; the result is at least 1."""
    return max(1, round(channels * width))


class ReadoutNetwork(nn.Module):
    """A network whose last layer, the readout, is linear in the features of the others."""

    features: nn.Module
    readout: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, outputs)."""
        outputs: Tensor = self.readout(self.features(x))
        return outputs


def hidden_layers(layers: Layers, *sizes: int) -> list[nn.Module]:
    """Return dense layers of these sizes on flattened inputs, each followed by the activation."""
    result: list[nn.Module] = [nn.Flatten()]
    for inputs, units in pairwise(sizes):
        result += [layers.linear(inputs, units), layers.act()]
    return result
