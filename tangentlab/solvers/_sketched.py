"""Regression in sketched feature space, by normal equations that are accumulated in one pass over the samples."""

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab._progress import progress_bar
from tangentlab.kernels import SketchedKernel, sketch
from tangentlab.linalg.internal import RidgeErrors, add_prior, as_ridge, as_targets
from tangentlab.solvers._checkpoint import Checkpoint, refuse_changed
from tangentlab.solvers._normal import Decomposition
from tangentlab.solvers._rows import number_of, rows_of
from tangentlab.store.internal import Digest, weights_hash

_SAVED = 20.0
"""Seconds between two writes of the normal equations."""
_AGREE = 1e-3
"""The relative difference between features that counts as rounding."""


@dataclass(frozen=True)
class Milestone:
    """The state of a streaming regression on the way.

    Attributes:
        samples: The samples that the fit has seen.
        ridge: The ridge with the smallest generalized cross-validation so far.
        error: The mean squared error of that fit on the next samples, which it has not seen: an unbiased estimate of
            the test error.
        seconds: Since the start of this call.
    """

    samples: int
    ridge: float
    error: float
    seconds: float


@dataclass(frozen=True, eq=False)
class SketchedRegression(RidgeErrors):
    """Ridge regression on sketched features f(x) of k numbers: prediction f(x)^T w, for many ridges.

    It equals kernel regression with the sketched kernel K = F F^T.

    Attributes:
        ridges: rho, (G,), ascending.
        leave_one_out: The exact mean squared error on samples that are left out, (G,).
        gcv: The generalized cross-validation score, (G,).
        train: The mean squared error on the training samples, (G,).
        degrees: The effective degrees of freedom, (G,).
        norms: ||w||, the distance that the sketched weights move, (G,).
        samples: The number of samples that were fitted.
        complete: Whether these are all; a limit of time or a target error may stop it earlier.
        history: Milestones, at numbers of samples that double.
    """

    samples: int
    complete: bool
    history: tuple[Milestone, ...]
    _decomposition: Decomposition = field(repr=False)
    _features: Any = field(repr=False)
    _weights: str = field(repr=False)
    _maps: Any = field(repr=False)
    _shape: tuple[int, ...] = field(repr=False)
    _prior: bool = field(repr=False)

    def weights(self, ridge: float | None = None) -> Tensor:
        """Compute w, (k, L), float64, for a ridge, by default the best one."""
        return self._decomposition.weights(self.best if ridge is None else as_ridge(ridge))

    def predict(self, x: Any, ridge: float | None = None, f0: Any = None) -> Tensor:
        """Predict for new samples, in the shape of the targets, float64.

        Cost: that of :func:`tangentlab.sketch` for M samples, and 2 k (k + M) operations per target.

        Args:
            x: The samples.
            ridge: The ridge; None for the best one.
            f0: The prior mean at the new samples; needed if the fit has one. 0 gives the difference from it.
        """
        if f0 is None and self._prior:
            raise TangentError(
                "The fit has a prior mean f0 and the new samples have none.",
                why="Without it the predictions would only be the difference from the network's outputs.",
                remedy="Give f0=network(x); f0=0 for the difference.",
            )
        refuse_changed(self._features.args[0], self._weights)
        made: SketchedKernel = self._features(x)
        if made.maps != self._maps:
            raise TangentError(
                "The new samples are sketched by another projection than those of the fit.",
                "The model takes another way for them, so that their gradients come in another form.",
                "Sketch all samples in one call with tangentlab.sketch.",
            )
        values = made.features.cpu().double() @ self.weights(ridge)
        values = values.reshape(-1, *self._shape)
        return values if f0 is None else add_prior(values, f0)

    def __repr__(self) -> str:
        rest = "" if self.complete else ", stopped early"
        return (
            f"SketchedRegression({self.samples:,} samples{rest}, {len(self._decomposition.values):,} features, best "
            f"ridge {self.best:.3g}, leave-one-out error {float(self.leave_one_out.min()):.4g})"
        )

    def _repr_html_(self) -> str:
        facts = {"samples": self.samples, "best ridge": self.best}
        return card("SketchedRegression", facts, self.table.to_html(index=False, float_format="%.4g"))


def sketched_regression(
    model: nn.Module,
    x: Any,
    targets: Any,
    k: int,
    *,
    f0: Any = None,
    ridges: Sequence[float] | Tensor | None = None,
    folder: str | os.PathLike[str] | None = None,
    chunk: int = 4096,
    seconds: float | None = None,
    error: float | None = None,
    seed: int = 0,
    progress: bool | None = None,
    **options: Any,
) -> SketchedRegression:
    r"""Fit kernel regression in the space of k sketched features, in one pass over any number of samples.

    With the features F = J S^T of :func:`tangentlab.sketch`, (N, k), and y = targets - f0:

    .. math:: G = F^T F = V \Lambda V^T, \qquad w = V (\Lambda + \rho)^{-1} V^T F^T y

    G and F^T y are summed part by part in float64. One decomposition of G gives the fit, the training error,
    generalized cross-validation and the exact leave-one-out error for all ridges; the last one reads the features
    again, from the disk. The result equals :func:`tangentlab.linalg.ridge_path` of the sketched kernel.

    Args:
        model: As for :func:`tangentlab.sketch`.
        x: N samples: a tensor, a tuple or dict of tensors, or a Dataset.
        targets: (N,), or (N, L) for L functions; with a readout of R > 1 numbers per sample, (N, R).
        k: The number of features.
        f0: The prior mean at the samples, in the shape of the targets.
        ridges: Positive numbers; None for 31 from 1e-9 lambda_max (or above rounding) to lambda_max.
        folder: A folder for features and checkpoints: repeat an interrupted call to resume it, also after ``kill -9``.
            None for a temporary one.
        chunk: Samples per part.
        seconds: Stop reading samples after this time, and fit those that were read.
        error: Stop as soon as the predicted error (:class:`Milestone`) is this small.
        seed: Seed of the projection.
        progress: Whether to show a progress bar; None shows one on a terminal.
        options: Further arguments of :func:`tangentlab.sketch`: readout, dtype, memory_budget and so on.

    Raises:
        TangentError: Targets do not fit, a ridge is not positive, the folder holds another regression.

    Cost: one sketch of N samples and 4 N k^2 operations. Memory: about 40 k^2 bytes and 12 k bytes per sample of a
    part, beside the sketch's. Disk: 4 N R k bytes.

    Examples:
        >>> import torch
        >>> from tangentlab import solvers
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> fit = solvers.sketched_regression(network, x, torch.randn(20, 1), 16, ridges=[0.1, 1.0], progress=False)
        >>> type(fit).__name__
        'SketchedRegression'

    See also:
        :func:`tangentlab.linalg.regress`, :func:`tangentlab.sketch`.
    """
    start, count = time.monotonic(), number_of(x)
    if not isinstance(chunk, int) or isinstance(chunk, bool) or chunk < 1:
        raise TangentError(f"The chunk is {chunk!r}.", "", "Pass a positive number of samples.")
    features: Any = partial(sketch, model, k=k, seed=seed, progress=False, **options)
    first: SketchedKernel = features(rows_of(x, range(min(2, count))))
    readouts, weights = first.readouts, weights_hash(model)
    data = as_targets(count * readouts, readouts if readouts > 1 else None, targets)
    columns = data.columns
    if f0 is not None:
        columns = columns - as_targets(count * readouts, readouts if readouts > 1 else None, f0, "f0").columns
    about = {
        "weights": weights[:16],
        "targets": Digest()(columns)[:16],
        "samples": count,
        "k": k,
        "seed": seed,
        "chunk": chunk,
        "options": repr(sorted((name, str(value)) for name, value in options.items() if name != "memory_budget")),
    }
    with ExitStack() as stack:
        place = Path(folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="tangentlab-")))
        done = Checkpoint.open(place, about, k, columns.shape[1])
        _refuse_other_samples(done, features, x, chunk, readouts)
        history = _accumulate(done, features, x, columns, chunk, readouts, (start, seconds, error, progress))
        found = done.equations.decompose()
        grid = found.grid() if ridges is None else _positive(ridges)
        left_out = torch.zeros(len(grid), dtype=torch.float64)
        for part in range(done.parts):
            rows = slice(part * chunk * readouts, (part + 1) * chunk * readouts)
            left_out += found.left_out(done.get(part).double(), columns[rows], grid)
    measures = found.measures(grid)
    return SketchedRegression(
        ridges=grid,
        leave_one_out=left_out / (found.rows * columns.shape[1]),
        gcv=measures["gcv"],
        train=measures["train"],
        degrees=measures["degrees"],
        norms=measures["norms"],
        samples=found.rows // readouts,
        complete=found.rows == len(columns),
        history=tuple(history),
        _decomposition=found,
        _features=features,
        _weights=weights,
        _maps=first.maps,
        _shape=data.trailing,
        _prior=f0 is not None,
    )


def _accumulate(
    done: Checkpoint,
    features: Any,
    x: Any,
    columns: Tensor,
    chunk: int,
    readouts: int,
    limits: tuple[float, float | None, float | None, bool | None],
) -> list[Milestone]:
    """Add the parts that are missing, with a milestone whenever their number has doubled."""
    start, seconds, error, progress = limits
    count, saved = number_of(x), time.monotonic()
    history = [Milestone(int(a), b, c, d) for a, b, c, d in done.history]
    maps: Any = None
    with progress_bar("Sketched regression", count, progress) as tick:
        tick(min(count, done.parts * chunk))
        for part in range(done.parts, -(-count // chunk)):
            if history and error is not None and history[-1].error <= error:
                break
            if seconds is not None and part and time.monotonic() - start > seconds:
                break
            rows = range(part * chunk, min(count, (part + 1) * chunk))
            made: SketchedKernel = features(rows_of(x, rows))
            if maps is not None and made.maps != maps:
                raise TangentError(
                    f"Samples {rows.start} to {rows.stop - 1} are sketched by another projection.",
                    "The model takes another way for them, so that their gradients come in another form.",
                    "Sketch all samples in one call with tangentlab.sketch, and use linalg.ridge_path.",
                )
            maps = made.maps
            own, y = made.features.cpu(), columns[rows.start * readouts : rows.stop * readouts]
            if part and part & (part - 1) == 0:
                history.append(_milestone(done, own, y, rows.start, start))
                done.history = [list(astuple(milestone)) for milestone in history]
                tick(0, f"predicted error {history[-1].error:.4g}")
            done.put(part, own)
            done.equations.add(own.double(), y)
            if time.monotonic() - saved > _SAVED or rows.stop == count:
                done.save()
                saved = time.monotonic()
            tick(len(rows))
    done.save()
    return history


def _milestone(done: Checkpoint, features: Tensor, targets: Tensor, samples: int, start: float) -> Milestone:
    """Fit what has been read, with the best ridge by generalized cross-validation, and predict the next samples."""
    found = done.equations.decompose()
    grid = found.grid()
    ridge = float(grid[int(found.measures(grid)["gcv"].argmin())])
    residuals = targets - features.double() @ found.weights(ridge)
    return Milestone(samples, ridge, float(residuals.square().mean()), time.monotonic() - start)


def _refuse_other_samples(done: Checkpoint, features: Any, x: Any, chunk: int, readouts: int) -> None:
    """Compare stored features of a few samples with new ones."""
    for part in {0, done.parts - 1} if done.parts else set():
        stored = done.get(part)[: 2 * readouts]
        first = part * chunk
        found = features(rows_of(x, range(first, first + len(stored) // readouts))).features.cpu()
        if float((found - stored).norm()) > _AGREE * float(stored.norm()):
            raise TangentError(
                f"{done.folder} holds another regression: the features of samples {first} and {first + 1} differ.",
                "The model computes something else, or the samples are others.",
                "Choose another folder, or pass what it was begun with.",
            )


def _positive(ridges: Sequence[float] | Tensor) -> Tensor:
    grid = torch.as_tensor(ridges, dtype=torch.float64).flatten().sort().values
    if not len(grid) or not bool(torch.isfinite(grid).all()) or float(grid[0]) <= 0:
        raise TangentError("The ridges are not positive numbers.", remedy="Give positive numbers, or None.")
    return grid
