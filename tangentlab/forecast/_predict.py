"""Loss and accuracy over the steps of training, predicted from a kernel."""

import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab._seeds import check_seed
from tangentlab.forecast._batch_statistics import at_batch_statistics
from tangentlab.forecast._learning_curve import eigenlearning, leave_one_out, subset_errors
from tangentlab.kernels import ntk
from tangentlab.kernels.internal import Network, Samples
from tangentlab.training import Squared

_FULL = 3000
"""Rows of the full kernel that are still decomposed where the readout is not given."""
_POINTS = 60


class TrainingForecast:
    r"""Training of the linearized network on squared loss, in closed form.

    The loss is ``torch.nn.MSELoss``, c / 2 times the sum of squares with c = 2 / (N L). With the eigenpairs of K and
    the heavy-ball recurrence of SGD with momentum m and learning rate eta,

    .. math:: p_{t+1}(\lambda) = (1 + m - \eta c \lambda)\, p_t(\lambda) - m\, p_{t-1}(\lambda), \quad p_0 = 1, \quad
        p_1 = 1 - \eta c \lambda, \qquad f_t - y = p_t(K) (f_0 - y)

    which is exact for the linearization under full batches, and the mean over minibatches to first order in the
    learning rate. Gradient flow is the limit of small learning rates, exp(-c lambda t) in place of p_t at the time
    t = eta step / (1 - m). Made by :func:`predict_training`. Cost: as stated there; ``learning_curve`` also decomposes
    the kernels of random subsets, about 10 n^3 operations for n samples.

    Attributes:
        table: One row per step of a logarithmic grid: ``step``, ``train_loss``, ``train_accuracy``, ``flow_loss`` (the
            training loss under gradient flow), and with test samples ``test_loss``, ``test_accuracy`` and their
            standard errors over the test samples.
        lr: The learning rate.
        momentum: The momentum.
        largest_stable_lr: 2 (1 + m) / (c lambda_max): full batches diverge above it.
        readout: The kernel: ``"full"`` or ``"pntk"``.
        note: What was done to BatchNorm layers, if anything.
    """

    def __init__(
        self,
        kernel: Tensor,
        targets: Tensor,
        start: Tensor,
        lr: float | None,
        momentum: float,
        steps: int,
        test: tuple[Tensor, Tensor, Tensor] | None,
        note: str,
    ) -> None:
        self.targets, self.start, self.momentum, self.note, self.steps = targets, start, momentum, note, steps
        self._full = kernel.ndim == 4
        self.readout = "full" if self._full else "pntk"
        self._kernel = kernel.reshape(targets.numel(), -1) if self._full else kernel
        self.spectrum = linalg.eigh(self._kernel)
        self._scale = Squared().scale(*targets.shape)
        largest = float(self.spectrum.values[0])
        if not largest > 0:
            raise TangentError("The kernel is zero.", "Nothing would be learned.", "Check the model and its samples.")
        self.largest_stable_lr = 2 * (1 + momentum) / (self._scale * largest)
        self.lr = self.largest_stable_lr / 2 if lr is None else lr
        self._gap = self.spectrum.vectors.T @ self._flat(targets - start)
        self._test = test
        self.table = self._run()

    def _flat(self, values: Tensor) -> Tensor:
        return values.reshape(-1, 1) if self._full else values

    def _run(self) -> pd.DataFrame:
        """Run the recurrence and measure at the steps of the grid."""
        rates = self.lr * self._scale * self.spectrum.values.clamp(min=0)
        wanted = {0, self.steps} | {round(math.exp(i * math.log(self.steps) / _POINTS)) for i in range(_POINTS + 1)}
        before, now = torch.zeros_like(rates), torch.zeros_like(rates)  # 1 - p_t, which has no cancellation
        rows = []
        for step in range(self.steps + 1):
            if step in wanted:
                flow = -torch.expm1(-rates * step / (1 - self.momentum))
                rows.append({"step": step, **self._measure(now), "flow_loss": float(self._train(flow)[0].mean())})
                if not math.isfinite(rows[-1]["train_loss"]) or rows[-1]["train_loss"] > 1e30:
                    break
            before, now = now, rates + (1 + self.momentum - rates) * now - self.momentum * before
            if step == 0:
                now = rates
        return pd.DataFrame(rows)

    def _train(self, learned: Tensor) -> tuple[Tensor, Tensor]:
        """Compute losses and hits of the training samples from 1 - p(lambda)."""
        moved = self.spectrum.vectors @ (learned[:, None] * self._gap)
        return _losses(self.start + moved.reshape(self.start.shape), self.targets)

    def _measure(self, learned: Tensor) -> dict[str, float]:
        losses, right = self._train(learned)
        found = {"train_loss": float(losses.mean()), "train_accuracy": float(right.mean())}
        if self._test is not None:
            cross, truth, start = self._test
            values = self.spectrum.values
            floor = linalg.rank_cutoff(values, self._kernel.dtype)
            gain = torch.where(values > floor, learned / values.clamp(min=floor or 1e-300), 0.0)
            moved = cross @ (self.spectrum.vectors @ (gain[:, None] * self._gap))
            losses, right = _losses(start + moved.reshape(start.shape), truth)
            for name, each in (("loss", losses), ("accuracy", right)):
                found[f"test_{name}"] = float(each.mean())
                found[f"test_{name}_error"] = float(each.std() / math.sqrt(len(each)))
        return found

    def steps_to(self, loss: float) -> float:
        """Return the number of steps until the training loss is at most this; infinity if it is not reached.

        Between two steps of the grid, the loss is interpolated in its logarithm.
        """
        if not _is_number(loss) or math.isnan(loss):
            raise TangentError(f"The loss is {loss!r}.", "", "Give a number.")
        steps, losses = self.table["step"].to_numpy(), self.table["train_loss"].to_numpy()
        for i, value in enumerate(losses):
            if value <= loss:
                if i == 0 or value <= 0:
                    return float(steps[i])
                share = math.log(losses[i - 1] / loss) / math.log(losses[i - 1] / value)
                return float(steps[i - 1] + share * (steps[i] - steps[i - 1]))
        return math.inf

    def learning_curve(self, sizes: Sequence[int] | None = None, *, repeats: int = 5, seed: int = 0) -> pd.DataFrame:
        """Predict the squared error on new samples of a ridge regression with n training samples.

        Args:
            sizes: Numbers n; None for eighths to all of the N samples.
            repeats: Random subsets per size.
            seed: Their seed.

        Returns:
            Columns ``samples``, ``gcv`` (mean over subsets), ``gcv_std`` (standard deviation over them) and
            ``eigenlearning`` (from the spectrum of all samples, for n below N). The error is summed over outputs.

        Raises:
            TangentError: The forecast is of the full kernel.
        """
        if self._full:
            raise TangentError(
                "There is no learning curve of the full kernel.",
                "Samples would be left out one output at a time.",
                'Pass readout="pntk" to predict_training.',
            )
        count = len(self._kernel)
        if sizes is not None and (not isinstance(sizes, Iterable) or isinstance(sizes, str) or not list(sizes)):
            raise TangentError(f"sizes={sizes!r} has no numbers.", "", f"Give for example [{max(4, count // 2)}].")
        chosen = sorted({max(4, count * i // 8) for i in (1, 2, 4, 6, 8)}) if sizes is None else list(sizes)
        check_seed(seed)
        gap = self.targets - self.start
        ridge = leave_one_out(self.spectrum, gap).ridge
        rows: list[dict[str, float]] = []
        if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
            raise TangentError(f"repeats={repeats!r} is not a positive whole number.", "", "Use 5.")
        for n in chosen:
            if not isinstance(n, Integral) or not 4 <= n <= count:
                raise TangentError(f"The size {n!r} is not a whole number from 4 to {count:,}.", "", "Give such sizes.")
            gcv = subset_errors(self._kernel, gap, n, 1 if n == count else repeats, seed)
            expected = eigenlearning(self.spectrum, gap, [n], ridge)[0] if n < count else math.nan
            spread = float(gcv.std()) if len(gcv) > 1 else math.nan
            rows.append({"samples": n, "gcv": float(gcv.mean()), "gcv_std": spread, "eigenlearning": expected})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        last = self.table.iloc[-1]
        kind = "full kernel" if self._full else "one kernel"
        return (
            f"TrainingForecast({len(self.targets):,} samples, {kind}, lr {self.lr:.3g}, momentum {self.momentum}, "
            f"largest stable lr {self.largest_stable_lr:.3g}; after {int(last['step']):,} steps: training loss "
            f"{last['train_loss']:.4g}, accuracy {last['train_accuracy']:.3f})"
        )


def predict_training(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    test: Any = None,
    lr: float | None = None,
    momentum: float = 0.0,
    steps: int = 1000,
    readout: str | None = None,
    output: Callable[[Any], Tensor] | None = None,
    input: Callable[[Any], Any] | None = None,
    **options: Any,
) -> TrainingForecast:
    """Predict training before it happens: what the linearization at the current weights does under SGD.

    Cost: that of :func:`tangentlab.ntk`, then about 10 n^3 operations and 32 n^2 bytes for the eigenpairs of n = N O
    rows (N for ``"pntk"``), and n operations per step.

    Args:
        model: The network, at its initial or pretrained weights. It is copied; BatchNorm in training mode is evaluated
            at the statistics of the samples, and the result says so.
        x: N training samples, in any form that :func:`tangentlab.ntk` takes.
        y: Targets: classes (N,), which become one-hot vectors, or numbers (N, L); None for those in the samples.
        test: Test samples, as (x, y) or with their targets.
        lr: The learning rate; None for half of the largest stable one.
        momentum: From 0 to below 1.
        steps: How far to predict.
        readout: ``"full"``: the linearization itself. ``"pntk"``: one kernel for every output. None for full up to
            3,000 rows.
        output: As for :func:`tangentlab.ntk`, like ``input`` and all further options.

    Raises:
        TangentError: No targets, targets that do not fit the outputs, or numbers out of range.

    Examples:
        >>> import torch
        >>> from tangentlab import predict_training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> forecast = predict_training(network, x, y, lr=0.1, steps=100, progress=False)
        >>> type(forecast).__name__
        'TrainingForecast'

    See also:
        :func:`tangentlab.forecast.eigenlearning`, :class:`tangentlab.training.GradientFlow`,
        :func:`tangentlab.plot.forecast`.
    """
    if not _is_number(momentum) or not 0 <= momentum < 1:
        raise TangentError(f"momentum={momentum!r} is not in [0, 1).", "", "Use 0.9, for example.")
    if lr is not None and not (_is_number(lr) and 0 < lr < math.inf):
        raise TangentError(
            f"lr={lr!r} is not a positive number.", "", "Leave it out for half of the largest stable one."
        )
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise TangentError(f"steps={steps!r} is not a positive whole number.", "", "Use 1000, for example.")
    if readout not in (None, "full", "pntk"):
        raise TangentError(f"The readout is {readout!r}.", "", 'Use "full", "pntk" or None.')
    if not isinstance(model, nn.Module):
        raise TangentError(f"The model is of type {type(model).__name__}.", "", "Pass a torch.nn.Module.")
    samples = Samples(x, device=torch.device("cpu"), input=input, model=model, name="x")
    frozen, note = at_batch_statistics(model, samples)
    network = Network(frozen, "full", output=output, dtype=options.get("dtype"), device=options.get("device"))
    train = read_labeled(samples, y, network)
    readout = readout or ("full" if train[2].numel() <= _FULL else "pntk")
    given = {**options, "output": output, "readout": readout}
    kernel = ntk(frozen, train[0], **given).double()
    tested = None
    if test is not None:
        pair = test if isinstance(test, tuple) and len(test) == 2 else (test, None)
        other = read_labeled(Samples(pair[0], device=network.device, input=input, model=model), pair[1], network)
        cross = ntk(frozen, other[0], train[0], **given).double()
        tested = (cross.reshape(other[2].numel(), -1) if readout == "full" else cross, other[1], other[2])
    return TrainingForecast(kernel, train[1], train[2], lr, momentum, steps, tested, note)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def read_labeled(samples: Samples, y: Any, network: Network) -> tuple[Any, Tensor, Tensor]:
    """Return the inputs, the targets as numbers (N, L) and the outputs (N, L) of labeled samples."""
    found = samples.targets_or(y)
    if found is None:
        raise TangentError(
            "There are no targets.",
            "There is no y, and the samples came without labels.",
            "Pass y, or a Dataset of (input, target) pairs.",
        )
    placed = Samples(samples.batch(slice(0, len(samples))).inputs, device=network.device, dtype=network.cast)
    outputs = network.values_on(placed, 512).double()
    try:
        given = torch.as_tensor(found).to(outputs.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TangentError(f"The targets are a {type(found).__name__}.", "", "Give a tensor of numbers.") from error
    targets = as_numbers(given, outputs.shape[1])
    if not bool(torch.isfinite(targets).all()):
        raise TangentError("The targets hold NaN or infinite values.", "", "Clean the data.")
    if targets.shape != outputs.shape:
        raise TangentError(
            f"The targets are {tuple(targets.shape)} and the outputs {tuple(outputs.shape)}.",
            "Each output has a target.",
            "Give classes (N,) or numbers (N, outputs).",
        )
    return placed.batch(slice(0, len(placed))).inputs, targets, outputs


def as_numbers(targets: Tensor, outputs: int) -> Tensor:
    """Return targets (N, L) in float64: one-hot vectors of classes, -1 and 1 for two classes and one output."""
    if targets.is_complex():
        raise TangentError("The targets are complex.", "", "Give classes (N,) or real numbers (N, outputs).")
    if not targets.numel() or not targets.ndim:
        raise TangentError(f"The targets have shape {tuple(targets.shape)}.", "", "Give one target per sample.")
    if targets.is_floating_point() or targets.ndim > 1:
        return targets.double().reshape(len(targets), -1)
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= max(2, outputs):
        raise TangentError(
            f"The labels go from {low} to {high}.",
            f"The network has {outputs} outputs.",
            "Number the classes as the network's outputs.",
        )
    if outputs == 1:
        return 2.0 * targets.double()[:, None] - 1
    return nn.functional.one_hot(targets.long(), outputs).double()


def _losses(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of each sample, as ``Squared`` has it, and whether it is classified right."""
    loss = Squared()
    return loss.per_sample(outputs, targets).double(), loss.correct(outputs, targets).double()
