"""RKHS norm, its lower bound and the generalization bound (ortiz2021, section 2)."""

import math
from typing import Any

import torch
from torch import Tensor

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab._sums import times_power
from tangentlab.analysis._alignment import unit_alignment
from tangentlab.analysis._functions import Functions, on_samples
from tangentlab.linalg.internal import as_ridge

_OUTSIDE = {torch.float64: 1e-6, torch.float32: 1e-2}
"""Share of a function that the kernel cannot represent, by its precision, from which its norm counts as infinite."""


def rkhs_norm(kernel: Any, functions: Any, *, ridge: float = 0.0) -> Tensor:
    r"""Compute the squared norm of functions in the kernel's Hilbert space,

    .. math:: \|f\|_\Theta^2 = \sum_j \frac{1}{\lambda_j} (E_x[\phi_j(x) f(x)])^2 = f^T K^{-1} f

    (ortiz2021, equation 3). The paper's eigenpairs are those of the integral operator, E[phi^2] = 1. Over N samples,
    they are lambda_j = mu_j / N and phi_j = sqrt(N) u_j with K u_j = mu_j u_j, ||u_j|| = 1, so that
    E[phi_j f] = u_j . f / sqrt(N) and the factors N cancel: the right-hand side needs none.

    A function with a part outside the range of a singular kernel is not in the space, and its norm is infinite. With a
    ridge r, the result is f^T (K + r)^-1 f, which is finite and a lower bound of the norm. Cost: one regression, see
    :func:`tangentlab.linalg.regress`.

    Args:
        kernel: A kernel source.
        functions: As for :func:`alignment`.
        ridge: r.

    Returns:
        (m,) float64, or a number for one function.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> float(analysis.rkhs_norm(kernel, torch.ones(8), ridge=0.1)) > 0
        True

    See also:
        :func:`tangentlab.analysis.generalization_bound`, :func:`tangentlab.analysis.alignment`.
    """
    source = linalg.as_source(kernel)
    given = on_samples(source, functions)
    return given.result(_unit_norm(source, given, as_ridge(ridge)), "norms", 2, -source.unit().exponent)


def _unit_norm(source: linalg.Source, given: Functions, ridge: float) -> Tensor:
    """Compute f^T (2^-e K + 2^-e r)^-1 f of functions at unit size, (m,), with e the exponent of the kernel."""
    unit = source.unit()
    coefficients = times_power(linalg.regress(source, given.values, ridge=ridge).coefficients, unit.exponent)
    norms = (given.values * coefficients).sum(0)
    if not ridge:
        left = unit.accurate_product(coefficients) - given.values
        outside = left.norm(dim=0) > _OUTSIDE.get(source.precision, 1e-2) * given.values.norm(dim=0)
        norms = torch.where(outside, math.inf, norms)
    return norms


def lemma1_bound(kernel: Any, functions: Any) -> Tensor:
    r"""Compute Lemma 1 of ortiz2021, a lower bound of the RKHS norm that needs no small eigenvalue,

    .. math:: \|f\|_\Theta^2 \ge \|f\|_2^4 / \alpha(f), \qquad \|f\|_2^2 = E_x[f(x)^2]

    with equality for eigenfunctions. Cost: that of :func:`alignment`.

    Args:
        kernel: A kernel source; for an :class:`~tangentlab.NTKOperator`, the kernel is not formed.
        functions: As for :func:`alignment`.

    Returns:
        (m,) float64, or a number for one function; 0 for the zero function, infinite if only alpha is zero.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> float(analysis.lemma1_bound(kernel, torch.ones(8))) > 0
        True

    See also:
        :func:`tangentlab.analysis.rkhs_norm`, :func:`tangentlab.analysis.alignment`.
    """
    source = linalg.as_source(kernel)
    given = on_samples(source, functions)
    energy = given.mean_square().square()
    numbers, exponent = unit_alignment(kernel, source, given)
    bound = energy / numbers.to(energy)
    return given.result(torch.where(energy == 0, 0.0, bound), "bounds", 2, -exponent)


def generalization_bound(kernel: Any, functions: Any, *, samples: int | None = None, ridge: float = 0.0) -> Tensor:
    r"""Compute the second term of the generalization bound (2) of ortiz2021, with 1 as the constant of its O(),

    .. math:: \sqrt{\|f\|_\Theta^2 \; E_x[\Theta(x, x)] / m}

    which bounds, up to that constant, how far the risk of kernel regression on m samples of f exceeds its empirical
    risk. Only comparisons between functions or kernels are meaningful. The bound does not depend on the kernel's scale.

    Cost: that of :func:`rkhs_norm`.

    Args:
        kernel: A kernel source.
        functions: The targets, as for :func:`alignment`.
        samples: m, the number of training samples; by default those of the kernel.
        ridge: As for :func:`rkhs_norm`; the bound is then that of a smaller norm.

    Returns:
        (m,) float64, or a number for one function.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> float(analysis.generalization_bound(kernel, torch.ones(8), ridge=0.1)) > 0
        True

    See also:
        :func:`tangentlab.analysis.rkhs_norm`, :func:`tangentlab.analysis.lemma1_bound`,
        :func:`tangentlab.analysis.predicted_error`.
    """
    source = linalg.as_source(kernel)
    given = on_samples(source, functions)
    count = given.samples if samples is None else samples
    if count < 1:
        raise TangentError(
            f"The number of samples {samples} is not positive.", remedy="Give the number of training samples."
        )
    spread = source.unit().diagonal().sum() / given.samples  # of the unit kernel, whose scale cancels
    norms = _unit_norm(source, given, as_ridge(ridge))
    return given.result((norms * spread.to(norms) / count).sqrt(), "bounds", 1)
