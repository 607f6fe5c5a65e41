"""Outcomes of networks that were really trained on parts of the data, as a batch of tasks that can be resumed."""

import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._files import write_bytes
from tangentlab._progress import progress_bar
from tangentlab._reading import Unreadable
from tangentlab._seeds import generator
from tangentlab._tensor_files import load_numpy
from tangentlab.attribution._checks import check_whole
from tangentlab.attribution._folders import open_folder
from tangentlab.engines import as_engine
from tangentlab.store.internal import Digest

Fit = Callable[[Tensor, int], Any]


@dataclass(frozen=True, eq=False)
class Retrained:
    """What networks trained on parts of the training data give on the test samples.

    Attributes:
        subsets: (S, N) bool, which training samples each network was trained on.
        values: (S, M) float64, the measured values on the test samples, averaged over seeds.
        missing: Tasks (subset, seed) that other shards have not finished; their rows of ``values`` are NaN.
    """

    subsets: Tensor
    values: Tensor
    missing: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        count, samples = self.subsets.shape
        left = f", {len(self.missing)} tasks missing" if self.missing else ""
        return f"Retrained({count} subsets of {samples:,} samples, {self.values.shape[1]:,} test samples{left})"


def retrain(
    fit: Fit,
    samples: int,
    *,
    subsets: int | Iterable[Any] = 50,
    fraction: float = 0.5,
    seeds: int = 1,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    engine: Any = None,
    progress: bool | None = None,
) -> Retrained:
    """Train a network on each of several parts of the training data and measure it on the test samples.

    Each pair of a subset and a seed is one task. A finished task is one file in ``folder``, written completely or not
    at all; rerun to resume, on any engine.

    Args:
        fit: ``fit(indices, seed)`` trains a network on the training samples ``indices`` (a sorted tensor of int64) and
            returns one number per test sample, (M,), for instance the margins. :class:`Retraining` is one. For engines
            with several processes it must be possible to pickle it.
        samples: N, the number of training samples.
        subsets: How many random subsets, or the subsets themselves: indices, or a bool mask, of each.
        fraction: The share of the samples in a random subset.
        seeds: Networks per subset; seeds are 0, 1, ... and their values are averaged.
        seed: Seed of the random subsets.
        folder: Where results are kept. It is refused if it holds those of other subsets or of another ``fit``.
        engine: Where tasks run: None, any ``concurrent.futures.Executor``, or one of :mod:`tangentlab.engines`.
        progress: Whether to show a progress bar; None shows one on a terminal.

    Raises:
        TangentError: Arguments that make no sense, a folder of another retraining, or values that are not finite.

    Cost: one training per task.

    Examples:
        >>> import torch
        >>> from tangentlab import attribution
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> def fit(rows, seed):
        ...     return torch.randn(3, generator=torch.Generator().manual_seed(seed + int(rows[0])))
        ...
        >>> retrained = attribution.retrain(fit, 20, subsets=4, progress=False)
        >>> type(retrained).__name__
        'Retrained'

    See also:
        :func:`tangentlab.attribution.lds`, :class:`tangentlab.attribution.Retraining`.
    """
    masks = _masks(samples, subsets, fraction, seed)
    seeds = check_whole("seeds", seeds, 1)
    place = None if folder is None else _open(folder, fit, masks)
    tasks = [(subset, one) for subset in range(len(masks)) for one in range(seeds)]
    done = {} if place is None else {task: values for task in tasks if (values := _read(place, task)) is not None}
    runner = as_engine(engine)
    waiting = runner.share([task for task in tasks if task not in done])
    with progress_bar("Retraining", len(tasks), progress) as tick:
        tick(len(done))
        calls = [Task(fit, masks[subset].nonzero().flatten(), one) for subset, one in waiting]
        for number, values in runner.run(calls):
            task = waiting[number]
            done[task] = _checked(values, task, done)
            if place is not None:
                _write(place, task, done[task])
            tick()
    missing = tuple(task for task in tasks if task not in done)
    if len(missing) == len(tasks):
        raise TangentError("No task is finished.", remedy="Run the other shards, then rerun.")
    length = len(next(iter(done.values())))
    values = torch.stack([done.get(task, torch.full((length,), torch.nan, dtype=torch.float64)) for task in tasks])
    return Retrained(masks, values.view(len(masks), seeds, length).mean(1), missing)


@dataclass(frozen=True)
class Task:
    """One training, which can be pickled if ``fit`` can."""

    fit: Fit
    indices: Tensor
    seed: int

    def __call__(self) -> Any:
        """Train and measure."""
        return self.fit(self.indices, self.seed)


def _masks(samples: int, subsets: int | Iterable[Any], fraction: float, seed: int) -> Tensor:
    """Return the subsets as a mask, (S, N)."""
    samples = check_whole("samples", samples, 2)
    if isinstance(subsets, Integral) and not isinstance(subsets, bool):
        subsets = int(subsets)
        size = round(fraction * samples) if isinstance(fraction, int | float) and 0 < fraction < 1 else 0
        if subsets < 1 or not 0 < size < samples:
            raise TangentError(
                f"{subsets} subsets of a share of {fraction!r} of {samples:,} samples cannot be drawn.",
                remedy="Pass a positive number of subsets and a fraction between 0 and 1, such as 0.5.",
            )
        masks = torch.zeros(subsets, samples, dtype=torch.bool)
        for number, mask in enumerate(masks):
            mask[torch.randperm(samples, generator=generator("retraining subset", seed, number))[:size]] = True
        return masks
    if not isinstance(subsets, Iterable):
        raise TangentError(f"subsets={subsets!r}.", remedy="Pass a number, or a list of indices or masks.")
    rows = [_mask(part, samples) for part in subsets]
    if not rows:
        raise TangentError("There are no subsets.", remedy="Pass at least one.")
    return torch.stack(rows)


def _mask(part: Any, samples: int) -> Tensor:
    chosen = torch.as_tensor(part)
    if chosen.dtype is torch.bool and chosen.shape == (samples,):
        mask = chosen.clone()
    elif chosen.ndim == 1 and not chosen.is_floating_point() and chosen.dtype is not torch.bool and len(chosen):
        if int(chosen.min()) < 0 or int(chosen.max()) >= samples or len(chosen.unique()) < len(chosen):
            raise TangentError(
                f"A subset names samples outside 0 to {samples - 1}, or one twice.",
                remedy="Pass different indices of training samples.",
            )
        mask = torch.zeros(samples, dtype=torch.bool)
        mask[chosen.long()] = True
    else:
        raise TangentError(
            f"A subset has the shape {tuple(chosen.shape)} and the type {chosen.dtype}.",
            remedy=f"Pass indices, or a bool mask of shape ({samples},).",
        )
    if not bool(mask.any()):
        raise TangentError("A subset is empty.", remedy="Leave at least one sample in it.")
    return mask


def _open(folder: str | os.PathLike[str], fit: Fit, masks: Tensor) -> Path:
    """Create the folder with its manifest, or compare the manifest that is there."""
    described = fit.identity() if hasattr(fit, "identity") else fit
    identity = {"samples": masks.shape[1], "subsets": Digest()(masks), "fit": Digest()(described)}
    return open_folder(folder, "retrained networks", identity)


def _path(place: Path, task: tuple[int, int]) -> Path:
    return place / f"subset-{task[0]:05d}-seed-{task[1]:03d}.npz"


def _read(place: Path, task: tuple[int, int]) -> Tensor | None:
    """Return the values of a finished task. A damaged file is renamed with a warning and computed again."""
    path = _path(place, task)
    if not path.exists():
        return None
    try:
        content = load_numpy(path)
        if not isinstance(content, dict) or "values" not in content or content["values"].ndim != 1:
            raise Unreadable("does not hold the values of a retrained network")
    except Unreadable as error:
        warnings.warn(f"{path} {error}. It is computed again.", stacklevel=3)
        os.replace(path, path.with_suffix(".npz.damaged"))
        return None
    return content["values"].double()


def _write(place: Path, task: tuple[int, int], values: Tensor) -> None:
    write_bytes(_path(place, task), lambda file: np.savez(file, values=values.numpy()))


def _checked(values: Any, task: tuple[int, int], done: dict[tuple[int, int], Tensor]) -> Tensor:
    """Return what ``fit`` gave as (M,) float64."""
    try:
        result = torch.as_tensor(values).detach().cpu().double()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TangentError(
            f"The function fit returned a {type(values).__name__}.",
            remedy="Return one number per test sample, a tensor (M,).",
        ) from error
    expected = next(iter(done.values())).shape if done else result.shape
    if result.ndim != 1 or result.shape != expected or not len(result):
        raise TangentError(
            f"The function fit returned a tensor of shape {tuple(result.shape)} for subset {task[0]}.",
            remedy="Return one number per test sample, a tensor (M,).",
        )
    if not bool(torch.isfinite(result).all()):
        raise TangentError(
            f"The values of subset {task[0]}, seed {task[1]}, are not finite.",
            "The network diverged, or the measure is not defined there.",
            "Lower the learning rate, or measure something that is always finite, such as the logit of the label.",
        )
    return result
