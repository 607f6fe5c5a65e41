"""Summaries of a spectrum: singular values of J, effective rank, condition number, trace."""

from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._scaling import restored
from tangentlab.linalg._eigen import eigh
from tangentlab.linalg._extremes import ends, extremes
from tangentlab.linalg._forms import as_source
from tangentlab.linalg._spectrum import Spectrum
from tangentlab.linalg._symmetry import rank_cutoff, require_positive


def singular_values(kernel: Any) -> Tensor:
    r"""Compute the singular values of J from its kernel K = J J^T: :math:`s_j = \sqrt{\lambda_j}`, descending.

    Eigenvalues that are zero up to rounding are set to zero: the square root would enlarge them, to 3e-4 of the largest
    singular value for a float32 kernel. Cost: that of :func:`eigh`, none for a spectrum.

    Args:
        kernel: A kernel source, or its :class:`Spectrum`.

    Returns:
        (n,), float64; for a LowRank or a Spectrum of k pairs (k,).

    Examples:
        >>> import torch
        >>> from tangentlab import linalg, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> linalg.singular_values(kernel).shape
        torch.Size([8])

    See also:
        :func:`tangentlab.linalg.effective_rank`, :func:`tangentlab.linalg.eigh`.
    """
    spectrum = kernel if isinstance(kernel, Spectrum) else eigh(kernel)
    require_positive(spectrum.values, precision=spectrum.dtype, n=spectrum.n)
    values = spectrum.values
    return torch.where(values > rank_cutoff(values, spectrum.dtype, spectrum.n), values, 0.0).sqrt()


def effective_rank(singular_values: Any = None, *, eigenvalues: Any = None) -> float:
    r"""Compute the effective rank :math:`\exp(-\sum_j p_j \log p_j)` with :math:`p_j = s_j / \sum_i s_i`.

    The effective rank of Roy and Vetterli (2007). The s are *singular values of J* (samarin2022): the square roots of
    the eigenvalues of the kernel K = J J^T. It is between 1 and the rank, and equals the rank if all nonzero singular
    values are equal.

    Cost: one pass over the n values.

    Args:
        singular_values: The singular values of J, in any order, for example from :func:`singular_values`.
        eigenvalues: Instead, the eigenvalues of K, whose square roots are taken. Negative ones are rounding; those up
            to twice its size count as zero.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg
        >>> round(linalg.effective_rank(torch.ones(5)), 6)
        5.0

    See also:
        :func:`tangentlab.linalg.singular_values`, :func:`tangentlab.linalg.condition_number`.
    """
    if (singular_values is None) == (eigenvalues is None):
        raise TangentError(
            "Neither or both of singular values and eigenvalues are given.",
            why="The effective rank of J is that of its singular values, the square roots of the kernel's eigenvalues.",
            remedy="Use effective_rank(singular_values(kernel)), or effective_rank(eigenvalues=spectrum.values).",
        )
    if singular_values is None:
        values = torch.as_tensor(eigenvalues).detach().double().flatten()
        require_positive(values, precision=torch.float32)  # the precision of the kernel is not known here
        rounding = -2 * float(values.min()) if len(values) else 0.0  # an exact kernel has none below zero
        s = torch.where(values > max(rounding, 0.0), values, 0.0).sqrt()
    else:
        s = torch.as_tensor(singular_values).detach().double().flatten()
    if not len(s) or not bool(torch.isfinite(s).all()) or bool((s < 0).any()) or not bool((s > 0).any()):
        raise TangentError(
            "The singular values are not finite nonnegative numbers with at least one above 0.",
            remedy="Give a vector of singular values of J; torch.linalg.svdvals computes those of a matrix.",
        )
    p = s[s > 0] / s.max()  # divided by the largest first: the sum of huge values would be infinite
    p = p / p.sum()
    return float(torch.exp(-torch.special.xlogy(p, p).sum()))


def condition_number(kernel: Any) -> float:
    """Compute lambda_max / lambda_min of a kernel; infinity if it is singular up to rounding.

    Cost: that of :func:`extremes`, none for a spectrum.

    Args:
        kernel: A kernel source, whose :func:`extremes` are computed, or its complete :class:`Spectrum`.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg
        >>> round(linalg.condition_number(torch.diag(torch.tensor([4.0, 1.0, 2.0]))), 6)
        4.0

    See also:
        :func:`tangentlab.linalg.extremes`, :func:`tangentlab.linalg.effective_rank`.
    """
    if not isinstance(kernel, Spectrum):
        return extremes(kernel).condition
    if not kernel.complete:
        raise TangentError(
            f"The spectrum holds {len(kernel.values):,} of {kernel.n:,} eigenvalues.",
            why="The smallest is needed.",
            remedy="Use eigh(kernel) without k.",
        )
    return ends(kernel).condition


def trace(kernel: Any) -> float:
    """Compute the trace of a kernel in float64 from its diagonal: the sum of its eigenvalues, and ||J||_F^2.

    Cost: the diagonal, which takes n products with a SciPy operator. A matrix in memory is also checked in one pass, an
    operator by a product with two vectors.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg
        >>> linalg.trace(torch.eye(3))
        3.0

    See also:
        :func:`tangentlab.linalg.condition_number`, :func:`tangentlab.linalg.spectral_density`.
    """
    source = as_source(kernel).unit()
    return float(restored(source.diagonal().sum(), source.exponent, "sums of the diagonal"))
