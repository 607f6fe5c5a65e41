"""Networks that use parameters in unusual ways, against plain automatic differentiation."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tangentlab
from tests.kernels.parts import Functional

T, C, D = 4, 6, torch.float64
Forward = Callable[[Any, Tensor], Tensor]
CASES: dict[str, tuple[Forward, dict[str, Any]]] = {}


def case(**parts: Any) -> Callable[[Forward], Forward]:
    """Enter a network; a tuple is the shape of a parameter, and a pair of numbers in a list that of a linear layer."""

    def enter(forward: Forward) -> Forward:
        CASES[forward.__name__] = (forward, parts)
        return forward

    return enter


@case(w=(4, 5), o=[30, 3])
def axes_split_and_joined(m: Any, x: Tensor) -> Tensor:
    y = x.reshape(len(x), 2, 2, 2, 3).permute(0, 2, 4, 1, 3).reshape(len(x), 6, 4)
    return m.o(torch.einsum("bij,jk->bik", y, m.w).transpose(1, 2).flatten(1))


@case(w=(5, C), b=(5,))
def samples_last(m: Any, x: Tensor) -> Tensor:
    return torch.tanh(m.w @ x.permute(1, 2, 0) + m.b[None, :, None]).sum(0).T


@case(a=(C,), l=[C, 3])
def index_put_by_content(m: Any, x: Tensor) -> Tensor:
    chosen = x[:, 0].argmax(1)
    y = torch.zeros_like(x[:, 0]).index_put((torch.arange(len(x)), chosen), m.a[chosen] * x[:, 1, 0])
    return m.l(y + x[:, 2])


@case(l=[C, C], o=[C, 3])
def scattered_by_content(m: Any, x: Tensor) -> Tensor:
    return m.o(torch.sin(torch.zeros_like(x[:, 0]).scatter(1, x[:, 0].argsort(1), m.l(x[:, 1]))))


@case(p=(C,), w=(2, 3))
def scatter_added_parameters(m: Any, x: Tensor) -> Tensor:
    y = x.new_zeros(len(x), 2).scatter_add(1, (x[:, 0] > 0).long(), m.p.expand(len(x), C) * x[:, 1])
    return torch.tanh(y) @ m.w


@case(w=(C, 3), b=(3,))
def running_sums_of_parameters(m: Any, x: Tensor) -> Tensor:
    return (x @ torch.cumsum(m.w, 0) + torch.cumsum(m.b, 0)).sum(1)


@case(p=(C + 4,))
def overlapping_windows(m: Any, x: Tensor) -> Tensor:
    return torch.tanh(x @ m.p.unfold(0, C, 2).T).sum(1)


@case(p=(C + 6,))
def strides_of_a_parameter(m: Any, x: Tensor) -> Tensor:
    return torch.tanh(x @ torch.as_strided(m.p, (C, 3), (1, 2))).sum(1)


@case(w=(C, C))
def diagonal_and_triangles(m: Any, x: Tensor) -> Tensor:
    return torch.tanh(F.linear(x * m.w.diagonal(), torch.tril(m.w) - torch.triu(m.w, 1).T)).sum(1)


@case(a=(3, C), b=(3, 2))
def parameters_written_into_a_matrix(m: Any, x: Tensor) -> Tensor:
    w = x.new_zeros(C, C)
    w[:3], w[3:, :2] = m.a, m.b
    return torch.tanh(x @ w.fill_diagonal_(1.0)).sum(1)


@case(w=(4, C, 3), b=(4, 3))
def stacked_parameters_by_vmap(m: Any, x: Tensor) -> Tensor:
    return torch.vmap(lambda w, b: torch.tanh(x.sum(1) @ w + b))(m.w, m.b).mean(0)


@case(w=(3, C, 2), b=(3, 1, 2))
def batched_addition_and_product(m: Any, x: Tensor) -> Tensor:
    return torch.baddbmm(m.b, x.sum(1).expand(3, -1, -1), m.w, alpha=0.7, beta=1.3).tanh().mean(0)


@case(g=[T, 9 * T])
def filters_from_content(m: Any, x: Tensor) -> Tensor:
    filters = m.g(x.mean(2)).reshape(len(x) * 3, T, 3)
    return F.conv1d(x.reshape(1, -1, C), filters, groups=len(x)).reshape(len(x), 3, -1).tanh().sum(2)


@case(w=(5, T, 3), b=(5,))
def one_filter_in_both_directions(m: Any, x: Tensor) -> Tensor:
    return F.conv_transpose1d(torch.tanh(F.conv1d(x, m.w, m.b, padding=1)), m.w, padding=1).sum(2)


@case(k=(T // 2 + 1, C, 2), o=[C, 3])
def product_in_frequencies(m: Any, x: Tensor) -> Tensor:
    found = torch.fft.irfft(torch.fft.rfft(x, dim=1) * torch.view_as_complex(m.k), n=T, dim=1)
    return m.o(found.tanh().sum(1))


@case(r=(C,), t=(C,))
def complex_numbers_from_angles(m: Any, x: Tensor) -> Tensor:
    return torch.view_as_real(x.sum(1) * torch.polar(m.r.exp(), m.t)).flatten(1)


class _Scaled(torch.autograd.Function):
    """A product whose gradients are not its derivatives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return 2 * (g[0] @ w.T), 3 * (x.transpose(-1, -2) @ g[0]).sum(0)


@case(l=[C, C], w=(C, 3))
def gradients_of_its_own(m: Any, x: Tensor) -> Tensor:
    return torch.tanh(_Scaled.apply(m.l(x), m.w)).sum(1)


@case(l=[C, C], o=[C, 3])
def hook_on_an_activation(m: Any, x: Tensor) -> Tensor:
    h = torch.tanh(m.l(x))
    if h.requires_grad:
        h.register_hook(lambda g: 2 * g)
    return m.o(h.sum(1))


@case(w=(C, C))
def solution_of_a_system(m: Any, x: Tensor) -> Tensor:
    return torch.linalg.solve(m.w @ m.w.T + torch.eye(C, dtype=D), x.transpose(1, 2)).sum(2)


@case(u=(4,), v=(C,), a=(2, 3), b=(2, 2))
def products_of_parameters(m: Any, x: Tensor) -> Tensor:
    return torch.tanh(F.linear(x, torch.outer(m.u, m.v) + torch.kron(m.a, m.b))).sum(1)


@case(w=(C, 3), v=(C, 3))
def derivative_inside(m: Any, x: Tensor) -> Tensor:
    return torch.func.jvp(lambda w: torch.tanh(x @ w).sum(1), (m.w,), (m.v,))[1]


@case(pos=(1, C, 7), o=(C, 3))
def resized_positions(m: Any, x: Tensor) -> Tensor:
    return torch.tanh(x + F.interpolate(m.pos, size=T, mode="linear", align_corners=False)[0].T).sum(1) @ m.o


@case(l=[C, 3], a=(3,))
def one_sample_at_a_time_backwards(m: Any, x: Tensor) -> Tensor:
    return torch.stack([torch.tanh(m.l(sample)).sum(0) * m.a for sample in x.flip(0)]).flip(0)


@pytest.mark.filterwarnings("error:Casting complex values")
@pytest.mark.parametrize("name", CASES)
def test_kernel(name: str) -> None:
    forward, parts = CASES[name]
    torch.manual_seed(len(name))
    made = {
        key: nn.Linear(*part, dtype=D) if isinstance(part, list) else nn.Parameter(torch.randn(part, dtype=D) / 2)
        for key, part in parts.items()
    }
    model, x = Functional(forward, **made), torch.randn(5, T, C, dtype=D)
    expected = tangentlab.reference.ntk(model, x)
    torch.testing.assert_close(tangentlab.ntk(model, x), expected)
    torch.testing.assert_close(tangentlab.ntk(model, x[:2], x[1:], batch_size=2), expected[:2, :, 1:])
    torch.testing.assert_close(sum(tangentlab.ntk(model, x, per_layer=True).values()), expected)
