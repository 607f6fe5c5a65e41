"""Rules for dense layers: ``F.linear``, matrix products with a parameter, ``einsum``, embeddings."""

import string
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab._signatures import EmbeddingCall
from tangentlab.kernels.rules._broadcast import Broadcast
from tangentlab.kernels.rules._outer import Lookup, Outer
from tangentlab.kernels.rules._registry import rule
from tangentlab.kernels.rules._use import Meeting, Use, Uses


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
        uses += _einsum(meeting, equation, (input, other), 1)
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


@rule(torch.einsum, example="torch.einsum with one parameter", form="gradient")
def einsum(meeting: Meeting, equation: Any, *operands: Any) -> Uses:
    """Any contraction in which the parameter is one operand and carries no sample index."""
    if not isinstance(equation, str) or "." in equation:
        return []
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    equation = equation.replace(" ", "")
    if "->" not in equation:
        letters = equation.replace(",", "")
        equation += "->" + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return [
        use
        for index in range(len(operands))
        if meeting.tracks(operands[index])
        for use in _einsum(meeting, equation, operands, index)
    ]


@rule(F.embedding, example="nn.Embedding", form="lookup")
def embedding(meeting: Meeting, *args: Any, **kwargs: Any) -> Uses:
    """y = W[i]; rows under ``padding_idx`` get no gradient."""
    call = EmbeddingCall(*args, **kwargs)
    weight, padding_idx = call.weight, call.padding_idx
    if call.max_norm is not None or call.scale_grad_by_freq:
        return []
    if padding_idx is not None:
        padding_idx %= len(weight)
    return [(weight, Lookup(weight.shape, meeting.split(call.input.unsqueeze(-1)).flatten(1), padding_idx))]


@dataclass
class Einsum(Use):
    """A parameter in a contraction: its gradient is the contraction of everything else with g.

    Attributes:
        shape: The parameter's shape.
        equation: From g (B, R, rest of the output) and the other operands to (B, R, parameter's axes).
        others: The other operands, whole.
        axis: The output's sample axis.
    """

    shape: torch.Size
    equation: str
    others: list[Tensor]
    axis: int

    def gradient(self, g: Tensor) -> Tensor:
        return torch.einsum(self.equation, g.squeeze(self.axis + 2), *self.others)


def _einsum(meeting: Meeting, equation: str, operands: tuple[Tensor, ...], index: int) -> Uses:
    inputs, output = equation.split("->")
    labels = inputs.split(",")
    others = [t.detach() for i, t in enumerate(operands) if i != index]
    rest = [label for i, label in enumerate(labels) if i != index]
    own, sample = labels[index], output[meeting.layout.axis]
    sizes = {
        label: size
        for t, labels_ in zip(others, rest, strict=True)
        for label, size in zip(labels_, t.shape, strict=True)
    }
    sizes.update(zip(output, meeting.output.shape, strict=True))
    whole = all(sizes.get(label) == size for label, size in zip(own, operands[index].shape, strict=True))
    repeated = any(len(set(label)) < len(label) for label in labels)
    if meeting.layout.inner != 1 or sample in own or not whole or repeated or "Z" in equation:
        return []
    target = f"{sample}Z{output.replace(sample, '')}"
    backward = ",".join([target, *rest]) + f"->{sample}Z{own}"
    return [(operands[index], Einsum(operands[index].shape, backward, others, meeting.layout.axis))]
