"""The result of an eigendecomposition, with its accuracy."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tangentlab._html import card
from tangentlab._scaling import restored
from tangentlab._sums import times_power


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenpairs of a kernel, the largest eigenvalue first.

    Attributes:
        values: lambda, (k,), float64, descending.
        vectors: (n, k), float64, orthonormal columns. A column's sign is arbitrary, and so is the basis of the space of
            a repeated eigenvalue.
        residuals: ||K u - lambda u|| of each pair, (k,): the kernel has an eigenvalue within this distance of lambda.
        n: The size of the kernel; if k = n, these are all eigenpairs.
        dtype: The precision of the kernel's entries, not of these tensors.
        method: ``"LAPACK"``, ``"block Krylov"`` or ``"features"``.
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    n: int
    dtype: torch.dtype
    method: str

    @property
    def complete(self) -> bool:
        """Whether these are all eigenpairs, or the others are known to be zero."""
        return len(self.values) == self.n or self.method == "features"

    def scaled(self, exponent: int) -> "Spectrum":
        """Scale to the spectrum of 2^exponent K.

        Raises:
            TangentError: The eigenvalues are out of the range of float64.
        """
        values = restored(self.values, exponent, "eigenvalues")
        return replace(self, values=values, residuals=times_power(self.residuals, exponent))

    def to_pandas(self) -> Any:
        """Return a table of eigenvalues and residuals with one row per pair, counted from 1 as in the papers."""
        import pandas as pd

        index = pd.RangeIndex(1, len(self.values) + 1, name="j")
        columns = {"eigenvalue": self.values.cpu().numpy(), "residual": self.residuals.cpu().numpy()}
        return pd.DataFrame(columns, index=index)

    def __repr__(self) -> str:
        first, last = float(self.values[0]), float(self.values[-1])
        worst = float(self.residuals.max())
        return (
            f"Spectrum({len(self.values):,} of {self.n:,} eigenpairs, {first:.6g} to {last:.6g}, "
            f"largest residual {worst:.2g}, {self.method})"
        )

    def _repr_html_(self) -> str:
        facts = {
            "eigenpairs": f"{len(self.values):,} of {self.n:,}",
            "largest residual": float(self.residuals.max()),
            "method": self.method,
        }
        return card("Spectrum", facts, self.to_pandas().head(10).to_html(float_format="%.6g"))
