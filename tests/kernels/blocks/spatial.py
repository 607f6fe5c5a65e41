"""Convolutions: one to three axes, strided, dilated, grouped, transposed, with all paddings."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.kernels.blocks._block import block
from tests.kernels.parts import Functional


@block(
    bias=(True, False),
    groups=(1, 2),
    kernel=(3, 1, 2),
    dilation=(1, 2),
    mode=("zeros", "replicate", "circular"),
)
def conv1d(d: int, t: int, bias: bool, groups: int, kernel: int, dilation: int, mode: str) -> nn.Module:
    if t * (kernel > 1) < dilation * (kernel - 1):
        mode = "zeros"  # the other modes pad with at most T positions
    layer = nn.Conv1d(d, d, kernel, padding="same", groups=groups, dilation=dilation, padding_mode=mode, bias=bias)
    return Functional(lambda m, x: m.a(x.transpose(1, 2)).transpose(1, 2), a=layer)


@block(multiplier=(1, 2))
def depthwise(d: int, t: int, multiplier: int) -> nn.Module:
    a, b = nn.Conv1d(d, multiplier * d, 3, padding=1, groups=d), nn.Conv1d(multiplier * d, d, 1)
    return Functional(lambda m, x: m.b(m.a(x.transpose(1, 2))).transpose(1, 2), a=a, b=b)


@block()
def causal(d: int, t: int) -> nn.Module:
    return Functional(lambda m, x: m.a(F.pad(x.mT, (2, 0))).mT, a=nn.Conv1d(d, d, 3))


@block(stride=(2, 3), mode=("nearest", "linear"))
def strided(d: int, t: int, stride: int, mode: str) -> nn.Module:
    """Down by a strided convolution and up again by interpolation."""
    return Functional(
        lambda m, x: F.interpolate(m.a(x.mT), size=t, mode=mode).mT, a=nn.Conv1d(d, d, 3, stride=stride, padding=1)
    )


@block(channels=(2, 4), groups=(1, 2), padding=(1, "same"), bias=(True, False))
def conv2d(d: int, t: int, channels: int, groups: int, padding: int | str, bias: bool) -> nn.Module:
    """Positions and features as an image."""
    return Functional(
        lambda m, x: m.b(torch.tanh(m.a(x.unsqueeze(1)))).sum(1),
        a=nn.Conv2d(1, channels, 3, padding=padding, bias=bias),
        b=nn.Conv2d(channels, channels, (3, 1), padding=(2, 0), dilation=(2, 1), groups=groups),
    )


@block(last=(False, True))
def image_strided(d: int, t: int, last: bool) -> nn.Module:
    """A strided convolution of images, channels last or not, and pooling."""

    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        image = x.unsqueeze(1).repeat(1, 2, 1, 1)
        image = image.contiguous(memory_format=torch.channels_last) if last else image
        return F.interpolate(m.a(image), size=(t, d)).mean(1)

    return Functional(forward, a=nn.Conv2d(2, 3, (2, 3), stride=(1, 2), padding=1))


@block()
def conv3d(d: int, t: int) -> nn.Module:
    return Functional(
        lambda m, x: m.a(x[:, None, None])[:, 0, 0, :t, :d], a=nn.Conv3d(1, 2, (1, 2, 3), padding=(0, 1, 1))
    )


@block(stride=(1, 2), groups=(1, 2), dilation=(1, 2))
def transposed1d(d: int, t: int, stride: int, groups: int, dilation: int) -> nn.Module:
    layer = nn.ConvTranspose1d(d, d, 3, stride=stride, padding=1, groups=groups, dilation=dilation)
    return Functional(lambda m, x: F.pad(m.a(F.pad(x.mT, (1, 1))), (0, t))[..., :t].mT, a=layer)


@block(stride=(1, 2))
def transposed2d(d: int, t: int, stride: int) -> nn.Module:
    layer = nn.ConvTranspose2d(1, 2, 3, stride=stride, padding=1, output_padding=stride - 1)
    return Functional(lambda m, x: m.a(x.unsqueeze(1)).sum(1)[:, :t, :d], a=layer)


@block()
def frames(d: int, t: int) -> nn.Module:
    """A convolution of every position, with samples and positions in one axis."""
    layer = nn.Conv1d(1, 2, 3, padding=1)
    return Functional(lambda m, x: m.a(x.flatten(0, 1).unsqueeze(1)).mean(1).view(x.shape), a=layer)


@block()
def functional_conv(d: int, t: int) -> nn.Module:
    """A convolution with a scaled and reordered weight."""
    return Functional(
        lambda m, x: F.conv1d(x.mT, 0.3 * m.w.transpose(0, 1), m.b, padding=1).mT,
        w=torch.randn(d, d, 3),
        b=torch.randn(d),
    )


@block()
def unfolded(d: int, t: int) -> nn.Module:
    """A convolution written as windows and a product."""
    return Functional(
        lambda m, x: torch.einsum("btdk,kde->bte", F.pad(x.mT, (1, 1)).mT.unfold(1, 3, 1), m.w), w=torch.randn(3, d, d)
    )


@block()
def separable(d: int, t: int) -> nn.Module:
    """A weight that is the product of two."""
    return Functional(
        lambda m, x: F.conv1d(x.mT, m.u[:, None, None] * m.v[None, :, :], padding=1).mT,
        u=torch.randn(d),
        v=torch.randn(d, 3),
    )
