"""The smallest and the largest eigenvalue of a kernel, without the rest of its spectrum."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._memory import available
from tangentlab.linalg._cholesky import PackedCholesky, packed_bytes
from tangentlab.linalg._eigen import SMALL, eigenvalues, eigh
from tangentlab.linalg._krylov import BlockKrylov
from tangentlab.linalg._low_rank import LowRank
from tangentlab.linalg._source import Source, as_source
from tangentlab.linalg._spectrum import Spectrum
from tangentlab.linalg._symmetry import rank_cutoff, require_positive

_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Extremes:
    """The ends of a kernel's spectrum.

    Attributes:
        smallest: The smallest eigenvalue; where that is zero up to rounding, it is rounding.
        largest: The largest.
        condition: largest / smallest; infinite where the smallest is zero up to rounding.
    """

    smallest: float
    largest: float
    condition: float


def extremes(kernel: Any, *, seed: int = 0) -> Extremes:
    r"""The smallest and the largest eigenvalue, :math:`\lambda_n` and :math:`\lambda_1`.

    The largest comes from products with blocks of vectors, the smallest as the inverse of the largest one of
    :math:`K^{-1}`, by the same method on a Cholesky factor, each to 1e-6 of itself: about n^3 / 3 operations and
    4 n^2 bytes beside the kernel, where all eigenpairs take 10 n^3 and 24 n^2. A kernel that is singular up to rounding
    has no such factor; then all eigenvalues are computed, as for small kernels and those known by their products alone.

    Args:
        kernel: A kernel source, see :mod:`tangentlab.linalg`. It is not changed.
        seed: Of the random start of the block method.

    Raises:
        TangentError: The kernel is not square, symmetric and finite, has eigenvalues below zero by more than rounding,
            or does not fit into memory.
    """
    if isinstance(kernel, LowRank):
        return ends(eigh(kernel))
    source = as_source(kernel)
    if source.readable and source.n > SMALL and packed_bytes(source.n) < available(source.device):
        try:
            found = _iterated(source, seed)
        except TangentError:  # crowded eigenvalues at an end: LAPACK does not mind them
            found = None
        if found is not None and found.condition < math.inf:
            return found
    values = eigenvalues(source)
    return _ends(float(values[0]), float(values[-1]), source.dtype, source.n)


def ends(spectrum: Spectrum) -> Extremes:
    """Those of a spectrum that is complete."""
    values = spectrum.values
    smallest = float(values[-1]) if len(values) == spectrum.n else 0.0  # features: the rest is zero
    return _ends(smallest, float(values[0]), spectrum.dtype, spectrum.n)


def _ends(smallest: float, largest: float, dtype: torch.dtype, n: int) -> Extremes:
    both = torch.tensor([largest, smallest], dtype=torch.float64)
    require_positive(both)
    return Extremes(smallest, largest, largest / smallest if smallest > rank_cutoff(both, dtype, n) else math.inf)


def _iterated(source: Source, seed: int) -> Extremes | None:
    """By block Krylov; None where there is no factor."""
    factor = PackedCholesky(source)
    if factor.failed is not None:
        return None
    largest = _leading(source, seed)
    smallest = 1 / _leading(_Inverse(source, factor), seed)
    return _ends(smallest, largest, source.dtype, source.n)


def _leading(source: Source, seed: int) -> float:
    values, _, _ = BlockKrylov(source, 1, _TOLERANCE, seed).run(lambda steps=1, note=None: None)
    return float(values[0])


class _Inverse(Source):
    """K^-1 by a factor of K."""

    def __init__(self, source: Source, factor: PackedCholesky) -> None:
        super().__init__(source.n, torch.float64, source.device)
        self.factor = factor

    def product(self, block: Tensor) -> Tensor:
        return self.factor.solve(block)

    def diagonal(self) -> Tensor:
        return self.factor.solve(torch.eye(self.n, dtype=torch.float64, device=self.device)).diagonal()
