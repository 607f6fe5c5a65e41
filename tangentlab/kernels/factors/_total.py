"""Sums over very many parameters that keep their digits.

A matrix product adds its terms one after the other in the precision of its operands; over 1e8 float32 terms of one sign
nothing but the first three digits is left. Here no product runs over more than ``CHUNK`` terms, no more than ``TERMS``
products are added up in float32, and what goes beyond that is added up in float64. The error of an entry is then that
of a chunk and of a few additions, whatever the number of parameters:

    |computed - exact| <= 1e-6 sqrt(K_ii K_jj)        (float32; 3e-7 is typical)
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK = 4096
"""Terms of one product. Shorter chunks would slow products down: this is the depth at which they reach full speed."""
TERMS = 8
"""Products that are added up in float32; only one if the result has few rows or columns (``_THIN``)."""
_SIDE_BY_SIDE = 128
"""Rows up to which chunks of a product are faster side by side than one after the other."""
_THIN = 16
"""Products with fewer rows or columns add their terms in sequence, which loses small ones beside a large sum."""


def chunks(length: int) -> Iterator[slice]:
    """Yield a long axis cut into pieces that one product may run over."""
    return (slice(i, min(i + CHUNK, length)) for i in range(0, length, CHUNK))


class Total:
    """A sum of terms that are added to a tensor in place.

    Args:
        out: Where the sum goes, with what is there already as its first term.
    """

    def __init__(self, out: Tensor) -> None:
        self.out = out
        terms = TERMS if min(out.shape, default=1) >= _THIN else 1
        self._limit = {torch.float64: math.inf, torch.float32: terms}.get(out.dtype, 1)
        self._added: float = 0
        self._exact: Tensor | None = None

    def room(self) -> Tensor:
        """Return the tensor to add the next term to, once."""
        if self._added >= self._limit:
            self._carry()
            self.out.zero_()
        self._added += 1
        return self.out

    def add(self, terms: Tensor) -> None:
        """Add a whole row of terms, (k, *shape)."""
        if self._limit == math.inf:
            self.out += terms.sum(0)
            return
        if self._exact is None:
            self._exact = torch.zeros_like(self.out, dtype=torch.float64)
            self._exact += self.out
            self.out.zero_()
            self._added = 0
        self._exact += terms.sum(0, dtype=torch.float64)

    def finish(self) -> Tensor:
        """Return the sum, in ``out``."""
        if self._exact is not None:
            self._carry()
            self.out.copy_(self._exact)
        return self.out

    def _carry(self) -> None:
        if self._exact is None:
            self._exact = self.out.to(torch.float64, copy=True)
        else:
            self._exact += self.out
        self._added = 0


class Workspace:
    """Memory that is used again and again: new memory costs more time than the products that fill it."""

    def __init__(self) -> None:
        self._held: Tensor | None = None

    def room(self, like: Tensor, *shape: int) -> Tensor:
        """Return a tensor of some shape and another's type, until the next one is asked for."""
        size = math.prod(shape)
        if self._held is None or len(self._held) < size or self._held.dtype != like.dtype:
            self._held = None
            self._held = like.new_empty(size)
        return self._held[:size].view(shape)


def product(one: Tensor, two: Tensor) -> Tensor:
    """Compute one @ two^T over a long last axis: (n, d) and (m, d), or batches of such, to (n, m)."""
    length = one.shape[-1]
    if length <= CHUNK:
        return one @ two.mT
    total = Total(one.new_zeros(*torch.broadcast_shapes(one.shape[:-2], two.shape[:-2]), one.shape[-2], two.shape[-2]))
    for part in chunks(length):
        add_product(total, one[..., part], two[..., part])
    return total.finish()


def add_wide_product(total: Total, one: Tensor, two: Tensor) -> None:
    """Add one @ two^T over a long last axis, (n, d) and (m, d).

    A product of few rows keeps few processors busy, so there its chunks are computed side by side.
    """
    length = one.shape[1] // CHUNK * CHUNK
    if max(len(one), len(two)) > _SIDE_BY_SIDE or length < 2 * CHUNK:
        length = 0
    else:
        left, right = (rows[:, :length].unflatten(1, (-1, CHUNK)) for rows in (one, two))
        total.add(torch.bmm(left.transpose(0, 1), right.permute(1, 2, 0)))
    for part in chunks(one.shape[1] - length):
        piece = slice(part.start + length, part.stop + length)
        add_product(total, one[:, piece], two[:, piece])


def add_product(total: Total, one: Tensor, two: Tensor) -> None:
    """Add one @ two^T over a short last axis."""
    if one.ndim == two.ndim == 2:
        total.room().addmm_(one, two.mT)
    elif one.ndim == two.ndim == 3:
        total.room().baddbmm_(one, two.mT)
    else:
        total.room().add_(one @ two.mT)
