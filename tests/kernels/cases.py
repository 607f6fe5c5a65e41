"""One list of models for every test of the kernel engine: each rule with each of its options, and what falls back."""

import math
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.kernels.parts import (
    Case,
    CrossAttention,
    Functional,
    OwnFunction,
    Recurrent,
    Tied,
    bag,
    conv,
    head,
    normal,
    shaken,
    tokens,
)


def _ready(model: nn.Module, x: Any) -> nn.Module:
    with torch.no_grad():
        model.eval()(x) if isinstance(x, Tensor) else None
    return model


def build(case: Case, count: int, dtype: torch.dtype, seed: int = 0) -> tuple[nn.Module, Any]:
    """The model and ``count`` samples of a case, from a seed."""
    torch.manual_seed(seed)
    x = case.data(count)
    model = shaken(_ready(case.model(), x)).eval().to(dtype)
    if isinstance(x, Tensor) and x.is_floating_point():
        x = x.to(dtype)
    return model, x


CASES = [
    Case("linear", lambda: nn.Linear(5, 3), normal(5)),
    Case("mlp", lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), normal(5)),
    Case("mlp without bias", lambda: nn.Sequential(nn.Linear(5, 8, bias=False), nn.Tanh(), nn.Linear(8, 1)), normal(5)),
    Case("mlp in place", lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)), normal(5)),
    Case("linear on positions", lambda: head(nn.Linear(5, 4)), normal(3, 5)),
    Case("linear on a grid", lambda: head(nn.Linear(5, 4)), normal(3, 2, 5)),
    Case(
        "linear, positions first",
        lambda: Functional(
            lambda m, x: m.b(torch.tanh(m.a(x.transpose(0, 1))).mean(0)), a=nn.Linear(5, 4), b=nn.Linear(4, 3)
        ),
        normal(3, 5),
    ),
    Case(
        "linear, flattened positions",
        lambda: Functional(
            lambda m, x: m.b(torch.tanh(m.a(x.reshape(-1, 5))).view(len(x), 3, 4).mean(1)),
            a=nn.Linear(5, 4),
            b=nn.Linear(4, 3),
        ),
        normal(3, 5),
    ),
    Case("conv1d", lambda: head(nn.Conv1d(3, 4, 3, padding=1)), normal(3, 8)),
    Case("conv1d strided", lambda: head(nn.Conv1d(4, 4, 3, stride=2, dilation=2, groups=2)), normal(4, 9)),
    Case("conv2d", conv(), normal(4, 6, 6)),
    Case("conv2d padded", conv(padding=(2, 1)), normal(4, 5, 6)),
    Case("conv2d strided", conv(stride=(2, 3), padding=1), normal(4, 7, 8)),
    Case("conv2d stride larger than kernel", conv(stride=4), normal(4, 9, 9)),
    Case("conv2d dilated", conv(dilation=(2, 1), padding=2), normal(4, 6, 6)),
    Case("conv2d grouped", conv(groups=2, padding=1), normal(4, 5, 5)),
    Case("conv2d depthwise", lambda: head(nn.Conv2d(4, 8, 3, groups=4)), normal(4, 5, 5)),
    Case("conv2d pointwise", lambda: head(nn.Conv2d(4, 3, 1, bias=False)), normal(4, 4, 4)),
    Case("conv2d pointwise, strided", lambda: head(nn.Conv2d(4, 3, 1, stride=(2, 3))), normal(4, 5, 6)),
    Case("conv2d pointwise, padded", lambda: head(nn.Conv2d(4, 3, 1, padding=1)), normal(4, 3, 3)),
    Case("conv2d pointwise, grouped", lambda: head(nn.Conv2d(4, 6, 1, groups=2)), normal(4, 3, 3)),
    Case("conv2d pointwise, one pixel", lambda: head(nn.Conv2d(4, 3, 1)), normal(4, 1, 1)),
    Case(
        "conv2d pointwise, applied twice to frames",
        lambda: Functional(
            lambda m, x: m.out(m.a(torch.tanh(m.a(x.flatten(0, 1)))[:, :, ::2]).view(len(x), -1)),
            a=nn.Conv2d(3, 3, 1),
            out=nn.Linear(24, 3),
        ),
        normal(2, 3, 3, 2),
    ),
    Case("conv2d depthwise 5 x 5", lambda: head(nn.Conv2d(4, 4, 5, padding=2, groups=4, stride=2)), normal(4, 5, 5)),
    Case("conv2d grouped, whole image", lambda: head(nn.Conv2d(4, 6, 3, groups=2)), normal(4, 3, 3)),
    Case(
        "inverted residual",
        lambda: Functional(
            lambda m, x: m.out((x + m.c(F.relu6(m.b(F.relu6(m.a(x)))))).mean((2, 3))),
            a=nn.Conv2d(8, 16, 1, bias=False),
            b=nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False),
            c=nn.Conv2d(16, 8, 1),
            out=nn.Linear(8, 3),
        ),
        normal(8, 4, 4),
    ),
    Case("conv2d in groups of 8", lambda: head(nn.Conv2d(16, 16, 3, padding=1, groups=2)), normal(16, 8, 8)),
    Case("conv2d same", conv(padding="same"), normal(4, 5, 5)),
    Case("conv2d same, even kernel", lambda: head(nn.Conv2d(4, 3, (2, 4), padding="same")), normal(4, 5, 5)),
    Case("conv2d valid", conv(padding="valid"), normal(4, 5, 5)),
    Case("conv2d reflect", conv(padding=1, padding_mode="reflect"), normal(4, 5, 5)),
    Case("conv2d replicate", conv(padding=2, padding_mode="replicate"), normal(4, 5, 5)),
    Case("conv2d circular", conv(padding=1, padding_mode="circular"), normal(4, 5, 5)),
    Case("conv2d whole image", lambda: head(nn.Conv2d(4, 6, 5)), normal(4, 5, 5)),
    Case("conv3d", lambda: head(nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=(0, 1, 0))), normal(2, 4, 4, 4)),
    Case("conv3d grouped", lambda: head(nn.Conv3d(2, 4, 2, groups=2, dilation=(1, 2, 1))), normal(2, 4, 5, 2)),
    Case("conv transposed 1d", lambda: head(nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1)), normal(3, 5)),
    Case(
        "conv transposed 2d",
        lambda: head(nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2, dilation=2)),
        normal(4, 4, 4),
    ),
    Case("conv transposed 3d", lambda: head(nn.ConvTranspose3d(2, 3, 2, padding=1)), normal(2, 3, 3, 3)),
    Case(
        "convolution of frames",
        lambda: Functional(
            lambda m, x: m.out(torch.tanh(m.conv(x.flatten(0, 1))).view(len(x), -1)),
            conv=nn.Conv2d(2, 3, 2),
            out=nn.Linear(36, 3),
        ),
        normal(3, 2, 3, 3),
    ),
    Case("batch norm 1d", lambda: head(nn.BatchNorm1d(5)), normal(5)),
    Case("batch norm 2d", lambda: head(nn.BatchNorm2d(4)), normal(4, 3, 3)),
    Case("layer norm", lambda: head(nn.LayerNorm(5)), normal(3, 5)),
    Case("layer norm over two axes", lambda: head(nn.LayerNorm((3, 5), bias=False)), normal(3, 5)),
    Case("group norm", lambda: head(nn.GroupNorm(2, 4)), normal(4, 3, 3)),
    Case("instance norm", lambda: head(nn.InstanceNorm2d(4, affine=True)), normal(4, 3, 3)),
    Case(
        "instance norm by running statistics",
        lambda: head(nn.InstanceNorm1d(4, affine=True, track_running_stats=True)),
        normal(4, 5),
    ),
    Case("rms norm", lambda: head(nn.RMSNorm(5)), normal(3, 5)),
    Case("prelu", lambda: nn.Sequential(nn.Linear(5, 6), nn.PReLU(), nn.Linear(6, 3)), normal(5)),
    Case(
        "prelu by channel",
        lambda: nn.Sequential(nn.Conv2d(3, 4, 2), nn.PReLU(4), nn.Flatten(), nn.Linear(36, 2)),
        normal(3, 4, 4),
    ),
    Case("embedding", lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 3)), tokens(9, 3)),
    Case(
        "embedding with padding",
        lambda: nn.Sequential(nn.Embedding(9, 4, padding_idx=-1), nn.Flatten(), nn.Tanh(), nn.Linear(20, 3)),
        tokens(9, 5),
    ),
    Case(
        "attention",
        lambda: Functional(
            lambda m, x: m.out(m.a(x, x, x)[0].mean(1)),
            a=nn.MultiheadAttention(6, 2, batch_first=True),
            out=nn.Linear(6, 3),
        ),
        normal(4, 6),
    ),
    Case("cross attention", lambda: CrossAttention(), normal(4, 6)),
    Case(
        "cross attention, other widths",
        lambda: CrossAttention(kdim=5, vdim=5, add_bias_kv=True),
        normal(4, 5),
    ),
    Case(
        "transformer encoder",
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True, norm_first=True),
            nn.Flatten(),
            nn.Linear(24, 3),
        ),
        normal(4, 6),
    ),
    Case(
        "bare bias and scale",
        lambda: Functional(
            lambda m, x: torch.tanh(x * m.scale - m.shift)[:, :3] / m.divisor + 2 * (m.offset - x[:, 2:]),
            scale=torch.randn(5),
            shift=torch.randn(()),
            divisor=torch.rand(1, 3) + 1,
            offset=torch.randn(3),
        ),
        normal(5),
    ),
    Case(
        "a parameter divided by the input",
        lambda: Functional(
            lambda m, x: m.p / (1 + x**2) + torch.add(x, m.q, alpha=0.3), p=torch.randn(4), q=torch.randn(4)
        ),
        normal(4),
    ),
    Case(
        "class token and positions",
        lambda: Functional(
            lambda m, x: m.out(
                torch.tanh(m.a(torch.cat([m.token.expand(len(x), -1, -1), x], 1) + m.table(torch.arange(4))))[:, 0]
            ),
            token=torch.randn(1, 1, 5),
            table=nn.Embedding(4, 5),
            a=nn.Linear(5, 5),
            out=nn.Linear(5, 3),
        ),
        normal(3, 5),
    ),
    Case(
        "matrix products",
        lambda: Functional(
            lambda m, x: torch.tanh(x @ m.a) @ m.b.T + torch.addmm(m.c, x, m.d, alpha=0.5, beta=2),
            a=torch.randn(5, 4),
            b=torch.randn(3, 4),
            c=torch.randn(3),
            d=torch.randn(5, 3),
        ),
        normal(5),
    ),
    Case(
        "products from the left",
        lambda: Functional(
            lambda m, x: torch.tanh(m.a @ x).flatten(1) @ m.b + (m.c @ x.mean(1).T).T,
            a=torch.randn(2, 3),
            b=torch.randn(10, 3),
            c=torch.randn(3, 5),
        ),
        normal(3, 5),
    ),
    Case(
        "a matrix a head",
        lambda: Functional(
            lambda m, x: (torch.tanh(x.unsqueeze(1) @ m.heads)).flatten(1) @ m.out,
            heads=torch.randn(2, 5, 4),
            out=torch.randn(24, 3),
        ),
        normal(3, 5),
    ),
    Case(
        "einsum",
        lambda: Functional(
            lambda m, x: (
                torch.einsum("bth,oh->bo", torch.tanh(torch.einsum("btd,dh->bth", x, m.a)), m.b)
                + torch.einsum("bi,oij,bj->bo", x[:, 0], m.c, x[:, 1])
            ),
            a=torch.randn(5, 4),
            b=torch.randn(3, 4),
            c=torch.randn(3, 5, 5),
        ),
        normal(3, 5),
    ),
    Case(
        "NTK parameterization",
        lambda: Functional(
            lambda m, x: F.linear(
                torch.relu(F.linear(x, m.a * (1 / math.sqrt(5)), 0.1 * m.c)), m.b / math.sqrt(8), m.d
            ),
            a=torch.randn(8, 5),
            b=torch.randn(3, 8),
            c=torch.randn(8),
            d=torch.randn(3),
        ),
        normal(5),
    ),
    Case(
        "layer applied three times",
        lambda: Functional(
            lambda m, x: m.out(torch.tanh(m.a(torch.tanh(m.a(torch.tanh(m.a(x))))))),
            a=nn.Linear(5, 5),
            out=nn.Linear(5, 3),
        ),
        normal(5),
    ),
    Case(
        "scaled layer applied twice",
        lambda: Functional(
            lambda m, x: torch.tanh(torch.tanh(x @ (m.a * 0.5)) @ (m.a * 0.5)) @ m.b,
            a=torch.randn(5, 5),
            b=torch.randn(5, 3),
        ),
        normal(5),
    ),
    Case(
        "one weight, two ways",
        lambda: Functional(
            lambda m, x: torch.tanh(x @ m.a) @ m.a.T + x * m.a[0] + 0.5 * F.linear(x, m.a), a=torch.randn(5, 5)
        ),
        normal(5),
    ),
    Case(
        "convolution applied twice",
        lambda: Functional(
            lambda m, x: m.out(m.conv(F.max_pool2d(torch.tanh(m.conv(x)), 2)).flatten(1)),
            conv=nn.Conv2d(3, 3, 3, padding=1),
            out=nn.Linear(27, 3),
        ),
        normal(3, 6, 6),
    ),
    Case("tied embedding", Tied, tokens(7, 4)),
    Case(
        "autoencoder with one weight",
        lambda: Functional(
            lambda m, x: F.linear(torch.tanh(F.linear(x, m.a, m.b)), m.a.t(), m.c),
            a=torch.randn(4, 5),
            b=torch.randn(4),
            c=torch.randn(5),
        ),
        normal(5),
    ),
    Case(
        "table that is looked up, multiplied and transposed",
        lambda: Functional(
            lambda m, x: F.linear(torch.tanh(F.one_hot(x, 6).to(m.a.dtype) @ m.a * F.embedding(x, m.a)), m.a).mean(1),
            a=torch.randn(6, 4),
        ),
        tokens(6, 3),
    ),
    Case(
        "pointwise convolution, padded and not",
        lambda: Functional(
            lambda m, x: F.conv2d(F.conv2d(x, m.a, padding=1).tanh(), m.a, m.b).mean((2, 3)),
            a=torch.randn(3, 3, 1, 1),
            b=torch.randn(3),
        ),
        normal(3, 2, 3),
    ),
    Case(
        "residual network",
        lambda: Functional(
            lambda m, x: m.out(F.avg_pool2d(x + m.n(m.b(F.relu(m.n(m.a(x))))), 4).flatten(1)),
            a=nn.Conv2d(4, 4, 3, padding=1),
            b=nn.Conv2d(4, 4, 3, padding=1),
            n=nn.BatchNorm2d(4),
            out=nn.Linear(4, 3),
        ),
        normal(4, 4, 4),
    ),
    Case("weight norm", lambda: head(parametrizations.weight_norm(nn.Linear(5, 4))), normal(5)),
    Case("spectral norm", lambda: head(parametrizations.spectral_norm(nn.Conv2d(3, 4, 2))), normal(3, 3, 3)),
    Case(
        "masked weight",
        lambda: Functional(
            lambda m, x: F.linear(x, m.a * torch.ones_like(m.a).tril().detach(), m.b.exp()),
            a=torch.randn(3, 5),
            b=torch.randn(3),
        ),
        normal(5),
    ),
    Case("gru", lambda: Recurrent(nn.GRU(4, 5, batch_first=True)), normal(3, 4)),
    Case("lstm", lambda: Recurrent(nn.LSTM(4, 5, batch_first=True, num_layers=2)), normal(3, 4)),
    Case("bilinear", lambda: Functional(lambda m, x: m.b(x[:, 0], x[:, 1]), b=nn.Bilinear(4, 4, 3)), normal(2, 4)),
    Case(
        "bilinear on positions, applied twice",
        lambda: Functional(lambda m, x: m.b(m.b(x, x.tanh()).tanh(), x[..., :2].sin()).sum(1), b=nn.Bilinear(2, 2, 2)),
        normal(3, 2),
    ),
    Case("embedding bag", lambda: Functional(bag, bag=nn.EmbeddingBag(6, 4), out=nn.Linear(4, 2)), tokens(6, 3)),
    Case(
        "embedding bag, sums with padding",
        lambda: Functional(bag, bag=nn.EmbeddingBag(6, 4, mode="sum", padding_idx=2), out=nn.Linear(4, 2)),
        tokens(6, 4),
    ),
    Case(
        "embedding bag, maxima",
        lambda: Functional(bag, bag=nn.EmbeddingBag(6, 4, mode="max"), out=nn.Linear(4, 2)),
        tokens(6, 3),
        ("bag",),
    ),
    Case(
        "own autograd function",
        lambda: Functional(lambda m, x: OwnFunction.apply(x, m.w).tanh() * m.s, w=torch.randn(5, 3), s=torch.randn(3)),
        normal(5),
        ("w",),
    ),
    Case(
        "contiguous and detached",
        lambda: Functional(
            lambda m, x: F.linear(torch.tanh(F.linear(x, m.a.contiguous())), m.a.contiguous()) * m.b.detach() + m.b,
            a=torch.randn(5, 5),
            b=torch.randn(5),
        ),
        normal(5),
    ),
    Case(
        "parameter changed in place after copying",
        lambda: Functional(lambda m, x: torch.tanh(x @ m.a.clone().mul_(0.5)) @ m.a.clone(), a=torch.randn(5, 5)),
        normal(5),
    ),
    Case(
        "one weight and its transpose",
        lambda: Functional(lambda m, x: torch.tanh(F.linear(x, m.a)) @ m.a, a=torch.randn(4, 5)),
        normal(5),
    ),
    Case(
        "two shapes of one weight",
        lambda: Functional(
            lambda m, x: F.linear(
                torch.tanh(F.linear(x, m.a.view_as(torch.ones(2, 4)))), m.a.view_as(torch.ones(4, 2))
            ),
            a=torch.randn(8),
        ),
        normal(4),
    ),
    Case(
        "copy changed by assignment",
        lambda: Functional(lambda m, x: F.linear(x, m.assigned()), a=torch.randn(3, 5)),
        normal(5),
        ("a",),
    ),
    Case(
        "spectral filter",
        lambda: Functional(lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * m.p), p=torch.randn(4)),
        normal(6),
        ("p",),
    ),
    Case(
        "broadcast weight axis",
        lambda: Functional(lambda m, x: (x @ m.a).flatten(1), a=torch.randn(1, 5, 4)),
        normal(2, 3, 5),
        ("a",),
    ),
    Case(
        "addmm from the left",
        lambda: Functional(lambda m, x: torch.addmm(m.b, m.w, x.t()).t(), w=torch.randn(3, 5), b=torch.randn(3, 1)),
        normal(5),
        ("w", "b"),
    ),
    Case("scripted", lambda: head(torch.jit.script(nn.Linear(5, 4))), normal(5), ("0",)),
    Case(
        "checkpointed",
        lambda: Functional(
            lambda m, x: m.out(torch.utils.checkpoint.checkpoint(m.a, x, use_reentrant=False)),
            a=nn.Sequential(nn.Linear(5, 4), nn.Tanh()),
            out=nn.Linear(4, 3),
        ),
        normal(5),
    ),
    Case(
        "control flow by data",
        lambda: Functional(
            lambda m, x: m.a(x) if x.sum() > 0 else torch.tanh(m.a(x)) * m.s, a=nn.Linear(5, 3), s=torch.randn(3)
        ),
        lambda n: torch.randn(n, 5).abs(),
    ),
]
