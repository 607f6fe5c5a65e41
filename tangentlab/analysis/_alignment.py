"""Target-kernel alignment (ortiz2021, Lemma 1)."""

from typing import Any

import torch
from torch import Tensor

from tangentlab.analysis._functions import on_samples
from tangentlab.kernels import NTKOperator
from tangentlab.linalg import as_source

_COLUMNS = 1024
"""Functions multiplied with the kernel at a time."""


def alignment(kernel: Any, functions: Any) -> Tensor:
    r"""The alignment of functions with a kernel,

    .. math:: \alpha(f) = E_{x,x'}[f(x)\,\Theta(x,x')\,f(x')] = \|E_x[f(x)\,\nabla_\theta f_\theta(x)]\|^2
        = f^T K f / N^2

    (ortiz2021, Lemma 1; expectations over the N samples). With several readouts the inner products run over them too.
    Nothing else is divided out: the paper's eigenfunctions have E[phi^2] = 1, so that with a unit eigenvector u,
    K u = mu u, it is phi = sqrt(N) u and alpha(phi) = mu / N, the eigenvalue of the kernel's integral operator.

    An :class:`~tangentlab.NTKOperator` takes the second form, the norm of the averaged Jacobian: no kernel is formed,
    and it costs about 2 N P m operations for P parameters and m functions. Everything else takes the third, 2 N^2 m.

    Args:
        kernel: A kernel source: (N, N), (N, R, N, R), an operator, a stored kernel.
        functions: Values on the samples, (N,) or (N, m); for R readouts (N R, m) or (N, R, m).

    Returns:
        (m,) float64, or a number for one function.
    """
    given = on_samples(kernel, functions)
    if isinstance(kernel, NTKOperator):
        squares = kernel.quadratic_form(given.values).double()
    else:
        source = as_source(kernel)
        columns = given.values.to(source.device).split(_COLUMNS, 1)
        squares = torch.cat([(part * source.accurate_product(part)).sum(0) for part in columns])
    return given.result(squares / given.samples**2)
