"""Kernel regression by block coordinate descent: no kernel, only blocks of it."""

import math
import os
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab._memory import available, parse_bytes
from tangentlab._scaling import number, times_powers
from tangentlab._seeds import check_seed
from tangentlab.linalg import Regression, as_source
from tangentlab.linalg.internal import Solved, Targets, add_prior, as_columns, as_ridge, finish
from tangentlab.solvers._access import Access, Entries, open_kernel
from tangentlab.solvers._block_state import Pass, Saved
from tangentlab.solvers._descent import Descent
from tangentlab.solvers._passes import Limits, as_validation, block_rows, run_passes

_SHARE = 0.6
"""Share of the free memory that is taken if the user sets no budget."""


@dataclass(frozen=True, eq=False)
class BlockRegression:
    """Kernel regression by block coordinate descent, f(x) = f0(x) + K(x, X) a with (K + ridge) a = y - f0.

    Attributes:
        coefficients: a, (n, R), float64.
        ridge: The number that was added to the diagonal.
        residual: The largest ||(K + ridge) a - (y - f0)|| / ||y - f0|| over the columns, computed at the end.
        effective_ridge: The ridge of which a is closest to the solution, ridge + <a, r> / <a, a> with the remaining
            r = y - f0 - (K + ridge) a. What an early stop leaves acts like a ridge.
        norm: sqrt(a^T K a) of each column, (R,): the distance that the weights move.
        stopped: Why: ``"tolerance"``, ``"error"``, ``"time"`` or ``"passes"``.
        block: The number of rows in a block.
        history: One entry per pass over the blocks.
    """

    coefficients: Tensor
    ridge: float
    residual: float
    effective_ridge: float
    norm: Tensor
    stopped: str
    block: int
    history: tuple[Pass, ...]
    _fit: Regression = field(repr=False)
    _access: Access = field(repr=False)
    _data: Targets = field(repr=False)

    @property
    def passes(self) -> int:
        """The number of passes over the blocks."""
        return len(self.history)

    def predict(self, x: Any, f0: Any = None) -> Tensor:
        """Predict for new samples, in the shape of the targets, float64.

        Cost: that of :meth:`tangentlab.linalg.Regression.predict` for a stored kernel or a matrix. For an
        ``NTKOperator``, the passes of the new samples, and either 2 P R operations per row or, where the fit went by
        tiles of the kernel, their kernel with all training samples.

        Args:
            x: The samples, if the kernel is an ``NTKOperator``; for a stored kernel or a matrix K(x_new, X), as
                :meth:`tangentlab.linalg.Regression.predict` takes it.
            f0: The prior mean at the new samples; needed if the fit has one. 0 gives the difference from it.
        """
        if isinstance(self._access, Entries):
            return self._fit.predict(x, f0)
        if f0 is None and self._data.prior:
            raise TangentError(
                "The fit has a prior mean f0 and the new samples have none.",
                why="Without it the predictions would only be the difference from the network's outputs.",
                remedy="Give f0=network(x); f0=0 for the difference.",
            )
        values = self._access.predict(x, 0.0)
        values = times_powers(values, self._data.exponents).reshape(-1, *self._data.trailing)
        return values if f0 is None else add_prior(values, f0)

    @property
    def table(self) -> Any:
        """A DataFrame with one row per pass."""
        import pandas as pd

        return pd.DataFrame([vars(each) for each in self.history])

    def __repr__(self) -> str:
        n, columns = self.coefficients.shape
        return (
            f"BlockRegression({n:,} points, {columns} right-hand sides, ridge {self.ridge:.3g}, {self.passes} passes, "
            f"residual {self.residual:.2g}, stopped by {self.stopped})"
        )

    def _repr_html_(self) -> str:
        facts = {"ridge": self.ridge, "residual": self.residual, "passes": self.passes, "stopped by": self.stopped}
        return card("BlockRegression", facts, self.table.to_html(index=False, float_format="%.4g"))


def block_regression(
    kernel: Any,
    targets: Any,
    *,
    f0: Any = None,
    ridge: float = 0.0,
    tolerance: float | None = None,
    validation: tuple[Any, ...] | None = None,
    error: float | None = None,
    seconds: float | None = None,
    passes: int = 200,
    folder: str | os.PathLike[str] | None = None,
    memory_budget: int | float | str | None = None,
    block: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> BlockRegression:
    r"""Fit kernel regression with the exact kernel, of which only blocks on the diagonal are ever computed.

    Solves :math:`(K + \rho) a = y - f_0` as :func:`tangentlab.linalg.regress` does, by accelerated block coordinate
    descent: every pass draws a partition of the rows into blocks B, and solves for one block after the other,

    .. math:: \delta = (K_{BB} + \rho)^{-1} (y_B - K_B z - \rho z_B)

    with the momentum of ASkotch (Rathore et al. 2024). For an operator, :math:`K_B z = J_B u` with
    :math:`u = J^T z`, which is kept up to date, where that takes fewer operations than tiles of the kernel and fits
    into memory.

    Args:
        kernel: A :class:`tangentlab.NTKOperator`, a stored kernel, a :class:`tangentlab.linalg.Part` of it, or a
            matrix.
        targets: As for :func:`tangentlab.linalg.regress`, like f0.
        f0: The prior mean at the samples, in the shape of the targets.
        ridge: rho, added to the diagonal as it is, not multiplied by N.
        tolerance: Stop when the largest ||(K + ridge) a - b|| / ||b|| over the columns is this small; by default
            1e-10, and 1e-4 for operators in float32.
        validation: ``(x, y)``, with a prior mean ``(x, y, f0)``: samples whose mean squared error is computed after
            every pass. For a stored kernel or a matrix, x stands for K(x, X).
        error: Stop as soon as that error is this small.
        seconds: Stop after this time.
        passes: Stop after this number of passes over all rows.
        folder: A folder for checkpoints: repeat an interrupted call to resume it, also after ``kill -9``.
        memory_budget: Bytes ("2GiB") for everything beside the model, the samples and what ``kernel`` is if it is a
            matrix; the factors that an operator keeps are included. None for 60 % of what is free.
        block: The rows of a block; None for an eighth of all rows, 256 to 6,144, as far as memory allows.
        seed: The seed of the partitions.
        progress: Whether to show a progress bar; None shows one on a terminal.

    Raises:
        TangentError: Targets do not fit, the ridge is negative, the kernel is singular, the memory is too small, or
            the folder holds another regression.

    Warns:
        RuntimeWarning: The tolerance is not reached in ``passes`` passes.

    Cost: per pass, n b / 2 pairs of samples and n b^2 / 3 operations for the blocks, and products of all rows: 4 N P R
    operations for P parameters and R right-hand sides, or N^2 pairs of samples. Memory: about 9 b^2 bytes.

    Examples:
        >>> import torch
        >>> from tangentlab import NTKOperator, solvers
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
        >>> kernel = NTKOperator(network, torch.randn(20, 4).double())
        >>> fit = solvers.block_regression(kernel, torch.randn(20).double(), ridge=1.0, progress=False)
        >>> fit.residual < 1e-9, fit.predict(torch.randn(3, 4).double()).shape
        (True, torch.Size([3]))

    See also:
        :func:`tangentlab.solvers.sketched_regression`, :func:`tangentlab.linalg.regress`.
    """
    start, ridge = time.monotonic(), as_ridge(ridge)
    source = as_source(kernel)
    data = as_columns(source.n, source.outputs, source.device, targets, f0)
    columns = data.columns.shape[1]
    memory = parse_bytes(memory_budget) if memory_budget is not None else int(_SHARE * available(source.device))
    access = open_kernel(kernel, source, columns, memory)
    if memory_budget is None:
        memory += access.held  # what is kept already is not part of what is free
    exact = isinstance(access, Entries) or source.dtype == torch.float64
    limits = Limits((1e-10 if exact else 1e-4) if tolerance is None else tolerance, error, seconds, passes, start)
    limits.check(validation)
    checked = as_validation(validation, data)
    descent = Descent(
        access,
        data.columns,
        number(ridge, -access.source.exponent),
        block_rows(access, columns, memory, block),
        check_seed(seed),
    )
    saved = Saved.open(folder, descent)
    access.start(saved.state.z, saved.state.v)
    stopped, image = run_passes(descent, saved, data, checked, limits, progress)
    descent.settle(saved.state)
    solution = saved.state.z
    if image is None:
        image = access.product(solution)
    gap = data.columns - image - descent.ridge * solution
    square = float(solution.square().sum())
    shift = float((solution * gap).sum()) / square if square else 0.0
    fit = finish(
        Solved(solution, access.n, "blocks"),
        data,
        image,
        ridge=ridge,
        unit_ridge=descent.ridge,
        exponent=access.source.exponent,
        accepted=math.inf,
    )
    if stopped == "passes" and fit.residual >= 1:
        raise TangentError(
            f"The residual is {fit.residual:.2g} after {passes} passes: the blocks do not come nearer to a solution.",
            "The kernel is singular, or its rounding errors are as large as its small eigenvalues.",
            "Use a larger ridge, a larger block, or a kernel in float64.",
        )
    if stopped == "passes":
        warnings.warn(
            f"The residual is {fit.residual:.2g} after {passes} passes; {limits.tolerance:.2g} was requested. The "
            "kernel is singular or its eigenvalues are far apart. Use a larger ridge, a larger block or more passes.",
            RuntimeWarning,
            stacklevel=2,
        )
    return BlockRegression(
        coefficients=fit.coefficients,
        ridge=ridge,
        residual=fit.residual,
        effective_ridge=ridge + number(shift, access.source.exponent),
        norm=fit.norm,
        stopped=stopped,
        block=descent.width * access.unit,
        history=tuple(saved.history),
        _fit=fit,
        _access=access,
        _data=data,
    )
