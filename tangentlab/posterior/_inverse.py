"""The inverse of ridge + A for a dense A: by Cholesky for one ridge, by eigenvectors for many."""

import math

import torch
from torch import Tensor

from tangentlab import linalg
from tangentlab._errors import TangentError


class Inverse:
    r"""H = (\rho + A)^{-1} of a symmetric, positive semidefinite A, (n, n) in float64.

    Args:
        matrix: A. With ``many``, it is decomposed once (10 n^3 operations) and every ridge costs nothing further;
            otherwise each ridge costs a Cholesky factor (n^3 / 3).
        many: Whether several ridges will be tried.
        precision: The precision in which the entries were computed, which says what is rounding.
    """

    def __init__(self, matrix: Tensor, many: bool, precision: torch.dtype = torch.float64) -> None:
        self.n, self.ridge, self._precision = len(matrix), 1.0, precision
        self._matrix: Tensor | None = None if many else matrix
        self._factor: Tensor | None = None
        if many:
            values, self._vectors = torch.linalg.eigh(matrix)
            linalg.require_positive(values, precision=precision)
            self._values = values.clamp(min=0)

    def at(self, ridge: float) -> None:
        """Choose the ridge.

        Raises:
            TangentError: ridge + A is singular, or A is indefinite by more than rounding.
        """
        if self._matrix is None:
            assert self._factor is None or ridge == self.ridge, "the matrix was removed"
            self.ridge = ridge
            return
        self.ridge = ridge
        shifted = self._matrix.clone()
        shifted.diagonal().add_(ridge)
        factor, failed = torch.linalg.cholesky_ex(shifted)
        if int(failed):
            smallest = float(torch.linalg.eigvalsh(self._matrix)[0])
            raise TangentError(
                f"The kernel of {self.n:,} rows plus {ridge:.3g} is singular: its smallest eigenvalue is "
                f"about {smallest:.3g}.",
                "Rounding errors of the kernel are as large as what is added to its diagonal.",
                f"Use a prior precision or noise that makes it {max(-2 * smallest, 4 * ridge):.3g} or more, or "
                "dtype=torch.float64.",
            )
        self._factor = factor

    def solve(self, right: Tensor) -> Tensor:
        """Multiply H with (n, m)."""
        if self._factor is not None:
            return torch.cholesky_solve(right, self._factor)
        return self._vectors @ ((self._vectors.T @ right) / (self._values + self.ridge)[:, None])

    def half(self, right: Tensor) -> Tensor:
        """Return T, (n, m), with T^T T = right^T H right."""
        if self._factor is not None:
            return torch.linalg.solve_triangular(self._factor, right, upper=False)
        return (self._vectors.T @ right) / (self._values + self.ridge).sqrt()[:, None]

    def rest(self, half: Tensor) -> Tensor:
        """Return H right from T = half(right)."""
        if self._factor is not None:
            return torch.linalg.solve_triangular(self._factor.T, half, upper=True)
        return self._vectors @ (half / (self._values + self.ridge).sqrt()[:, None])

    def whole(self) -> Tensor:
        """Return H; 2 n^3 / 3 operations after a Cholesky factor."""
        if self._factor is not None:
            return torch.cholesky_inverse(self._factor)
        return (self._vectors / (self._values + self.ridge)) @ self._vectors.T

    def log_determinant(self) -> float:
        """Compute log det(1 + A / ridge)."""
        if self._factor is not None:
            return 2 * float(self._factor.diagonal().log().sum()) - self.n * math.log(self.ridge)
        return float(torch.log1p(self._values / self.ridge).sum())

    def forget(self) -> None:
        """Remove the matrix, which only another ridge needs."""
        self._matrix = None

    def state(self) -> dict[str, Tensor]:
        """Return what :meth:`restored` needs."""
        if self._factor is not None:
            return {"factor": self._factor}
        return {"values": self._values, "vectors": self._vectors}

    @classmethod
    def restored(cls, state: dict[str, Tensor], ridge: float) -> "Inverse":
        """Return an inverse from its state, at one ridge if it is a Cholesky factor."""
        self = cls.__new__(cls)
        self.n, self.ridge, self._precision, self._matrix = len(next(iter(state.values()))), ridge, torch.float64, None
        self._factor = state.get("factor")
        if self._factor is None:
            self._values, self._vectors = state["values"], state["vectors"]
        return self
