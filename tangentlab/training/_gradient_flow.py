"""Squared loss in closed form: the predictions of a linear model at any time of training, from its kernel."""

import math
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._scaling import columns_to_unit, number, restored, times_powers
from tangentlab._sums import exponent_of, times_power
from tangentlab.linalg import as_source, rank_cutoff, require_positive
from tangentlab.linalg.internal import as_columns


class GradientFlow:
    """A linear model f(x) = f0(x) + J(x) d under gradient flow or gradient descent on squared loss.

    The loss is L = c * sum_n ||f(x_n) - y_n||^2 / 2: a *sum* over samples and outputs, times ``loss_scale`` c. For
    the mean over N samples of ||f - y||^2 / 2 it is 1/N, for ``torch.nn.MSELoss`` 2/(N L); ``Squared.scale(N, L)``
    gives it for the losses of this package. With the kernel K = J J^T of the training points and the kernel K* of
    test against training points, starting at d = 0:

        f(t)  = y  + exp(-c K t) (f0 - y)                      on the training points
        f*(t) = f0* + K* K^-1 (1 - exp(-c K t)) (y - f0)       anywhere
        f(t -> infinity): exp -> 0; kernel regression with prior mean f0

    and for k steps of gradient descent with learning rate lr, exactly, (1 - c lr K)^k in place of exp(-c K t).

    Cost: one eigendecomposition in float64, about 10 n^3 operations and 24 n^2 bytes for n = N or N L; every prediction
    takes 2 n^2 operations per column of the targets, 2 n (n + M) for M other rows.

    A singular kernel is allowed: the residual in its null space never changes, and the test points do not depend on
    it, so the inverse above is the pseudo-inverse. ``rank`` says how many directions move. Eigenvalues that the
    precision of the given kernel cannot tell from zero count as zero; in float32 these are many more.

    Args:
        kernel: K, either (N, N), one kernel for all outputs (the pseudo-NTK means K (x) 1); or
            (N, L, N, L), the full kernel.
        targets: y, (N,) or (N, L), one-hot for classes; (N, L) or flat (N L,) for a full kernel.
        f0: The model's outputs at the start on the training points, in the shape of ``targets``; zero by default.
        loss_scale: c.

    Examples:
        >>> import torch
        >>> from tangentlab import training, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> flow = training.GradientFlow(kernel, torch.randn(8, 1))
        >>> flow.predict(float("inf")).shape
        torch.Size([8, 1])

    See also:
        :func:`tangentlab.linalg.regress`, :func:`tangentlab.predict_training`.
    """

    def __init__(self, kernel: Any, targets: Any, f0: Any = None, loss_scale: float = 1.0) -> None:
        source = as_source(torch.as_tensor(kernel)).unit()
        data = as_columns(source.n, source.outputs, source.device, targets, f0)
        if not (loss_scale > 0 and math.isfinite(loss_scale)):
            raise TangentError(f"loss_scale={loss_scale} is not positive.", remedy="Use 1, or Squared().scale(N, L).")
        self._data, self._scale, self._exponent = data, float(loss_scale), source.exponent
        self._targets = torch.as_tensor(targets).detach().to(dtype=torch.float64, device=source.device)
        self._full = source.outputs is not None
        values, self._vectors = torch.linalg.eigh(source.dense())
        require_positive(values, precision=source.precision, exponent=source.exponent)
        # Eigenvalues of 2^-exponent K, ascending; the residual at unit size.
        self._values = torch.where(values > rank_cutoff(values, source.precision), values, 0.0)
        self._residual = self._vectors.T @ data.columns

    @property
    def eigenvalues(self) -> Tensor:
        """The eigenvalues of the kernel, ascending; rounding errors around zero are set to zero."""
        return restored(self._values, self._exponent, "eigenvalues")

    @property
    def rank(self) -> int:
        """The number of eigenvalues above rounding: the directions in which the model learns."""
        return int((self._values > 0).sum())

    @property
    def largest_stable_lr(self) -> float:
        """2 / (c lambda_max): gradient descent converges for every smaller learning rate, and for no larger one.

        For SGD with momentum m it is (1 + m) times as large.
        """
        largest = float(self._values[-1]) * _mantissa(self._scale)
        return number(2.0 / largest, -self._exponent - exponent_of(self._scale)) if largest else math.inf

    def predict(self, time: float, kernel: Any = None, f0: Any = None) -> Tensor:
        """Compute predictions after gradient flow for a time; ``math.inf`` for convergence.

        Time is measured so that df/dt = -c K (f - y): k steps of a small learning rate lr take the time k lr.

        Args:
            time: From 0 to ``math.inf``.
            kernel: K* of the points to predict against the training points, (M, N) or (M, L, N, L); None for the
                training points themselves.
            f0: The model's outputs at the start on those points, (M,) or (M, L), or a number for all of them. Needed
                with ``kernel`` where the training points have theirs; 0 then gives the difference.

        Returns:
            (M,) or (M, L), float64.
        """
        if isinstance(time, Tensor) and time.ndim:
            raise TangentError(
                f"The time is a tensor {tuple(time.shape)}.", remedy="Give predict(time, kernel, f0), the time first."
            )
        if not time >= 0:
            raise TangentError(f"time={time} is not from 0 to infinity.", remedy="Use math.inf for convergence.")
        if math.isinf(time):
            decay = torch.where(self._values > 0, 0.0, 1.0).to(torch.float64)
            return self._predict(decay, 1 - decay, kernel, f0)
        rate = self._times(time)
        return self._predict(torch.exp(-rate), -torch.expm1(-rate), kernel, f0)

    def predict_after(self, steps: int, lr: float, kernel: Any = None, f0: Any = None) -> Tensor:
        """Compute predictions after exactly ``steps`` steps of gradient descent on all samples; otherwise as
        :meth:`predict`.

        Right for unstable learning rates too, until numbers overflow.
        """
        if steps < 0:
            raise TangentError(f"steps={steps} is negative.", remedy="Use 0 or more.")
        step = self._times(lr)
        decay = (1 - step) ** steps
        # As a difference, 1 - decay would lose its digits in small eigenvalues, by which it is divided.
        small = -torch.expm1(steps * torch.log1p(-step.clamp(max=0.5)))
        return self._predict(decay, torch.where(step < 0.5, small, 1 - decay), kernel, f0)

    def loss(self, time: float) -> float:
        """Compute the training loss L at a time."""
        gap, (exponent,) = columns_to_unit((self.predict(time) - self._targets).reshape(-1, 1))
        half = _mantissa(self._scale) * gap.square().sum() / 2
        return float(restored(half, 2 * exponent + exponent_of(self._scale), "losses"))

    def _times(self, time: float) -> Tensor:
        """Compute c lambda t for all eigenvalues as one product, no matter how small or large its factors are."""
        small = self._values * (_mantissa(self._scale) * _mantissa(time))
        return times_power(small, self._exponent + exponent_of(self._scale) + exponent_of(abs(time)))

    def _predict(self, decay: Tensor, progress: Tensor, kernel: Any, f0: Any) -> Tensor:
        if kernel is None:
            if f0 is not None:
                raise TangentError(
                    "f0 was given for points without their kernel.", remedy="Give kernel too, or leave both out."
                )
            moved = times_powers(self._vectors @ (decay[:, None] * self._residual), self._data.exponents)
            return self._targets - moved.reshape(self._targets.shape)
        if f0 is None and self._data.prior:
            raise TangentError(
                "The training points have a prior mean f0 and the points to predict have none.",
                why="Without it the predictions would only be the difference from the network's outputs.",
                remedy="Give f0=network(x_test); f0=0 for the difference.",
            )
        cross, n = self._data.rows(_double(kernel)), len(self._values)
        outputs = self._data.outputs
        if cross.ndim != 2 or cross.shape[1] != n or (outputs and len(cross) % outputs):
            raise TangentError(
                f"The kernel of the points to predict is {tuple(_double(kernel).shape)}; it must have {n:,} columns, "
                "one for each training point (and output).",
                remedy="Give K(x_test, x_train), test points first, in the form of the training kernel.",
            )
        # (1 - exp(-c K t)) / K; where K is zero nothing is learned, and K* is zero too.
        gain = torch.where(self._values > 0, progress / torch.where(self._values > 0, self._values, 1.0), 0.0)
        weights = self._vectors @ (gain[:, None] * self._residual)
        step = times_powers(times_power(cross, -self._exponent) @ weights, self._data.exponents)
        step = step.reshape(-1, *self._data.trailing)
        if not bool(torch.isfinite(step).all()):
            raise TangentError("The predictions are not finite.", remedy="Look at the kernel of the points to predict.")
        if f0 is None:
            return step
        start = _double(f0)
        if start.ndim and start.shape != step.shape:
            raise TangentError(
                f"f0 is {tuple(start.shape)} and the predictions {tuple(step.shape)}.", remedy="Give both alike."
            )
        return start + step

    def __repr__(self) -> str:
        shape = " x ".join(f"{size:,}" for size in self._targets.shape)
        return (
            f"GradientFlow(targets {shape}, {'full kernel' if self._full else 'one kernel'}, rank {self.rank:,} of "
            f"{len(self._values):,}, loss scale {self._scale:.3g}, largest stable lr {self.largest_stable_lr:.3g})"
        )


def _double(values: Any) -> Tensor:
    return torch.as_tensor(values).detach().to(torch.float64)


def _mantissa(value: float) -> float:
    """Return the number without its power of two."""
    return math.frexp(value)[0]
