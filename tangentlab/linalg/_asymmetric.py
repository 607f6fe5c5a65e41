"""Regression with a kernel that is not symmetric."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.linalg._symmetry import as_ridge
from tangentlab.linalg._targets import as_targets


@dataclass(frozen=True)
class AsymmetricRegression:
    """A fit f(x) = f0(x) + K(x, X) a.

    Attributes:
        coefficients: a, (n,) or (n, m).
        residual: ||(K + ridge) a - (y - f0)|| / ||y - f0||.
        ridge: The ridge.
    """

    coefficients: Tensor
    residual: float
    ridge: float

    def predict(self, kernel: Any, f0: Any = 0.0) -> Tensor:
        """Compute f0(x) + K(x, X) a.

        Cost: 2 M n operations per column of the targets.

        Args:
            kernel: (M, n), rows over new points and columns over training points, in this order.
            f0: The prior mean at the new points.
        """
        matrix = _matrix(kernel)
        if matrix.shape[1] != len(self.coefficients):
            raise TangentError(
                f"The kernel has {matrix.shape[1]:,} columns, and there are {len(self.coefficients):,} coefficients.",
                why="Columns stand for training points.",
                remedy="Pass ntk(model, x_test, x_train, optimizer=...).",
            )
        return torch.as_tensor(f0) + matrix @ self.coefficients


def regress_asymmetric(kernel: Any, targets: Any, *, f0: Any = None, ridge: float = 0.0) -> AsymmetricRegression:
    r"""Fit regression with a kernel that is not symmetric: :math:`(K + \rho) a = y - f_0`, :math:`f = f_0 + K(x, X) a`.

    With K_nm = <g_n, u(g_m)>, the asymmetric kernel of an optimizer whose step on sample m is -u(g_m), the weights are
    moved by sum_m a_m u(g_m): a solution that such steps can reach, as :func:`regress` gives the one that gradient
    descent reaches. Cost: 8 n^3 / 3 operations and 32 n^2 bytes in float64, for an LU decomposition and for an inverse
    by which singular kernels are recognized.

    Args:
        kernel: (n, n), for example ``ntk(model, x, readout="pntk", optimizer="asymmetric_signgd")``, or (N, R, N, R).
        targets: y, as for :func:`regress`.
        f0: The prior mean at the training points, in the shape of ``targets``; zero by default.
        ridge: rho, added to the diagonal as it is.

    Raises:
        TangentError: The kernel is not square, or K + rho is singular up to rounding.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg, ntk
        >>> model, x = torch.nn.Linear(8, 1), torch.randn(5, 8)
        >>> kernel = ntk(model, x, readout=0, optimizer="asymmetric_signgd")
        >>> type(linalg.regress_asymmetric(kernel, torch.randn(5), ridge=0.1)).__name__
        'AsymmetricRegression'

    See also:
        :func:`tangentlab.linalg.regress`, :func:`tangentlab.ntk`.
    """
    matrix, rho = _matrix(kernel), float(as_ridge(ridge))
    n = len(matrix)
    if matrix.shape[1] != n:
        raise TangentError(
            f"The kernel is {matrix.shape[0]:,} x {matrix.shape[1]:,}, not square.",
            why="It is fitted on the training points.",
            remedy="Pass the kernel of the training points with themselves.",
        )
    outputs = kernel.shape[1] if getattr(kernel, "ndim", 2) == 4 else None
    given = as_targets(n, outputs, targets, "targets", matrix.device)
    right = given.columns
    if f0 is not None:
        right = right - as_targets(n, outputs, f0, "f0", matrix.device).columns
    shifted = matrix + rho * torch.eye(n, dtype=matrix.dtype, device=matrix.device)
    if float(torch.linalg.cond(shifted, 1)) > 1e14:
        raise TangentError(
            "The kernel is singular up to rounding.",
            why="Its regression has no unique solution.",
            remedy="Pass a ridge, for example 1e-6 of the largest entry of its diagonal.",
        )
    found = torch.linalg.solve(shifted, right)
    size = float(right.norm())
    residual = float((shifted @ found - right).norm()) / size if size else 0.0
    return AsymmetricRegression(found[:, 0] if given.single else found, residual, rho)


def _matrix(kernel: Any) -> Tensor:
    matrix = torch.as_tensor(kernel).detach().double()
    if matrix.ndim == 4:
        matrix = matrix.flatten(2).flatten(0, 1)
    if matrix.ndim != 2 or not bool(torch.isfinite(matrix).all()):
        raise TangentError(
            "The kernel is not a matrix of finite numbers.", remedy="Pass a tensor (n, n) or (N, R, N, R)."
        )
    return matrix
