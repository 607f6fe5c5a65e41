"""The sketched kernel: a posterior over k numbers instead of all weights."""

from typing import Any

import torch
from torch import Tensor

from tangentlab.posterior._form import Displacement, Form, Scope, rows_within
from tangentlab.posterior._inverse import Inverse
from tangentlab.posterior._likelihood import Curvature
from tangentlab.posterior._tangent import Tangent


class Features(Form):
    r"""K = F F^T with k features per output, from random projections of the gradients (:func:`tangentlab.sketch`).

    The posterior of the k coefficients w of f = f0 + F w has the precision rho + A:

    .. math:: A = \sum_n F_n^T W_n F_n, \qquad K_{**} - K_* M K_*^T = \rho\, F_* (\rho + A)^{-1} F_*^T, \qquad
        w = (\rho + A)^{-1} F^T b

    Cost: 4 N O k bytes for the features, 2 N O k^2 operations, k^3; k^2 O per new sample. N is not limited by memory
    for pairs of samples.
    """

    name = "sketch"
    exact = False

    def __init__(self, tangent: Tangent, x: Any, outputs: int, k: int, seed: int) -> None:
        kernel = tangent.sketch(x, k, seed)
        super().__init__(tangent, len(kernel.features) // outputs, outputs)
        self.k, self.seed = k, seed
        self.features: Tensor | None = kernel.features.reshape(self.samples, outputs, k)
        self._maps: Any = kernel.maps
        self.inverse: Inverse

    def weigh(self, curvature: Curvature, many: bool) -> None:
        assert self.features is not None
        root = curvature.root()
        total = torch.zeros(self.k, self.k, dtype=torch.float64, device=root.device)
        step = rows_within(self.outputs * self.k)
        for features, roots in zip(self.features.split(step), root.split(step), strict=True):
            weighted = (roots.mT @ features.double()).flatten(0, 1)
            total.addmm_(weighted.T, weighted)
        self.inverse = Inverse(total, many)

    def at(self, ridge: float) -> None:
        self.inverse.at(ridge)

    def displacement(self, right: Tensor) -> Displacement:
        assert self.features is not None
        total = torch.zeros(self.k, dtype=torch.float64, device=right.device)
        step = rows_within(self.outputs * self.k)
        for features, b in zip(self.features.split(step), right.split(step), strict=True):
            total += features.double().flatten(0, 1).T @ b.flatten()
        return self._seen(self.inverse.solve(total[:, None])[:, 0])

    def _seen(self, w: Tensor) -> Displacement:
        assert self.features is not None
        parts = [part.double() @ w for part in self.features.split(rows_within(self.outputs * self.k))]
        return Displacement(w, torch.cat(parts), float(w @ w))

    def combine(self, one: Displacement, two: Displacement, share: float) -> Displacement:
        return self._seen((1 - share) * one.coefficients + share * two.coefficients)

    def scale(self) -> float:
        assert self.features is not None
        return float(self.features.double().square().sum(2).mean())

    def log_determinant(self) -> float:
        return self.inverse.log_determinant()

    def new(self, x: Any, coefficients: Tensor | None, scope: Scope) -> tuple[Tensor | None, Tensor | None]:
        features = self.tangent.sketch(x, self.k, self.seed).features.double().reshape(-1, self.outputs, self.k)
        change = None if coefficients is None else features @ coefficients
        if scope == "none":
            return change, None
        half = self.inverse.half(features.flatten(0, 1).T).T * self.inverse.ridge**0.5
        if scope == "joint":
            return change, (half @ half.T).reshape(2 * (len(features), self.outputs))
        half = half.reshape(features.shape[0], self.outputs, -1)
        return change, half @ half.mT

    def chunk(self) -> int:
        return rows_within(3 * self.k * self.outputs)

    def describe(self) -> str:
        return f"sketched, {self.k:,} features, {self.samples:,} samples x {self.outputs} outputs"

    def forget(self) -> None:
        """Remove the features, which only another ridge, new weights and displacements need."""
        self.features = None
        self.inverse.forget()

    def state(self) -> dict[str, Any]:
        return {"k": self.k, "seed": self.seed, **self.inverse.state()}


def restore_features(tangent: Tangent, state: dict[str, Any], samples: int, outputs: int, ridge: float) -> Features:
    """Return the form from its state, for predictions."""
    form = Features.__new__(Features)
    Form.__init__(form, tangent, samples, outputs)
    form.k, form.seed, form.features, form._maps = state["k"], state["seed"], None, ()
    form.inverse = Inverse.restored({k: v for k, v in state.items() if k in ("factor", "values", "vectors")}, ridge)
    return form
