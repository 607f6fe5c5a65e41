"""Bare parameters: a transformation of the parameter, and a use of the result.

Both are expressions, so that they can be drawn independently of each other and are readable in a reproducer.
"""

import torch
from torch import nn

from tests.kernels.blocks._block import block
from tests.kernels.parts import Functional

USES = (
    "x @ p",
    "F.linear(x, p)",
    "x + p[0]",
    "x * p[:, 0]",
    "torch.einsum('btd,ed->bte', x, p)",
    "F.conv1d(x.mT, p[:, :, None]).mT",
    "x + p.mean()",
    "x - 0.5 * p.sum(0)",
    "torch.addcmul(x, x, p[0], value=0.5)",
    "torch.lerp(x, p[0].expand_as(x), 0.3)",
    "x / (1 + p[0] ** 2)",
    "F.embedding((x[..., 0] > 0).long(), p)",
    "F.layer_norm(x, x.shape[-1:], p[0], p[1], 0.1)",
    "F.prelu(x.mT, p[0]).mT",
    "torch.rsub(x, p[1], alpha=2)",
    "(p @ x.mT).mT",
    "torch.tensordot(x, p, dims=([2], [1]))",
    "torch.add(x, p[0], alpha=0.3)",
    "torch.sub(x, p[0], alpha=0.3)",
    "x + p[0].exp() * p[1]",
    "x + 0.01 * p[0]",
    "x + 1e-7 * p[0]",
    "x + x @ (1e-7 * p)",
    "torch.baddbmm(x, x, p.expand(len(x), -1, -1), beta=0.5, alpha=2)",
    "torch.addmm(p[0], x.flatten(0, 1), p, beta=0.3, alpha=0.7).view(x.shape)",
)
"""How x, (B, T, D), meets p, (D, D)."""

ELEMENTWISE = (
    "p",
    "-p",
    "2.5 * p",
    "p / 3",
    "p * 0.2 + 0.1",
    "torch.add(p, 1, alpha=2)",
    "torch.rsub(p, 1, alpha=3)",
    "torch.sub(p, p.detach(), alpha=0.5)",
    "torch.mul(p, p.detach())",
    "torch.divide(p, 0.3)",
    "1 - p",
    "0.2 / (p.abs() + 0.5)",
    "p.abs()",
    "p ** 2",
    "p.exp() / 3",
    "torch.tanh(p)",
    "F.softplus(p)",
    "p.clamp(-0.5, 0.5)",
    "p.clamp(min=0)",
    "p.clone().clamp_(max=0.3)",
    "F.hardtanh(p)",
    "p.softmax(0)",
    "F.normalize(p)",
    "p / p.norm()",
    "p - p.mean(0, keepdim=True)",
    "(p - p.mean()) / p.std()",
    "p.masked_fill(p > 0.5, 0)",
    "torch.where(p > 0, p, 0.1 * p)",
    "F.dropout(p, 0.5, False)",
    "torch.nan_to_num(p)",
    "p.clone().mul_(0.5).add_(0.1)",
    "p.detach() + 0.5 * p",
    "p + p.mT",
    "p @ p",
    "p * p.mT",
    "p.mT @ p",
    "torch.maximum(p, p.mT)",
    "torch.linalg.matrix_exp(0.1 * p)",
    "torch.fft.irfft(torch.fft.rfft(p), n=p.shape[1])",
)

ROUNDED = (
    "torch.div(p, 0.3)",
    "torch.div(p, 0.3, rounding_mode=None)",
    "torch.div(p, 0.3, rounding_mode='floor')",
    "torch.div(p, 0.3, rounding_mode='trunc')",
    "torch.divide(p, 0.3, rounding_mode='floor')",
    "p.div(0.3, rounding_mode='trunc')",
    "torch.div(p, 1e7, rounding_mode='floor')",
    "torch.divide(p, 1e7, rounding_mode='trunc')",
    "p.clone().div_(0.3, rounding_mode='floor')",
    "torch.remainder(p, 0.3)",
    "p % 0.3",
    "torch.fmod(p, 0.3)",
    "p.frac()",
    "p.floor() + 0.1 * p",
    "p.round(decimals=1)",
    "p.sign() * 0.3",
    "(p.round() - p).detach() + p",
    "torch.copysign(p, p.mT)",
    "torch.ldexp(p, torch.tensor(-1))",
    "torch.fake_quantize_per_tensor_affine(p, 0.1, 0, -8, 7)",
    "p.addcmul(p.detach(), p.detach(), value=0.1)",
    "p.lerp(p.detach(), 0.3)",
    "torch.clip(p, max=0.2)",
    "F.threshold(p, 0.1, 0.0)",
    "F.hardshrink(p, 0.3)",
)
"""Functions that a hasty reading takes for a scaling by a number."""

REORDERED = (
    "p.T",
    "p.T.contiguous()",
    "p.flip(0)",
    "p.roll(1, 0)",
    "p.roll(1)",
    "p[torch.arange(len(p)).flip(0)]",
    "p[:, torch.arange(len(p)).roll(1)]",
    "p[torch.arange(len(p)) // 2]",
    "p.index_select(0, torch.arange(len(p)).roll(1))",
    "p.gather(0, p.argsort(0))",
    "p.sort(0).values",
    "p.cumsum(0)",
    "p.tril()",
    "p.triu(1) + 0.5 * p.tril()",
    "p.reshape(-1).view(p.shape)",
    "p.T.reshape(p.shape)",
    "p.unsqueeze(0).squeeze(0)",
    "p.expand(3, -1, -1).mean(0)",
    "p.repeat(2, 1)[: len(p)]",
    "p.repeat_interleave(2, 0)[::2]",
    "p[:1].expand_as(p)",
    "p[:, :1].expand_as(p)",
    "torch.cat([p[1:], p[:1]])",
    "torch.cat([p[:1], p[:1], p[2:]])",
    "torch.stack([p[:, 0]] * p.shape[1], 1)",
    "p.diagonal().diag_embed()",
    "p.clone().fill_diagonal_(0)",
    "F.pad(p[1:], (0, 0, 1, 0))",
    "torch.rot90(p)",
    "p.movedim(0, 1)",
    "torch.block_diag(p[:1, :1], p[1:, 1:])",
    "torch.as_strided(p, p.shape, (1, p.shape[0]))",
    "p.index_add(0, torch.tensor([0]), p[1:2])",
    "torch.kron(p[:1, :1], p)",
    "p.diff(dim=0, append=p[:1])",
    "p.narrow(0, 0, 1).expand_as(p) + p",
    "p.scatter(0, torch.zeros(1, len(p), dtype=torch.long), p[1:2])",
    "p.masked_select(p > -9).view(p.shape)",
    "p[p > -9].view(p.shape)",
    "torch.unbind(p)[0].expand_as(p)",
    "p.unfold(0, 1, 1).squeeze(-1)",
    "torch.broadcast_to(p[0], p.shape)",
)


def derived(d: int, of: str, used: str) -> nn.Module:
    """A module with a parameter p: x and a function of p, ``of``, meet as ``used`` says."""
    names = {"torch": torch, "F": torch.nn.functional}
    function, use = eval(f"lambda p: {of}", names), eval(f"lambda x, p: {used}", names)
    return Functional(lambda m, x: use(x, function(m.p)), p=0.7 * torch.randn(d, d))


@block(of=ELEMENTWISE, used=USES)
def elementwise(d: int, t: int, of: str, used: str) -> nn.Module:
    return derived(d, of, used)


@block(of=ROUNDED, used=USES)
def rounded(d: int, t: int, of: str, used: str) -> nn.Module:
    return derived(d, of, used)


@block(of=REORDERED, used=USES)
def reordered(d: int, t: int, of: str, used: str) -> nn.Module:
    return derived(d, of, used)


@block(of=("p",), used=USES)
def bare(d: int, t: int, of: str, used: str) -> nn.Module:
    return derived(d, of, used)
