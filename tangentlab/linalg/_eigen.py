"""Eigenpairs of a kernel: all of them by LAPACK, the leading ones by a block method."""

from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._memory import available, show_bytes
from tangentlab._progress import progress_bar
from tangentlab.linalg._forms import Features, as_source
from tangentlab.linalg._krylov import BlockKrylov
from tangentlab.linalg._source import Source
from tangentlab.linalg._spectrum import Spectrum
from tangentlab.linalg._symmetry import spans

SMALL = 1024
"""Kernels up to this size are decomposed completely, even for a few pairs."""


def eigh(
    kernel: Any,
    k: int | None = None,
    *,
    tolerance: float | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Spectrum:
    r"""Compute all eigenpairs, or the k largest: :math:`K u_j = \lambda_j u_j`, :math:`\lambda_1 \ge \lambda_2 ...`

    Cost: LAPACK in float64 computes all pairs (``k=None``), pairs of a small kernel, and more than a quarter of the
    pairs, in about 10 n^3 operations and 24 n^2 bytes. The leading k of a large kernel need only products with blocks
    of vectors, about 4 n^2 k operations if the spectrum decays, and 40 n k bytes; the kernel may be on disk or
    matrix-free. A :class:`LowRank` is decomposed through its features, in n k^2 operations.

    Every residual is computed, and one above the tolerance is refused. A random search checks that no eigenvalue larger
    than the last one was missed, which makes it nearly certain.

    Args:
        kernel: A kernel source, see :mod:`tangentlab.linalg`. It is not changed.
        k: The number of pairs; None for all.
        tolerance: The tolerance for the leading pairs of large kernels. Each residual ||K u - lambda u|| must be below
            tolerance * lambda_1 and below 1000 * tolerance * lambda, but not below rounding, 2 eps lambda_1 in the
            precision of the kernel. By default 1e-5 for float32 and 1e-8 for float64; the error of a well separated
            eigenvalue decreases with its square.
        seed: The seed of the block method's random start.
        progress: Whether to show a progress bar; None shows one on a terminal.

    Returns:
        The pairs with their residuals, in float64 on the kernel's device.

    Raises:
        TangentError: The kernel is not square, symmetric and finite; or a residual misses the tolerance.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> spectrum = linalg.eigh(kernel, k=2)
        >>> spectrum.values.shape, spectrum.vectors.shape
        (torch.Size([2]), torch.Size([8, 2]))

    See also:
        :func:`tangentlab.linalg.spectral_density`, :func:`tangentlab.linalg.extremes`,
        :func:`tangentlab.linalg.nystrom`.
    """
    source = as_source(kernel).unit()
    return decompose(source, k, tolerance, seed, progress).scaled(source.exponent)


def decompose(
    source: Source, k: int | None = None, tolerance: float | None = None, seed: int = 0, progress: bool | None = None
) -> Spectrum:
    """Compute the eigenpairs of a source as it is; see :func:`eigh`, which scales it to unit size first."""
    if isinstance(source, Features):
        return _features(source, k)
    k = _count(k, source.n)
    if tolerance is None:
        tolerance = 1e-8 if source.dtype == torch.float64 else 1e-5
    if not 0 < tolerance < 1:
        raise TangentError(f"The tolerance {tolerance} is not between 0 and 1.", remedy="Use for example 1e-5.")
    if source.n <= SMALL or 4 * k > source.n:
        return _lapack(source, k)
    with progress_bar("eigenpairs", 1.6 * k, progress) as tick:
        values, vectors, residuals = BlockKrylov(source, k, tolerance, seed).run(tick)
    return Spectrum(values, vectors, residuals, source.n, source.precision, "block Krylov")


def _count(k: int | None, n: int) -> int:
    if k is None:
        return n
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= n:
        raise TangentError(
            f"There are no k={k!r} eigenpairs of a kernel of size {n:,}.", remedy=f"Give k from 1 to {n:,}, or None."
        )
    return k


def eigenvalues(source: Source) -> Tensor:
    """Compute all eigenvalues without vectors, (n,), ascending: LAPACK in float64, about 4/3 n^3 operations."""
    return torch.linalg.eigvalsh(_dense(source, 2, f"All eigenvalues of a kernel of size {source.n:,}"))


def _dense(source: Source, copies: int, what: str) -> Tensor:
    """Load the kernel for LAPACK, which needs memory for ``copies`` matrices of its size."""
    need, free = copies * 8 * source.n**2, available(source.device)
    if need > free:
        raise TangentError(
            f"{what} take {show_bytes(need)}; {show_bytes(free)} are free.",
            why="More than a quarter of the pairs are computed together with all others, in float64, in memory.",
            remedy=f"Ask for at most {source.n // 4:,} pairs, or use fewer points.",
        )
    return source.dense()


def _lapack(source: Source, k: int) -> Spectrum:
    matrix = _dense(source, 3, f"{k:,} eigenpairs of a kernel of size {source.n:,}")
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values.flip(0)[:k], vectors.flip(1)[:, :k]
    return Spectrum(values, vectors, _residuals(matrix, values, vectors), source.n, source.precision, "LAPACK")


def _residuals(matrix: Tensor, values: Tensor, vectors: Tensor) -> Tensor:
    """Compute ||K u - lambda u|| in strips of columns, which needs no third matrix of this size."""
    parts = []
    for some in spans(len(values), 512):
        columns = vectors[:, some]
        parts.append((matrix @ columns - columns * values[some]).norm(dim=0))
    return torch.cat(parts)


def _features(source: Features, k: int | None) -> Spectrum:
    """Compute left singular vectors of F; without k, all that K can have. Its other eigenvalues are zero."""
    features = source.features.double()
    n = len(features)
    left, singular, _ = torch.linalg.svd(features, full_matrices=False)
    k = len(singular) if k is None else _count(k, n)
    if k > len(singular):
        raise TangentError(
            f"There are no k={k:,} eigenpairs of a kernel with {features.shape[1]:,} features.",
            why="It has no more than that; all other eigenvalues are zero.",
            remedy=f"Give k up to {len(singular):,}.",
        )
    vectors, values = left[:, :k], singular[:k].square()
    residuals = (features @ (features.T @ vectors) - vectors * values).norm(dim=0)
    return Spectrum(values, vectors, residuals, n, source.precision, "features")
