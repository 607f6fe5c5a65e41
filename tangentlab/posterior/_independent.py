"""One kernel per output, or one for all: outputs are coupled by the likelihood alone."""

from typing import Any

import torch
from torch import Tensor

from tangentlab.posterior._form import Displacement, Form, Scope
from tangentlab.posterior._inverse import Inverse
from tangentlab.posterior._likelihood import Curvature
from tangentlab.posterior._tangent import Tangent


class Independent(Form):
    r"""K = diag(K_1, ..., K_O) with (N, N) blocks: the pNTK for every output, or each output's own kernel.

    With W = D - D R R^T D / s, R the (N O, N) matrix that adds up the outputs of a sample (Rasmussen and Williams 2006,
    section 3.5):

    .. math:: E_c = D_c^{1/2} (\rho + D_c^{1/2} K_c D_c^{1/2})^{-1} D_c^{1/2}, \qquad G = \sum_c E_c, \qquad
        M = E - E R\, G^{-1} R^T E

    .. math:: \det(1 + W K / \rho) = \det(\rho G / s) \prod_c \det(1 + D_c^{1/2} K_c D_c^{1/2} / \rho)

    which is O + 1 factors of size N instead of one of size N O. Cost: 16 (O + 2) N^2 bytes and (O + 1/3) N^3
    operations per ridge; 3 O N^2 per new sample.
    """

    name = "exact"

    def __init__(self, tangent: Tangent, x: Any, outputs: int) -> None:
        gram = tangent.gram(x)
        super().__init__(tangent, gram.shape[-1], outputs)
        self.x, self.shared = x, gram.ndim == 2
        kernels = gram.reshape(-1, self.samples, self.samples)
        self.kernels: Tensor | None = (kernels + kernels.mT) / 2
        self.roots: Tensor
        self.inverses: list[Inverse]
        self.coupling: Tensor | None = None
        self._coupled = False
        self._scale = 1.0

    def _kernel(self, output: int) -> Tensor:
        assert self.kernels is not None
        return self.kernels[0 if self.shared else output]

    def weigh(self, curvature: Curvature, many: bool) -> None:
        self.roots, self._coupled, self._scale = curvature.diagonal.T.sqrt(), curvature.coupled, curvature.scale
        alike = self.shared and curvature.uniform  # one factor serves all outputs
        many = many and not curvature.coupled  # with coupling, every ridge needs factors anyway
        self.inverses = []
        for output in range(self.outputs):
            if alike and output:
                self.inverses.append(self.inverses[0])
                continue
            root = self.roots[output]
            weighted = root[:, None] * self._kernel(output) * root
            self.inverses.append(Inverse(weighted, many, self.tangent.dtype))

    def at(self, ridge: float) -> None:
        for inverse in {id(one): one for one in self.inverses}.values():
            inverse.at(ridge)
        if not self._coupled:
            self.coupling = None
            return
        total = torch.zeros(self.samples, self.samples, dtype=torch.float64, device=self.roots.device)
        for root, inverse in zip(self.roots, self.inverses, strict=True):
            total += root[:, None] * inverse.whole() * root
        # Adding the outputs of saturated samples leaves eigenvalues at the size of rounding.
        total.diagonal().add_(1e-14 * float(total.diagonal().max()))
        self.coupling, failed = torch.linalg.cholesky_ex(total)
        if int(failed):  # rounding of the inverses: their roots cost four times as much, but cannot be indefinite
            total.zero_()
            for root, inverse in zip(self.roots, self.inverses, strict=True):
                half = inverse.half(torch.diag(root))
                total.addmm_(half.T, half)
            total.diagonal().add_(1e-14 * float(total.diagonal().max()))
            self.coupling = torch.linalg.cholesky(total)

    @property
    def ridge(self) -> float:
        """rho."""
        return self.inverses[0].ridge

    def _inner(self, output: int, block: Tensor) -> Tensor:
        """Multiply E_c with (N, m)."""
        root = self.roots[output][:, None]
        return root * self.inverses[output].solve(root * block)

    def displacement(self, right: Tensor) -> Displacement:
        if not self._coupled and self._scale == 1 and bool((self.roots == 1).all()):
            columns = [self.inverses[c].solve(right[:, c, None])[:, 0] for c in range(self.outputs)]
            return self._seen(torch.stack(columns, 1))
        inner = [self._inner(c, self._kernel(c) @ right[:, c, None]) for c in range(self.outputs)]
        moved = torch.cat(inner, 1)
        if self.coupling is not None:
            shared = torch.cholesky_solve(moved.sum(1, keepdim=True), self.coupling)
            moved = moved - torch.cat([self._inner(c, shared) for c in range(self.outputs)], 1)
        return self._seen((right - moved) / self.ridge)

    def _seen(self, a: Tensor) -> Displacement:
        values = torch.stack([self._kernel(c) @ a[:, c] for c in range(self.outputs)], 1)
        return Displacement(a, values, float((a * values).sum()))

    def combine(self, one: Displacement, two: Displacement, share: float) -> Displacement:
        return self._seen((1 - share) * one.coefficients + share * two.coefficients)

    def scale(self) -> float:
        assert self.kernels is not None
        return float(self.kernels.diagonal(dim1=1, dim2=2).mean())

    def log_determinant(self) -> float:
        found = sum(inverse.log_determinant() for inverse in self.inverses)
        if self.coupling is not None:
            scale = torch.tensor(self.ridge / self._scale, dtype=torch.float64)
            found += 2 * float(self.coupling.diagonal().log().sum()) + self.samples * float(scale.log())
        return found

    def new(self, x: Any, coefficients: Tensor | None, scope: Scope) -> tuple[Tensor | None, Tensor | None]:
        cross = self.tangent.gram(x, self.x)
        cross = cross.expand(self.outputs, *cross.shape) if self.shared else cross
        count = cross.shape[1]
        change = None if coefficients is None else torch.einsum("omn,no->mo", cross, coefficients)
        if scope == "none":
            return change, None
        joint = scope == "joint"
        prior = self.tangent.gram(x) if joint else self.tangent.own(x)
        prior = prior.expand(self.outputs, *prior.shape) if self.shared else prior
        shape = (self.outputs, self.outputs, count, *([count] if joint else []))
        reduced = torch.zeros(shape, dtype=torch.float64, device=cross.device)
        shared: list[Tensor] = []
        for c in range(self.outputs):
            weighted = self.roots[c][:, None] * cross[c].T
            half = self.inverses[c].half(weighted)
            reduced[c, c] = prior[c] - (half.T @ half if joint else half.square().sum(0))
            if self.coupling is not None:
                inner = self.roots[c][:, None] * self.inverses[c].rest(half)
                shared.append(torch.linalg.solve_triangular(self.coupling, inner, upper=False))
        if shared:
            stacked = torch.stack(shared)  # (O, N, M)
            reduced += torch.einsum("cnm,dnk->cdmk" if joint else "cnm,dnm->cdm", stacked, stacked)
        return change, reduced.permute(2, 0, 3, 1) if joint else reduced.permute(2, 0, 1)

    def chunk(self) -> int:
        return self.tangent.rows_at_once(3 * self.samples * self.outputs)

    def describe(self) -> str:
        kind = "pNTK for every output" if self.shared else "kernel of each output"
        return f"exact, {kind}, {self.samples:,} samples x {self.outputs} outputs"

    def forget(self) -> None:
        """Remove the kernels, which only other ridges, new weights and displacements need."""
        self.kernels = None
        for inverse in self.inverses:
            inverse.forget()

    def state(self) -> dict[str, Any]:
        return {
            "x": self.x,
            "shared": self.shared,
            "roots": self.roots,
            "coupling": self.coupling,
            "scale": self._scale,
            "inverses": [inverse.state() for inverse in self.inverses],
        }


def restore_independent(
    tangent: Tangent, state: dict[str, Any], samples: int, outputs: int, ridge: float
) -> Independent:
    """Return the form from its state, for predictions."""
    form = Independent.__new__(Independent)
    Form.__init__(form, tangent, samples, outputs)
    form.x, form.shared, form.kernels = state["x"], state["shared"], None
    form.roots, form.coupling, form._scale = state["roots"], state["coupling"], state["scale"]
    form._coupled = form.coupling is not None
    form.inverses = [Inverse.restored(one, ridge) for one in state["inverses"]]
    return form
