"""Rules for dense layers: ``F.linear`` and matrix products with a parameter."""

import string

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab.kernels.rules._broadcast import Broadcast
from tangentlab.kernels.rules._einsum import contraction
from tangentlab.kernels.rules._outer import Outer
from tangentlab.kernels.rules._registry import rule
from tangentlab.kernels.rules._use import Meeting, Uses


@rule(F.linear, example="nn.Linear, F.linear, nn.MultiheadAttention", form="outer")
def linear(meeting: Meeting, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Uses:
    """y = x W^T + b, x of shape (..., d_in)."""
    if weight.ndim != 2 or input.ndim != meeting.output.ndim:
        return []
    uses: Uses = []
    if meeting.tracks(weight):
        uses.append((weight, Outer(weight.shape, meeting.split(input).flatten(1, -2))))
    if bias is not None:
        uses.append((bias, Broadcast.aligned(bias, meeting.output)))
    return uses


@rule(torch.matmul, torch.Tensor.matmul, torch.mm, torch.Tensor.mm, example="x @ W, W @ x", form="outer")
def matmul(meeting: Meeting, input: Tensor, other: Tensor) -> Uses:
    """y = x W with x (..., d_in), or y = W x with x (..., d_in, positions)."""
    y = meeting.output
    uses: Uses = []
    if meeting.tracks(other) and other.ndim == 2 and input.ndim == y.ndim:
        uses.append((other, Outer(other.shape, meeting.split(input).flatten(1, -2), transposed=True)))
    elif meeting.tracks(other) and other.ndim > 2 and input.ndim == y.ndim:
        axes = string.ascii_lowercase[: y.ndim]
        equation = f"{axes[:-1]}X,{axes[-other.ndim : -2]}X{axes[-1]}->{axes}"
        uses += contraction(meeting, equation, (input, other), 1)
    if meeting.tracks(input) and input.ndim == 2 and other.ndim == y.ndim:
        uses.append((input, Outer(input.shape, meeting.split(other).mT.flatten(1, -2), feature_axis=-2)))
    return uses


@rule(torch.Tensor.__rmatmul__, example="W @ x", form="outer")
def rmatmul(meeting: Meeting, other: Tensor, input: Tensor) -> Uses:
    """The same with its operands exchanged."""
    return matmul(meeting, input, other)


@rule(torch.addmm, torch.Tensor.addmm, example="torch.addmm (GPT-2's Conv1D)", form="outer")
def addmm(meeting: Meeting, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Uses:
    """y = beta b + alpha x W."""
    x = meeting.split(mat1).flatten(1, -2)
    return [
        (mat2, Outer(mat2.shape, x if alpha == 1 else alpha * x, transposed=True)),
        (input, Broadcast.aligned(input, meeting.output, scale=beta)),
    ]
