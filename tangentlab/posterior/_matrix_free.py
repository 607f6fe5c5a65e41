"""The full kernel by products alone: conjugate gradients, or the leading eigenvectors by Lanczos."""

from typing import Any

import torch
from torch import Tensor

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab.posterior._form import Displacement, Form, Scope, rows_within
from tangentlab.posterior._likelihood import Curvature
from tangentlab.posterior._tangent import Tangent


class Weighted:
    """The matrix S^T K S by its products, as a kernel source of :mod:`tangentlab.linalg`."""

    def __init__(self, operator: Any, root: Tensor, blocks: Tensor) -> None:
        self.operator, self.root, self.blocks = operator, root, blocks
        self.shape, self.dtype, self.device = operator.shape, operator.dtype, root.device

    def through(self, block: Tensor, transposed: bool) -> Tensor:
        """Multiply S^T, or S, with (N O, m)."""
        root = self.root.mT if transposed else self.root
        return (root @ block.reshape(len(root), root.shape[1], -1)).reshape(block.shape)

    def __matmul__(self, block: Tensor) -> Tensor:
        inner = self.through(block.double().reshape(len(block), -1), transposed=False)
        product = self.through((self.operator @ inner.to(self.operator.dtype)).double(), transposed=True)
        return product.reshape(block.shape)

    def diagonal(self) -> Tensor:
        """Compute the diagonal, (N O,), from the kernel of each sample with itself."""
        return torch.einsum("npo,npq,nqo->no", self.root, self.blocks, self.root).flatten()


class MatrixFree(Form):
    r"""K by products with both Jacobians (:class:`tangentlab.NTKOperator`); no (N O, N O) matrix.

    ``"cg"`` solves with rho + S^T K S to a tolerance, for the mean and for each output of each new sample: exact up to
    that tolerance, for few new samples. ``"lanczos"`` computes the r leading eigenpairs u, lambda of S^T K S once:

    .. math:: K_* M K_*^T \approx \sum_{i \le r} \frac{(K_* S u_i)(K_* S u_i)^T}{\lambda_i + \rho}

    which leaves out the information in the other directions, so that variances are never too small. Determinants of
    both take the leading eigenvalues and spread the rest of the trace evenly over the remaining directions, an upper
    bound.

    Cost: products, O N P operations each; 8 N O r bytes for the eigenvectors.
    """

    exact = False

    def __init__(self, tangent: Tangent, x: Any, outputs: int, method: str, rank: int, seed: int) -> None:
        self.operator = tangent.operator(x)
        super().__init__(tangent, self.operator.shape[0] // outputs, outputs)
        self.x, self.name, self.seed = x, method, seed
        self.rank = min(rank, self.operator.shape[0])
        self._blocks = tangent.own(x).reshape(self.samples, outputs, outputs)
        self.tolerance = 1e-10 if tangent.dtype == torch.float64 else 1e-4
        self.weighted: Weighted
        self.values: Tensor | None = None
        self.vectors: Tensor | None = None
        self._ridge = 1.0
        self._trace = 0.0
        self._plain = False

    def weigh(self, curvature: Curvature, many: bool) -> None:
        self.weighted = Weighted(self.operator, curvature.root(), self._blocks)
        self._plain = curvature.uniform and curvature.scale == 1
        self.values = self.vectors = None
        self._trace = float(self.weighted.diagonal().sum())

    def at(self, ridge: float) -> None:
        self._ridge = ridge
        if self.name == "lanczos" and self.values is None:
            self._decompose()

    def _decompose(self) -> None:
        spectrum = linalg.eigh(self.weighted, self.rank, tolerance=max(self.tolerance, 1e-6), seed=self.seed)
        self.values, self.vectors = spectrum.values.clamp(min=0), spectrum.vectors

    def _solve(self, right: Tensor) -> Tensor:
        fit = linalg.regress(
            self.weighted, right, ridge=self._ridge, method="cg", tolerance=self.tolerance, seed=self.seed
        )
        return fit.coefficients

    def displacement(self, right: Tensor) -> Displacement:
        b = right.reshape(-1, 1)
        if self._plain:  # (b - H K b) / rho = H b, without cancellation
            return self._seen(self._solve(b)[:, 0])
        image = (self.operator @ b.to(self.operator.dtype)).double()
        inner = self.weighted.through(image, transposed=True)
        moved = self.weighted.through(self._solve(inner), transposed=False)
        return self._seen(((b - moved) / self._ridge)[:, 0])

    def _seen(self, a: Tensor) -> Displacement:
        values = (self.operator @ a.to(self.operator.dtype)).double()
        return Displacement(a, values.reshape(self.samples, self.outputs), float(a @ values))

    def combine(self, one: Displacement, two: Displacement, share: float) -> Displacement:
        return self._seen((1 - share) * one.coefficients + share * two.coefficients)

    def scale(self) -> float:
        return float(self._blocks.diagonal(dim1=1, dim2=2).mean())

    def log_determinant(self) -> float:
        if self.values is None:
            self._decompose()
        assert self.values is not None
        left = self.operator.shape[0] - len(self.values)
        found = torch.log1p(self.values / self._ridge).sum()
        if left:
            rest = max(0.0, self._trace - float(self.values.sum())) / left
            found = found + left * torch.log1p(torch.tensor(rest / self._ridge, dtype=torch.float64))
        return float(found)

    def new(self, x: Any, coefficients: Tensor | None, scope: Scope) -> tuple[Tensor | None, Tensor | None]:
        cross = self.tangent.operator(x, self.x)
        rows = cross.shape[0]
        count = rows // self.outputs
        change = None
        if coefficients is not None:
            change = (cross @ coefficients.to(cross.dtype)).double().reshape(count, self.outputs)
        if scope == "none":
            return change, None
        prior = self.tangent.gram(x) if scope == "joint" else self.tangent.own(x)
        half = self._lanczos(cross) if self.name == "lanczos" else None
        if half is None:
            kernel = self._cross(cross)
            inner = self.weighted.through(kernel, transposed=True)
            solved = self._solve(inner)
            if scope == "joint":
                return change, prior - (inner.T @ solved).reshape(prior.shape)
            pair = (inner.T.reshape(count, self.outputs, -1), solved.T.reshape(count, self.outputs, -1))
            return change, prior.reshape(count, self.outputs, -1) - pair[0] @ pair[1].mT
        if scope == "joint":
            return change, prior - (half @ half.T).reshape(prior.shape)
        half = half.reshape(count, self.outputs, -1)
        return change, prior.reshape(count, self.outputs, -1) - half @ half.mT

    def _lanczos(self, cross: Any) -> Tensor:
        """Return K* S u_i / sqrt(lambda_i + rho), (M O, r)."""
        assert self.values is not None
        assert self.vectors is not None
        vectors = self.weighted.through(self.vectors, transposed=False)
        return (cross @ vectors.to(cross.dtype)).double() / (self.values + self._ridge).sqrt()

    def _cross(self, cross: Any) -> Tensor:
        """Return K(X, x), (N O, M O), by products with unit vectors."""
        unit = torch.eye(cross.shape[0], dtype=cross.dtype, device=cross.device)
        product: Tensor = cross.rmatmul(unit)
        return product.double()

    def chunk(self) -> int:
        return max(1, min(256, rows_within(4 * self.samples * self.outputs**2)))

    def describe(self) -> str:
        how = f"{self.rank:,} Lanczos directions" if self.name == "lanczos" else "conjugate gradients"
        return f"matrix-free, {how}, full kernel of {self.samples:,} samples x {self.outputs} outputs"

    def forget(self) -> None:
        """Do nothing: the operator is the kernel."""

    def state(self) -> dict[str, Any]:
        raise TangentError(
            "A matrix-free posterior cannot be saved.",
            "It holds the factors of all training samples, not a matrix.",
            'Fit with method="exact" or "sketch", or fit it again when it is needed.',
        )
