"""The empirical NTK as a GPyTorch kernel."""

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab.gp._network import FixedNetwork
from tangentlab.kernels import ntk

_REMEMBERED = 4
"""The number of blocks kept: training with itself, test with training, test with itself, and a spare one."""


class NTKKernel(Kernel):
    """The kernel k(x, x') = <grad f(x), grad f(x')> of a network at fixed weights.

    It has no hyperparameters; wrap it in a ``ScaleKernel`` for an output scale. The network is copied, does not change,
    and is in neither ``parameters()`` nor ``state_dict()``. The most recent blocks are kept, so that a thousand steps
    on the marginal likelihood cost one kernel. Inputs receive no gradient.

    Args:
        model: The network.
        readout: ``"pntk"``, one logit (an int) or ``"trace"``: the kernels of :func:`tangentlab.ntk` that are (N, N).
        input_shape: The shape of a sample if it is not a vector; GPyTorch passes samples as rows (n, d).
        options: As for :func:`tangentlab.ntk`: ``parameters``, ``output``, ``dtype``, ``memory_budget``, ...

    Cost: as for :func:`tangentlab.ntk`; n1 n2 numbers per kept block.
    """

    has_lengthscale = False

    def __init__(
        self,
        model: nn.Module,
        *,
        readout: str | int = "pntk",
        input_shape: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(readout, bool) or not (isinstance(readout, int) or readout in ("pntk", "trace")):
            raise TangentError(
                f"The readout is {readout!r}.",
                "A GPyTorch kernel is one number per pair.",
                "Use 'pntk', 'trace' or an int.",
            )
        self._network = FixedNetwork(model, input_shape)
        self._options = {"progress": False, **options, "readout": readout}
        self._blocks: list[tuple[Tensor, Tensor | None, bool, Tensor]] = []

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor:
        """Compute the block (..., n1, n2), or its diagonal (..., n)."""
        if last_dim_is_batch:
            raise TangentError(
                "The option last_dim_is_batch is not supported.", "A network needs all features together."
            )
        if x1.ndim == x2.ndim == 2:
            return self._block(x1, x2, diag)
        shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        pairs = [x.expand(*shape, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (x1, x2)]
        blocks = torch.stack([self._block(one, two, diag) for one, two in zip(*pairs, strict=True)])
        return blocks.reshape(*shape, *blocks.shape[1:])

    def _block(self, x1: Tensor, x2: Tensor, diag: bool) -> Tensor:
        same = x1 is x2 or (x1.shape == x2.shape and torch.equal(x1, x2))
        other = None if same else x2
        for one, two, diagonal, block in self._blocks:
            if diagonal == diag and _equal(one, x1) and _equal(two, other):
                return block
        rows = self._network.samples(x1)
        model, options = self._network.module, self._options
        if diag and not same:
            block = ntk(model, rows, self._network.samples(x2), **options).diagonal()
        else:
            columns = None if same else self._network.samples(x2)
            block = ntk(model, rows, columns, diagonal=diag, **options)
        block = block.to(dtype=x1.dtype, device=x1.device)
        kept = (x1.clone(), None if same else x2.clone(), diag, block)
        self._blocks = [kept, *self._blocks[: _REMEMBERED - 1]]
        return block


def _equal(one: Tensor | None, two: Tensor | None) -> bool:
    if one is None or two is None:
        return one is two
    return one.dtype == two.dtype and one.device == two.device and one.shape == two.shape and torch.equal(one, two)
