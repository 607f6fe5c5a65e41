"""Samples of a batch moved, joined and split on the way, in ways that do not depend on what they hold."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.kernels.blocks._block import block
from tests.kernels.parts import Functional


@block(by=("flip", "roll", "index"))
def reversed_batch(d: int, t: int, by: str) -> nn.Module:
    """A layer sees the samples in another order than everything else."""

    def forward(m: Any, x: Tensor) -> Tensor:
        n = len(x)
        if by == "flip":
            return m.a(x.flip(0)).flip(0)
        if by == "roll":
            return m.a(x.roll(1, 0)).roll(-1, 0)
        order = torch.arange(n).flip(0)
        return m.a(x[order])[order]

    return Functional(forward, a=nn.Linear(d, d))


@block(axis=(0, 1))
def siamese(d: int, t: int, axis: int) -> nn.Module:
    """Two versions of the batch go through one layer side by side."""

    def forward(m: Any, x: Tensor) -> Tensor:
        one, two = m.a(torch.cat([x, x.square()], axis)).chunk(2, axis)
        return one - two

    return Functional(forward, a=nn.Linear(d, d))


@block()
def halves(d: int, t: int) -> nn.Module:
    """The first half of the batch in one call, the rest in another."""

    def forward(m: Any, x: Tensor) -> Tensor:
        half = (len(x) + 1) // 2
        return torch.cat([m.a(x[:half]), m.a(x[half:])])

    return Functional(forward, a=nn.Linear(d, d))


@block()
def strided_batch(d: int, t: int) -> nn.Module:
    """Even and odd samples in separate calls, written back in place."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[::2], y[1::2] = m.a(x[::2]), m.a(x[1::2])
        return y

    return Functional(forward, a=nn.Linear(d, d))


@block()
def interleaved(d: int, t: int) -> nn.Module:
    """Every sample twice, one after the other."""
    return Functional(lambda m, x: m.a(x.repeat_interleave(2, 0) * 0.5).view(len(x), 2, t, d).sum(1), a=nn.Linear(d, d))


@block()
def batch_last(d: int, t: int) -> nn.Module:
    """Samples in the last axis."""
    return Functional(
        lambda m, x: (m.w @ x.permute(1, 2, 0)).permute(2, 0, 1) + m.b, w=torch.randn(d, d), b=torch.randn(d)
    )


@block()
def split_features(d: int, t: int) -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        one, two = x.split(d // 2, -1)
        return torch.cat([m.a(one) * two, one + m.b(two)], -1)

    return Functional(forward, a=nn.Linear(d // 2, d // 2), b=nn.Linear(d // 2, d // 2))


@block()
def coupling(d: int, t: int) -> nn.Module:
    """An affine coupling layer of a flow."""

    def forward(m: Any, x: Tensor) -> Tensor:
        one, two = x.chunk(2, -1)
        log_scale, move = m.a(one).chunk(2, -1)
        return torch.cat([one, two * log_scale.tanh().exp() + move], -1)

    return Functional(forward, a=nn.Linear(d // 2, d))


@block()
def in_place(d: int, t: int) -> nn.Module:
    """Results written into parts of a tensor."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = x.clone()
        y[..., : d // 2] += m.a(x[..., d // 2 :])
        y[:, 0] = m.b(x[:, 0])
        return y.neg_()

    return Functional(forward, a=nn.Linear(d // 2, d // 2), b=nn.Linear(d, d))


@block()
def lists(d: int, t: int) -> nn.Module:
    """A dictionary of layers, and results that are passed in one."""

    def forward(m: Any, x: Tensor) -> Tensor:
        results = {name: layer(x) for name, layer in m.layers.items()}
        return results["a"] * results["b"].sigmoid() + results["c"]

    return Functional(forward, layers=nn.ModuleDict({name: nn.Linear(d, d) for name in "abc"}))


@block(refusable=("",))
def mapped(d: int, t: int) -> nn.Module:
    """torch.func.vmap over samples."""
    return Functional(lambda m, x: torch.func.vmap(lambda row: m.a(row))(x), a=nn.Linear(d, d))


@block(refusable=("",))
def inner_gradient(d: int, t: int) -> nn.Module:
    """The gradient of a potential with respect to the inputs."""

    def forward(m: Any, x: Tensor) -> Tensor:
        return torch.func.vmap(torch.func.grad(lambda row: m.a(row).tanh().sum()))(x)

    return Functional(forward, a=nn.Linear(d, d))


@block(refusable=("",))
def potential(d: int, t: int) -> nn.Module:
    """The same by autograd with its graph kept."""

    def forward(m: Any, x: Tensor) -> Tensor:
        with torch.enable_grad():
            y = x if x.requires_grad else x.detach().requires_grad_()
            return torch.autograd.grad(m.a(y).tanh().sum(), y, create_graph=True)[0]

    return Functional(forward, a=nn.Linear(d, d))
