"""Rules for dense layers: ``F.linear`` and matrix products with a parameter."""

import string

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab.kernels.rules._broadcast import Broadcast
from tangentlab.kernels.rules._einsum import contraction
from tangentlab.kernels.rules._outer import Outer
from tangentlab.kernels.rules._registry import rule
from tangentlab.kernels.rules._use import Call, Uses


@rule(F.linear, example="nn.Linear, F.linear, nn.MultiheadAttention", form="outer")
def linear(call: Call, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Uses:
    """y = x W^T + b, x of shape (..., d_in)."""
    if weight.ndim != 2:
        return []
    uses: Uses = []
    if call.tracks(weight):
        uses.append((weight, Outer(weight.shape, call.split(input).flatten(1, -2))))
    if bias is not None:
        uses.append((bias, Broadcast.aligned(bias, call.output)))
    return uses


@rule(torch.matmul, torch.Tensor.matmul, torch.mm, torch.Tensor.mm, example="x @ W, W @ x", form="outer")
def matmul(call: Call, input: Tensor, other: Tensor) -> Uses:
    """y = x W with x (..., d_in), or y = W x with x (..., d_in, positions)."""
    y = call.output
    uses: Uses = []
    if call.tracks(other) and other.ndim == 2:
        uses.append((other, Outer(other.shape, call.split(input).flatten(1, -2), transposed=True)))
    elif call.tracks(other) and other.ndim > 2:
        axes = string.ascii_lowercase[: y.ndim]
        equation = f"{axes[-input.ndim : -1]}X,{axes[-other.ndim : -2]}X{axes[-1]}->{axes}"
        uses += contraction(call, equation, (input, other), 1)
    if call.tracks(input) and input.ndim == 2:
        uses.append((input, Outer(input.shape, call.split(other).mT.flatten(1, -2), feature_axis=-2)))
    return uses


@rule(torch.Tensor.__rmatmul__, example="W @ x", form="outer")
def rmatmul(call: Call, other: Tensor, input: Tensor) -> Uses:
    """The same with its operands exchanged."""
    return matmul(call, input, other)


@rule(torch.addmm, torch.Tensor.addmm, example="torch.addmm (GPT-2's Conv1D)", form="outer")
def addmm(call: Call, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Uses:
    """y = beta b + alpha x W."""
    x = call.split(mat1)
    return [
        (mat2, Outer(mat2.shape, x if alpha == 1 else alpha * x, transposed=True)),
        (input, Broadcast.aligned(input, call.output, scale=beta)),
    ]
