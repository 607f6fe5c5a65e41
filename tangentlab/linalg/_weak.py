"""The left singular vectors of J with the smallest singular values, from products with J and a factor of J J^T."""

from collections.abc import Callable

import torch
from torch import Tensor

from tangentlab.linalg._cholesky import PackedCholesky

_FIRST, _GROWTH = 16, 4
_CHEAP, _EXACT = 12, 3
"""Iterations with the factor of the kernel, and then with J."""
_SEPARATED = 0.1
"""The block grows until its last eigenvalue is below this share of the ones that are sought."""


def weak_directions(
    factor: PackedCholesky,
    pull: Callable[[Tensor], Tensor],
    push: Callable[[Tensor], Tensor],
    shift: float,
    cutoff: float,
) -> Tensor:
    r"""Find orthonormal left singular vectors of J, (n, m), of all singular values below a cutoff.

    With :math:`L L^T = J J^T + s`, the symmetric matrix :math:`1 - L^{-1} J J^T L^{-T}` has the eigenvalues
    :math:`s / (\sigma^2 + s)`: near one for the vectors that are sought, and near zero for almost all others, so that a
    few steps of subspace iteration find them. The first steps take :math:`s (L L^T)^{-1}`, which is the same up to
    the kernel's rounding and needs no products with J; the last ones the matrix itself. A singular value
    decomposition of J^T times the block then has the singular values to the rounding of J.

    Args:
        factor: L.
        pull: J^T times a block.
        push: J times a block.
        shift: s.
        cutoff: The size below which a singular value counts as zero.
    """
    n, sought = factor.n, min(0.9, shift / (shift + 4 * cutoff**2))
    generator, width = torch.Generator().manual_seed(0), _FIRST
    while True:
        width = min(n, width)
        block = torch.randn(n, width, generator=generator, dtype=torch.float64)
        block = torch.linalg.qr(block.to(factor.device)).Q
        for _ in range(_CHEAP):
            image = shift * factor.solve(block)
            values = torch.linalg.eigvalsh(block.T @ image)
            block = torch.linalg.qr(image).Q
        if width == n or float(values[0]) < _SEPARATED * sought:
            break
        width *= _GROWTH
    if float(values[-1]) < _SEPARATED * sought:
        return block[:, :0]
    block = torch.linalg.qr(factor.solve_lower(block)).Q
    for _ in range(_EXACT if width < n else 0):
        image = block - factor.solve_lower(push(pull(factor.solve_upper(block))))
        block = torch.linalg.qr(image).Q
    left = torch.linalg.qr(factor.solve_upper(block)).Q
    image = pull(left)
    more = image.shape[1] - image.shape[0]  # vectors beyond the number of unknowns, which J^T takes to zero
    _, sizes, rotation = torch.linalg.svd(image, full_matrices=more > 0)
    sizes = torch.nn.functional.pad(sizes, (0, max(0, more)))
    return left @ rotation.T[:, sizes < cutoff]
