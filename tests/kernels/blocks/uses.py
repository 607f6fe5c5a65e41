"""Bare parameters of all shapes that broadcast, and operations on two of them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.kernels.blocks._block import block
from tests.kernels.parts import Functional


@block(shape=("d", "t1", "td", "1", "", "1td", "11d"), by=("mul", "rmul", "div", "rdiv", "inplace", "pow"))
def scale(d: int, t: int, shape: str, by: str) -> nn.Module:
    shapes = {"d": (d,), "t1": (t, 1), "td": (t, d), "1": (1,), "": (), "1td": (1, t, d), "11d": (1, 1, d)}
    forwards = {
        "mul": lambda m, x: x * m.p,
        "rmul": lambda m, x: m.p * x,
        "div": lambda m, x: x / (2 + m.p.tanh()),
        "rdiv": lambda m, x: m.p / (1 + x.square()),
        "inplace": lambda m, x: (x + 0).mul_(m.p),
        "pow": lambda m, x: 0.5 * (1 + x.square()) ** m.p.tanh(),
    }
    return Functional(forwards[by], p=torch.randn(shapes[shape]))


@block(shape=("d", "t1", "td", "1", "", "1td", "11d"), by=("add", "radd", "sub", "rsub", "alpha", "inplace"))
def shift(d: int, t: int, shape: str, by: str) -> nn.Module:
    shapes = {"d": (d,), "t1": (t, 1), "td": (t, d), "1": (1,), "": (), "1td": (1, t, d), "11d": (1, 1, d)}
    forwards = {
        "add": lambda m, x: x + m.p,
        "radd": lambda m, x: m.p + x,
        "sub": lambda m, x: x - m.p,
        "rsub": lambda m, x: m.p - x,
        "alpha": lambda m, x: torch.sub(x, m.p, alpha=0.3),
        "inplace": lambda m, x: (x * 1.0).add_(m.p, alpha=-0.5),
    }
    return Functional(forwards[by], p=torch.randn(shapes[shape]))


@block(
    equation=(
        "btd,de->bte",
        "btd,tde->bte",
        "btd,ts->bsd",
        "btd,d->btd",
        "btd,td,de->bte",
        "btd,->btd",
        "...d,ed->...e",
    )
)
def einsum(d: int, t: int, equation: str) -> nn.Module:
    sizes = {"d": d, "e": d, "t": t, "s": t}
    shapes = [[sizes[axis] for axis in part] for part in equation.replace("...", "").split("->")[0].split(",")[1:]]
    forward = {
        1: lambda m, x: torch.einsum(equation, x, m.p),
        2: lambda m, x: torch.einsum(equation, x, m.p, m.q),
    }
    return Functional(
        forward[len(shapes)], **{name: torch.randn(shape) for name, shape in zip("pq", shapes, strict=False)}
    )


@block(
    pair=(
        "p + q",
        "p - 2 * q",
        "p @ q",
        "p * q",
        "p * q.mT",
        "torch.where(p > 0, p, q)",
        "torch.maximum(p, q)",
        "torch.cat([p[:1], q[1:]])",
        "torch.lerp(p, q, 0.3)",
        "torch.lerp(p, q, p.detach().sigmoid())",
        "torch.addcmul(p, q, q, value=0.5)",
        "torch.addcdiv(p, q, 2 + p.tanh(), value=0.3)",
        "torch.outer(p[0], q[0])",
        "p.copysign(q)",
        "torch.dist(p, q) * p",
        "p.clone().copy_(q)",
        "p.detach() * q",
        "torch.div(p, 2 + q.tanh(), rounding_mode='floor') + q",
        "torch.stack([p, q]).sum(0)",
        "torch.stack([p, q], -1).flatten(1)[:, ::2]",
        "torch.einsum('ij,kj->ik', p, q)",
        "p.index_copy(0, torch.tensor([0]), q[:1])",
        "torch.hypot(p, q)",
        "torch.block_diag(p[:1, :1], q[1:, 1:])",
        "torch.addmm(p, q, q, beta=0.5, alpha=0.1)",
        "torch.atan2(p, q)",
    )
)
def two(d: int, t: int, pair: str) -> nn.Module:
    """A weight made of two parameters."""
    function = eval(f"lambda p, q: {pair}", {"torch": torch})
    return Functional(
        lambda m, x: F.linear(x, function(m.p, m.q)), p=0.7 * torch.randn(d, d), q=0.7 * torch.randn(d, d)
    )


@block(times=(2, 3))
def shared(d: int, t: int, times: int) -> nn.Module:
    """One parameter as a weight, a bias and a scale."""

    def forward(m: nn.Module, x: Tensor) -> Tensor:
        y = F.linear(x, m.p, m.p[0])
        return y if times == 2 else y * m.p[:, 1]

    return Functional(forward, p=torch.randn(d, d))


@block(refusable=("linearized",), fresh=False, kind=("cdist", "cosine", "softmax", "kernel"))
def prototypes(d: int, t: int, kind: str) -> nn.Module:
    """Distances to learned points."""
    forwards = {
        "cdist": lambda m, x: torch.cdist(x, m.p.expand(len(x), -1, -1)),
        "cosine": lambda m, x: F.cosine_similarity(x.unsqueeze(2), m.p, dim=-1),
        "softmax": lambda m, x: (x @ m.p.mT).softmax(-1) @ m.p,
        "kernel": lambda m, x: torch.exp(-(x.unsqueeze(2) - m.p).square().mean(-1)),
    }
    return Functional(forwards[kind], p=torch.randn(d, d))


@block()
def spectral_filter(d: int, t: int) -> nn.Module:
    return Functional(
        lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * torch.complex(m.p, m.q), n=d),
        p=torch.randn(d // 2 + 1),
        q=torch.randn(d // 2 + 1),
    )


@block()
def tokens_added(d: int, t: int) -> nn.Module:
    """A learned position joins the others, is mixed with them, and leaves."""

    def forward(m: nn.Module, x: Tensor) -> Tensor:
        y = m.a(torch.cat([m.p.expand(len(x), 1, -1), x], 1))
        return y[:, 1:] + y[:, :1]

    return Functional(forward, p=torch.randn(1, 1, d), a=nn.Linear(d, d))


@block(each=(False, True))
def mixture(d: int, t: int, each: bool) -> nn.Module:
    """Dense experts: all are computed and weighted."""
    return Functional(
        lambda m, x: torch.einsum(
            "btk,btd,kde->bte", m.gate(x if each else x.mean(1, True).expand_as(x)).softmax(-1), x, m.w
        ),
        gate=nn.Linear(d, 3),
        w=torch.randn(3, d, d),
    )


@block()
def parameter_list(d: int, t: int) -> nn.Module:
    parts = nn.ParameterList([nn.Parameter(torch.randn(d)) for _ in range(t)])
    return Functional(lambda m, x: torch.stack([x[:, i] * p for i, p in enumerate(m.parts)], 1), parts=parts)


@block()
def low_rank(d: int, t: int) -> nn.Module:
    return Functional(lambda m, x: x + x @ (m.u @ m.v), u=torch.randn(d, 1), v=torch.randn(1, d))
