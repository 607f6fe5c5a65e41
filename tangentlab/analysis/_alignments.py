"""The three alignments of targets with a kernel: of the paper, normalized, and centered."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.linalg import as_source
from tangentlab.linalg.internal import as_targets


@dataclass(frozen=True)
class Alignments:
    r"""The alignment of targets Y (N, m) with a kernel K (N, N), in three normalizations.

    Attributes:
        alignment: :math:`\mathrm{tr}(Y^T K Y) / N^2`, the alignment of ortiz2021 summed over the columns of Y. It grows
            with the kernel, so that checkpoints cannot be compared by it.
        normalized: :math:`\langle K, Y Y^T\rangle / (\|K\|_F \|Y Y^T\|_F)`, the kernel-target alignment of Cristianini
            et al. (2001), between 0 and 1 for positive semidefinite kernels.
        centered: The same of the centered matrices, H K H and H Y Y^T H with H = I - 1 1^T / N: centered kernel
            alignment (Cortes et al. 2012, Kornblith et al. 2019). A kernel that is constant has 0.
    """

    alignment: float
    normalized: float
    centered: float


def alignments(kernel: Any, targets: Any) -> Alignments:
    """Compute the alignment of targets with a kernel as in the paper, normalized by norms, and centered (CKA).

    The last two do not change if the kernel is scaled, so that checkpoints can be compared by them. Cost: 2 N^2 m
    operations and two copies of the kernel in float64.

    Args:
        kernel: (N, N) in memory, or stored. For N samples of R readouts, (N R, N R).
        targets: (N,), (N, m) or, for R readouts, (N, R). Class numbers are refused, as for :func:`alignment`.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> found = analysis.alignments(kernel, torch.arange(8) % 2)
        >>> type(found).__name__
        'Alignments'

    See also:
        :func:`tangentlab.analysis.alignment`, :func:`tangentlab.analysis.energy_concentration`,
        :class:`tangentlab.finetune.KernelRecorder`.
    """
    source = as_source(kernel)
    if not source.readable:
        raise TangentError(
            "An operator has no entries to center.",
            why="The norm of a kernel needs all of them.",
            remedy="Compute the kernel with tangentlab.ntk; analysis.alignment takes operators.",
        )
    given = as_targets(source.n, source.outputs, targets, "targets", torch.device("cpu"))
    y, unit = given.columns, source.unit()
    k = unit.read(slice(0, source.n), slice(0, source.n)).double().cpu()
    value = float((y * (k @ y)).sum()) * 2.0**unit.exponent / given.samples**2
    return Alignments(value, _cosine(k, y), _cosine(_centered(k), y - y.mean(0)))


def _centered(k: Tensor) -> Tensor:
    return k - k.mean(0) - k.mean(1, keepdim=True) + k.mean()


def _cosine(k: Tensor, y: Tensor) -> float:
    """Compute <K, Y Y^T> / (|K| |Y Y^T|) without forming Y Y^T."""
    sizes = float(k.norm()) * float((y.T @ y).norm())
    return float((y * (k @ y)).sum()) / sizes if sizes else float("nan")
