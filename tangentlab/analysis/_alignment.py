"""Target-kernel alignment (ortiz2021, Lemma 1)."""

from typing import Any

import torch
from torch import Tensor

from tangentlab.analysis._functions import Functions, on_samples
from tangentlab.kernels import NTKOperator
from tangentlab.linalg import Source, as_source

_COLUMNS = 1024
"""The number of functions that are multiplied with the kernel at a time."""


def alignment(kernel: Any, functions: Any) -> Tensor:
    r"""Compute the alignment of functions with a kernel,

    .. math:: \alpha(f) = E_{x,x'}[f(x)\,\Theta(x,x')\,f(x')] = \|E_x[f(x)\,\nabla_\theta f_\theta(x)]\|^2
        = f^T K f / N^2

    (ortiz2021, Lemma 1; expectations over the N samples). With several readouts, the inner products run over them too.
    There is no other normalization: the paper's eigenfunctions have E[phi^2] = 1, so that a unit eigenvector u with
    K u = mu u gives phi = sqrt(N) u and alpha(phi) = mu / N, the eigenvalue of the kernel's integral operator.

    For an :class:`~tangentlab.NTKOperator`, the second form is used, the norm of the averaged Jacobian, and no kernel
    is formed. Other kernels use the third form. Cost: about 2 N P m operations by the second form, for P parameters and
    m functions; 2 N^2 m by the third.

    Args:
        kernel: A kernel source: (N, N), (N, R, N, R), an operator, a stored kernel.
        functions: Values on the samples, (N,) or (N, m); for R readouts (N, R), (N R, m) or (N, R, m). Class numbers
            are refused, because class 9 would count nine times class 1: pass one-hot vectors, (N, R).

    Returns:
        (m,) float64, or a number for one function.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> analysis.alignment(kernel, torch.randn(8, 4)).shape
        torch.Size([4])

    See also:
        :func:`tangentlab.analysis.alignments`, :func:`tangentlab.analysis.energy_concentration`,
        :func:`tangentlab.analysis.rkhs_norm`.
    """
    source = as_source(kernel)
    given = on_samples(source, functions)
    numbers, exponent = unit_alignment(kernel, source, given)
    return given.result(numbers, "alignments", 2, exponent)


def unit_alignment(kernel: Any, source: Source, given: Functions) -> tuple[Tensor, int]:
    """Compute alignments (m,) of functions at unit size with 2^-exponent K, and that exponent."""
    if isinstance(kernel, NTKOperator):
        return kernel.quadratic_form(given.values).double() / given.samples**2, 0
    unit = source.unit()
    columns = given.values.split(_COLUMNS, 1)
    squares = torch.cat([(part * unit.accurate_product(part)).sum(0) for part in columns])
    return squares / given.samples**2, unit.exponent
