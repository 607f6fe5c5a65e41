"""Measures of the kernel during training, from callbacks of the training loop."""

from collections.abc import Collection
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab.analysis._alignment import alignment
from tangentlab.analysis._energy import energy_concentration
from tangentlab.analysis._functions import on_samples
from tangentlab.analysis._rotation import rotation
from tangentlab.kernels import NTKOperator, ntk
from tangentlab.kernels.internal import ReadoutLike
from tangentlab.training import Callback, TrainingResult


def spectrum_callback(
    x: Any,
    k: int = 50,
    *,
    readout: ReadoutLike = "pntk",
    epochs: Collection[int] | None = None,
    name: str = "spectrum",
    **options: Any,
) -> Callback:
    """Make a callback that keeps the K leading eigenpairs of the kernel, for :func:`along_training`.

    Its values are plain tensors, (K,) eigenvalues, (N R, K) eigenvectors in float32 and residuals, which checkpoints
    hold, so that a run can be resumed.

    Cost per call: that of :func:`tangentlab.ntk` and of K pairs by :func:`tangentlab.linalg.eigh`. The result of the
    training keeps 4 N R K bytes per call.

    Args:
        x: The samples of the kernel.
        k: K.
        readout: As for :func:`tangentlab.ntk`; the default is the network itself if it has one output.
        epochs: As for :class:`~tangentlab.training.Callback`.
        name: The name of the callback.
        options: For :func:`tangentlab.ntk`: ``dtype``, ``memory_budget`` and so on.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> callback = analysis.spectrum_callback(x, k=5, readout=0)
        >>> spec = training.TrainingSpec(epochs=2, batch_size=10, optimizer=training.SGD(0.1))
        >>> result = training.train(network, (x, y), spec, callbacks=[callback])
        >>> sorted(result.values[callback.name])
        [0, 1, 2]

    See also:
        :func:`tangentlab.analysis.along_training`, :func:`tangentlab.linalg.eigh`.
    """
    options = {"progress": False, **options}

    def measure(model: nn.Module, epoch: int) -> dict[str, Tensor]:
        spectrum = linalg.eigh(ntk(model, x, readout=readout, **options), k, progress=False)
        vectors = spectrum.vectors.float().cpu()
        return {"values": spectrum.values.cpu(), "vectors": vectors, "residuals": spectrum.residuals.cpu()}

    return Callback(name, measure, epochs)


def alignment_callback(
    x: Any,
    functions: Tensor,
    *,
    readout: ReadoutLike = "pntk",
    epochs: Collection[int] | None = None,
    name: str = "alignment",
    **options: Any,
) -> Callback:
    """Make a callback that keeps alignments alpha_t(f) of many functions with the kernel Theta_t, which is not formed.

    With the eigenfunctions of the kernel at initialization these are the curves of ortiz2021, figures 7, 14 and 15.

    Cost per call: that of a new :class:`tangentlab.NTKOperator` and of :func:`alignment` with it, about 2 N P m
    operations.

    Args:
        x: The samples.
        functions: (N, m), see :func:`alignment`.
        readout: As for :class:`tangentlab.NTKOperator`.
        epochs: As for :class:`~tangentlab.training.Callback`.
        name: The name of the callback.
        options: For :class:`tangentlab.NTKOperator`.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> callback = analysis.alignment_callback(x, y.double(), readout=0)
        >>> spec = training.TrainingSpec(epochs=2, batch_size=10, optimizer=training.SGD(0.1))
        >>> result = training.train(network, (x, y), spec, callbacks=[callback])
        >>> sorted(result.values[callback.name])
        [0, 1, 2]

    See also:
        :func:`tangentlab.analysis.alignment`, :func:`tangentlab.analysis.spectrum_callback`,
        :func:`tangentlab.analysis.linearization_callback`.
    """

    linalg.refuse_class_numbers(functions, "functions")

    def measure(model: nn.Module, epoch: int) -> Tensor:
        return alignment(NTKOperator(model, x, readout=readout, **options), functions).cpu()

    return Callback(name, measure, epochs)


def along_training(result: TrainingResult, y: Any, *, k: int | None = None, name: str = "spectrum") -> pd.DataFrame:
    """Compute energy concentration and kernel rotation at the epochs of a :func:`spectrum_callback`.

    Cost: about 12 n K^2 operations and 8 n K bytes per epoch, with n = N R; all epochs are in memory together.

    Args:
        result: A run with such a callback.
        y: The target on the callback's samples, (N,) or (N, 1); (N, R) for a callback with R readouts.
        k: K; by default all pairs that were kept.
        name: The name of the callback.

    Returns:
        One row per epoch: ``epoch``, ``energy`` (:func:`energy_concentration` of y), ``overlap`` and ``largest_angle``
        (:func:`rotation` from the first of the epochs), ``lambda_max`` of the Gram matrix.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> callback = analysis.spectrum_callback(x, k=5, readout=0)
        >>> spec = training.TrainingSpec(epochs=2, batch_size=10, optimizer=training.SGD(0.1))
        >>> result = training.train(network, (x, y), spec, callbacks=[callback])
        >>> len(analysis.along_training(result, 2.0 * y - 1, k=5, name=callback.name))
        3

    See also:
        :func:`tangentlab.analysis.spectrum_callback`, :func:`tangentlab.analysis.rotation`,
        :func:`tangentlab.analysis.energy_concentration`.
    """
    if name not in result.values:
        raise TangentError(
            f"The run has no values of a callback {name!r}.",
            why=f"Its callbacks are: {', '.join(result.values) or 'none'}.",
            remedy="Train with callbacks=[spectrum_callback(x)].",
        )
    spectra = {epoch: _restored(value) for epoch, value in sorted(result.values[name].items())}
    first = next(iter(spectra.values()))
    count = len(first.values) if k is None else k
    if on_samples(first, y).values.shape[1] != 1:
        raise TangentError(
            f"The targets {tuple(torch.as_tensor(y).shape)} are more than one.",
            remedy="Give one target, (N,), for example a column.",
        )
    rows = []
    for epoch, spectrum in spectra.items():
        turn = rotation(first, spectrum, count)
        rows.append(
            {
                "epoch": epoch,
                "energy": float(energy_concentration(spectrum, y, count)),
                "overlap": turn.overlap,
                "largest_angle": float(turn.angles[-1]),
                "lambda_max": float(spectrum.values[0]),
            }
        )
    return pd.DataFrame(rows)


def _restored(value: dict[str, Tensor]) -> linalg.Spectrum:
    # They were kept in float32: orthonormalize them, so that cosines are at most one.
    vectors, upper = torch.linalg.qr(value["vectors"].double())
    vectors = vectors * upper.diagonal().sign()
    return linalg.Spectrum(
        value["values"], vectors, value["residuals"], len(vectors), value["vectors"].dtype, "checkpoint"
    )
