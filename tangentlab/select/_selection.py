"""What was chosen, and which samples may still be chosen."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError


@dataclass(frozen=True)
class Selection:
    """Samples chosen from a pool.

    Attributes:
        indices: Their rows in the pool, int64 on the CPU, in the order in which they were chosen.
        scores: What each was chosen for, float64 on the CPU; see the method.
        method: The method's name.
    """

    indices: Tensor
    scores: Tensor
    method: str

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices.tolist())

    def __repr__(self) -> str:
        shown = ", ".join(str(i) for i in self.indices[:8].tolist()) + (", ..." if len(self) > 8 else "")
        return f"Selection({len(self):,} by {self.method}: [{shown}])"


class Candidates:
    """The samples that may be chosen: not labeled, not yet chosen, and of a class whose share is not used up.

    With classes, each gets as equal a share of the choices as its size allows.

    Args:
        n: Samples of the pool.
        count: How many are chosen.
        labeled: Rows that are already there.
        classes: A class for each sample of the pool; None for no shares.

    Attributes:
        labeled: The rows that are already there, without repetitions.
        open: (n,), whether each sample may be chosen.
    """

    def __init__(self, n: int, count: int, labeled: Any, classes: Any) -> None:
        self.labeled = _rows(labeled, n)
        self.open = torch.ones(n, dtype=torch.bool)
        self.open[self.labeled] = False
        free = int(self.open.sum())
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= free:
            raise TangentError(
                f"{count!r} samples cannot be chosen.",
                f"The pool has {n:,} samples, of which {free:,} are not labeled.",
                f"Pass a count from 1 to {free:,}." if free else "Pass a pool with samples that are not labeled.",
            )
        self.count = count
        self._chosen: list[int] = []
        self._scores: list[float] = []
        self._class = None if classes is None else _numbered(classes, n)
        if self._class is not None:
            sizes = torch.bincount(self._class[self.open], minlength=int(self._class.max()) + 1)
            # The largest equal share that the sizes allow; what is left goes to the classes that ask first.
            shares = [torch.minimum(sizes, torch.full_like(sizes, share)) for share in range(count + 1)]
            self._share = max(share for share in range(count + 1) if int(shares[share].sum()) <= count)
            self._extra = count - int(shares[self._share].sum())
            self._taken = torch.zeros_like(sizes)

    @property
    def left(self) -> int:
        """How many are still to be chosen."""
        return self.count - len(self._chosen)

    def masked(self, scores: Tensor) -> Tensor:
        """Return scores of all samples, minus infinity for those that may not be chosen."""
        return torch.where(self.open.to(scores.device), scores, -math.inf)

    def take(self, row: int, score: float) -> None:
        """Choose a sample."""
        self._chosen.append(row)
        self._scores.append(score)
        self.open[row] = False
        if self._class is None:
            return
        own = self._class[row]
        self._taken[own] += 1
        if self._taken[own] > self._share:
            self._extra -= 1
        full = self._taken >= self._share + (1 if self._extra else 0)
        self.open[full[self._class]] = False

    def selection(self, method: str) -> Selection:
        """Return what was chosen."""
        return Selection(torch.tensor(self._chosen), torch.tensor(self._scores, dtype=torch.float64), method)


def _rows(labeled: Any, n: int) -> Tensor:
    """Return the rows that are labeled, from their numbers or from one bool per sample."""
    if labeled is None:
        return torch.empty(0, dtype=torch.long)
    rows = _array("labeled", labeled.indices if isinstance(labeled, Selection) else labeled)
    if rows.dtype == bool and rows.shape == (n,):
        rows = np.flatnonzero(rows)
    whole = rows.ndim == 1 and (rows.size == 0 or rows.dtype.kind in "iu")
    if not whole or (rows.size and not 0 <= rows.min() <= rows.max() < n):
        raise TangentError(
            f"The argument labeled, of shape {rows.shape} and type {rows.dtype}, names no samples of a pool of {n:,}.",
            "",
            f"Pass row numbers from 0 to {n - 1:,}, or one bool per sample.",
        )
    return torch.from_numpy(np.unique(rows).astype(np.int64))


def _array(name: str, values: Any) -> Any:
    try:
        return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except (TypeError, ValueError) as error:
        raise TangentError(f"The argument {name} is not an array: {error}", "", "Pass one value per sample.") from error


def _numbered(classes: Any, n: int) -> Tensor:
    """Return the classes as numbers from 0 on."""
    values = _array("classes", classes)
    if values.shape != (n,):
        raise TangentError(
            f"The classes have shape {values.shape} for a pool of {n:,} samples.", "", "Pass one class per sample."
        )
    missing = any(value is None for value in values) if values.dtype == object else values != values
    if np.any(missing):
        raise TangentError("The classes hold None or NaN.", "", "Pass the (predicted) class of every sample.")
    try:
        return torch.from_numpy(np.unique(values, return_inverse=True)[1].reshape(n))
    except TypeError as error:
        raise TangentError(f"The classes cannot be told apart: {error}.", "", "Pass numbers or strings.") from error
