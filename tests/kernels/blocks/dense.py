"""Dense layers, in all the orders of axes that code has them in, and reparametrized ones."""

import math

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from torch.nn.utils import parametrizations

from tests.kernels.blocks._block import block
from tests.kernels.parts import Functional


@block(bias=(True, False))
def linear(d: int, t: int, bias: bool) -> nn.Module:
    return nn.Linear(d, d, bias=bias)


@block(order=("samples", "positions"))
def flat_linear(d: int, t: int, order: str) -> nn.Module:
    """Rows of all samples and positions in one axis."""
    if order == "samples":
        return Functional(lambda m, x: m.a(x.reshape(-1, d)).view(x.shape), a=nn.Linear(d, d))
    return Functional(
        lambda m, x: m.a(x.transpose(0, 1).reshape(-1, d)).view(t, -1, d).transpose(0, 1), a=nn.Linear(d, d)
    )


@block()
def mixer(d: int, t: int) -> nn.Module:
    """A dense layer over positions."""
    return Functional(lambda m, x: m.a(x.mT).mT, a=nn.Linear(t, t))


@block(factor=(2, 3))
def bottleneck(d: int, t: int, factor: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, factor * d), nn.GELU(), nn.Linear(factor * d, d))


@block()
def whole(d: int, t: int) -> nn.Module:
    """A dense layer of the flattened sample."""
    return Functional(lambda m, x: m.a(x.flatten(1)).unflatten(1, (t, d)), a=nn.Linear(t * d, t * d))


@block()
def pooled(d: int, t: int) -> nn.Module:
    """A dense layer of the mean over positions, spread to all of them."""
    return Functional(lambda m, x: m.a(x.mean(1)).unsqueeze(1).expand(-1, t, -1).contiguous(), a=nn.Linear(d, d))


@block()
def by_position(d: int, t: int) -> nn.Module:
    """One layer called position by position."""
    return Functional(lambda m, x: torch.stack([m.a(part) for part in x.unbind(1)], 1), a=nn.Linear(d, d))


@block()
def by_sample(d: int, t: int) -> nn.Module:
    """One layer called sample by sample."""
    return Functional(lambda m, x: torch.stack([m.a(part) for part in x]), a=nn.Linear(d, d))


@block()
def twice(d: int, t: int) -> nn.Module:
    return Functional(lambda m, x: m.a(torch.tanh(m.a(x))), a=nn.Linear(d, d))


@block(bias=(True, False))
def both_ways(d: int, t: int, bias: bool) -> nn.Module:
    """A layer and its transpose, as in a tied autoencoder."""
    return Functional(lambda m, x: torch.tanh(m.a(x)) @ m.a.weight, a=nn.Linear(d, 3, bias=bias))


@block()
def glu(d: int, t: int) -> nn.Module:
    return Functional(lambda m, x: F.glu(m.a(x), -1), a=nn.Linear(d, 2 * d))


@block()
def swiglu(d: int, t: int) -> nn.Module:
    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        gate, value = m.a(x).chunk(2, -1)
        return m.b(F.silu(gate) * value)

    return Functional(forward, a=nn.Linear(d, 2 * d), b=nn.Linear(d, d, bias=False))


@block()
def lora(d: int, t: int) -> nn.Module:
    """A frozen layer with a trained update of low rank."""
    return Functional(
        lambda m, x: m.base(x) + x @ m.down @ m.up * 0.5,
        base=nn.Linear(d, d).requires_grad_(False),
        down=torch.randn(d, 2),
        up=torch.randn(2, d),
    )


@block(dim=(0, None, 1))
def weight_norm(d: int, t: int, dim: int | None) -> nn.Module:
    return parametrizations.weight_norm(nn.Linear(d, d), dim=dim)


@block()
def spectral_norm(d: int, t: int) -> nn.Module:
    return parametrizations.spectral_norm(nn.Linear(d, d)).eval()


@block()
def orthogonal(d: int, t: int) -> nn.Module:
    return parametrizations.orthogonal(nn.Linear(d, d), orthogonal_map="cayley")


@block()
def own_parametrization(d: int, t: int) -> nn.Module:
    class Symmetric(nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w.triu() + w.triu(1).mT

    layer = nn.Linear(d, d)
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


@block(scale=("weight", "input", "output"))
def ntk_linear(d: int, t: int, scale: str) -> nn.Module:
    """A dense layer in the NTK parametrization."""
    c = 1 / math.sqrt(d)
    forwards = {
        "weight": lambda m, x: F.linear(x, c * m.w, m.b / 3),
        "input": lambda m, x: F.linear(c * x, m.w, m.b),
        "output": lambda m, x: c * F.linear(x, m.w) + m.b * 0.1,
    }
    return Functional(forwards[scale], w=torch.randn(d, d), b=torch.randn(d))


@block()
def bilinear(d: int, t: int) -> nn.Module:
    return Functional(lambda m, x: m.a(x, x.flip(1)), a=nn.Bilinear(d, d, d))


@block(lacks="second", reentrant=(False,))
def checkpointed(d: int, t: int, reentrant: bool) -> nn.Module:
    return Functional(
        lambda m, x: torch.utils.checkpoint.checkpoint(m.a, x, use_reentrant=reentrant),
        a=nn.Sequential(nn.Linear(d, d), nn.Tanh(), nn.Linear(d, d)),
    )


@block()
def scripted(d: int, t: int) -> nn.Module:
    return torch.jit.script(nn.Linear(d, d))


@block()
def standardized(d: int, t: int) -> nn.Module:
    """Weights standardized row by row."""

    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        w = m.a.weight - m.a.weight.mean(1, keepdim=True)
        return F.linear(x, w / (w.std(1, keepdim=True) + 1e-3), m.a.bias)

    return Functional(forward, a=nn.Linear(d, d))


@block()
def hypernetwork(d: int, t: int) -> nn.Module:
    """A weight for every sample, made from the sample."""
    return Functional(lambda m, x: torch.bmm(x, m.a(x.mean(1)).unflatten(1, (d, d))), a=nn.Linear(d, d * d))
