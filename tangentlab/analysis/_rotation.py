"""The rotation of a kernel during training (ortiz2021, section 4.2)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._sums import inner
from tangentlab.analysis._energy import leading
from tangentlab.linalg import Source, as_source

_ROWS = 1024
"""Rows of the two kernels compared at a time."""


@dataclass(frozen=True)
class Rotation:
    """Two K-dimensional leading eigenspaces compared with each other.

    Attributes:
        angles: (K,) principal angles in radians, ascending: 0 for shared directions, pi/2 for orthogonal ones.
        overlap: The mean of their squared cosines, ||Phi_0 Phi_t^T||_F^2 / K: 1 for the same space, about K / N for
            two random ones.
    """

    angles: Tensor
    overlap: float

    def __str__(self) -> str:
        turned = int((self.angles > torch.pi / 4).sum())
        return f"overlap {self.overlap:.3f} of {len(self.angles)} dimensions, {turned} turned by more than 45 degrees"


def rotation(before: Any, after: Any, k: int = 50) -> Rotation:
    r"""Compute the rotation of a kernel's principal eigenspace, span(Phi_0) to span(Phi_t).

    ortiz2021 says that "training a neural network rotates Theta_t" and does not define a measure. Here it is the usual
    one: with orthonormal leading eigenvectors as rows, the singular values of Phi_0 Phi_t^T (K x K) are the cosines of
    the principal angles. Signs and order of eigenvectors do not matter.

    Cost: about 8 N K^2 operations, given both spectra.

    Args:
        before: A :class:`~tangentlab.linalg.Spectrum` or a kernel source, on the same samples as ``after``.
        after: Likewise.
        k: K.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> round(analysis.rotation(kernel, kernel, k=3).overlap, 6)
        1.0

    See also:
        :func:`tangentlab.analysis.kernel_distance`, :func:`tangentlab.analysis.along_training`.
    """
    one, two = leading(before, k).vectors[:, :k], leading(after, k).vectors[:, :k]
    if one.shape != two.shape:
        raise TangentError(
            f"The eigenvectors have {len(one):,} and {len(two):,} entries.",
            why="Eigenspaces are compared on the same samples.",
            remedy="Compute both kernels on the same inputs in the same order.",
        )
    two = two.to(one)
    # A small angle is inaccurate from its cosine, a large one from its sine (the part of Phi_t outside span(Phi_0)).
    cosines = torch.linalg.svdvals(one.T @ two).clamp(max=1)
    sines = torch.linalg.svdvals(two - one @ (one.T @ two)).flip(0).clamp(max=1)
    angles = torch.where(cosines > 0.7, sines.asin(), cosines.acos())
    return Rotation(angles, float(cosines.square().mean()))


def kernel_distance(one: Any, two: Any) -> float:
    r"""Compute the cosine distance of two kernels, :math:`1 - \langle K_1, K_2\rangle / (\|K_1\|_F \|K_2\|_F)`.

    It is 0 for kernels that differ by a factor. It measures the change of the whole kernel, while :func:`rotation`
    considers only its leading eigenspace; ortiz2021's code computes it too. Cost: one pass over both kernels, a strip
    of rows at a time, and a second one for kernels that hardly differ.

    Args:
        one: A kernel source with entries: in memory or stored.
        two: Likewise, on the same samples.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> round(analysis.kernel_distance(kernel, 2 * kernel), 6)
        0.0

    See also:
        :func:`tangentlab.analysis.rotation`, :func:`tangentlab.analysis.agreement`.
    """
    left, right = as_source(one), as_source(two)
    if left.n != right.n or not (left.readable and right.readable):
        raise TangentError(
            f"Kernels of size {left.n:,} and {right.n:,} cannot be compared entry by entry.",
            why="Both must be on the same samples, in memory or stored.",
            remedy="Compute both with tangentlab.ntk on the same inputs.",
        )
    left, right = left.unit(), right.unit()
    squares, others, both = (float(total) for total in _pass(left, right, lambda a, b: [(a, a), (b, b), (a, b)]))
    if not squares * others:
        raise TangentError("A kernel is zero.", why="It has no direction.", remedy="Check how it was computed.")
    one, two = squares**0.5, others**0.5
    distance = 1 - both / (one * two)
    if distance > 1e-6:
        return distance
    # The difference from one has few digits left: use half the squared distance of the unit kernels.
    (chord,) = _pass(left, right, lambda a, b: [(a / one - b / two,) * 2])
    return float(chord) / 2


def _pass(left: Source, right: Source, pairs: Callable[[Tensor, Tensor], list[tuple[Tensor, Tensor]]]) -> list[Tensor]:
    """Compute inner products over all entries of both kernels, a strip of rows at a time, in float64."""
    totals: list[Tensor] = []
    for start in range(0, left.n, _ROWS):
        rows = slice(start, min(start + _ROWS, left.n))
        a, b = (source.read(rows, slice(0, left.n)).double().cpu() for source in (left, right))
        sums = [inner(x, y) for x, y in pairs(a, b)]
        totals = [t + s for t, s in zip(totals, sums, strict=True)] if totals else sums
    return totals
