"""The accepted forms of targets, for regression and for every measure of targets.

A target is a function given by its values on the kernel's rows: real, finite, one value per row.

======================================  ==================================================================
kernel                                  targets
======================================  ==================================================================
(N, N)                                  (N,); (N, R) for R targets, for example one-hot classes with a pNTK
(N, L, N, L), or an operator that is    (N, L), for example one-hot classes, or flat (N L,); several
known to have L outputs                 targets as (N L, R) or (N, L, R)
(N L, N L)                              (N L,), (N L, R), or (N, L) with N < N L rows
======================================  ==================================================================

Integers of more than two values in one column are refused: they look like class numbers, and as quantities, class 9
would count nine times class 1. Floating-point numbers are quantities, whatever their values; Booleans are 0 and 1.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._scaling import columns_to_unit


@dataclass(frozen=True)
class TargetColumns:
    """Targets as columns over the rows of a kernel, and the shape in which the user gave them.

    Attributes:
        columns: (n, R), float64.
        trailing: The shape of a prediction for one sample (for flat targets: for one row).
        outputs: L if a sample has several rows, otherwise None.
        samples: N, as far as it follows from the shapes.
        single: Whether the user gave one target, as (n,) or (N, L).
    """

    columns: Tensor
    trailing: tuple[int, ...]
    outputs: int | None
    samples: int
    single: bool


def as_targets(
    rows: int, outputs: int | None, values: Any, name: str = "targets", device: torch.device | None = None
) -> TargetColumns:
    """Check targets against a kernel.

    Args:
        rows: n of the kernel.
        outputs: L if the kernel is known to have several rows per sample, otherwise None.
        values: The targets, see above.
        name: Their name in a refusal.
        device: The device to move them to.

    Raises:
        TangentError: They are not real finite numbers, look like class numbers, or do not fit the kernel.
    """
    y = real(values, name).to(device)
    shape = tuple(y.shape)
    split = y.ndim == 2 and shape[0] != rows and y.numel() == rows  # (N, L), one row per sample
    if outputs is not None and y.ndim in (2, 3) and shape[:2] == (rows // outputs, outputs):
        split, cube = y.ndim == 2, y.ndim == 3
    else:
        cube = y.ndim == 3 and outputs is None and shape[0] * shape[1] == rows
        split = split and outputs is None
    if not (split or cube or (y.ndim in (1, 2) and shape[0] == rows)) or y.numel() == 0:
        raise _unfit(rows, outputs, shape, name)
    if not bool(torch.isfinite(y).all()):
        raise TangentError(
            f"The {name} are not finite: they hold NaN or infinite values.", remedy="Check how they were computed."
        )
    per_sample = shape[1] if split or cube else outputs
    return TargetColumns(
        columns=y.flatten(0, 1) if cube else y.reshape(rows, -1),
        trailing=shape[1:],
        outputs=shape[1] if split or cube else None,
        samples=rows // per_sample if per_sample else rows,
        single=split or y.ndim == 1,
    )


def real(values: Any, name: str = "targets") -> Tensor:
    """Convert numbers to a float64 tensor; refuse class numbers and what is not real."""
    try:
        y = torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TangentError(
            f"The {name} are not numbers: {type(values).__name__}.",
            why="Targets are values on the samples of a kernel.",
            remedy="Give a tensor, an array or a list of numbers, and classes as one-hot vectors.",
        ) from error
    refuse_class_numbers(y, name)
    if y.is_complex():
        raise TangentError(f"The {name} are complex.", why="Kernels are real.", remedy="Give real values.")
    return y.to(torch.float64)


def refuse_class_numbers(targets: Any, name: str = "targets") -> None:
    """Refuse a single column of integers of more than two values: as numbers, class 9 would be nine times class 1.

    Cost: one sort of a column of integers; none for other targets.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg
        >>> linalg.refuse_class_numbers(torch.randn(5, 2))

    See also:
        :func:`tangentlab.linalg.regress`.
    """
    y = torch.as_tensor(targets)
    column = y.ndim == 1 or (y.ndim > 1 and y.numel() == len(y))
    if not column or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        return
    classes = len(torch.unique(y))
    if classes > 2:
        raise TangentError(
            f"The {name} are integers of {classes} values.",
            why="They look like class numbers, but would be used as quantities.",
            remedy="Use torch.nn.functional.one_hot(y).double() for classes, y.double() for quantities.",
        )


@dataclass(frozen=True)
class Targets:
    """The differences y - f0 as columns of about unit size, and the user's shape and scale.

    Attributes:
        columns: (n, R), float64; column j is 2^-exponents[j] (y - f0)_j.
        exponents: The exponents, (R).
        trailing: As in :class:`TargetColumns`.
        outputs: As in :class:`TargetColumns`.
        blocks: The number of the kernel's rows per sample, if it is known.
        prior: Whether there is an f0.
    """

    columns: Tensor
    exponents: list[int]
    trailing: tuple[int, ...]
    outputs: int | None
    blocks: int | None
    prior: bool

    def rows(self, cross: Tensor) -> Tensor:
        """Flatten the kernel of new points (m, L, N, L) to a matrix; its L must be that of the training kernel."""
        if cross.ndim != 4:
            return cross
        if cross.shape[1] != (self.blocks or 1):
            raise TangentError(
                f"The kernel of new points has {cross.shape[1]} outputs, that of training points {self.blocks or 1}.",
                remedy="Give K(x_new, x_train) of the same network, (m, L, N, L).",
            )
        return cross.flatten(2).flatten(0, 1)


def as_columns(rows: int, outputs: int | None, device: torch.device, targets: Any, f0: Any) -> Targets:
    """Build the right-hand sides of kernel regression from targets and a prior mean in their shape."""
    given = as_targets(rows, outputs, targets, device=device)
    gap = given.columns
    if f0 is not None:
        start = torch.as_tensor(f0).detach()
        if start.shape != torch.as_tensor(targets).shape:
            raise TangentError(
                f"The shape of f0 is {tuple(start.shape)}, that of targets is {tuple(torch.as_tensor(targets).shape)}.",
                remedy="Give both in the same shape.",
            )
        gap = gap - start.to(gap).reshape(gap.shape)
        if not bool(torch.isfinite(gap).all()):
            raise TangentError(
                "The prior mean f0, or its difference from the targets, is not finite.",
                remedy="Check how they were computed.",
            )
    columns, exponents = columns_to_unit(gap)
    return Targets(columns, exponents, given.trailing, given.outputs, outputs or given.outputs, f0 is not None)


def _unfit(rows: int, outputs: int | None, shape: tuple[int, ...], name: str) -> TangentError:
    known = outputs is not None and outputs > 0
    return TangentError(
        f"{name.capitalize()} of shape {shape} do not fit a kernel of {rows:,} rows"
        + (f" ({outputs} outputs)." if known else "."),
        why=f"{name.capitalize()} are (N,) or (N, R) for a kernel (N, N), and (N, L) for (N, L, N, L) or (N L, N L).",
        remedy=f"Give (N, {outputs}) for N = {rows // outputs:,} samples, or ({rows:,},)."
        if outputs
        else f"Give values on the kernel's own {rows:,} rows.",
    )
