"""Gram matrices of experiments: in memory if they fit, else on disk next to the unit's checkpoints."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tangentlab import store
from tangentlab._memory import available
from tangentlab.experiments._work import UnitOfWork
from tangentlab.kernels import ntk
from tangentlab.store import StoredKernel

if TYPE_CHECKING:
    from tangentlab.experiments._context import Context

_SHARE = 0.25
"""Part of the free memory that a Gram matrix may take; solvers need about twice as much in addition."""


def gram(
    work: UnitOfWork[Any], context: "Context", network: nn.Module, x: Tensor, readout: int | str, share: float = _SHARE
) -> Tensor | StoredKernel:
    """Compute K(x, x), (N, N), of a readout with one row per sample: a tensor, or a kernel on disk if that is too
    large.

    A kernel on disk survives an interruption: the unit resumes with the tiles that are missing. It is removed with the
    unit's other checkpoints when the unit's result is written.

    Args:
        work: The unit that needs it.
        context: The context of the run.
        network: On the context's device.
        x: Samples, in the precision wanted.
        readout: An int, or ``"pntk"``.
        share: Part of the free memory that it may take.
    """
    progress = context.settings.progress
    if len(x) ** 2 * x.element_size() <= share * available(torch.device("cpu")):
        return ntk(network, x, readout=readout, progress=progress)
    folder = context.cache.scratch(work)
    folder.mkdir(parents=True, exist_ok=True)
    return store.compute(network, x, folder / "kernel.zarr", readout=readout, progress=progress)
