"""A use: how one operation turns the gradient of its output into that of one of its parameters, sample by sample.

Every tensor here has been split by sample: activations are (B, *shape), gradients of the R readouts with respect to the
operation's output are (B, R, *shape), with ``shape`` as for a batch of one.

A family of operations is a subclass of :class:`Use`, the rules that make it, and, where its gradients have a compact
form, a :class:`~tangentlab.kernels.factors.Factor` of its own. Together they own everything about the family: gradient,
costs, compact form, products, sketch. Nothing else in the engine knows which families there are.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor

from tangentlab.kernels._cost import Cost, written_out
from tangentlab.kernels._layout import Layout
from tangentlab.kernels.factors import Factor, Pairs, Terms


class Use(ABC):
    """One parameter at one operation.

    Attributes:
        shape: The parameter's shape.
    """

    shape: torch.Size

    @abstractmethod
    def gradient(self, g: Tensor) -> Tensor:
        """Return per-sample gradients (B, R, *shape) of the parameter from those of the output (B, R, *)."""

    def __getitem__(self, rows: slice) -> Self:
        """Return the use of some samples."""
        return self.map(lambda tensor: tensor[rows])

    def outline(self) -> Self:
        """Return the use without its numbers, for costs, which depend on shapes alone."""
        return self.map(lambda tensor: tensor.to("meta"))

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Return the use with a function applied to each of its tensors, which have the samples first."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]
        changed = {name: function(value) for name, value in values if isinstance(value, Tensor)}
        return replace(self, **changed)  # type: ignore[type-var]

    def features(self, g: Tensor) -> Tensor:
        """Return the same gradients as (B, R, P), their entries in any fixed order that is cheap to produce."""
        return self.gradient(g).reshape(*g.shape[:2], -1)

    @staticmethod
    def merge(uses: Sequence["Use"]) -> "Use | None":
        """Return several uses of one parameter as one, or None where only their gradients can be added."""
        return uses[0] if len(uses) == 1 else None

    def join(self, grads: Sequence[Tensor]) -> Tensor:
        """Return what :meth:`gradient` takes for a merged use, from the output gradients of its parts."""
        return grads[0]

    def narrowed(self) -> "tuple[Tensor, Use] | None":
        """Return the few rows of the parameter that the samples use, and their use of a parameter of these rows alone.

        None where all rows are used.
        """
        return None

    @property
    def positions(self) -> int:
        """Terms of the sum over a sample's positions that an entry of the gradient is."""
        return 1

    @property
    def order(self) -> Hashable:
        """The order of a compact factor's entries; factors of equal orders number the gradient's entries alike."""
        return None

    def numbering(self) -> Tensor:
        """Return which entry of the parameter each entry of a compact factor's gradient is, (P,)."""
        return torch.arange(self.shape.numel())

    @property
    def kind(self) -> Hashable:
        """What two compact factors must have in common to be contracted with each other."""
        return type(self), self.positions == 1

    @property
    def is_bias(self) -> bool:
        """Whether the gradient is the sum of the output gradients over the positions of a sample.

        A compact factor of a weight takes such a parameter in, as the weight of a constant input.
        """
        return False

    @property
    def takes_bias(self) -> bool:
        """Whether a compact factor takes such a parameter in."""
        return True

    def written_out_cost(self, readouts: int) -> Cost:
        """Return the cost of gradients written out."""
        return written_out(math.prod(self.shape), self.positions, readouts)

    def compact_cost(self, readouts: int, k: int = 0) -> Cost | None:
        """Return the cost of the compact form, with sketches of length ``k``; None where there is no such form."""
        return None

    def compact(self, g: Tensor, scale: float, bias: float) -> Factor:
        """Return the gradients in compact form; only for uses whose :meth:`compact_cost` is not None.

        Args:
            g: Output gradients, (B, R, *).
            scale: What gradients are multiplied with.
            bias: The constant input of a bias that shares the output gradients (0 for none).
        """
        raise NotImplementedError(f"{type(self).__name__} has no compact form.")

    def compact_sum(self, grads: Sequence[Tensor], scale: float, bias: float) -> Factor:
        """Return the compact form of a merged use, from the output gradients of its parts; see :meth:`compact`."""
        return self.compact(self.join(grads), scale, bias)

    def features_sum(self, grads: Sequence[Tensor]) -> Tensor:
        """Return :meth:`features` of a merged use, from the output gradients of its parts."""
        return self.features(self.join(grads))

    @property
    def terms(self) -> Terms | None:
        """The outer products that make up the gradient of a sample; None where there are none.

        Uses that have them can be summed, whatever their families; see :class:`~.rules._tied.Tied`.
        """
        return None

    def pairs(self, g: Tensor, scale: float) -> Pairs:
        """Return these outer products, also where there is one; only for uses whose :attr:`terms` are not None."""
        raise NotImplementedError(f"{type(self).__name__} has no outer products.")

    def of_transpose(self) -> "Use | None":
        """Return the same use as one of W, if this is one of W^T; None where that is not known."""
        return None


@dataclass(frozen=True)
class Call:
    """A call of an operation: its output, and where the samples lie in it.

    Attributes:
        output: The output.
        layout: Its layout.
        batch: B.
        tracked: The ``id`` of every tensor that is made of parameters alone.
    """

    output: Tensor
    layout: Layout
    batch: int
    tracked: Container[int]

    def tracks(self, value: object) -> bool:
        """Return whether an operand is made of parameters alone, so that its use is needed."""
        return id(value) in self.tracked

    def split(self, tensor: Tensor) -> Tensor:
        """Split by sample a tensor that has its samples where the output has them."""
        return self.layout.split(tensor.detach(), self.batch)


Uses = list[tuple[Tensor, Use]]
"""What a rule returns: each tensor that may be a parameter, with its use."""
