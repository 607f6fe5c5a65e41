"""The full kernel of all outputs, in memory: exact."""

from typing import Any

from torch import Tensor

from tangentlab.posterior._form import Displacement, Form, Scope
from tangentlab.posterior._inverse import Inverse
from tangentlab.posterior._likelihood import Curvature
from tangentlab.posterior._tangent import Tangent


class Dense(Form):
    """K as an (N O, N O) matrix in float64; M by a Cholesky factor, or by eigenvectors for many ridges.

    Cost: 16 (N O)^2 bytes (24 for many ridges), (N O)^3 / 3 operations; (N O)^2 O per new sample.
    """

    name = "exact"

    def __init__(self, tangent: Tangent, x: Any, outputs: int, kernel: Tensor | None = None) -> None:
        gram = tangent.gram(x) if kernel is None else kernel
        super().__init__(tangent, len(gram), outputs)
        self.x = x
        matrix = gram.reshape(self.samples * outputs, -1)
        self.kernel: Tensor | None = (matrix + matrix.T) / 2
        self.root: Tensor | None = None
        self.inverse: Inverse

    def weigh(self, curvature: Curvature, many: bool) -> None:
        assert self.kernel is not None
        if curvature.uniform and curvature.scale == 1:
            self.root, weighted = None, self.kernel
        else:
            self.root = curvature.root()
            weighted = self._through(self._through(self.kernel).T.contiguous())
        self.inverse = Inverse(weighted, many, self.tangent.dtype)

    def at(self, ridge: float) -> None:
        self.inverse.at(ridge)

    def _through(self, block: Tensor, transposed: bool = True) -> Tensor:
        """Multiply S^T, or S, with (N O, m)."""
        if self.root is None:
            return block
        root = self.root.mT if transposed else self.root
        return (root @ block.reshape(self.samples, self.outputs, -1)).reshape(block.shape)

    def displacement(self, right: Tensor) -> Displacement:
        assert self.kernel is not None
        b = right.reshape(-1, 1)
        if self.root is None:  # (b - H K b) / rho = H b, without cancellation
            a = self.inverse.solve(b)
        else:
            inner = self.inverse.solve(self._through(self.kernel @ b))
            a = (b - self._through(inner, transposed=False)) / self.inverse.ridge
        return self._seen(a[:, 0])

    def _seen(self, a: Tensor) -> Displacement:
        assert self.kernel is not None
        values = self.kernel @ a
        return Displacement(a, values.reshape(self.samples, self.outputs), float(a @ values))

    def combine(self, one: Displacement, two: Displacement, share: float) -> Displacement:
        return self._seen((1 - share) * one.coefficients + share * two.coefficients)

    def scale(self) -> float:
        assert self.kernel is not None
        return float(self.kernel.diagonal().mean())

    def log_determinant(self) -> float:
        return self.inverse.log_determinant()

    def new(self, x: Any, coefficients: Tensor | None, scope: Scope) -> tuple[Tensor | None, Tensor | None]:
        cross = self.tangent.gram(x, self.x)
        count, outputs = cross.shape[:2]
        flat = cross.reshape(count * outputs, -1)
        change = None if coefficients is None else (flat @ coefficients).reshape(count, outputs)
        if scope == "none":
            return change, None
        half = self.inverse.half(self._through(flat.T.contiguous()))
        if scope == "joint":
            reduced = self.tangent.gram(x).reshape(len(flat), -1) - half.T @ half
            return change, reduced.reshape(count, outputs, count, outputs)
        half = half.T.reshape(count, outputs, -1)
        return change, self.tangent.own(x).reshape(count, outputs, outputs) - half @ half.mT

    def chunk(self) -> int:
        return self.tangent.rows_at_once(3 * self.samples * self.outputs**2)

    def describe(self) -> str:
        return f"exact, full kernel of {self.samples:,} samples x {self.outputs} outputs"

    def forget(self) -> None:
        """Remove the kernel, which only another ridge, new weights and displacements need."""
        self.kernel = None
        self.inverse.forget()

    def state(self) -> dict[str, Any]:
        return {"x": self.x, "root": self.root, **self.inverse.state()}


def restore_dense(tangent: Tangent, state: dict[str, Any], samples: int, outputs: int, ridge: float) -> Dense:
    """Return the form from its state, for predictions."""
    form = Dense.__new__(Dense)
    Form.__init__(form, tangent, samples, outputs)
    form.x, form.root, form.kernel = state["x"], state["root"], None
    form.inverse = Inverse.restored({k: v for k, v in state.items() if k in ("factor", "values", "vectors")}, ridge)
    return form
