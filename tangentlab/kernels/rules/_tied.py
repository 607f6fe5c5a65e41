"""Ties: one parameter with several uses that are not of one kind, such as GPT-2's table of tokens.

The gradient of the parameter is the sum of those of its uses. Where each is a sum of outer products, all of these are
kept, and the gradient is written out late; see :class:`~tangentlab.kernels.factors.PairsSum`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlab.kernels._cost import SKETCH, Cost, written_out
from tangentlab.kernels.factors import Factor, PairsSum, Terms
from tangentlab.kernels.factors._sum import expand_operations, pair_operations
from tangentlab.kernels.rules._use import Use


@dataclass
class Tied(Use):
    """Several uses of one parameter.

    Attributes:
        shape: The parameter's shape.
        parts: The uses, those merged that are of one kind; sparse ones come last.
        members: For each part, which of the given uses are in it.
    """

    shape: torch.Size
    parts: Sequence[Use]
    members: Sequence[Sequence[int]]

    @classmethod
    def of(cls, uses: Sequence[Use]) -> "Tied | None":
        """Return several uses as one; None where the gradient of one of them is no sum of outer products."""
        alike: dict[Hashable, list[int]] = {}
        for number, use in enumerate(uses):
            alike.setdefault((type(use), use.order), []).append(number)
        parts: list[tuple[Use, list[int]]] = []
        for numbers in alike.values():
            merged = uses[numbers[0]].merge([uses[n] for n in numbers])
            parts += [(uses[n], [n]) for n in numbers] if merged is None else [(merged, numbers)]
        terms = [use.terms for use, _ in parts]
        if len({None if own is None else own.matrix for own in terms} | {None}) != 2 or None in terms:
            return None
        parts.sort(key=lambda part: _terms(part[0]).sparse)
        return cls(uses[0].shape, [use for use, _ in parts], [numbers for _, numbers in parts])

    @property
    def own_terms(self) -> list[Terms]:
        """The outer products of each part."""
        return [_terms(part) for part in self.parts]

    @property
    def positions(self) -> int:
        return sum(part.positions for part in self.parts)

    @property
    def order(self) -> Hashable:
        return self.kind

    @property
    def kind(self) -> Hashable:
        return Tied, tuple((type(part), own.transposed) for part, own in zip(self.parts, self.own_terms, strict=True))

    def numbering(self) -> Tensor:
        first = self.own_terms[0]
        numbers = self.parts[0].numbering().view(first.outputs, first.inputs)
        return (numbers.T if first.transposed else numbers).flatten()

    @property
    def takes_bias(self) -> bool:
        return False

    def gradient(self, g: Tensor) -> Tensor:
        raise NotImplementedError("Tied uses have output gradients of different shapes.")

    def features_sum(self, grads: Sequence[Tensor]) -> Tensor:
        each = (part.gradient(part.join(own)) for part, own in self._split(grads))
        total = next(each)
        for gradient in each:
            total = total + gradient
        return total.reshape(*total.shape[:2], -1)

    def _split(self, grads: Sequence[Tensor]) -> list[tuple[Use, list[Tensor]]]:
        return [(part, [grads[n] for n in own]) for part, own in zip(self.parts, self.members, strict=True)]

    def written_out_cost(self, readouts: int) -> Cost:
        return written_out(self.shape.numel(), self.positions, readouts)

    def compact_cost(self, readouts: int, k: int = 0) -> Cost:
        costs = [cost for part in self.parts if (cost := part.compact_cost(readouts)) is not None]
        terms = self.own_terms
        expand = expand_operations(terms, readouts)
        return Cost(
            pair=pair_operations(terms, readouts),
            sample=0,
            floats=sum(cost.floats for cost in costs),
            product=sum(cost.product for cost in costs),
            sketch=expand + SKETCH * readouts * self.shape.numel(),
            expand=expand,
            rows=min(cost.rows for cost in costs),
        )

    def compact_sum(self, grads: Sequence[Tensor], scale: float, bias: float) -> Factor:
        assert bias == 0
        parts = tuple(part.pairs(part.join(own), scale) for part, own in self._split(grads))
        return PairsSum(parts, tuple(own.transposed for own in self.own_terms))


def _terms(use: Use) -> Terms:
    assert use.terms is not None
    return use.terms
