"""Nystrom approximation of a kernel from one product with a random block, and the preconditioner it makes."""

import math
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._scaling import restored
from tangentlab.linalg._forms import as_source
from tangentlab.linalg._low_rank import LowRank
from tangentlab.linalg._source import Source
from tangentlab.linalg._symmetry import negative_allowed, spans

_PANEL = 256


def nystrom(kernel: Any, k: int, *, seed: int = 0) -> LowRank:
    r"""Compute the Nystrom approximation :math:`K \approx (K\Omega)(\Omega^T K \Omega)^+ (K\Omega)^T = F F^T`.

    Omega is a random orthonormal (n, k) matrix. The difference K - F F^T is positive semidefinite, and its expected
    trace is at most 1 + r / (k - r - 1) times that of the best approximation of rank r, for every r < k - 1 (Tropp et
    al. 2017, theorem 4.1, also for the stable form). Cost: one product with k vectors, and n k^2 operations.

    Args:
        kernel: A kernel source.
        k: The rank.
        seed: The seed of the random matrix.

    Returns:
        Features (n, k) in float64, orthogonal columns, the largest first: their squared norms approximate the leading
        eigenvalues from below.

    Raises:
        TangentError: The kernel is indefinite by more than rounding, as far as its products with Omega show.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> type(linalg.nystrom(kernel, 3)).__name__
        'LowRank'

    See also:
        :func:`tangentlab.linalg.eigh`, :func:`tangentlab.sketch`.
    """
    source = as_source(kernel).unit()
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= source.n:
        raise TangentError(
            f"The rank k={k!r} is not possible for a kernel of {source.n:,} rows.",
            remedy=f"Give k from 1 to {source.n:,}.",
        )
    return LowRank(
        restored(_features(source, k, seed, refuse=True).flatten(), source.exponent // 2, "features").reshape(-1, k)
    )


def _features(source: Source, k: int, seed: int, refuse: bool = False) -> Tensor:
    """Compute F, of the positive part of an indefinite kernel unless that is refused."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    omega = torch.randn(source.n, k, generator=generator, dtype=torch.float64).to(source.device)
    omega = torch.linalg.qr(omega).Q
    image = torch.empty_like(omega)
    for columns in spans(k, _PANEL):
        image[:, columns] = source.product(omega[:, columns])
    scale = float(image.norm())
    if scale == 0:
        return torch.zeros_like(image)
    # A small shift, removed at the end, keeps the inner matrix positive definite under rounding.
    shift = math.sqrt(source.n) * float(torch.finfo(source.precision).eps) * scale
    limit = max(4 * shift, negative_allowed(source.n, source.precision) * scale) if refuse else math.inf
    inner = omega.T @ image
    for _ in range(60):
        factor, info = torch.linalg.cholesky_ex((inner + inner.T) / 2 + shift * torch.eye(k).to(inner))
        if not int(info) or shift > limit:
            break
        shift *= 4
    if int(info) or shift > limit:
        raise TangentError(
            "The Nystrom approximation failed.",
            why="The kernel is not positive semidefinite.",
            remedy="Look at its smallest eigenvalues with eigh.",
        )
    features = torch.linalg.solve_triangular(factor.T, image + shift * omega, upper=True, left=False)
    left, singular, _ = torch.linalg.svd(features, full_matrices=False)
    return left * (singular.square() - shift).clamp(min=0).sqrt()


class NystromPreconditioner:
    r"""An approximate inverse of K + ridge from the Nystrom approximation (Frangella, Tropp and Udell 2021).

    .. math:: P^{-1} = (\hat\lambda_k + \rho)\, U (\hat\Lambda + \rho)^{-1} U^T + (1 - U U^T)

    It reduces the k leading eigenvalues to the size of the k-th. Cost: 4 n k m operations for m vectors.
    """

    def __init__(self, source: Source, k: int, ridge: float, seed: int) -> None:
        features = _features(source, k, seed)
        values = features.square().sum(0)
        kept = values > values.max() * torch.finfo(source.dtype).eps
        self.vectors = features[:, kept] / values[kept].sqrt()
        values = values[kept]
        last = values[-1] if len(values) else torch.ones((), dtype=torch.float64)
        self.gain = (last + ridge) / (values + ridge) - 1

    def __call__(self, block: Tensor) -> Tensor:
        """Multiply P^-1 with (n, m)."""
        return block + self.vectors @ (self.gain[:, None] * (self.vectors.T @ block))
