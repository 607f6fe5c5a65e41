"""For every operation with a rule: small networks that call it, with and without each of its options."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.kernels.parts import Case, Functional, normal, tokens

_GENERATOR = torch.Generator().manual_seed(0)


def _normal(*shape: Any) -> Tensor:
    return torch.randn(*shape, generator=_GENERATOR)


def _uniform(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=_GENERATOR)


def _read(y: Tensor) -> Tensor:
    """Two numbers per sample, to which every entry contributes by a weight of its own."""
    y = torch.tanh(y).flatten(1)
    steps = torch.arange(2 * y.shape[1]).to(y)
    return y @ torch.sin(1 + steps).view(-1, 2)


def _of(function: Callable[..., Tensor], data: Callable[[int], Any], *fallback: str, **parameters: Tensor) -> Case:
    """A network from a function of its parameters and inputs."""

    def model() -> Functional:
        return Functional(lambda m, x: _read(function(m, x)), **{name: p.clone() for name, p in parameters.items()})

    return Case("", model, data, fallback)


def _sums(operation: Callable[..., Tensor], *, alpha: bool) -> list[Case]:
    """x and p in both orders, p of fewer axes, with axes of length one, and without any axis."""
    p = {"p": _normal(5), "q": _normal(3, 1), "r": _normal(())}
    cases = [
        _of(lambda m, x: operation(operation(operation(x.clone(), m.p), m.q), m.r), normal(3, 5), **p),
    ]
    if alpha:
        cases.append(_of(lambda m, x: operation(x.clone(), m.p, alpha=2), normal(5), p=_normal(5)))
    return cases


def _reflected(operation: Callable[..., Tensor], *, alpha: bool = False) -> list[Case]:
    cases = [_of(lambda m, x: operation(m.p, x), normal(3, 5), p=_normal(3, 1))]
    if alpha:
        cases.append(_of(lambda m, x: operation(m.p, x, alpha=0.3), normal(5), p=_normal(5)))
    return cases


def _products(operation: Callable[..., Tensor]) -> list[Case]:
    return [
        _of(lambda m, x: operation(x, m.p), normal(3, 5), p=_normal(5)),
        _of(lambda m, x: operation(m.p, x), normal(3, 5), p=_uniform(3, 1) + 1),
        _of(lambda m, x: operation(2 + x[:, :1], m.p + m.p), normal(5), p=_uniform(4) + 1),
        _of(lambda m, x: operation(m.p, 3 + x[:, 0]).T, normal(5), p=_uniform(4, 1) + 1),
        _of(lambda m, x: operation(1 + x, m.p), tokens(3, 4), p=_uniform(4) + 1),
        _of(lambda m, x: operation(m.p, 1 + x), tokens(9, 4), p=_uniform(4) + 1),
    ]


def _copies(operation: Callable[[Tensor, Tensor], Tensor]) -> list[Case]:
    """p repeated for every sample, and then along another axis of length one."""
    return [_of(lambda m, x: x * operation(m.p, x), normal(3, 5), p=_normal(1, 1, 5))]


def _convolutions(operation: Any, dimensions: int) -> list[Case]:
    size, one, two = (6, 5, 4)[:dimensions], (1,) * dimensions, (2, 1, 1)[:dimensions]
    kernel = (3, 2, 2)[:dimensions]

    def weights(out: int, channels: int) -> dict[str, Tensor]:
        return {"w": _normal(out, channels, *kernel), "b": _normal(out)}

    return [
        _of(lambda m, x: operation(x, m.w), normal(4, *size), w=_normal(2, 4, *kernel)),
        _of(lambda m, x: operation(x, m.w, m.b, 2), normal(4, *size), **weights(2, 4)),
        _of(lambda m, x: operation(x, m.w, m.b, one, two, one, 2), normal(4, *size), **weights(6, 2)),
        _of(lambda m, x: operation(x, m.w, bias=m.b, padding=1, dilation=2), normal(2, *size), **weights(3, 2)),
        _of(lambda m, x: operation(x, m.w, stride=[2], padding=(1,)), normal(2, *size), w=_normal(3, 2, *kernel)),
        _of(lambda m, x: operation(x, m.w, m.b, padding="same", dilation=2), normal(2, *size), **weights(3, 2)),
        _of(lambda m, x: operation(x, m.w, m.b, padding="valid"), normal(2, *size), **weights(3, 2)),
        _of(lambda m, x: operation(m.c + x, m.w.detach(), m.b), normal(2, *size), c=_normal(()), **weights(3, 2)),
        _of(lambda m, x: operation(x, m.w, groups=4), normal(4, *size), w=_normal(4, 1, *kernel)),
        *_other_axes(operation, size, weights(6, 2), _normal(3, 4, *one)),
    ]


def _transposed(operation: Any, dimensions: int) -> list[Case]:
    size, kernel = (4, 3, 2)[:dimensions], (3, 2, 2)[:dimensions]

    def weights(channels: int, out: int, groups: int = 1) -> dict[str, Tensor]:
        return {"w": _normal(channels, out, *kernel), "b": _normal(out * groups)}

    return [
        _of(lambda m, x: operation(x, m.w), normal(2, *size), w=_normal(2, 3, *kernel)),
        _of(lambda m, x: operation(x, m.w, m.b, 2, 1, 1, 2), normal(4, *size), **weights(4, 3, 2)),
        _of(lambda m, x: operation(x, m.w, bias=m.b, dilation=2, padding=1), normal(2, *size), **weights(2, 3)),
        _of(lambda m, x: operation(x, m.w, stride=[2], padding=(1,)), normal(2, *size), w=_normal(2, 3, *kernel)),
        *_other_axes(operation, size, weights(4, 3, 2), _normal(4, 3, *(1,) * dimensions)),
    ]


def _other_axes(operation: Any, size: tuple[int, ...], weights: dict[str, Tensor], point: Tensor) -> list[Case]:
    """Several images per sample; and samples in the place of images' columns or channels, for which there is no rule.

    Args:
        operation: A convolution, plain or transposed.
        size: Of the images.
        weights: Its weight and bias, for two groups and four channels.
        point: A weight of kernel size 1 for four channels.
    """
    lines = (None, ..., *(None,) * (len(size) - 1))
    return [
        _of(
            lambda m, x: operation(x.flatten(0, 1), m.w, m.b, groups=2).unflatten(0, (-1, 2)),
            normal(2, 4, *size),
            **weights,
        ),
        _of(lambda m, x: operation(x.T[lines], m.w)[0].flatten(1).T, normal(4), "w", w=point),
    ]


def _from_the_right(operation: Callable[[Tensor, Tensor], Tensor]) -> list[Case]:
    """x W."""
    return [_of(lambda m, x: operation(x, m.w), normal(5), w=_normal(5, 3))]


def _from_the_left(operation: Callable[[Tensor, Tensor], Tensor]) -> list[Case]:
    """W x, with the samples in the columns."""
    return [_of(lambda m, x: operation(m.w, x.T).T, normal(5), w=_normal(3, 5))]


def _with_positions(operation: Callable[[Tensor, Tensor], Tensor]) -> list[Case]:
    return [
        _of(lambda m, x: operation(x, m.w), normal(3, 5), w=_normal(5, 4)),
        _of(lambda m, x: operation(m.w, x), normal(3, 5), w=_normal(4, 3)),
        _of(lambda m, x: operation(m.w, x), normal(2, 3, 5), w=_normal(4, 3)),
        _of(lambda m, x: operation(x[:, None], m.w), normal(3, 5), w=_normal(2, 5, 4)),
        _of(lambda m, x: operation(x, m.w), normal(2, 3, 5), w=_normal(2, 5, 4)),
        _of(lambda m, x: operation(x, m.w).transpose(0, 1), normal(5), w=_normal(2, 5, 4)),
        _of(lambda m, x: operation(x.transpose(0, 1), m.w).transpose(0, 1), normal(3, 5), w=_normal(5, 4)),
        _of(lambda m, x: operation(x, m.w[:, None]).unsqueeze(1), normal(3, 5), w=_normal(5)),
        # one vector for every position, matrices that the batch brings, a weight with an axis that is spread
        _of(lambda m, x: operation(x, m.w), normal(3, 5), "w", w=_normal(5)),
        _of(lambda m, x: operation(m.w, x), normal(3, 5), "w", w=_normal(3)),
        _of(lambda m, x: operation(m.w, x), normal(3, 5), "w", w=_normal(1, 4, 3)),
        _of(lambda m, x: operation(x, m.w), normal(2, 3, 5), "w", w=_normal(1, 5, 4)),
    ]


def _contractions() -> list[Case]:
    e = torch.einsum
    image, line = normal(3, 5), normal(5)
    return [
        _of(lambda m, x: e("bti,oi->bto", x, m.w), image, w=_normal(4, 5)),
        _of(lambda m, x: e("bi,oi", x, m.w), line, w=_normal(4, 5)),
        _of(lambda m, x: e("zi, bi", m.w, x), line, w=_normal(4, 5)),
        _of(lambda m, x: e("b i , o i -> b o", x, m.w), line, w=_normal(4, 5)),
        _of(lambda m, x: e("bi,oi->bo", [x, m.w]), line, w=_normal(4, 5)),
        _of(lambda m, x: e("ib,oi->ob", x.T, m.w).T, line, w=_normal(4, 5)),
        _of(lambda m, x: e("bi,oi,pi->bop", x, m.w, m.v), line, w=_normal(4, 5), v=_normal(3, 5)),
        _of(lambda m, x: e("bi,oi,pi->bop", x, m.w, m.w), line, w=_normal(4, 5)),
        _of(lambda m, x: e(x, [0, 1], m.w, [2, 1], [0, 2]), line, w=_normal(4, 5)),
        _of(lambda m, x: e("bi,bj,ij->bj", x, x, m.w), line, w=_normal(5, 5)),
        # no rule: an ellipsis, a diagonal, a spread axis, several rows per sample, the letter of readouts
        _of(lambda m, x: e("...i,oi->...o", x, m.w), line, "w", w=_normal(4, 5)),
        _of(lambda m, x: e("bi,ii->bi", x, m.w), line, "w", w=_normal(5, 5)),
        _of(lambda m, x: e("bii,oi->bo", x, m.w), normal(5, 5), "w", w=_normal(4, 5)),
        _of(lambda m, x: e("bi,oi->bo", x, m.w), line, "w", w=_normal(4, 1)),
        _of(lambda m, x: e("ni,oi->no", x.flatten(0, 1), m.w).unflatten(0, (-1, 3)), image, "w", w=_normal(4, 5)),
        _of(lambda m, x: e("bZ,oZ->bo", x, m.w), line, "w", w=_normal(4, 5)),
    ]


def _lookups() -> list[Case]:
    line, grid = tokens(6, 4), tokens(6, 2, 3)
    w, v = _normal(6, 3), _normal(6, 3)
    return [
        _of(lambda m, x: F.embedding(x, m.w), line, w=w),
        _of(lambda m, x: F.embedding(x, m.w), grid, w=w),
        _of(lambda m, x: F.embedding(x[:, 0], m.w), line, w=w),
        _of(lambda m, x: F.embedding(x.T, m.w).transpose(0, 1), line, w=w),
        _of(lambda m, x: F.embedding(x, m.w, 2), line, w=w),
        _of(lambda m, x: F.embedding(x, m.w, padding_idx=-4), grid, w=w),
        _of(lambda m, x: F.embedding(x, m.w, padding_idx=0), grid, w=w),
        _of(lambda m, x: F.embedding(x, m.w, padding_idx=5), grid, w=w),
        _of(lambda m, x: F.embedding(x, m.w) + F.embedding(5 - x, m.w, 1).tanh(), line, w=w),
        _of(lambda m, x: F.embedding(x, m.w, 3) + F.embedding(5 - x, m.v, 1) * F.embedding(x, m.w), line, w=w, v=v),
        _of(lambda m, x: F.embedding(x, 0.3 * m.w), line, w=w),
        _of(lambda m, x: F.embedding(x, m.w, scale_grad_by_freq=True), line, "w", w=w),
    ]


def _normalizations() -> dict[Any, list[Case]]:
    image, line = normal(4, 3), normal(4)
    affine = {"w": _normal(4), "b": _normal(4)}
    rows = {"w": _normal(4, 3), "b": _normal(4, 3)}
    mean, var = _normal(4), _uniform(4) + 0.1

    def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
        return mean.to(x), var.to(x)

    return {
        F.batch_norm: [
            _of(lambda m, x: F.batch_norm(x, *statistics(x), m.w, m.b), image, **affine),
            _of(lambda m, x: F.batch_norm(x, *statistics(x), m.w, eps=0.5), line, w=_normal(4)),
            _of(lambda m, x: F.batch_norm(x, *statistics(x), bias=m.b, eps=0.5), line, b=_normal(4)),
        ],
        F.layer_norm: [
            _of(lambda m, x: F.layer_norm(x, (4, 3), m.w, m.b), image, **rows),
            _of(lambda m, x: F.layer_norm(x, (3,), m.w, eps=0.5), image, w=_normal(3)),
            _of(lambda m, x: F.layer_norm(x, (4,), bias=m.b, eps=0.5), line, b=_normal(4)),
        ],
        F.rms_norm: [
            _of(lambda m, x: F.rms_norm(x, (4, 3), m.w), image, w=_normal(4, 3)),
            _of(lambda m, x: F.rms_norm(x, (3,), m.w, eps=0.5), image, w=_normal(3)),
        ],
        F.group_norm: [
            _of(lambda m, x: F.group_norm(x, 2, m.w, m.b), image, **affine),
            _of(lambda m, x: F.group_norm(x, 2, m.w, eps=0.5), image, w=_normal(4)),
        ],
        F.instance_norm: [
            _of(lambda m, x: F.instance_norm(x, weight=m.w, bias=m.b), image, **affine),
            _of(lambda m, x: F.instance_norm(x, None, None, m.w, m.b, eps=0.5), image, **affine),
            _of(lambda m, x: F.instance_norm(x, *statistics(x), m.w, use_input_stats=False), image, w=_normal(4)),
        ],
    }


def _bags() -> list[Case]:
    def bags(*fallback: str, rows: int = 6, size: int = 4, **options: Any) -> Case:
        return _of(lambda m, x: F.embedding_bag(x, m.w, **options), tokens(rows, size), *fallback, w=_normal(6, 3))

    return [
        bags(),
        bags(mode="sum"),
        bags(mode="mean", padding_idx=-2),
        bags(mode="sum", padding_idx=0),
        bags(mode="mean", padding_idx=1, rows=2, size=2),  # bags of nothing but padding
        bags("w", mode="max"),
        _of(lambda m, x: F.embedding_bag(x, m.w, scale_grad_by_freq=True), tokens(6, 4), "w", w=_normal(6, 3)),
        _of(
            lambda m, x: F.embedding_bag(x, m.w, mode="sum", per_sample_weights=x.to(m.w) - 1),
            tokens(6, 4),
            w=_normal(6, 3),
        ),
        # several bags a sample, and one table for two bags
        _of(lambda m, x: F.embedding_bag(x.flatten(0, 1), m.w).view(len(x), -1), tokens(6, 3, 4), w=_normal(6, 3)),
        _of(
            lambda m, x: F.embedding_bag(x, m.w) * F.embedding_bag(x[:, :2], m.w, mode="sum"),
            tokens(6, 4),
            w=_normal(6, 3),
        ),
        _of(lambda m, x: F.embedding_bag(x, m.w) + F.embedding(x[:, 0], m.w), tokens(6, 4), w=_normal(6, 3)),
        # offsets
        _of(
            lambda m, x: F.embedding_bag(x.flatten(), m.w, torch.arange(0, x.numel(), 4)),
            tokens(6, 4),
            "w",
            w=_normal(6, 3),
        ),
    ]


def _bilinear() -> list[Case]:
    w = {"w": _normal(3, 4, 5)}
    return [
        _of(lambda m, x: F.bilinear(x[:, :4], x[:, 4:], m.w), normal(9), **w),
        _of(lambda m, x: F.bilinear(x[:, :4], x[:, 4:], m.w, m.b), normal(9), b=_normal(3), **w),
        _of(lambda m, x: F.bilinear(x[..., :4], x[..., 4:], m.w, bias=m.b), normal(2, 9), b=_normal(3), **w),
        _of(lambda m, x: F.bilinear(x[:, :4], x[:, 4:], m.w.detach(), m.b), normal(9), b=_normal(3), **w),
        _of(lambda m, x: F.bilinear(x[:, :4], x[:, 4:], 0.5 * m.w), normal(9), **w),
        _of(
            lambda m, x: F.bilinear(x.transpose(0, 1), x.transpose(0, 1), m.w).transpose(0, 1),
            normal(2, 4),
            w=_normal(3, 4, 4),
        ),
        # a parameter in the place of an input
        _of(lambda m, x: F.bilinear(m.a.expand(len(x), -1), x, m.w), normal(5), a=_normal(1, 4), **w),
    ]


OPERATIONS: dict[Callable[..., Any], list[Case]] = {
    torch.add: _sums(torch.add, alpha=True) + _reflected(torch.add, alpha=True),
    torch.Tensor.add: _sums(torch.Tensor.add, alpha=True) + _reflected(torch.Tensor.add, alpha=True),
    torch.Tensor.__add__: _sums(torch.Tensor.__add__, alpha=False) + _reflected(torch.Tensor.__add__),
    torch.Tensor.__radd__: _sums(torch.Tensor.__radd__, alpha=False) + _reflected(torch.Tensor.__radd__),
    torch.Tensor.add_: _sums(torch.Tensor.add_, alpha=True),
    torch.Tensor.__iadd__: _sums(torch.Tensor.__iadd__, alpha=False),
    torch.sub: _sums(torch.sub, alpha=True) + _reflected(torch.sub, alpha=True),
    torch.Tensor.sub: _sums(torch.Tensor.sub, alpha=True) + _reflected(torch.Tensor.sub, alpha=True),
    torch.Tensor.__sub__: _sums(torch.Tensor.__sub__, alpha=False) + _reflected(torch.Tensor.__sub__),
    torch.Tensor.sub_: _sums(torch.Tensor.sub_, alpha=True),
    torch.Tensor.__isub__: _sums(torch.Tensor.__isub__, alpha=False),
    torch.rsub: _sums(torch.rsub, alpha=True) + _reflected(torch.rsub, alpha=True),
    torch.Tensor.__rsub__: _sums(torch.Tensor.__rsub__, alpha=False) + _reflected(torch.Tensor.__rsub__),
    torch.mul: _products(torch.mul),
    torch.Tensor.mul: _products(torch.Tensor.mul),
    torch.Tensor.__mul__: _products(torch.Tensor.__mul__),
    torch.Tensor.__rmul__: _products(torch.Tensor.__rmul__),
    torch.div: _products(torch.div),
    torch.Tensor.div: _products(torch.Tensor.div),
    torch.Tensor.__truediv__: _products(torch.Tensor.__truediv__),
    torch.Tensor.expand: [
        *_copies(lambda p, x: p.expand(len(x), -1, -1)),
        *_copies(lambda p, x: p.expand(len(x), 3, 5)),
        *_copies(lambda p, x: p[0].expand(len(x), 3, -1)),
    ],
    torch.Tensor.expand_as: _copies(torch.Tensor.expand_as),
    torch.Tensor.repeat: [
        *_copies(lambda p, x: p.repeat(len(x), 3, 1)),
        _of(lambda m, x: x * m.p.repeat(len(x), 1, 2), normal(3, 4), "p", p=_normal(1, 3, 2)),
    ],
    torch.broadcast_to: _copies(lambda p, x: torch.broadcast_to(p, x.shape)),
    torch.Tensor.broadcast_to: _copies(lambda p, x: p.broadcast_to(x.shape)),
    F.prelu: [
        _of(lambda m, x: F.prelu(x, m.w), normal(4, 3), w=_normal(4)),
        _of(lambda m, x: F.prelu(x, m.w), normal(4), w=_normal(1)),
        _of(lambda m, x: F.prelu(x[:, 0], m.w)[:, None], normal(4), w=_normal(1)),
        _of(lambda m, x: F.prelu(x, m.w), normal(4), w=_normal(())),
    ],
    F.linear: [
        _of(lambda m, x: F.linear(x, m.w), normal(5), w=_normal(3, 5)),
        _of(lambda m, x: F.linear(x, m.w, m.b), normal(2, 5), w=_normal(3, 5), b=_normal(3)),
        _of(lambda m, x: F.linear(x, m.w.detach(), bias=m.b), normal(2, 5), w=_normal(3, 5), b=_normal(3)),
        _of(lambda m, x: F.linear(x.tanh(), m.w) + F.linear(x, m.w).tanh(), normal(3, 5), w=_normal(3, 5)),
        _of(lambda m, x: torch.tanh(F.linear(x, m.w)) @ m.w, normal(5), w=_normal(4, 5)),
        _of(lambda m, x: torch.tanh(F.linear(x, m.w)) @ m.w, normal(2, 5), w=_normal(5, 5)),
        _of(lambda m, x: m.w @ F.linear(x, m.w), normal(5, 5), w=_normal(5, 5)),
        _of(lambda m, x: F.linear(x, m.w)[:, None], normal(5), "w", w=_normal(5)),
        _of(lambda m, x: F.linear(m.w, x).T, normal(5), "w", w=_normal(3, 5)),
    ],
    torch.matmul: _from_the_right(torch.matmul) + _from_the_left(torch.matmul) + _with_positions(torch.matmul),
    torch.Tensor.matmul: _from_the_right(torch.Tensor.matmul) + _with_positions(torch.Tensor.matmul),
    torch.mm: _from_the_right(torch.mm) + _from_the_left(torch.mm),
    torch.Tensor.mm: _from_the_right(torch.Tensor.mm) + _from_the_left(torch.Tensor.mm),
    torch.Tensor.__rmatmul__: [
        _of(lambda m, x: torch.Tensor.__rmatmul__(m.w, x), normal(3, 5), w=_normal(5, 4)),
        _of(lambda m, x: torch.Tensor.__rmatmul__(x, m.w), normal(3, 5), w=_normal(4, 3)),
    ],
    torch.addmm: [
        _of(lambda m, x: torch.addmm(m.b, x, m.w), normal(5), b=_normal(3), w=_normal(5, 3)),
        _of(lambda m, x: torch.addmm(m.b, x, m.w), normal(5), b=_normal(1, 3), w=_normal(5, 3)),
        _of(lambda m, x: torch.addmm(m.b, x, m.w, beta=0.3, alpha=-2), normal(5), b=_normal(3), w=_normal(5, 3)),
        _of(lambda m, x: torch.addmm(m.b, x, m.w, alpha=2), normal(5), b=_normal(3), w=_normal(5, 3)),
        _of(lambda m, x: torch.addmm(x[:, :3], x, m.w, beta=0.3), normal(5), w=_normal(5, 3)),
    ],
    torch.Tensor.addmm: [
        _of(lambda m, x: m.b.addmm(x, m.w, alpha=0.7), normal(5), b=_normal(3), w=_normal(5, 3)),
    ],
    torch.einsum: _contractions(),
    F.embedding: _lookups(),
    F.embedding_bag: _bags(),
    F.bilinear: _bilinear(),
    **_normalizations(),
    **{f: _convolutions(f, n) for n, f in enumerate((torch.conv1d, torch.conv2d, torch.conv3d), 1)},
    **{
        f: _transposed(f, n)
        for n, f in enumerate((torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d), 1)
    },
}
