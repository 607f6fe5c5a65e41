"""Jacobian factors: what is kept of a sample, and what kernel tiles are computed from."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from tangentlab.kernels._cost import Operations
from tangentlab.kernels.factors._total import Total, Workspace

if TYPE_CHECKING:
    from tangentlab.kernels._projection import Sketch


_ALIGNMENT = 64


class Factor(ABC):
    """The gradients of one group of parameters for n samples and R readouts, in some form.

    Subclasses are dataclasses; those of their fields that are tensors have the samples first. With J the gradients,
    of shape (n R, P) if they were written out, a factor gives products with J without writing it out.
    """

    g: Tensor

    @property
    def count(self) -> int:
        """The number n of samples."""
        return self.g.shape[0]

    @property
    def readouts(self) -> int:
        """The number R of readouts."""
        return self.g.shape[1]

    @property
    def product_rows(self) -> int:
        """Rows of the products of :meth:`add_gram` that a sample is: its positions, where they lie side by side."""
        return 1

    @abstractmethod
    def add_gram(self, other: Self, total: Total) -> None:
        """Add J1 J2^T to a sum of shape (n1 R1, n2 R2)."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """Return the blocks J_n J_n^T, (n, R, R)."""

    @abstractmethod
    def pull(self, v: Tensor) -> Tensor:
        """Return J^T v for m vectors: (n, R, m) to (m, P)."""

    @abstractmethod
    def push(self, u: Tensor) -> Tensor:
        """Return J u for m directions in parameter space: (m, P) to (n, R, m)."""

    @abstractmethod
    def add_sketch(self, names: Sequence[str], sketch: "Sketch") -> None:
        """Add the random projections of all gradients to a sketch.

        Args:
            names: The parameters: a weight, perhaps a bias.
            sketch: The sketch of the same samples, of all parameters.
        """

    @abstractmethod
    def merged(self) -> Self:
        """Return the factor of one readout whose kernel is the trace over the R readouts."""

    @property
    @abstractmethod
    def pair_operations(self) -> Operations | float:
        """Operations that :meth:`add_gram` takes per pair of samples."""

    @property
    @abstractmethod
    def pull_operations(self) -> float:
        """Operations that :meth:`pull` takes per sample and vector."""

    @property
    def expand_operations(self) -> Operations | float:
        """Operations per sample of writing the gradients out when they are contracted; infinite if that never pays."""
        return math.inf

    @property
    def row_count(self) -> int:
        """How many outputs :meth:`columns` runs over."""
        return self.g.shape[-1]

    @property
    def row_size(self) -> int:
        """Numbers per row of J that :meth:`columns` gives for each output."""
        return 1

    def columns(self, step: int, workspace: Workspace | None = None) -> Iterator[Tensor]:
        """Yield J written out, (n R, c), some columns at a time: those of ``step`` outputs.

        Only for factors whose :attr:`expand_operations` are finite.

        Args:
            step: How many outputs.
            workspace: Where they may be written, each over the one before; None for memory of their own.
        """
        raise NotImplementedError(f"{type(self).__name__} is never written out late.")

    def select(self, readout: int) -> Self:
        """Return the factor of one readout."""
        return replace(self, g=self.g[:, readout : readout + 1])  # type: ignore[type-var]

    def __getitem__(self, rows: slice) -> Self:
        return self.map(lambda tensor: tensor[rows])

    def allocate(self, count: int) -> Self:
        """Return room for ``count`` samples of the same form."""
        return self.map(lambda tensor: tensor.new_empty(count, *tensor.shape[1:]))

    def write(self, part: Self) -> None:
        """Copy the numbers of another factor of the same shapes."""
        for name, tensor in self.tensors().items():
            tensor.copy_(getattr(part, name))

    def shapes(self) -> dict[str, Any]:
        """Return the shapes of its tensors."""
        return {name: tensor.shape for name, tensor in self.tensors().items()}

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that make it up."""
        values = ((f.name, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]
        return {name: value for name, value in values if isinstance(value, Tensor)}

    def cast(self, dtype: torch.dtype) -> Self:
        """Return the factor in another precision; the same one if it has that precision."""
        return self if self.g.dtype == dtype else self.map(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def map(self, function: Any) -> Self:
        """Return the factor with a function applied to each of its tensors."""
        return replace(self, **{k: function(t) for k, t in self.tensors().items()})  # type: ignore[type-var]


def tidy(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy of what does not lie in order, aligned, and in memory of its own."""
    own = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()  # no part of something larger
    if own and tensor.is_contiguous() and tensor.data_ptr() % _ALIGNMENT == 0:
        return tensor.detach()
    return tensor.detach().clone(memory_format=torch.contiguous_format)
