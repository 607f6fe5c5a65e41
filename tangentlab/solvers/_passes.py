"""The passes of block coordinate descent: blocks that fit, limits, validation."""

import time
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._memory import show_bytes
from tangentlab._progress import progress_bar
from tangentlab._scaling import times_powers
from tangentlab.linalg.internal import Targets, add_prior, real
from tangentlab.solvers._access import Access
from tangentlab.solvers._block_state import Pass, Saved
from tangentlab.solvers._descent import Descent, State

_ROWS = (256, 6144)
"""Rows of a block: at least, unless there are fewer; and at most, unless the user chooses."""
_AGREE = 1e-3
"""The relative difference between errors on the same samples that counts as rounding."""
_BLOCKS = 8
"""Blocks that a kernel is cut into at least, where it has enough rows: more cost passes, fewer memory."""


@dataclass
class Limits:
    """When to stop.

    Attributes:
        tolerance: At this residual.
        error: At this error on validation samples.
        seconds: After this time.
        passes: After this number of passes.
        start: When the call began.
    """

    tolerance: float
    error: float | None
    seconds: float | None
    passes: int
    start: float

    def check(self, validation: Any) -> None:
        """Refuse limits that make no sense."""
        if not _is_number(self.tolerance) or not 0 < self.tolerance < 1:
            raise TangentError(
                f"The tolerance {self.tolerance!r} is not between 0 and 1.", remedy="Use for example 1e-4."
            )
        for name, value in (("error", self.error), ("seconds", self.seconds)):
            if value is not None and not (_is_number(value) and value >= 0):
                raise TangentError(f"{name}={value!r} is not a number from 0 up.", remedy="Leave it out for no limit.")
        if isinstance(self.passes, bool) or not isinstance(self.passes, int) or self.passes < 1:
            raise TangentError(f"passes={self.passes!r} is not a positive whole number.", remedy="Use for example 100.")
        if self.error is not None and validation is None:
            raise TangentError(
                "An error to stop at was given, and no validation samples.",
                "The error is that on validation samples.",
                "Pass validation=(x, y).",
            )

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return self.seconds is not None and time.monotonic() - self.start > self.seconds


def run_passes(
    descent: Descent, saved: Saved, data: Targets, checked: Any, limits: Limits, progress: bool | None
) -> tuple[str, Tensor | None]:
    """Make passes until a limit is reached; return which, and K times the solution if it is known."""
    state, history = saved.state, saved.history
    begun = state.passes, state.steps
    if checked is not None and history and state.steps == 0:
        _measure_again(history, validation_error(descent.access, checked, state.alpha, data))
    with progress_bar("Block regression", limits.passes, progress) as tick:
        tick(state.passes)
        while True:
            if history and state.steps == 0:
                last = history[-1]
                if limits.error is not None and last.error is not None and last.error <= limits.error:
                    return "error", None
                if last.residual <= limits.tolerance or descent.blocks == 1:
                    residual, image = true_residual(descent, state)
                    if residual <= limits.tolerance:
                        return "tolerance", image
            if limits.late and (state.passes, state.steps) != begun:  # every call makes a step at least
                return "time", None
            if state.passes >= limits.passes:
                return "passes", None
            for units in descent.partition(state.passes)[state.steps :]:
                descent.step(state, units)
                saved.save_now_and_then()
                tick(1 / descent.blocks)
                if limits.late:
                    break
            if state.steps < descent.blocks:
                saved.save()
                continue
            error = None if checked is None else validation_error(descent.access, checked, state.alpha, data)
            seen = descent.finish_pass(state, history[-1].residual if history else None)
            history.append(Pass(state.passes, seen, error, time.monotonic() - limits.start))
            saved.save()
            tick(0, f"residual {seen:.1e}" + ("" if error is None else f", validation error {error:.4g}"))


def _measure_again(history: list[Pass], error: float) -> None:
    """Put the present error into what was resumed; forget the earlier ones if they are those of other samples."""
    before = history[-1].error
    if before is None or abs(error - before) > _AGREE * max(error, before):
        history[:] = [replace(each, error=None) for each in history]
    history[-1] = replace(history[-1], error=error)


def true_residual(descent: Descent, state: State) -> tuple[float, Tensor]:
    """Compute the largest relative residual over the columns, by a product with the whole kernel, and that product."""
    solution = state.solution()
    image, right = descent.access.product(solution), descent.right
    size = right.norm(dim=0)
    gap = (right - image - descent.ridge * solution).norm(dim=0)
    return float((gap / torch.where(size > 0, size, 1.0)).max()), image


def block_rows(access: Access, columns: int, memory: int, block: int | None) -> int:
    """Return the rows of a block, those that the user chose or as many as fit."""
    if block is not None and (isinstance(block, bool) or not isinstance(block, int) or block < 1):
        raise TangentError(f"The block {block!r} is not a positive number of rows.", remedy="Use for example 2048.")
    least, most = _ROWS
    wanted = block or min(access.n, max(least, min(most, access.n // _BLOCKS)))
    wanted = max(access.unit, min(access.n, wanted))
    room = memory - access.held
    while access.working(wanted, columns) > room:
        if block is not None or wanted <= max(access.unit, min(least, access.n) // 4):
            need = access.held + access.working(wanted, columns)
            raise TangentError(
                f"The memory budget of {show_bytes(memory)} is too small for a block of {wanted:,} rows.",
                f"The kernel keeps {show_bytes(access.held)}, a step takes {show_bytes(need - access.held)}.",
                f"Pass memory_budget of at least {show_bytes(need * 1.05)}, a smaller block, or an NTKOperator with a "
                "smaller memory_budget, which keeps no factors.",
            )
        wanted = max(access.unit, wanted * 7 // 8)
    access.divide(wanted)
    return wanted


def as_validation(given: Any, data: Targets) -> tuple[Any, Tensor] | None:
    """Return new samples and the differences of their targets from the prior mean."""
    if given is None:
        return None
    if not isinstance(given, tuple | list) or len(given) not in (2, 3) or (len(given) == 3) != data.prior:
        raise TangentError(
            "validation= does not fit.",
            "It holds samples and targets, and a prior mean if the fit has one.",
            "Pass (x, y), or (x, y, f0) with f0=.",
        )
    y = real(given[1], "validation targets")
    if y.ndim == 0 or not y.numel() or tuple(y.shape[1:]) != data.trailing:
        raise TangentError(
            f"The validation targets have the shape {tuple(y.shape)}.",
            f"Those of the training samples have {data.trailing} per sample.",
            "Pass both in the same form.",
        )
    if data.prior:
        y = add_prior(y, -real(given[2], "validation prior means"))
    if not bool(torch.isfinite(y).all()):
        raise TangentError("The validation targets are not finite.", remedy="Check how they were computed.")
    return given[0], y


def validation_error(access: Access, checked: tuple[Any, Tensor], alpha: float, data: Targets) -> float:
    """Compute the mean squared error on validation samples."""
    values = access.predict(checked[0], alpha)
    values = times_powers(values, [e - access.source.exponent for e in data.exponents])
    wanted = checked[1].reshape(-1, values.shape[1]).to(values)
    if wanted.shape != values.shape:
        raise TangentError(
            f"There are {len(values):,} validation samples and targets of shape {tuple(checked[1].shape)}.",
            "Every sample needs its target.",
            "Pass as many targets as samples.",
        )
    if not bool(torch.isfinite(values).all()):
        raise TangentError(
            "The predictions on the validation samples are not finite.",
            "Their kernel holds NaN or infinite values, or they are too large.",
            "Check them, and compute in float64.",
        )
    return float((values - wanted).square().mean())


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
