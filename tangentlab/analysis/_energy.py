"""Energy concentration of a target on leading eigenvectors (ortiz2021, section 4.2)."""

from typing import Any

from torch import Tensor

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab.analysis._functions import on_samples


def energy_concentration(kernel: Any, functions: Any, k: int = 50) -> Tensor:
    r"""Compute the share of a target that lies on the first K eigenvectors of a kernel,

    .. math:: \|\Phi_K\, y\|_2 / \|y\|_2

    with the K leading eigenvectors of the Gram matrix as rows of Phi_K (ortiz2021, section 4.2 and table 1). It is a
    ratio of norms, not of squares. A target unrelated to the kernel has about sqrt(K / N), so that values for different
    N or K are not comparable. Cost: K leading eigenpairs (:func:`tangentlab.linalg.eigh`), none for a spectrum.

    Args:
        kernel: A :class:`~tangentlab.linalg.Spectrum` with at least K pairs, or a kernel source whose leading K are
            computed here.
        functions: y, as for :func:`alignment`.
        k: K.

    Returns:
        (m,) float64 between 0 and 1, or a number for one target.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> bool(0 <= analysis.energy_concentration(kernel, torch.randn(8), k=2) <= 1)
        True

    See also:
        :func:`tangentlab.analysis.alignment`, :func:`tangentlab.linalg.eigh`.
    """
    spectrum = leading(kernel, k)
    given = on_samples(spectrum if isinstance(kernel, linalg.Spectrum) else kernel, functions)
    y = given.values.to(spectrum.vectors)
    sizes = y.norm(dim=0)
    if not bool((sizes > 0).all()):
        raise TangentError("A target is zero everywhere.", why="It has no energy.", remedy="Leave it out.")
    return given.result((spectrum.vectors[:, :k].T @ y).norm(dim=0) / sizes, "energies")


def leading(kernel: Any, k: int) -> linalg.Spectrum:
    """Return the k leading eigenpairs, computed unless they are given."""
    if not isinstance(kernel, linalg.Spectrum):
        return linalg.eigh(kernel, k)
    if not 1 <= k <= len(kernel.values):
        raise TangentError(
            f"The spectrum holds {len(kernel.values):,} eigenpairs, and {k:,} are requested.",
            remedy=f"Compute linalg.eigh(kernel, {k}), or request fewer.",
        )
    return kernel
