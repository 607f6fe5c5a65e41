"""A fitted kernel regression, and how its inputs are laid out."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab.linalg._source import Source


@dataclass(frozen=True, eq=False)
class Regression:
    """Kernel regression with prior mean f0: f(x) = f0(x) + K(x, X) a with (K + ridge) a = y - f0.

    Without ridge, u = J^T a is the minimum-norm solution of y - f0 = J u (its least-squares one where none exists), and
    f is the linearized network with weights theta0 + u.

    Attributes:
        coefficients: a, (n, R), float64.
        ridge: What was added to the diagonal.
        method: How it was solved.
        rank: Directions of the kernel that were used: n, or fewer where the kernel is singular.
        residual: Largest ||(K + ridge) a - (y - f0)|| / ||y - f0|| over the columns. For a singular kernel the
            part of the targets that no weights can reach.
        norm: ||u|| = sqrt(a^T K a) of each column, (R,): the distance that the weights move.
    """

    coefficients: Tensor
    ridge: float
    method: str
    rank: int
    residual: float
    norm: Tensor
    _trailing: tuple[int, ...] = field(repr=False)
    _outputs: int | None = field(repr=False)
    _prior: bool = field(default=False, repr=False)

    def predict(self, cross: Any, f0: Any = None) -> Tensor:
        """Predictions at m new points.

        Args:
            cross: K(x_new, X): (m, n), or (m, L, N, L) for a full kernel; a tensor, an array or anything with ``@``.
            f0: The prior mean at the new points, in the shape of the predictions, or a number for all of them. Needed
                where the fit has one; 0 then gives the difference from it.

        Returns:
            (m,) or (m, R) as the targets were, float64.

        Raises:
            TangentError: Shapes do not fit, or the prior mean is missing.
        """
        if f0 is None and self._prior:
            raise TangentError(
                "The fit has a prior mean f0 and the new points have none.",
                why="Without it the predictions would only be the difference from the network's outputs.",
                remedy="Give f0=network(x_new); f0=0 for the difference.",
            )
        cross = self._rows(cross)
        a = self.coefficients
        values = cross.to(a) @ a if isinstance(cross, Tensor) else cross @ a.to(cross.dtype)
        values = torch.as_tensor(values).to(a).reshape(-1, *self._trailing)
        if f0 is None:
            return values
        start = torch.as_tensor(f0).detach().to(values)
        if start.ndim and start.shape != values.shape:
            raise TangentError(
                f"f0 is {tuple(start.shape)} and the predictions {tuple(values.shape)}.", remedy="Give both alike."
            )
        return start + values

    def _rows(self, cross: Any) -> Any:
        """The kernel of new points as a tensor (m, n), or as an operator of that shape; checked."""
        n = len(self.coefficients)
        if hasattr(cross, "__array__") or not hasattr(cross, "__matmul__"):
            cross = torch.as_tensor(cross).detach()
        if isinstance(cross, Tensor) and cross.ndim == 4:
            cross = cross.reshape(cross.shape[0] * cross.shape[1], -1)
        if len(cross.shape) != 2 or cross.shape[1] != n:
            raise TangentError(
                f"The kernel of new points has the shape {tuple(cross.shape)}.",
                why=f"It must have {n:,} columns, one for each training point (and output).",
                remedy="Give K(x_new, x_train), new points first.",
            )
        if self._outputs and cross.shape[0] % self._outputs:
            raise TangentError(
                f"The kernel of new points has {cross.shape[0]} rows.",
                why=f"Every point has {self._outputs} outputs.",
                remedy="Give (m, L, N, L), or (m L, N L).",
            )
        return cross

    def __repr__(self) -> str:
        n, columns = self.coefficients.shape
        return (
            f"Regression({n:,} points, {columns} right-hand sides, ridge {self.ridge:.3g}, {self.method}, "
            f"rank {self.rank:,}, residual {self.residual:.2g})"
        )

    def _repr_html_(self) -> str:
        facts = {
            "points": len(self.coefficients),
            "right-hand sides": self.coefficients.shape[1],
            "ridge": self.ridge,
            "method": self.method,
            "rank": self.rank,
            "residual": self.residual,
        }
        return card("Regression", facts)


@dataclass(frozen=True)
class Targets:
    """y - f0 as columns, and the way back to the user's shape."""

    columns: Tensor
    trailing: tuple[int, ...]
    outputs: int | None
    prior: bool


def as_columns(source: Source, targets: Any, f0: Any) -> Targets:
    """The right-hand sides (n, R) in float64 from targets (N,), (N, R), or (N, L) for a kernel of N L rows."""
    refuse_class_numbers(targets)
    y = torch.as_tensor(targets).detach().to(dtype=torch.float64, device=source.device)
    start = torch.zeros_like(y) if f0 is None else torch.as_tensor(f0).detach().to(y)
    if start.shape != y.shape:
        raise TangentError(
            f"f0 {tuple(start.shape)} and targets {tuple(y.shape)} differ in shape.", remedy="Give both alike."
        )
    gap = y - start
    if not bool(torch.isfinite(gap).all()):
        raise TangentError("The targets or f0 are not finite.", remedy="Look where NaN comes from.")
    flat = source.outputs is not None or (y.ndim == 2 and len(y) != source.n)
    fits = y.ndim in (1, 2) and (y.numel() if flat else len(y)) == source.n
    if not fits or (source.outputs is not None and (y.ndim != 2 or y.shape[1] != source.outputs)):
        raise TangentError(
            f"Targets {tuple(y.shape)} do not fit a kernel of {source.n:,} rows"
            + (f" ({source.outputs} outputs)." if source.outputs else "."),
            why="Targets are (N,) or (N, R) for a kernel (N, N), and (N, L) for (N, L, N, L) or (N L, N L).",
            remedy=f"Reshape the targets to (N, {source.outputs})."
            if source.outputs is not None and y.numel() == source.n
            else f"Give the targets of the kernel's own {source.n:,} points."
            if source.outputs is None
            else f"Give (N, {source.outputs}) for N = {source.n // source.outputs:,} points.",
        )
    outputs = y.shape[1] if flat else None
    return Targets(gap.reshape(source.n, -1), tuple(y.shape[1:]), outputs, f0 is not None)


def refuse_class_numbers(targets: Any) -> None:
    """Refuses (N,) integers of more than two values: fitted as numbers, class 9 would be nine times class 1."""
    y = torch.as_tensor(targets)
    if y.ndim != 1 or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        return
    classes = len(torch.unique(y))
    if classes > 2:
        raise TangentError(
            f"The targets are integers of {classes} values.",
            why="They look like class numbers, and would be fitted as quantities.",
            remedy="Use torch.nn.functional.one_hot(y).double() for classes, y.double() for quantities.",
        )
