"""Contractions: gradients that are a contraction of everything else with the output gradients."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from tangentlab.kernels.rules._registry import rule
from tangentlab.kernels.rules._use import Call, Use, Uses


@rule(torch.einsum, example="torch.einsum with one parameter", form="gradient")
def einsum(call: Call, equation: Any, *operands: Any) -> Uses:
    """Any contraction in which the parameter is one operand and carries no sample index."""
    if not isinstance(equation, str) or "." in equation:
        return []
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    equation = equation.replace(" ", "")
    if "->" not in equation:
        equation += "->" + "".join(sorted(c for c in set(equation) - {","} if equation.count(c) == 1))
    return [
        use
        for index in range(len(operands))
        if call.tracks(operands[index])
        for use in contraction(call, equation, operands, index)
    ]


@dataclass
class Einsum(Use):
    """A parameter in a contraction.

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

    def __getitem__(self, rows: slice) -> Self:
        first, *rest = self.equation.partition("->")[0].split(",")
        sample, whole = first[0], slice(None)
        operands = zip(self.others, rest, strict=True)
        some = [t[tuple(rows if label == sample else whole for label in labels)] for t, labels in operands]
        return replace(self, others=some)

    def outline(self) -> Self:
        return replace(self, others=[])


def contraction(call: Call, equation: str, operands: tuple[Tensor, ...], index: int) -> Uses:
    """Return the use of one operand of a contraction, or none where the parameter has an index of its own."""
    inputs, output = equation.split("->")
    labels = inputs.split(",")
    others = [t.detach() for i, t in enumerate(operands) if i != index]
    rest = [label for i, label in enumerate(labels) if i != index]
    own, sample = labels[index], output[call.layout.axis]
    sizes = {
        label: size
        for t, labels_ in zip(others, rest, strict=True)
        for label, size in zip(labels_, t.shape, strict=True)
    }
    sizes.update(zip(output, call.output.shape, strict=True))
    whole = all(sizes.get(label) == size for label, size in zip(own, operands[index].shape, strict=True))
    repeated = any(len(set(label)) < len(label) for label in labels)
    if call.layout.inner != 1 or sample in own or not whole or repeated or "Z" in equation:
        return []
    target = f"{sample}Z{output.replace(sample, '')}"
    backward = ",".join([target, *rest]) + f"->{sample}Z{own}"
    return [(operands[index], Einsum(operands[index].shape, backward, others, call.layout.axis))]
