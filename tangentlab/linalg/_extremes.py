"""The smallest and the largest eigenvalue of a kernel, without the rest of its spectrum."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._memory import available
from tangentlab._scaling import restored
from tangentlab.linalg._cholesky import PackedCholesky, packed_bytes
from tangentlab.linalg._eigen import SMALL, decompose, eigenvalues
from tangentlab.linalg._forms import Features, as_source
from tangentlab.linalg._krylov import BlockKrylov
from tangentlab.linalg._source import Source
from tangentlab.linalg._spectrum import Spectrum
from tangentlab.linalg._symmetry import rank_cutoff, require_positive

_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Extremes:
    """The ends of a kernel's spectrum.

    Attributes:
        smallest: The smallest eigenvalue; mere rounding error if the kernel is singular.
        largest: The largest eigenvalue.
        condition: largest / smallest; infinite if the smallest is zero up to rounding.
    """

    smallest: float
    largest: float
    condition: float


def extremes(kernel: Any, *, seed: int = 0) -> Extremes:
    r"""Compute the smallest and the largest eigenvalue, :math:`\lambda_n` and :math:`\lambda_1`.

    The largest is computed from products with blocks of vectors, the smallest as the inverse of the largest one of
    :math:`K^{-1}`, by the same method on a Cholesky factor, each to a relative error of 1e-6. A kernel that is singular
    up to rounding has no such factor; then all eigenvalues are computed, as for small and for matrix-free kernels.

    Cost: about n^3 / 3 operations and 4 n^2 bytes in addition to the kernel; 4 n^3 / 3 and 16 n^2 for all eigenvalues.

    Args:
        kernel: A kernel source, see :mod:`tangentlab.linalg`. It is not changed.
        seed: The seed of the block method's random start.

    Raises:
        TangentError: The kernel is not square, symmetric and finite, has eigenvalues below zero by more than rounding,
            or does not fit into memory.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> found = linalg.extremes(kernel)
        >>> type(found).__name__
        'Extremes'

    See also:
        :func:`tangentlab.linalg.eigh`, :func:`tangentlab.linalg.condition_number`.
    """
    source = as_source(kernel).unit()
    if isinstance(source, Features):
        return _scaled(ends(decompose(source), source.exponent), source.exponent)
    if source.readable and source.n > SMALL and packed_bytes(source.n) < available(source.device):
        try:
            found = _iterated(source, seed)
        except TangentError:  # clustered eigenvalues at an end, which LAPACK can handle
            found = None
        if found is not None and found.condition < math.inf:
            return _scaled(found, source.exponent)
    values = eigenvalues(source)
    found = _ends(float(values[0]), float(values[-1]), source.precision, source.n, source.exponent)
    return _scaled(found, source.exponent)


def _scaled(found: Extremes, exponent: int) -> Extremes:
    """Scale extremes to those of 2^exponent K."""
    both = torch.tensor([found.smallest, found.largest], dtype=torch.float64)
    smallest, largest = restored(both, [exponent, exponent] if found.condition < math.inf else exponent, "eigenvalues")
    return Extremes(float(smallest), float(largest), found.condition)


def ends(spectrum: Spectrum, exponent: int = 0) -> Extremes:
    """Take the extremes of a complete spectrum; ``exponent`` as for :func:`require_positive`."""
    values = spectrum.values
    smallest = float(values[-1]) if len(values) == spectrum.n else 0.0  # features: the rest is zero
    return _ends(smallest, float(values[0]), spectrum.dtype, spectrum.n, exponent)


def _ends(smallest: float, largest: float, precision: torch.dtype, n: int, exponent: int = 0) -> Extremes:
    both = torch.tensor([largest, smallest], dtype=torch.float64)
    require_positive(both, precision=precision, exponent=exponent, n=n)
    return Extremes(smallest, largest, largest / smallest if smallest > rank_cutoff(both, precision, n) else math.inf)


def _iterated(source: Source, seed: int) -> Extremes | None:
    """Compute the extremes by block Krylov; return None if there is no factor."""
    factor = PackedCholesky(source)
    if factor.failed is not None:
        return None
    largest = _leading(source, seed)
    smallest = 1 / _leading(_Inverse(source, factor), seed)
    return _ends(smallest, largest, source.precision, source.n, source.exponent)


def _leading(source: Source, seed: int) -> float:
    values, _, _ = BlockKrylov(source, 1, _TOLERANCE, seed).run(lambda steps=1, note=None: None)
    return float(values[0])


class _Inverse(Source):
    """The operator K^-1 by a factor of K."""

    def __init__(self, source: Source, factor: PackedCholesky) -> None:
        super().__init__(source.n, torch.float64, source.device)
        self.factor = factor

    def product(self, block: Tensor) -> Tensor:
        return self.factor.solve(block)

    def diagonal(self) -> Tensor:
        return self.factor.solve(torch.eye(self.n, dtype=torch.float64, device=self.device)).diagonal()
