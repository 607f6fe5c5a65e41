"""Comparison of the pseudo-NTK with the full eNTK: the kernels themselves (mohamadi2022, figures 2 to 6)."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab._scaling import even_exponent, number, out_of_range
from tangentlab._sums import inner, norm, times_power

_ROWS = 64
"""Samples compared at a time."""


@dataclass(frozen=True)
class Pair:
    """The value of one measure for both kernels.

    Attributes:
        entk: The value for the full kernel.
        pntk: The value for the pseudo-NTK.
    """

    entk: float
    pntk: float

    @property
    def difference(self) -> float:
        """The relative difference |pntk - entk| / |entk|."""
        if self.entk == self.pntk:
            return 0.0
        return abs(self.pntk - self.entk) / abs(self.entk) if self.entk else float("inf")


@dataclass(frozen=True)
class Agreement:
    """The eNTK (N, O, N, O) compared with pNTK (x) I_O.

    Attributes:
        off_diagonal: Mean over the N^2 pairs of samples of sum_{o != p} |Theta_op| / sum_o |Theta_oo| within their
            O x O block (figure 2; 0 for a diagonal kernel). Pairs whose diagonal is zero are left out.
        frobenius_difference: ||Theta - pNTK (x) I||_F / ||Theta||_F, the distance of Theorem 1.
        frobenius: The norms ||Theta||_F and ||pNTK (x) I||_F, whose relative difference figure 3 shows.
        lambda_max: The largest eigenvalues (figure 4).
        lambda_min: The smallest eigenvalues (figure 5).
        condition: lambda_max / lambda_min (figure 6); infinite if lambda_min is zero up to rounding.
    """

    off_diagonal: float
    frobenius_difference: float
    frobenius: Pair
    lambda_max: Pair
    lambda_min: Pair
    condition: Pair

    def to_dict(self) -> dict[str, float]:
        """Convert to a flat row for a table."""
        row = {"off_diagonal": self.off_diagonal, "frobenius_difference": self.frobenius_difference}
        for name in ("frobenius", "lambda_max", "lambda_min", "condition"):
            pair: Pair = getattr(self, name)
            row |= {f"{name}_entk": pair.entk, f"{name}_pntk": pair.pntk, f"{name}_relative": pair.difference}
        return row

    def __str__(self) -> str:
        return (
            f"off-diagonal / diagonal {self.off_diagonal:.3g}, ||eNTK - pNTK (x) I|| / ||eNTK|| "
            f"{self.frobenius_difference:.3g}, lambda_max {self.lambda_max.difference:.3g}, lambda_min "
            f"{self.lambda_min.difference:.3g}, condition {self.condition.difference:.3g} apart"
        )

    def _repr_html_(self) -> str:
        return card("eNTK against pNTK (x) I", self.to_dict())


def agreement(entk: Any, pntk: Any) -> Agreement:
    """Compare an eNTK with the pseudo-NTK that approximates it, Theta with pNTK (x) I_O (mohamadi2022, section 4).

    The paper's figure 2 shows "the ratio of information between on-diagonal and off-diagonal elements", averaged over
    all pairs of samples, and does not define it further; here it is the ratio of the sums of absolute values in a
    block. The Kronecker product is never formed: its eigenvalues are those of the pNTK, and the difference is computed
    a strip of samples at a time. Cost: a few (N O)^2 operations and the :func:`tangentlab.linalg.extremes` of the
    eNTK, about (N O)^3 / 3.

    Args:
        entk: (N, O, N, O).
        pntk: (N, N).

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> found = analysis.agreement(ntk(model, x), ntk(model, x, readout="pntk"))
        >>> type(found).__name__
        'Agreement'

    See also:
        :func:`tangentlab.analysis.regression_agreement`, :func:`tangentlab.analysis.kernel_distance`.
    """
    full, pseudo = torch.as_tensor(entk).detach(), torch.as_tensor(pntk).detach()
    _check(full, pseudo)
    ends = [linalg.extremes(kernel) for kernel in (full, pseudo)]  # refuses what is not a kernel
    sizes = float(norm(full)), float(norm(pseudo)) * full.shape[1] ** 0.5
    if not all(math.isfinite(size) for size in sizes):
        raise out_of_range("norms")
    exponent = even_exponent(max(sizes))
    distance, ratio = _entrywise(full, pseudo, exponent)
    frobenius = number(sizes[0], -exponent)
    return Agreement(
        off_diagonal=ratio,
        frobenius_difference=distance / frobenius if frobenius else 0.0 if not distance else float("inf"),
        frobenius=Pair(*sizes),
        lambda_max=Pair(*(end.largest for end in ends)),
        lambda_min=Pair(*(end.smallest for end in ends)),
        condition=Pair(*(end.condition for end in ends)),
    )


def _check(full: Tensor, pseudo: Tensor) -> None:
    fits = full.ndim == 4 and full.shape[:2] == full.shape[2:] and pseudo.shape == (full.shape[0], full.shape[0])
    if not fits:
        raise TangentError(
            f"An eNTK {tuple(full.shape)} and a pNTK {tuple(pseudo.shape)} do not go together.",
            why="They are (N, O, N, O) and (N, N) on the same samples.",
            remedy='Compute ntk(model, x, readout="full") and ntk(model, x, readout="pntk").',
        )


def _entrywise(full: Tensor, pseudo: Tensor, exponent: int) -> tuple[float, float]:
    """Compute ||Theta - pNTK (x) I||_F at 2^-exponent, and the mean ratio of off-diagonal to diagonal in the blocks.

    The diagonal of the blocks is removed instead of subtracted, so that small entries keep their digits.
    """
    squares = ratios = 0.0
    counted = 0
    for start in range(0, len(full), _ROWS):
        blocks = full[start : start + _ROWS].double().transpose(1, 2).clone()  # (rows, N, O, O)
        along = blocks.diagonal(dim1=2, dim2=3).clone()
        blocks.diagonal(dim1=2, dim2=3).zero_()
        on, off = along.abs().sum(2), blocks.abs().sum((2, 3))
        usable = on > 0
        ratios += float((off[usable] / on[usable]).sum())
        counted += int(usable.sum())
        gap = times_power(along - pseudo[start : start + _ROWS].to(along)[:, :, None], -exponent)
        blocks = times_power(blocks, -exponent)
        squares += float(inner(blocks, blocks) + inner(gap, gap))
    return squares**0.5, ratios / counted if counted else float("nan")
