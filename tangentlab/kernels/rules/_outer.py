"""Linear maps: gradients that are sums over positions of outer products.

y_t = W a_t  =>  dL/dW = sum_t g_t a_t^T        (d_out x d_in),  t = 1..S positions of a sample
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab.kernels.rules._use import Use


@dataclass
class Outer(Use):
    """A weight that multiplies S vectors of a sample.

    Attributes:
        shape: (d_out, d_in), or (d_in, d_out) if ``transposed``.
        a: Inputs, (B, S, d_in).
        transposed: Whether the parameter is W^T.
        feature_axis: The axis of the output that counts d_out, from the end; all others are positions.
    """

    shape: torch.Size
    a: Tensor
    transposed: bool = False
    feature_axis: int = -1

    @property
    def positions(self) -> int:
        return self.a.shape[1]

    def outputs(self, g: Tensor) -> Tensor:
        """Output gradients by position: (B, R, *) to (B, R, S, d_out)."""
        g = g.movedim(self.feature_axis, -1)
        return g.reshape(*g.shape[:2], -1, g.shape[-1])

    def gradient(self, g: Tensor) -> Tensor:
        g = self.outputs(g)
        left, right = (self.a.mT.unsqueeze(1), g) if self.transposed else (g.mT, self.a.unsqueeze(1))
        if self.positions == 1:
            return left * right
        return left @ right

    @staticmethod
    def merge(uses: Sequence[Use]) -> Use | None:
        """Applying a layer twice is applying it to twice the positions."""
        first = uses[0]
        assert isinstance(first, Outer)
        if len(uses) == 1:
            return first
        alike = [u for u in uses if isinstance(u, Outer) and u.transposed == first.transposed]
        if len(alike) < len(uses):
            return None
        return _Joined(first.shape, torch.cat([u.a for u in alike], 1), first.transposed, parts=alike)


@dataclass
class _Joined(Outer):
    """Several uses of one weight, their positions one after the other."""

    parts: Sequence[Outer] = ()

    def join(self, grads: Sequence[Tensor]) -> Tensor:
        return torch.cat([part.outputs(g) for part, g in zip(self.parts, grads, strict=True)], 2)


@dataclass
class Lookup(Use):
    """A table of V rows of which a sample looks up S: y_t = W[i_t], so dL/dW[v] = sum over t with i_t = v of g_t.

    Attributes:
        shape: (V, d).
        index: The rows looked up, (B, S).
        padding: The row that gets no gradient, or None.
    """

    shape: torch.Size
    index: Tensor
    padding: int | None = None

    def outputs(self, g: Tensor) -> Tensor:
        """Output gradients by position, (B, R, S, d), zero for padding."""
        g = g.reshape(*g.shape[:2], -1, self.shape[1])
        if self.padding is None:
            return g
        return g * (self.index != self.padding)[:, None, :, None]

    def gradient(self, g: Tensor) -> Tensor:
        g = self.outputs(g)
        hot = F.one_hot(self.index.long(), self.shape[0]).to(g)
        return torch.einsum("bsv,brsd->brvd", hot, g)

    @staticmethod
    def merge(uses: Sequence[Use]) -> Use | None:
        first = uses[0]
        assert isinstance(first, Lookup)
        if len(uses) == 1:
            return first
        alike = [u for u in uses if isinstance(u, Lookup)]
        return _JoinedLookup(first.shape, torch.cat([u.index for u in alike], 1), parts=alike)


@dataclass
class _JoinedLookup(Lookup):
    parts: Sequence[Lookup] = ()

    def join(self, grads: Sequence[Tensor]) -> Tensor:
        return torch.cat([part.outputs(g) for part, g in zip(self.parts, grads, strict=True)], 2)
